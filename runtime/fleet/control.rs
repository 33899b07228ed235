//! The socket of a session: an agent tells it to go on, or to stop, and hears what the display shows.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::measure::{Clock, Nanos};
use crate::run::{Barrier, Interrupt};
use crate::step::{Phase, Step};
use crate::units::Seconds;

/// Name of the socket in the folder of a session.
pub(super) const SOCKET: &str = "control";
/// Longest line in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest time that a session waits for an agent that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a session checks whether it has had contact.
const CONTACT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns a path of the socket in an open folder that is short enough for a socket, however long that of the folder is.
fn short_path(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Connects to the session in a folder.
pub(super) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let opened = File::open(folder)?;
    UnixStream::connect(short_path(&opened))
}

/// What an agent tells a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum Order {
    /// The process that the user started is there.
    Contact,
    /// Go on beyond the barrier of this step.
    Release {
        /// The step.
        step: Step,
    },
    /// Stop, and keep what there is.
    Interrupt,
}

/// What a session tells agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub(super) enum News {
    /// The session waits at the barrier of this step.
    Ready {
        /// The step.
        step: Step,
    },
    /// An event that the display shows.
    Event {
        /// The phase that emitted it.
        phase: Phase,
        /// The event.
        event: Box<Event>,
    },
}

/// The session's end of the socket.
pub(super) struct Control {
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

impl Control {
    /// Creates the socket in the folder of a session, and threads that serve it and that interrupt the session after
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
        let control = Arc::new(Control { state, changed, clock, last_contact, interrupt, lost_contact });
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
        waiting.into_iter().for_each(|step| self.tell(&News::Ready { step }));
        let mut input = BufReader::new(input);
        loop {
            let mut line = Vec::new();
            match input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            self.last_contact.store(self.clock.now().0, Ordering::Relaxed);
            match serde_json::from_slice(&line) {
                Ok(Order::Interrupt) => self.interrupt.set(),
                Ok(Order::Release { step }) => {
                    self.lock().released.push(step);
                    self.changed.notify_all();
                }
                Ok(Order::Contact) | Err(_) => {}
            }
        }
    }

    /// Interrupts the session when it has had no contact for `limit`.
    fn watch(&self, limit: Seconds) {
        while !self.interrupt.is_set() {
            thread::sleep(CONTACT_INTERVAL);
            let last = Nanos(self.last_contact.load(Ordering::Relaxed));
            if self.clock.now().since(last).0 > limit.0 {
                self.lost_contact.store(true, Ordering::Relaxed);
                self.interrupt.set();
            }
        }
        self.changed.notify_all();
    }

    /// Tells every agent; one that does not read is dropped.
    pub(super) fn tell(&self, news: &News) {
        let mut line = serde_json::to_vec(news).expect("news are plain data");
        line.push(b'\n');
        self.lock().agents.retain_mut(|agent| agent.write_all(&line).is_ok());
    }
}

impl Barrier for Control {
    fn wait(&self, step: Step) {
        self.lock().waiting = Some(step);
        self.tell(&News::Ready { step });
        let is_waiting = |state: &mut State| !state.released.contains(&step) && !self.interrupt.is_set();
        let mut state = self.changed.wait_while(self.lock(), is_waiting).unwrap_or_else(PoisonError::into_inner);
        state.waiting = None;
    }
}
