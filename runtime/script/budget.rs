//! What a script may use in one call: wall time and memory, looked at as it runs and by native functions before they
//! allocate.
//!
//! Reads the host's clock only; knows no package.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::measure::{Clock, Nanos};
use crate::plan::Limits;

use super::allocator::{Counting, script_bytes};
use super::sandbox::lock;

/// Memory that a script may hold beyond its limit before the process ends: between two looks at the count a script
/// can copy one value, and no value is larger than this.
const SLACK_BYTES: u64 = 256 << 20;

/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u64 = 256;

/// The budget of one script; started anew for every call.
pub(super) struct Budget {
    limits: Limits,
    clock: Arc<dyn Clock>,
    /// When the running call has used its time, by the clock.
    deadline: AtomicU64,
    /// Operations of the running call, those of callbacks included.
    operations: AtomicU64,
    /// Bytes of tensors that scripts hold: counted by what they are, because they may lie on a device.
    tensors: AtomicI64,
    /// Bytes on the heap that earlier calls took and did not give back.
    left: AtomicI64,
    /// Those, and those of tensors, when the running call began.
    earlier: AtomicI64,
    /// Why the running call ended. It stays: some of Rhai's functions swallow the errors of their callbacks.
    spent: Mutex<Option<Spent>>,
    is_spent: AtomicBool,
}

/// The budget is used up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Spent {
    #[error("the script took more than {0} operations (`script_operations`)")]
    Operations(u64),
    #[error("the script ran longer than {0} s (`script_time_s`)")]
    Time(f64),
    #[error("the script holds {held} bytes of memory, its limit is {limit} (`script_memory_bytes`){}", left_behind(.earlier))]
    Memory { held: u64, limit: u64, earlier: u64 },
    #[error("{asked} bytes asked for, the script may hold {limit} in all (`script_memory_bytes`)")]
    Request { asked: u64, limit: u64 },
}

/// Why memory of earlier calls may still be held.
fn left_behind(earlier: &u64) -> String {
    if *earlier == 0 {
        return String::new();
    }
    format!(
        "; {earlier} of them since earlier calls: does a closure capture the array or the map that it is stored in?"
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
            left: AtomicI64::new(0),
            earlier: AtomicI64::new(0),
            spent: Mutex::default(),
            is_spent: AtomicBool::new(false),
        })
    }

    /// Starts the budget of one call; the call's memory is counted until the returned value is dropped. What earlier
    /// calls left behind counts as held.
    pub(super) fn start(&self) -> Counting {
        let time = (self.limits.script_time_s.0 * 1e9) as u64;
        self.deadline.store(self.clock.now().0.saturating_add(time), Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        self.earlier.store(left + self.tensors.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_spent.store(false, Ordering::Relaxed);
        Counting::begin(left, self.limits.script_memory_bytes.0.saturating_add(SLACK_BYTES))
    }

    /// Takes what the running call still holds as left behind: everything that it was to give is the host's by now, so
    /// nobody will give the rest back.
    pub(super) fn leave(&self) {
        self.left.store(script_bytes().max(0), Ordering::Relaxed);
    }

    /// Bytes on the heap that earlier calls left behind.
    #[cfg(test)]
    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Called at every operation of a script.
    pub(super) fn progress(&self) -> Result<(), Spent> {
        let operation = self.operations.load(Ordering::Relaxed) + 1;
        self.operations.store(operation, Ordering::Relaxed);
        let limit = self.limits.script_operations;
        if limit > 0 && operation > limit {
            return self.end(Spent::Operations(limit));
        }
        if operation.is_multiple_of(OPERATIONS_PER_LOOK) { self.check() } else { self.check_memory() }
    }

    /// Whether there is time and memory left.
    pub(super) fn check(&self) -> Result<(), Spent> {
        if self.clock.now().0 > self.deadline.load(Ordering::Relaxed) {
            return self.end(Spent::Time(self.limits.script_time_s.0));
        }
        self.check_memory()
    }

    fn check_memory(&self) -> Result<(), Spent> {
        let (held, limit) = (self.held(), self.limits.script_memory_bytes.0);
        if held > limit {
            let earlier = u64::try_from(self.earlier.load(Ordering::Relaxed)).unwrap_or(0);
            return self.end(Spent::Memory { held, limit, earlier });
        }
        self.ended().map_or(Ok(()), Err)
    }

    fn end(&self, spent: Spent) -> Result<(), Spent> {
        self.is_spent.store(true, Ordering::Relaxed);
        Err(lock(&self.spent).insert(spent).clone())
    }

    /// Why the running call has no budget left, if so.
    pub(super) fn ended(&self) -> Option<Spent> {
        if self.is_spent.load(Ordering::Relaxed) { lock(&self.spent).clone() } else { None }
    }

    fn held(&self) -> u64 {
        u64::try_from(script_bytes() + self.tensors.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether `bytes` more may be allocated: native functions ask before they do.
    pub(super) fn ask(&self, bytes: u64) -> Result<(), Spent> {
        self.check()?;
        let limit = self.limits.script_memory_bytes.0;
        if self.held().saturating_add(bytes) > limit {
            return self.end(Spent::Request { asked: bytes, limit });
        }
        Ok(())
    }

    /// Counts `bytes` of a tensor (negative: gives them back).
    pub(super) fn count_tensor(&self, bytes: i64) {
        self.tensors.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs something whose memory is asked for and counted by itself.
    pub(super) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
        let counting = Counting::begin(0, u64::MAX);
        let done = work();
        drop(counting);
        done
    }

    /// Runs something that is not the script's own (a model, reading a file's header): its time and memory are not
    /// counted.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = self.clock.now();
        let done = Self::uncounted(work);
        let Nanos(end) = self.clock.now();
        self.deadline.fetch_add(end.saturating_sub(begin.0), Ordering::Relaxed);
        done
    }
}
