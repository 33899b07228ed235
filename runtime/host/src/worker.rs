//! The interface of a worker to the conductor, however the worker was started.

use std::time::Duration;

use super::{Ending, WorkerInput};
use flagperf_core::measure::Nanos;
use flagperf_core::units::Seconds;

/// A running worker. Dropping it ends the worker and everything that it started.
pub trait Worker {
    /// Returns the next line or the ending; waits at most `timeout`, and a moment longer when the worker has just ended.
    fn next_event(&mut self, timeout: Duration) -> ProcessEvent;

    /// Ends the worker and everything that it started, first gently; waits for a limited time.
    fn kill(&mut self) -> Ending;

    /// Returns the last lines of standard error after the worker has ended.
    fn last_stderr_lines(&self) -> Vec<String>;

    /// Returns the memory in bytes of the worker and its descendants if it is above `limit`. `None` also when the system
    /// itself keeps the limit.
    fn memory_above(&self, limit: u64) -> Option<u64>;

    /// Returns the memory in bytes that the worker and everything that it started use now, wherever those processes moved; pages
    /// that processes share count whole in each. `None` when its process is unknown.
    fn memory(&self) -> Option<u64>;

    /// Returns what the reader of a result should know about how the worker ended.
    fn warnings(&self) -> Vec<String>;

    /// Returns the worker's input, for further lines.
    fn input(&self) -> WorkerInput;

    /// Returns whether a signal has stopped the worker (SIGSTOP), so that it neither runs nor ends.
    fn is_stopped(&self) -> bool {
        self.id().is_some_and(is_stopped)
    }

    /// Returns the process id on this machine; `None` when it is unknown.
    fn id(&self) -> Option<u32>;
}

/// How long a signal may stop a worker.
const STOPPED_MAX: Seconds = Seconds(5.0);

/// Notices that a signal has stopped a worker for too long.
#[derive(Debug, Default)]
pub struct StoppedTime {
    since: Option<Nanos>,
}

impl StoppedTime {
    /// Returns that the worker has been stopped for too long, if it is stopped now and was at each call for so long.
    pub fn reason(&mut self, is_stopped: bool, now: Nanos) -> Option<String> {
        self.since = is_stopped.then(|| self.since.unwrap_or(now));
        let is_over = self.since.is_some_and(|since| now.since(since).0 > STOPPED_MAX.0);
        is_over.then(|| format!("a signal (SIGSTOP) stopped it for more than {} s", STOPPED_MAX.0))
    }
}

/// Returns whether a process is stopped: the state `T` or `t` after the name in its `stat` (proc(5)).
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}

/// What happened next in a worker.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The process wrote this line (without its end), which arrived at this time.
    Line(Nanos, String),
    /// Nothing happened before the timeout.
    Silence,
    /// The process ended, and every line was read.
    Ended(Ending),
}
