//! Ctrl-C and termination, as a value to look at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use super::Outcome;

/// Whether somebody wants the run to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT, SIGTERM, SIGQUIT or SIGHUP is noted here, and the second one ends the program at once
    /// (workers then see their input end, and end too). SIGHUP is never the second: a terminal that closes sends it more
    /// than once, and nobody is there to be in a hurry.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn install() -> io::Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGQUIT] {
            // In this order: a signal first meets the flag of the one before it, then sets it.
            flag::register_conditional_shutdown(signal, i32::from(Outcome::INTERRUPTED), Arc::clone(&interrupt.0))?;
            flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        flag::register(SIGHUP, Arc::clone(&interrupt.0))?;
        Ok(interrupt)
    }

    /// Whether the signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// As if the signal had come.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// From now on a write beyond the largest file size (`ulimit -f`) fails, where it would have ended the program. (A write
/// that nobody reads, SIGPIPE, fails in every program of Rust.)
///
/// # Errors
/// When the system refuses a handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}
