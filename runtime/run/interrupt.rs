//! Interruption by Ctrl-C and termination signals, as a flag to poll.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use super::RunOutcome;

/// A flag that is set when the run is interrupted.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs signal handlers: the first SIGINT, SIGTERM, SIGQUIT or SIGHUP sets the flag, and the second one ends the
    /// program immediately. The workers then read the end of their input and end too. SIGHUP is never the second one:
    /// a terminal sends it more than once when it closes.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn install() -> io::Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGQUIT] {
            // The order matters: a signal is first checked against the flag, which only then is set.
            flag::register_conditional_shutdown(signal, i32::from(RunOutcome::INTERRUPTED), Arc::clone(&interrupt.0))?;
            flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        flag::register(SIGHUP, Arc::clone(&interrupt.0))?;
        Ok(interrupt)
    }

    /// Whether a signal was received.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag as a signal does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the program with [`RunOutcome::INTERRUPTED`] at a signal, until the value is dropped: for work before the first
/// case, of which nothing has to be kept. Processes that the program started end with their input.
#[derive(Debug)]
pub struct ExitOnSignal(Arc<AtomicBool>);

impl ExitOnSignal {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn install() -> io::Result<Self> {
        let is_active = Arc::new(AtomicBool::new(true));
        for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
            flag::register_conditional_shutdown(signal, i32::from(RunOutcome::INTERRUPTED), Arc::clone(&is_active))?;
        }
        Ok(ExitOnSignal(is_active))
    }
}

impl Drop for ExitOnSignal {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) return an error instead of ending the program with SIGXFSZ.
/// Rust programs already ignore SIGPIPE.
///
/// # Errors
/// When the system rejects the handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}
