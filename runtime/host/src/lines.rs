//! Reads the lines of a child's standard output, each with the time of its arrival. Unread lines are bounded in number
//! and in bytes: when the reader falls behind, the child waits.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use flagperf_core::measure::{Clock, Nanos};

/// Maximum length of a line in bytes; a longer line is split. No output of a worker is that long.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of unread lines, and of their bytes; at either limit the child waits.
const LINES_WAITING: usize = 4096;
const BYTES_WAITING: usize = 32 << 20;

/// The lines of a child as they arrive.
#[derive(Debug)]
pub(super) struct LineReader {
    lines: Receiver<(Nanos, String)>,
    waiting: Arc<Backlog>,
}

/// Number of bytes of lines that were read from the pipe but not yet taken.
#[derive(Debug, Default)]
struct Backlog {
    bytes: Mutex<usize>,
    fewer: Condvar,
}

impl LineReader {
    /// Starts a thread that reads `output` to its end and stamps the lines with `clock`.
    pub(super) fn read(output: impl Read + Send + 'static, clock: Arc<dyn Clock>) -> Self {
        let (sender, lines) = crossbeam_channel::bounded(LINES_WAITING);
        let waiting = Arc::new(Backlog::default());
        let counted = Arc::clone(&waiting);
        thread::spawn(move || read_lines(output, &sender, &counted, &*clock));
        LineReader { lines, waiting }
    }

    /// Returns the next line; waits at most `timeout`.
    pub(super) fn next(&self, timeout: Duration) -> Result<(Nanos, String), RecvTimeoutError> {
        let (at, line) = self.lines.recv_timeout(timeout)?;
        self.waiting.remove(line.len());
        Ok((at, line))
    }
}

impl Drop for LineReader {
    fn drop(&mut self) {
        // Nobody takes lines any more: wakes a reader that waits for room, which then finds the channel closed.
        *self.waiting.lock() = 0;
        self.waiting.fewer.notify_all();
    }
}

impl Backlog {
    /// Waits for room, then counts a line. A line larger than the whole limit waits until no other line is unread.
    fn add(&self, bytes: usize) {
        let full = |waiting: &mut usize| *waiting > 0 && *waiting + bytes > BYTES_WAITING;
        let mut waiting = self.fewer.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        *waiting += bytes;
    }

    fn remove(&self, bytes: usize) {
        let mut waiting = self.lock();
        *waiting = waiting.saturating_sub(bytes);
        self.fewer.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_lines(output: impl Read, lines: &Sender<(Nanos, String)>, waiting: &Backlog, clock: &dyn Clock) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        let at = clock.now();
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        waiting.add(text.len());
        if lines.send((at, text)).is_err() {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    #[test]
    fn unread_lines_are_bounded_in_bytes() {
        let line = vec![b'x'; (1 << 20) - 1];
        let text = std::iter::repeat_n([&line[..], b"\n"].concat(), 200).flatten().collect::<Vec<_>>();
        let lines = LineReader::read(std::io::Cursor::new(text), Arc::new(MonotonicClock::start()));
        let mut count = 0;
        while let Ok((_, line)) = lines.next(Duration::from_secs(60)) {
            assert_eq!(line.len(), (1 << 20) - 1);
            assert!(lines.lines.len() <= BYTES_WAITING / line.len() + 1, "{}", lines.lines.len());
            count += 1;
        }
        assert_eq!(count, 200);
    }
}
