//! Work that the system may never let return (a file of a hung network, a process in the kernel's hands), waited for
//! only as long as the caller wants.

use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

/// How often the caller is asked whether it still waits.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `work` in a thread of its own and waits for it while `waits` says so. `None` when the wait was given up, or
/// `work` panicked; a thread that was given up goes on, for nothing can end it.
pub fn run_while<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    mut waits: impl FnMut() -> bool,
) -> Option<T> {
    let (sender, done) = crossbeam_channel::bounded(1);
    thread::spawn(move || {
        // Nobody waits any more when this fails.
        let _ = sender.send(work());
    });
    loop {
        match done.recv_timeout(LOOK) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if waits() => {}
            Err(RecvTimeoutError::Timeout) => return None,
        }
    }
}

/// As [`run_while`], for at most `looks` looks of 20 ms.
pub(super) fn run_for<T: Send + 'static>(looks: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let mut left = looks;
    run_while(work, || {
        left = left.saturating_sub(1);
        left > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_return_is_given_up() {
        assert_eq!(run_while(|| 5, || true), Some(5));
        assert_eq!(
            run_for(2, || -> u8 {
                loop {
                    thread::park()
                }
            }),
            None
        );
        assert_eq!(run_while(|| -> u8 { std::panic::resume_unwind(Box::new(())) }, || true), None);
    }
}
