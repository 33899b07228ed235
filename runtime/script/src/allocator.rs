//! The program's global allocator: the system allocator, with the heap of the whole worker and of the script running on
//! each thread counted in bytes.
//!
//! Counting never refuses an ordinary allocation: `budget` compares a script's count with its limit and stops the
//! script. Beyond a hard limit the process exits before the memory is allocated, so that neither a script nor a model
//! can take the machine down. Knows nothing about the content of scripts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

/// Exit status of a process that reached a hard memory limit.
pub const MEMORY_EXIT_STATUS: i32 = 71;

/// A thread adds to the worker's total in steps of this many bytes, so that threads do not contend for one cache line
/// at every allocation. The total is therefore inexact by up to this amount per thread.
const REPORT_STEP: i64 = 64 << 10;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static WORKER: AtomicI64 = AtomicI64::new(0);
static WORKER_LIMIT: AtomicI64 = AtomicI64::new(i64::MAX);

thread_local! {
    // Constant-initialised and without a destructor, so that reading it never allocates.
    static THREAD: ThreadCounters = const {
        ThreadCounters { script: Cell::new(0), script_limit: Cell::new(i64::MAX), unreported: Cell::new(0) }
    };
}

struct ThreadCounters {
    script: Cell<i64>,
    script_limit: Cell<i64>,
    unreported: Cell<i64>,
}

struct CountingAllocator;

// SAFETY: every call is forwarded to the system allocator with unchanged arguments. Counting does not touch the
// allocated memory, does not allocate and does not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        uncount_if_null(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        uncount_if_null(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_release(layout.size());
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks count until the content has moved, because the old one is freed only then.
        count_allocation(size);
        // SAFETY: the caller upholds the contract of `realloc`.
        let moved = uncount_if_null(unsafe { System.realloc(pointer, layout, size) }, size);
        if !moved.is_null() {
            count_release(layout.size());
        }
        moved
    }
}

fn uncount_if_null(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        count_release(size);
    }
    pointer
}

fn count_allocation(size: usize) {
    // A layout is never larger than `isize::MAX`.
    let size = size as i64;
    // `try_with` fails only while a thread exits; its allocations are not counted then.
    let _ = THREAD.try_with(|thread| {
        let script = thread.script.get() + size;
        if script > thread.script_limit.get() {
            exit_out_of_memory("a script's memory", "script_memory_bytes", script, thread.script_limit.get());
        }
        thread.script.set(script);
        let worker = add_to_worker_total(thread, size);
        let limit = WORKER_LIMIT.load(Ordering::Relaxed);
        if worker.is_some_and(|worker| worker > limit) {
            exit_out_of_memory("the worker's memory", "worker_memory_bytes", worker.unwrap_or(limit), limit);
        }
    });
}

fn count_release(size: usize) {
    let _ = THREAD.try_with(|thread| {
        thread.script.set(thread.script.get() - size as i64);
        add_to_worker_total(thread, -(size as i64));
    });
}

/// Adds `bytes` to the worker's total once [`REPORT_STEP`] bytes have accumulated, and then returns the total.
fn add_to_worker_total(thread: &ThreadCounters, bytes: i64) -> Option<i64> {
    let unreported = thread.unreported.get() + bytes;
    if unreported.abs() < REPORT_STEP {
        thread.unreported.set(unreported);
        return None;
    }
    thread.unreported.set(0);
    Some(WORKER.fetch_add(unreported, Ordering::Relaxed) + unreported)
}

/// Exits the process after one line on standard error, without allocating.
fn exit_out_of_memory(whose: &str, setting: &str, bytes: i64, limit: i64) -> ! {
    let mut line = [0u8; 200];
    let length = line.len();
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "out of memory: {whose} would reach {bytes} bytes, the limit is {limit} (`{setting}`); the worker exits"
    );
    let unused = rest.len();
    let _ = nix::unistd::write(std::io::stderr(), &line[..length - unused]);
    // SAFETY: `_exit` takes any status, runs no destructor and no handler, and does not return.
    unsafe { nix::libc::_exit(MEMORY_EXIT_STATUS) }
}

/// Returns the bytes on the heap of the whole process, accurate to 64 KiB per thread.
pub fn worker_heap_bytes() -> u64 {
    u64::try_from(WORKER.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Makes the process exit before its heap grows beyond `bytes`; 0 means no limit.
pub fn limit_worker_memory(bytes: u64) {
    let limit = if bytes == 0 { i64::MAX } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
    WORKER_LIMIT.store(limit, Ordering::Relaxed);
}

/// Returns the bytes that this thread has allocated and not freed since the current [`MemoryScope::begin`].
pub(super) fn script_heap_bytes() -> i64 {
    THREAD.with(|thread| thread.script.get())
}

/// A scope in which this thread's allocations are counted separately; dropping it restores the previous count.
pub(super) struct MemoryScope {
    script: i64,
    script_limit: i64,
}

impl MemoryScope {
    /// Starts counting at `held` bytes; the process exits when the count would exceed `limit`.
    pub(super) fn begin(held: i64, limit: u64) -> Self {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        THREAD.with(|thread| MemoryScope {
            script: thread.script.replace(held),
            script_limit: thread.script_limit.replace(limit),
        })
    }
}

impl Drop for MemoryScope {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            thread.script.set(self.script);
            thread.script_limit.set(self.script_limit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_counts_its_own_allocations() {
        let outer = MemoryScope::begin(0, u64::MAX);
        let kept = vec![0u8; 1000];
        let inner = MemoryScope::begin(0, u64::MAX);
        let more = vec![0u8; 500];
        assert_eq!(script_heap_bytes(), 500);
        drop(more);
        assert_eq!(script_heap_bytes(), 0);
        drop(inner);
        assert_eq!(script_heap_bytes(), 1000);
        drop(kept);
        assert_eq!(script_heap_bytes(), 0);
        drop(outer);
    }

    /// Runs the ignored test `name` in its own process and returns the exit status and standard error.
    fn run_in_own_process(name: &str) -> (Option<i32>, String) {
        let name = format!("{}::{name}", module_path!().split_once("::").map_or("", |(_, path)| path));
        let program = std::env::current_exe().unwrap();
        let output = assert_cmd::Command::new(program).args(["--ignored", "--exact", &name, "--nocapture"]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    #[ignore = "exits its process: run by `beyond_a_hard_limit_the_process_exits_with_one_line`"]
    fn allocates_more_than_the_worker_limit() {
        limit_worker_memory(worker_heap_bytes() + (32 << 20));
        std::hint::black_box(vec![0u8; 64 << 20]);
    }

    #[test]
    #[ignore = "exits its process: run by `beyond_a_hard_limit_the_process_exits_with_one_line`"]
    fn allocates_more_than_the_script_limit() {
        let _memory_scope = MemoryScope::begin(0, 1 << 20);
        std::hint::black_box(vec![0u8; 2 << 20]);
    }

    #[test]
    fn beyond_a_hard_limit_the_process_exits_with_one_line() {
        for (name, expected) in [
            ("allocates_more_than_the_worker_limit", "out of memory: the worker's memory would reach "),
            ("allocates_more_than_the_script_limit", "out of memory: a script's memory would reach "),
        ] {
            let (status, stderr) = run_in_own_process(name);
            assert_eq!(status, Some(MEMORY_EXIT_STATUS), "{stderr}");
            assert!(stderr.contains(expected), "{stderr}");
        }
    }

    #[test]
    fn the_worker_total_includes_large_blocks() {
        let large = vec![1u8; 64 << 20];
        assert!(worker_heap_bytes() >= 64 << 20);
        drop(large);
    }
}
