//! A worker in a container.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ContainerState};
use bollard::query_parameters::{
    CreateContainerOptions, EventsOptions, InspectContainerOptions, LogsOptions, StartContainerOptions,
    StopContainerOptions, WaitContainerOptions,
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use futures_util::StreamExt;
use nix::sys::signal::Signal;
use tracing::debug;

use super::engine::ANSWER_LIMIT;
use super::handover::Handover;
use super::processor_time::{EndNotice, count_container};
use super::{ContainerEngine, ContainerError, ContainerSpec};
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::text::{escape_log, truncate};
use flagperf_host::{Ending, ProcessEvent, Streams, Worker, WorkerInput, memory_above, memory_in_use};

/// Time limit of creating a container, and of starting it. An engine may have to prepare a large image first.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for the worker in a started container to connect. Before that, it sources files with variables, which may run
/// programs.
const CONNECT_SECONDS: u64 = 120;
/// How often the conductor checks whether the worker has connected.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Longest wait for the end of a container in one request, and pause before a failed request is repeated.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Seconds between SIGTERM and SIGKILL, and time limit for a container to end.
const TERMINATE_SECONDS: i32 = 2;
const KILL_LIMIT: Duration = Duration::from_secs(15);
/// Longest wait for the last lines of output after the container has ended.
const LAST_LINES_WAIT: Duration = Duration::from_millis(500);
/// Seconds after the end of a worker's output within which the engine must report the end of the container.
const SILENCE_SECONDS: f64 = 30.0;
/// The exit code of a container whose program was killed by a signal is this number plus the number of the signal.
const SIGNAL_BASE: i64 = 128;
/// The warning about an engine that is not permitted to raise the limit of locked memory.
const LOCKED_MEMORY_WARNING: &str = "the container engine is not permitted to raise the limit of locked memory, so copies to a \
                                     device may be slower: set `LimitMEMLOCK=infinity` in the systemd service of the engine, or a \
                                     higher `memlock` for its user in /etc/security/limits.conf";
/// Longest wait for the engine to report a signal that was sent to a container.
const EVENTS_LIMIT: Duration = Duration::from_secs(2);
/// Number of last lines of a container's log that an error quotes, and largest number of bytes of each.
const LOG_LINES: usize = 20;
const LOG_LINE_BYTES: usize = 1 << 10;

/// A worker in a container. Dropping it removes the container.
pub struct ContainerWorker {
    container: Container,
    streams: Streams,
    end: Receiver<ContainerEnd>,
    ended: Option<ContainerEnd>,
    /// When the conductor noticed that the worker's output was closed.
    closed: Option<Nanos>,
    clock: Arc<dyn Clock>,
    warnings: Vec<String>,
    /// Is sent when the container is about to end.
    notice: EndNotice,
}

/// A container of the engine.
#[derive(Debug)]
struct Container {
    engine: Arc<ContainerEngine>,
    id: String,
    /// Whether this conductor is stopping or removing the container.
    is_ending: Arc<AtomicBool>,
    /// Process id of the container's main process on this machine; `None` if it is unknown.
    pid: Option<u32>,
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContainerEnd {
    ending: Ending,
    /// Whether the kernel killed a process in the container because the memory limit was reached.
    reached_memory_limit: bool,
}

impl From<Ending> for ContainerEnd {
    fn from(ending: Ending) -> Self {
        ContainerEnd { ending, reached_memory_limit: ending == Ending::OutOfMemory }
    }
}

impl ContainerWorker {
    /// Creates a container, starts it, and passes the streams of the worker into it. `input`, `stderr` and `clock` have the
    /// same meaning as for [`flagperf_host::Process::start`]. Stops when `keep_going` returns false.
    ///
    /// # Errors
    /// When the engine refuses the container, or the worker does not connect. The container is then removed.
    pub fn start(
        engine: &Arc<ContainerEngine>,
        spec: &ContainerSpec,
        input: &str,
        stderr: &Path,
        clock: Arc<dyn Clock>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Self, ContainerError> {
        let (streams, theirs) = Streams::open(input, stderr, Arc::clone(&clock))?;
        let handover = Handover::open().map_err(ContainerError::Handover)?;
        let mut warnings = Vec::new();
        let with_limit = |keeps_locked_memory| {
            let spec = ContainerSpec { keeps_locked_memory, ..spec.clone() };
            Container::create_and_start(engine, &spec, &handover)
        };
        let mut container = match with_limit(spec.keeps_locked_memory || engine.keeps_locked_memory()) {
            Err(error) if error.is_about_limits() && !engine.keeps_locked_memory() => {
                engine.keep_locked_memory();
                with_limit(true)?
            }
            started => started?,
        };
        if engine.keeps_locked_memory() {
            warnings.push(LOCKED_MEMORY_WARNING.to_owned());
        }
        let end = container.watch();
        container.pid = container.find_pid();
        let notice = count_container(container.pid);
        let started = clock.now();
        while !handover.try_send(&theirs).map_err(ContainerError::Handover)? {
            match end.recv_timeout(POLL_INTERVAL) {
                Ok(ended) => return Err(container.early_end_error(ended.ending)),
                Err(_) if !keep_going() => return Err(ContainerError::Interrupted),
                Err(_) if clock.now().since(started).0 > CONNECT_SECONDS as f64 => {
                    return Err(ContainerError::NotConnected { seconds: CONNECT_SECONDS });
                }
                Err(_) => {}
            }
        }
        debug!(id = %container.id, pid = container.pid, "started a container");
        Ok(ContainerWorker { container, streams, end, ended: None, closed: None, clock, warnings, notice })
    }

    /// Waits, at most `limit`, for the end of the container.
    fn await_end(&mut self, limit: Duration) -> Option<ContainerEnd> {
        if self.ended.is_none() {
            self.ended = self.end.recv_timeout(limit).ok();
        }
        self.ended
    }

    /// Treats the engine as lost if it does not report the end of a container although the worker closed its output long ago.
    fn check_closed(&mut self, timeout: Duration) {
        self.notice.send();
        let now = self.clock.now();
        let closed = *self.closed.get_or_insert(now);
        if self.await_end(timeout).is_none() && now.since(closed).0 > SILENCE_SECONDS {
            self.ended = Some(Ending::EngineLost.into());
        }
    }
}

impl Worker for ContainerWorker {
    fn next_event(&mut self, timeout: Duration) -> ProcessEvent {
        let timeout = if self.ended.is_some() { LAST_LINES_WAIT } else { timeout };
        match (self.streams.next_line(timeout), self.ended) {
            (Ok((at, line)), _) => ProcessEvent::Line(at, line),
            (Err(_), Some(end)) => ProcessEvent::Ended(end.ending),
            (Err(RecvTimeoutError::Timeout), None) => {
                self.await_end(Duration::ZERO);
                ProcessEvent::Silence
            }
            (Err(RecvTimeoutError::Disconnected), None) => {
                self.check_closed(timeout);
                ProcessEvent::Silence
            }
        }
    }

    fn kill(&mut self) -> Ending {
        if let Some(end) = self.ended {
            return end.ending;
        }
        self.notice.send();
        self.container.stop();
        // If the engine does not answer, the worker still ends when its input ends.
        self.streams.close_input();
        let end = self.await_end(KILL_LIMIT).unwrap_or(Ending::EngineLost.into());
        self.ended = Some(end);
        end.ending
    }

    fn last_stderr_lines(&self) -> Vec<String> {
        self.streams.last_stderr_lines()
    }

    /// The kernel enforces the memory limit of a container, unless the engine cannot set one.
    fn memory_above(&self, limit: u64) -> Option<u64> {
        let pid = self.container.pid.filter(|_| !self.container.engine.facts().limits_memory)?;
        memory_above(pid.cast_signed(), limit)
    }

    fn memory(&self) -> Option<u64> {
        self.container.pid.map(|pid| memory_in_use(pid.cast_signed(), ""))
    }

    fn warnings(&self) -> Vec<String> {
        let killed = self.ended.is_some_and(|end| end.reached_memory_limit && end.ending != Ending::OutOfMemory);
        let warning =
            "the kernel killed a process in the container because the memory limit (`WORKER_MEMORY`) was reached";
        self.warnings.iter().cloned().chain(killed.then(|| warning.to_owned())).collect()
    }

    fn input(&self) -> WorkerInput {
        self.streams.input()
    }

    fn id(&self) -> Option<u32> {
        self.container.pid
    }
}

impl Container {
    /// Creates a container and starts it. If starting fails, the container is removed.
    fn create_and_start(
        engine: &Arc<ContainerEngine>,
        spec: &ContainerSpec,
        handover: &Handover,
    ) -> Result<Self, ContainerError> {
        let body = spec.request(engine.facts(), handover.mount());
        let options = CreateContainerOptions { name: Some(spec.name.clone()), ..CreateContainerOptions::default() };
        let created = engine.request("create a container", START_LIMIT, async |docker| {
            docker.create_container(Some(options), body).await
        })?;
        let container = Container { engine: Arc::clone(engine), id: created.id, is_ending: Arc::default(), pid: None };
        engine.request("start a container", START_LIMIT, async |docker| {
            docker.start_container(&container.id, None::<StartContainerOptions>).await
        })?;
        Ok(container)
    }

    /// Starts a thread that reports how the container ended.
    fn watch(&self) -> Receiver<ContainerEnd> {
        let (sender, end) = crossbeam_channel::bounded(1);
        let (engine, id, is_ending) = (Arc::clone(&self.engine), self.id.clone(), Arc::clone(&self.is_ending));
        thread::spawn(move || {
            if let Some(ended) = wait_for_end(&engine, &id, &is_ending) {
                // This fails when the worker was dropped.
                let _ = sender.send(ended);
            }
        });
        end
    }

    /// Stops the container: the engine sends SIGTERM, and later SIGKILL. An error is only logged: the worker then ends when its
    /// input ends.
    fn stop(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let options = StopContainerOptions { t: Some(TERMINATE_SECONDS), ..StopContainerOptions::default() };
        let stopped = self.engine.request("stop a container", KILL_LIMIT, async |docker| {
            docker.stop_container(&self.id, Some(options)).await
        });
        if let Err(error) = stopped {
            debug!(%error, "the container was not stopped");
        }
    }

    /// Returns the process id of the container's main process on this machine; `None` unless it is certain.
    fn find_pid(&self) -> Option<u32> {
        let pid = inspect(&self.engine, &self.id).ok()?.state?.pid?;
        let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0)?;
        // If the engine runs in another PID namespace, its process id refers to another process here.
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        groups.contains(&self.id).then_some(pid)
    }

    /// Returns the error for a container that ended before its worker had connected, with the last lines of its log.
    fn early_end_error(&self, ending: Ending) -> ContainerError {
        let options = LogsOptions { stdout: true, stderr: true, tail: LOG_LINES.to_string(), ..LogsOptions::default() };
        let output = self.engine.request("read a container's log", ANSWER_LIMIT, async |docker| {
            let mut logs = std::pin::pin!(docker.logs(&self.id, Some(options)).take(LOG_LINES));
            let mut lines = Vec::new();
            while let Some(line) = logs.next().await {
                let text = escape_log(&line?.into_bytes());
                lines.push(truncate(text.trim_end(), LOG_LINE_BYTES).into_owned());
            }
            Ok(lines)
        });
        ContainerError::EndedEarly { ending: ending.to_string(), output: output.unwrap_or_default() }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.engine.remove_container(&self.id);
    }
}

fn inspect(engine: &ContainerEngine, id: &str) -> Result<ContainerInspectResponse, ContainerError> {
    engine.request("inspect a container", ANSWER_LIMIT, async |docker| {
        docker.inspect_container(id, None::<InspectContainerOptions>).await
    })
}

/// Waits for the end of a container. If the engine does not answer, this tries again: the engine may be restarting. Returns
/// `None` if this conductor has removed the container.
fn wait_for_end(engine: &ContainerEngine, id: &str, is_ending: &AtomicBool) -> Option<ContainerEnd> {
    let mut was_unreachable = false;
    loop {
        let waited = engine.request("wait for a container", WAIT_LIMIT, async |docker| {
            let mut replies = std::pin::pin!(docker.wait_container(id, None::<WaitContainerOptions>));
            // This reply is ignored, because a status other than 0 is an error here. The status is read below.
            while let Some(Ok(_)) = replies.next().await {}
            Ok(())
        });
        match inspect(engine, id) {
            Ok(ContainerInspectResponse { state: Some(state), .. }) if state.running == Some(false) => {
                let end = end_of(engine, id, &state, is_ending);
                // An engine that restarts kills the containers that it finds.
                let is_lost = was_unreachable && matches!(end.ending, Ending::Killed(_) | Ending::ContainerKilled(_));
                return Some(if is_lost { Ending::EngineLost.into() } else { end });
            }
            Err(error) if error.is_missing() => {
                let is_own = is_ending.load(Ordering::Relaxed);
                return (!is_own).then(|| Ending::ContainerRemoved.into());
            }
            Ok(_) if waited.is_err() => {}
            reply => {
                was_unreachable |= reply.is_err();
                thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}

fn end_of(engine: &ContainerEngine, id: &str, state: &ContainerState, is_ending: &AtomicBool) -> ContainerEnd {
    let status = state.exit_code.unwrap_or(-1);
    let reached_memory_limit = state.oom_killed == Some(true);
    let is_own = is_ending.load(Ordering::Relaxed);
    let ending = match ending_of(status) {
        Ending::Killed(signal) if signal == Signal::SIGKILL as i32 && reached_memory_limit => Ending::OutOfMemory,
        Ending::Killed(signal) if !is_own && was_signalled(engine, id, state) => Ending::ContainerKilled(signal),
        ending => ending,
    };
    ContainerEnd { ending, reached_memory_limit }
}

fn ending_of(status: i64) -> Ending {
    let signal = i32::try_from(status - SIGNAL_BASE).ok().filter(|signal| Signal::try_from(*signal).is_ok());
    signal.map_or(Ending::Exited(i32::try_from(status).unwrap_or(-1)), Ending::Killed)
}

/// Returns whether somebody sent a signal to the container through the engine. The engine keeps a list of recent events.
fn was_signalled(engine: &ContainerEngine, id: &str, state: &ContainerState) -> bool {
    let filter = |name: &str, value: &str| (name.to_owned(), vec![value.to_owned()]);
    let started = state.started_at.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let options = EventsOptions {
        // Engines accept only whole seconds since 1970 here.
        since: started.map(|time| time.as_second().to_string()),
        // No end: the engine may report a signal later than the end that the signal caused.
        until: None,
        filters: Some([filter("container", id), filter("event", "kill")].into()),
    };
    let found = engine.request("list events", EVENTS_LIMIT, async |docker| {
        Ok(std::pin::pin!(docker.events(Some(options))).next().await.is_some_and(|event| event.is_ok()))
    });
    found.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_container_is_a_status_or_a_signal() {
        assert_eq!(
            (ending_of(0), ending_of(3), ending_of(127)),
            (Ending::Exited(0), Ending::Exited(3), Ending::Exited(127))
        );
        assert_eq!((ending_of(137), ending_of(139)), (Ending::Killed(9), Ending::Killed(11)));
        assert_eq!((ending_of(128), ending_of(255)), (Ending::Exited(128), Ending::Exited(255)));
    }
}
