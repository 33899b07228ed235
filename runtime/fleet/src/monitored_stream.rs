//! Watches the streams of a launcher's program until its agent runs: one that is silent or too slow is given up.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::transfer_rate::{is_too_slow, slow_reason};
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::units::Seconds;

/// The input or output of a launcher's program. Each read and each write counts its bytes and reports activity.
pub(super) struct MonitoredStream<T> {
    inner: T,
    bytes: Arc<AtomicU64>,
    activity: Sender<()>,
}

impl<T> MonitoredStream<T> {
    pub(super) fn new(inner: T, bytes: Arc<AtomicU64>, activity: Sender<()>) -> Self {
        MonitoredStream { inner, bytes, activity }
    }

    /// Reports no activity any more.
    pub(super) fn stop(&mut self) {
        self.activity = bounded(0).0;
    }

    fn report_activity(&self, bytes: &io::Result<usize>) {
        self.bytes.fetch_add(bytes.as_ref().map_or(0, |bytes| *bytes as u64), Ordering::Relaxed);
        // If the channel is full, an earlier report was not read yet, which suffices.
        let _ = self.activity.try_send(());
    }
}

impl<T: Read> Read for MonitoredStream<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        self.report_activity(&read);
        read
    }
}

impl<T: Write> Write for MonitoredStream<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.report_activity(&written);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Waits until there was no activity for `limit`, or the bytes that have moved are too few, and then returns what is wrong; or until
/// all senders are gone.
pub(super) fn stall(limit: Seconds, activity: &Receiver<()>, bytes: &AtomicU64) -> Option<String> {
    let (clock, silence_max) = (MonotonicClock::start(), Duration::from_secs_f64(limit.0.max(0.0)));
    let began = clock.now();
    loop {
        match activity.recv_timeout(silence_max) {
            Ok(()) => {
                let (taken, bytes) = (clock.now().since(began), bytes.load(Ordering::Relaxed));
                if is_too_slow(taken, bytes, limit) {
                    return Some(slow_reason(taken, bytes));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Some(format!("no answer for {:.0} s", limit.0)),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_host_that_sends_a_byte_now_and_then_is_not_waited_for() {
        let (sender, activity) = bounded(1);
        let bytes = Arc::new(AtomicU64::new(0));
        let mut trickle = MonitoredStream::new(io::repeat(b'x'), bytes.clone(), sender);
        let ended = thread::scope(|scope| {
            let (stop, stopped) = bounded::<()>(0);
            scope.spawn(move || {
                while stopped.recv_timeout(Duration::from_millis(10)).is_err_and(|error| error.is_timeout()) {
                    let _ = trickle.read(&mut [0]);
                }
            });
            let ended = stall(Seconds(0.2), &activity, &bytes);
            drop(stop);
            ended
        });
        assert!(ended.as_ref().is_some_and(|ended| ended.starts_with("only ")), "{ended:?}");
    }
}
