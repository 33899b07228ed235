//! The control socket of a session. Through it, an agent sends commands to the session, and the session sends messages for the
//! display.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host_text::short;
use flagperf_core::event::Event;
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_run::{Barrier, Interrupt};

/// Name of the socket in the folder of a session.
pub(super) const SOCKET: &str = "control";
/// Longest line in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest time for which a session waits for an agent that does not read its messages.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a session tells agents that it runs, and checks whether it has had contact.
const CONTACT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns a path of the socket in an open folder. The kernel limits the length of such a path, so this one does not
/// contain the path of the folder.
fn short_path(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Connects to the session in a folder.
pub(super) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let opened = File::open(folder)?;
    UnixStream::connect(short_path(&opened))
}

/// A command from an agent to a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum SessionCommand {
    /// The agent has contact with the process that the user started.
    Contact,
    /// Pass the barrier of this step.
    Release { step: Step },
    /// Stop, and keep what was measured. With a reason, the case has failed for it.
    Interrupt {
        #[serde(default)]
        reason: Option<String>,
    },
}

/// A message from a session to its agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub(super) enum SessionMessage {
    /// The process of the session runs.
    Alive,
    /// The session has reached the barrier of this step and waits.
    Ready { step: Step },
    /// A step of preparing the workers, such as a step of building an image.
    Preparation {
        /// The step.
        line: String,
    },
    /// An event for the display.
    Event {
        /// The phase that emitted it.
        phase: Phase,
        event: Box<Event>,
    },
}

/// The control socket, as its session uses it.
pub(super) struct ControlSocket {
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
    last_contact: AtomicU64,
    interrupt: Interrupt,
    /// Whether the session was interrupted because it had no contact.
    pub(super) lost_contact: AtomicBool,
}

#[derive(Default)]
struct State {
    agents: Vec<UnixStream>,
    waiting: Option<Step>,
    released: Vec<Step>,
}

impl ControlSocket {
    /// Creates the socket in the folder of a session, a thread that serves it, and a thread that interrupts the session after
    /// `limit` without contact.
    pub(super) fn start(
        folder: &Path,
        interrupt: Interrupt,
        clock: Arc<dyn Clock>,
        limit: Seconds,
    ) -> io::Result<Arc<Self>> {
        let opened = File::open(folder)?;
        let listener = UnixListener::bind(short_path(&opened))?;
        let last_contact = AtomicU64::new(clock.now().0);
        let (state, changed, lost_contact) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let control = Arc::new(ControlSocket { state, changed, clock, last_contact, interrupt, lost_contact });
        let serving = Arc::clone(&control);
        thread::spawn(move || {
            for agent in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(agent));
            }
        });
        let watching = Arc::clone(&control);
        thread::spawn(move || watching.watch(limit));
        Ok(control)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, agent: UnixStream) {
        let Ok(input) = agent.try_clone() else { return };
        let _ = agent.set_write_timeout(Some(WRITE_TIMEOUT));
        let mut state = self.lock();
        let waiting = state.waiting;
        state.agents.push(agent);
        drop(state);
        waiting.into_iter().for_each(|step| self.broadcast(&SessionMessage::Ready { step }));
        let mut input = BufReader::new(input);
        loop {
            let mut line = Vec::new();
            match input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            self.last_contact.store(self.clock.now().0, Ordering::Relaxed);
            match serde_json::from_slice(&line) {
                Ok(SessionCommand::Interrupt { reason }) => {
                    match reason {
                        Some(reason) => self.interrupt.fail(short(&reason)),
                        None => self.interrupt.set(),
                    }
                    self.changed.notify_all();
                }
                Ok(SessionCommand::Release { step }) => {
                    self.lock().released.push(step);
                    self.changed.notify_all();
                }
                Ok(SessionCommand::Contact) | Err(_) => {}
            }
        }
    }

    /// Tells agents that this process runs, and interrupts the session when it has had no contact for `limit`.
    fn watch(&self, limit: Seconds) {
        loop {
            thread::sleep(CONTACT_INTERVAL);
            self.broadcast(&SessionMessage::Alive);
            let last = Nanos(self.last_contact.load(Ordering::Relaxed));
            if !self.interrupt.is_set() && self.clock.now().since(last).0 > limit.0 {
                self.lost_contact.store(true, Ordering::Relaxed);
                self.interrupt.set();
            }
            if self.interrupt.is_set() {
                self.changed.notify_all();
            }
        }
    }

    /// Sends a message to every agent. An agent that does not read is disconnected; it connects again when it reads again.
    pub(super) fn broadcast(&self, message: &SessionMessage) {
        let mut line = serde_json::to_vec(message).expect("a message is plain data");
        line.push(b'\n');
        self.lock().agents.retain_mut(|agent| {
            let written = agent.write_all(&line).is_ok();
            if !written {
                // A part of the line may be written, and the thread that serves this agent holds the socket, too.
                let _ = agent.shutdown(Shutdown::Both);
            }
            written
        });
    }
}

impl Barrier for ControlSocket {
    fn wait(&self, step: Step) {
        self.lock().waiting = Some(step);
        self.broadcast(&SessionMessage::Ready { step });
        let is_waiting = |state: &mut State| !state.released.contains(&step) && !self.interrupt.is_set();
        let mut state = self.changed.wait_while(self.lock(), is_waiting).unwrap_or_else(PoisonError::into_inner);
        state.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    #[test]
    fn an_agent_that_was_too_slow_to_read_is_disconnected_and_learns_of_the_barrier_when_it_connects_again() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(MonotonicClock::start());
        let control = ControlSocket::start(folder.path(), Interrupt::default(), clock, Seconds(60.0)).unwrap();
        let slow = connect(folder.path()).unwrap();
        let event =
            Event::Log { level: flagperf_core::event::Level::Info, source: String::new(), message: "x".repeat(4000) };
        let progress = SessionMessage::Event { phase: Phase::Infer, event: Box::new(event) };
        while control.lock().agents.is_empty() {
            thread::yield_now();
        }
        while !control.lock().agents.is_empty() {
            control.broadcast(&progress);
        }
        let waiting = control.clone();
        thread::spawn(move || waiting.wait(Step::Inference));
        let lines = |socket: UnixStream| BufReader::new(socket).lines().map_while(Result::ok);
        assert!(lines(slow).count() > 0, "the first connection has an end");
        let is_ready = |line: &String| line.contains("\"ready\"") && line.contains("inference");
        assert!(lines(connect(folder.path()).unwrap()).any(|line| is_ready(&line)));
    }
}
