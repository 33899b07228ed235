//! The program's allocator: the system's, with every byte counted, for the whole worker and for the script that runs
//! on a thread.
//!
//! Counting never refuses an ordinary allocation; scripts look at their count and stop themselves (`budget`). Beyond a
//! hard limit the process ends before the memory is taken, so that a script or a model never takes the machine down.
//! Knows no script.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

/// Exit status of a process that ended because a hard limit of memory was reached.
pub const MEMORY_EXIT_STATUS: i32 = 71;

/// A thread reports what it took to the worker's total in steps of this many bytes, so that threads do not share a
/// cache line at every allocation. The total is inexact by so much for each thread.
const REPORT_STEP: i64 = 64 << 10;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static WORKER: AtomicI64 = AtomicI64::new(0);
static WORKER_LIMIT: AtomicI64 = AtomicI64::new(i64::MAX);

thread_local! {
    // Constant and without a destructor: reading it never allocates.
    static THREAD: Counts = const {
        Counts { script: Cell::new(0), script_limit: Cell::new(i64::MAX), unreported: Cell::new(0) }
    };
}

struct Counts {
    script: Cell<i64>,
    script_limit: Cell<i64>,
    unreported: Cell<i64>,
}

struct CountingAllocator;

// SAFETY: every call is passed to the system's allocator with its arguments unchanged; counting touches no memory that
// is handed out, does not allocate and does not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block lives until its content has moved.
        take(size);
        // SAFETY: the caller keeps `realloc`'s contract.
        let moved = given(unsafe { System.realloc(pointer, layout, size) }, size);
        if !moved.is_null() {
            give_back(layout.size());
        }
        moved
    }
}

fn given(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        give_back(size);
    }
    pointer
}

fn take(size: usize) {
    // A layout is never larger than `isize::MAX`.
    let size = size as i64;
    // `try_with` fails only while a thread ends; what it takes then goes uncounted.
    let _ = THREAD.try_with(|thread| {
        let script = thread.script.get() + size;
        if script > thread.script_limit.get() {
            end("a script's memory", "script_memory_bytes", script, thread.script_limit.get());
        }
        thread.script.set(script);
        let worker = report(thread, size);
        let limit = WORKER_LIMIT.load(Ordering::Relaxed);
        if worker.is_some_and(|worker| worker > limit) {
            end("the worker's memory", "worker_memory_bytes", worker.unwrap_or(limit), limit);
        }
    });
}

fn give_back(size: usize) {
    let _ = THREAD.try_with(|thread| {
        thread.script.set(thread.script.get() - size as i64);
        report(thread, -(size as i64));
    });
}

/// Adds to the worker's total once enough has come together; returns the total then.
fn report(thread: &Counts, bytes: i64) -> Option<i64> {
    let unreported = thread.unreported.get() + bytes;
    if unreported.abs() < REPORT_STEP {
        thread.unreported.set(unreported);
        return None;
    }
    thread.unreported.set(0);
    Some(WORKER.fetch_add(unreported, Ordering::Relaxed) + unreported)
}

/// Ends the process with one line on standard error, without allocating.
fn end(whose: &str, setting: &str, bytes: i64, limit: i64) -> ! {
    let mut line = [0u8; 200];
    let length = line.len();
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "out of memory: {whose} would be {bytes} bytes, the limit is {limit} (`{setting}`); the worker ends"
    );
    let unused = rest.len();
    let _ = nix::unistd::write(std::io::stderr(), &line[..length - unused]);
    // SAFETY: `_exit` takes any status, runs no destructor and no handler, and does not return.
    unsafe { nix::libc::_exit(MEMORY_EXIT_STATUS) }
}

/// Bytes on the heap of the whole process, to within 64 KiB a thread.
pub fn worker_bytes() -> u64 {
    u64::try_from(WORKER.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Ends the process once its heap would grow beyond `bytes`; 0 is no limit.
pub fn limit_worker(bytes: u64) {
    let limit = if bytes == 0 { i64::MAX } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
    WORKER_LIMIT.store(limit, Ordering::Relaxed);
}

/// Bytes that this thread took and did not give back since counting began with [`Counting::begin`].
pub(super) fn script_bytes() -> i64 {
    THREAD.with(|thread| thread.script.get())
}

/// A stretch of this thread's work that is counted on its own; dropping it goes on with the count before.
pub(super) struct Counting {
    script: i64,
    script_limit: i64,
}

impl Counting {
    /// Counts from `held` bytes; beyond `limit` the process ends.
    pub(super) fn begin(held: i64, limit: u64) -> Self {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        THREAD.with(|thread| Counting {
            script: thread.script.replace(held),
            script_limit: thread.script_limit.replace(limit),
        })
    }
}

impl Drop for Counting {
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
    fn a_stretch_of_work_is_counted_on_its_own() {
        let outer = Counting::begin(0, u64::MAX);
        let kept = vec![0u8; 1000];
        let inner = Counting::begin(0, u64::MAX);
        let more = vec![0u8; 500];
        assert_eq!(script_bytes(), 500);
        drop(more);
        assert_eq!(script_bytes(), 0);
        drop(inner);
        assert_eq!(script_bytes(), 1000);
        drop(kept);
        assert_eq!(script_bytes(), 0);
        drop(outer);
    }

    /// Runs the ignored test `name` in a process of its own; gives its status and standard error.
    fn alone(name: &str) -> (Option<i32>, String) {
        let name = format!("{}::{name}", module_path!().split_once("::").map_or("", |(_, path)| path));
        let program = std::env::current_exe().unwrap();
        let output = assert_cmd::Command::new(program).args(["--ignored", "--exact", &name, "--nocapture"]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    #[ignore = "ends its process: run by `beyond_a_hard_limit_the_process_ends_with_a_line`"]
    fn takes_more_than_the_worker_may() {
        limit_worker(worker_bytes() + (32 << 20));
        std::hint::black_box(vec![0u8; 64 << 20]);
    }

    #[test]
    #[ignore = "ends its process: run by `beyond_a_hard_limit_the_process_ends_with_a_line`"]
    fn takes_more_than_a_script_may() {
        let _counting = Counting::begin(0, 1 << 20);
        std::hint::black_box(vec![0u8; 2 << 20]);
    }

    #[test]
    fn beyond_a_hard_limit_the_process_ends_with_a_line() {
        for (name, whose) in [
            ("takes_more_than_the_worker_may", "out of memory: the worker's memory would be "),
            ("takes_more_than_a_script_may", "out of memory: a script's memory would be "),
        ] {
            let (status, said) = alone(name);
            assert_eq!(status, Some(MEMORY_EXIT_STATUS), "{said}");
            assert!(said.contains(whose), "{said}");
        }
    }

    #[test]
    fn the_worker_total_follows_large_blocks() {
        let large = vec![1u8; 64 << 20];
        assert!(worker_bytes() >= 64 << 20);
        drop(large);
    }
}
