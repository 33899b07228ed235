//! Interruption by Ctrl-C and termination signals, as a flag to poll.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use flagperf_core::exit_code;

/// A flag that is set when the run is interrupted.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    reason: Arc<Mutex<Option<String>>>,
    last_actions: Arc<Mutex<LastActions>>,
}

/// What a second signal does before it ends the program, in this order.
#[derive(Default)]
struct LastActions(Vec<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for LastActions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastActions")
    }
}

impl Interrupt {
    /// Installs signal handlers: the first SIGINT, SIGTERM, SIGQUIT or SIGHUP sets the flag, and the second one ends the
    /// program, after the actions of [`Interrupt::before_exit`]; a further one does not wait for them. The workers then read
    /// the end of their input and end too. SIGHUP is never the second one: a terminal sends it more than once when it closes.
    ///
    /// # Errors
    /// When the system rejects a handler, or a thread cannot be started.
    pub fn install() -> io::Result<Self> {
        let (interrupt, is_ending) = (Interrupt::default(), Arc::new(AtomicBool::new(false)));
        let (mut signals, sender) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGQUIT] {
            flag::register_conditional_shutdown(signal, i32::from(exit_code::INTERRUPTED), Arc::clone(&is_ending))?;
            pipe::register(signal, sender.try_clone()?)?;
        }
        flag::register(SIGHUP, Arc::clone(&interrupt.is_set))?;
        let handled = interrupt.clone();
        // A handler may neither lock nor write a message, so a thread does.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while signals.read_exact(&mut [0]).is_ok() {
                if handled.is_set.swap(true, Ordering::Relaxed) {
                    is_ending.store(true, Ordering::Relaxed);
                    handled.take_last_actions().into_iter().for_each(|action| action());
                    signal_hook::low_level::exit(i32::from(exit_code::INTERRUPTED));
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Adds to what a second signal does before it ends the program.
    pub fn before_exit(&self, action: impl FnOnce() + Send + 'static) {
        self.last_actions.lock().unwrap_or_else(PoisonError::into_inner).0.push(Box::new(action));
    }

    fn take_last_actions(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.last_actions.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Whether a signal was received.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sets the flag because what is measured cannot go on, for this reason: the case has then failed with it.
    pub fn fail(&self, reason: String) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.set();
    }

    /// Returns why what is measured cannot go on, if that is why the flag is set.
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the flag as a signal does.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }
}

/// Ends the program with [`exit_code::INTERRUPTED`] at a signal, until the value is dropped: for work before the first
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
            flag::register_conditional_shutdown(signal, i32::from(exit_code::INTERRUPTED), Arc::clone(&is_active))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_before_the_exit_is_taken_once_in_order() {
        let (interrupt, log) = (Interrupt::default(), Arc::new(Mutex::new(Vec::new())));
        for name in ["the terminal is given back", "the hosts are named"] {
            let log = Arc::clone(&log);
            interrupt.before_exit(move || log.lock().unwrap().push(name));
        }
        interrupt.take_last_actions().into_iter().for_each(|action| action());
        assert_eq!(*log.lock().unwrap(), ["the terminal is given back", "the hosts are named"]);
        assert_eq!(interrupt.take_last_actions().len(), 0);
    }
}
