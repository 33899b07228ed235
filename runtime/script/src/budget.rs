//! The limits of one call of a script: operations, wall time and memory. They are checked while the script runs, and by
//! native functions before they allocate.
//!
//! Reads only the host's clock. Knows nothing about packages.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flagperf_core::limits::Limits;
use flagperf_core::measure::{Clock, Nanos};

use super::allocator::{MemoryScope, script_heap_bytes};
use super::sandbox::lock;

/// Bytes that a script may hold beyond its limit before the process exits: between two checks, a script can copy one
/// value, and no value is larger than this.
const SLACK_BYTES: u64 = 256 << 20;

/// Operations between two reads of the clock.
const OPERATIONS_PER_CHECK: u64 = 256;

/// The budget of one script, reset at the start of every call.
pub(super) struct Budget {
    limits: Limits,
    clock: Arc<dyn Clock>,
    /// When the time of the running call is used up, in nanoseconds of the clock.
    deadline: AtomicU64,
    /// Operations of the running call, including those of callbacks.
    operations: AtomicU64,
    /// Bytes of tensors that the script holds: computed from their specs, because they may be in device memory.
    tensors: AtomicI64,
    /// Heap bytes that earlier calls allocated and did not free.
    leaked: AtomicI64,
    /// Bytes that the script held when the running call began: leaked heap and tensors.
    held_at_start: AtomicI64,
    /// The limit that the running call exceeded. Kept here because some Rhai functions swallow the errors of callbacks.
    exceeded: Mutex<Option<BudgetExceeded>>,
    is_exceeded: AtomicBool,
}

/// The limit that a script exceeded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum BudgetExceeded {
    #[error("the script ran more than {0} operations (`script_operations`)")]
    Operations(u64),
    #[error("the script ran longer than {0} s (`script_time_s`)")]
    Time(f64),
    #[error("the script holds {held} bytes of memory; the limit is {limit} (`script_memory_bytes`){}", earlier_calls_hint(.held_at_start))]
    Memory { held: u64, limit: u64, held_at_start: u64 },
    #[error("the script requested {requested} bytes, but may hold only {limit} in total (`script_memory_bytes`)")]
    Request { requested: u64, limit: u64 },
}

/// Returns the hint about memory held since earlier calls; empty when there is none.
fn earlier_calls_hint(held_at_start: &u64) -> String {
    if *held_at_start == 0 {
        return String::new();
    }
    format!(
        "; {held_at_start} of them have been held since earlier calls: does a closure capture the array or map that it \
         is stored in?"
    )
}

