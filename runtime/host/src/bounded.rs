//! Runs work that may never return (a file on a hung network, a process stuck in the kernel) and waits only as long as
//! the caller wants.

use std::thread;

use crossbeam_channel::RecvTimeoutError;

use super::child::POLL_INTERVAL;

/// Runs `work` in a thread of its own and waits for it as long as `waits` returns true. Returns `None` when the wait is
/// abandoned or `work` panics. An abandoned thread goes on, because nothing can end it.
pub fn run_while<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    mut waits: impl FnMut() -> bool,
) -> Option<T> {
    let (sender, done) = crossbeam_channel::bounded(1);
    thread::spawn(move || {
        // This fails when the wait was abandoned.
        let _ = sender.send(work());
    });
    loop {
        match done.recv_timeout(POLL_INTERVAL) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if waits() => {}
            Err(RecvTimeoutError::Timeout) => return None,
        }
    }
}

/// Runs `work` as [`run_while`] does, for at most `polls` polls of 20 ms.
pub(super) fn run_for<T: Send + 'static>(polls: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let mut left = polls;
    run_while(work, || {
        left = left.saturating_sub(1);
        left > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_return_is_abandoned() {
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
