//! Detects whether standard output was closed when the program started (`flagperf run >&-`).
//!
//! Before `main`, Rust's standard library opens /dev/null in place of a closed standard output. Every write then
//! succeeds, and a lost report looks like one that was printed. The state is therefore read before the standard library
//! changes it.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls the functions in this section before the standard library starts.
#[used]
// SAFETY: the section contains pointers to functions of the C calling convention, and this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_START: extern "C" fn() = examine_stdout;

extern "C" fn examine_stdout() {
    // SAFETY: F_GETFD takes no argument and changes nothing; it fails only for a descriptor that is not open.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Returns whether standard output was closed when the program started.
pub(super) fn stdout_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