impl Budget {
    pub(super) fn new(limits: Limits, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Budget {
            limits,
            clock,
            deadline: AtomicU64::new(u64::MAX),
            operations: AtomicU64::new(0),
            tensors: AtomicI64::new(0),
            leaked: AtomicI64::new(0),
            held_at_start: AtomicI64::new(0),
            exceeded: Mutex::default(),
            is_exceeded: AtomicBool::new(false),
        })
    }

    /// Returns the limits of one call.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Starts the budget of one call. The memory of the call is counted until the returned value is dropped; memory
    /// that earlier calls leaked counts as held.
    pub(super) fn start(&self) -> MemoryScope {
        let time = (self.limits.script_time_s.0 * 1e9) as u64;
        self.deadline.store(self.clock.now().0.saturating_add(time), Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
        let leaked = self.leaked.load(Ordering::Relaxed);
        self.held_at_start.store(leaked + self.tensors.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_exceeded.store(false, Ordering::Relaxed);
        MemoryScope::begin(leaked, self.limits.script_memory_bytes.0.saturating_add(SLACK_BYTES))
    }

    /// Records as leaked what the running call still holds: the host has already converted and dropped the return
    /// value, so nothing will free the rest.
    pub(super) fn record_leak(&self) {
        self.leaked.store(script_heap_bytes().max(0), Ordering::Relaxed);
    }

    /// Returns the heap bytes that earlier calls leaked.
    #[cfg(test)]
    pub(super) fn leaked_bytes(&self) -> i64 {
        self.leaked.load(Ordering::Relaxed)
    }

    /// Counts one operation of the script and checks the limits; called at every operation.
    pub(super) fn progress(&self) -> Result<(), BudgetExceeded> {
        let operation = self.operations.load(Ordering::Relaxed) + 1;
        self.operations.store(operation, Ordering::Relaxed);
        let limit = self.limits.script_operations;
        if limit > 0 && operation > limit {
            return self.record_exceeded(BudgetExceeded::Operations(limit));
        }
        if operation.is_multiple_of(OPERATIONS_PER_CHECK) { self.check() } else { self.check_memory() }
    }

    /// Checks the limits of time and memory.
    pub(super) fn check(&self) -> Result<(), BudgetExceeded> {
        if self.clock.now().0 > self.deadline.load(Ordering::Relaxed) {
            return self.record_exceeded(BudgetExceeded::Time(self.limits.script_time_s.0));
        }
        self.check_memory()
    }

    fn check_memory(&self) -> Result<(), BudgetExceeded> {
        let (held, limit) = (self.held_bytes(), self.limits.script_memory_bytes.0);
        if held > limit {
            let held_at_start = u64::try_from(self.held_at_start.load(Ordering::Relaxed)).unwrap_or(0);
            return self.record_exceeded(BudgetExceeded::Memory { held, limit, held_at_start });
        }
        self.exceeded().map_or(Ok(()), Err)
    }

    fn record_exceeded(&self, exceeded: BudgetExceeded) -> Result<(), BudgetExceeded> {
        self.is_exceeded.store(true, Ordering::Relaxed);
        Err(lock(&self.exceeded).insert(exceeded).clone())
    }

    /// Returns the limit that the running call exceeded, if any.
    pub(super) fn exceeded(&self) -> Option<BudgetExceeded> {
        if self.is_exceeded.load(Ordering::Relaxed) { lock(&self.exceeded).clone() } else { None }
    }

    fn held_bytes(&self) -> u64 {
        u64::try_from(script_heap_bytes() + self.tensors.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Checks whether `bytes` more may be allocated; native functions call this before they allocate.
    pub(super) fn check_request(&self, bytes: u64) -> Result<(), BudgetExceeded> {
        self.check()?;
        let limit = self.limits.script_memory_bytes.0;
        if self.held_bytes().saturating_add(bytes) > limit {
            return self.record_exceeded(BudgetExceeded::Request { requested: bytes, limit });
        }
        Ok(())
    }

    /// Returns the bytes that the script may still allocate.
    pub(super) fn free_bytes(&self) -> u64 {
        self.limits.script_memory_bytes.0.saturating_sub(self.held_bytes())
    }

    /// Records that the script requested `requested` bytes, more than it may hold.
    pub(super) fn exceed_request(&self, requested: u64) -> BudgetExceeded {
        let exceeded = BudgetExceeded::Request { requested, limit: self.limits.script_memory_bytes.0 };
        self.record_exceeded(exceeded.clone()).err().unwrap_or(exceeded)
    }

    /// Adds `bytes` to the bytes of tensors; a negative number subtracts them.
    pub(super) fn count_tensor(&self, bytes: i64) {
        self.tensors.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs `work` without counting its allocations: those that belong to the script are counted separately.
    pub(super) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
        let memory_scope = MemoryScope::begin(0, u64::MAX);
        let result = work();
        drop(memory_scope);
        result
    }

    /// Runs `work` that is not the script's own (running a model, reading the header of a file): neither its time nor
    /// its memory counts.
    pub(super) fn paused<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = self.clock.now();
        let result = Self::uncounted(work);
        let Nanos(end) = self.clock.now();
        self.deadline.fetch_add(end.saturating_sub(begin.0), Ordering::Relaxed);
        result
    }
}
