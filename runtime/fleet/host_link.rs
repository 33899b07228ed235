//! The link to one host: a thread that keeps a connection to its agent, opens it anew after a cut, and writes what arrives.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, tick, unbounded};

use super::bootstrap::OwnProgram;
use super::connection::{Connection, ConnectionSettings, Incoming};
use super::launcher::Launcher;
use super::mirror::{WriteFault, list_files, write_part};
use super::protocol::{HostFacts, Reply, Request};
use super::session::{Outcome, SessionTask};
use super::tree::Tree;
use crate::config::Site;
use crate::event::Event;
use crate::measure::{Clock, Nanos};
use crate::step::{Phase, Step};
use crate::text::{one_line, truncate};
use crate::units::Seconds;

/// Time between two checks of whether the agent is there.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Time without a reply after which a connection counts as cut.
const SILENCE_MAX: Seconds = Seconds(10.0);
/// Longest reason from a host in bytes.
const REASON_BYTES_MAX: usize = 2000;
/// Longest wait for the end of a link, which removes what is left on its host.
const CLOSE_WAIT: Duration = Duration::from_secs(3);
/// How often what is missing here is asked for anew.
const RESENT_MAX: u32 = 10;
/// Shortest and longest wait before a connection is opened anew.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What all links of a run share.
pub(super) struct LinkContext {
    pub(super) site: Site,
    pub(super) program: OwnProgram,
    pub(super) tree: Tree,
    /// File for what the launchers' programs print.
    pub(super) log: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
}

/// What a link is told.
pub(super) enum LinkOrder {
    /// Start a session, whose files are written below `folder`.
    Start { session: String, task: Box<SessionTask>, folder: PathBuf },
    /// Let a session go on.
    Release { session: String, step: Step },
    /// Interrupt every session.
    Interrupt,
    /// Remove what a session that has ended left on the host.
    Remove { session: String },
}

/// What a link reports.
#[derive(Debug)]
pub(super) enum LinkNews {
    /// The first connection is open.
    Open(HostFacts),
    /// The connection was cut, and is opened anew.
    Cut(String),
    /// The connection is open again after this time.
    OpenAgain(Seconds),
    /// The host is lost: it cannot be reached, or was not within the time limit.
    Lost(String),
    /// A session emitted an event.
    Event { session: String, phase: Phase, event: Box<Event> },
    /// A session waits at a barrier.
    Ready { session: String, step: Step },
    /// A session has ended, and its files are here.
    Ended { session: String, outcome: Option<Box<Outcome>>, log: Vec<String> },
    /// A session failed to start, or its files cannot be written.
    Failed { session: String, reason: String },
}

/// The process's end of a link. Dropping it closes the connection.
pub(super) struct HostLink {
    orders: Option<Sender<LinkOrder>>,
    /// Is disconnected when the thread has ended.
    done: Receiver<()>,
}

impl HostLink {
    /// Starts the link to a host; its news are sent with `host`.
    pub(super) fn start(
        host: String,
        launcher: &'static dyn Launcher,
        context: Arc<LinkContext>,
        news: Sender<(String, LinkNews)>,
    ) -> Self {
        let (orders, receiver) = unbounded();
        let (running, done) = bounded::<()>(0);
        thread::spawn(move || {
            let sessions = HashMap::new();
            let progress = context.clock.now();
            let (orders, interrupted) = (receiver, false);
            Link { host, launcher, context, orders, news, sessions, interrupted, progress }.run();
            drop(running);
        });
        HostLink { orders: Some(orders), done }
    }

    /// Passes an order on. A link that has lost its host ignores it.
    pub(super) fn order(&self, order: LinkOrder) {
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }

    /// Tells the link that nobody needs it any more.
    pub(super) fn close(&mut self) {
        self.orders = None;
    }
}

impl Drop for HostLink {
    /// Waits until the host has answered the last orders. One that has no connection is not waited for long.
    fn drop(&mut self) {
        self.close();
        let _ = self.done.recv_timeout(CLOSE_WAIT);
    }
}

/// A session that has not ended.
struct OpenSession {
    /// What starts it; `None` when it runs already.
    task: Option<Box<SessionTask>>,
    folder: PathBuf,
    released: Vec<Step>,
    /// Number of the last request for its files. What is sent for an earlier one is ignored.
    round: u32,
    /// How often files were asked for anew, because another process had changed them here.
    resent: u32,
}

struct Link {
    host: String,
    launcher: &'static dyn Launcher,
    context: Arc<LinkContext>,
    orders: Receiver<LinkOrder>,
    news: Sender<(String, LinkNews)>,
    sessions: HashMap<String, OpenSession>,
    interrupted: bool,
    /// When the agent last did something for the run. A connection that only opens is no contact.
    progress: Nanos,
}

/// Why a connection is no longer used.
enum End {
    /// Its program has ended.
    Ended,
    /// It was cut, for this reason.
    Cut(String),
    /// Nobody needs it.
    Closed,
}

/// Returns as much of a reason from a host as a message needs.
fn short(reason: &str) -> String {
    truncate(&one_line(reason), REASON_BYTES_MAX).into_owned()
}

impl End {
    /// Returns the end of a connection on which nothing could be sent.
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => End::Ended,
            _ => End::Cut(error.to_string()),
        }
    }
}

impl Link {
    fn tell(&self, news: LinkNews) {
        // This fails when the run has ended.
        let _ = self.news.send((self.host.clone(), news));
    }

    /// Keeps a connection until nobody needs it or the host is lost.
    fn run(mut self) {
        let mut connection = match self.open(self.context.site.host_timeout) {
            Ok(connection) => connection,
            Err(reason) => return self.tell(LinkNews::Lost(reason)),
        };
        self.tell(LinkNews::Open(connection.host.clone()));
        self.progress = self.context.clock.now();
        loop {
            let reason = match self.use_connection(&mut connection) {
                End::Closed => return connection.close(),
                End::Ended => connection.why_ended(),
                End::Cut(reason) => {
                    drop(connection);
                    reason
                }
            };
            let cut = self.context.clock.now();
            self.tell(LinkNews::Cut(reason.clone()));
            match self.open_again(reason) {
                Ok(opened) => connection = opened,
                Err(reason) => {
                    let state = self.launcher.state_of(&self.host);
                    let reason = if state.is_empty() { reason } else { format!("{reason}; {state}") };
                    return self.tell(LinkNews::Lost(reason));
                }
            }
            self.tell(LinkNews::OpenAgain(self.context.clock.now().since(cut)));
        }
    }

    fn open(&self, silence_max: Seconds) -> Result<Connection, String> {
        let (LinkContext { site, program, tree, log, .. }, launcher) = (&*self.context, self.launcher);
        Connection::open(&self.host, ConnectionSettings { launcher, site, program, tree, log, silence_max })
    }

    /// Opens a connection anew until that works or the time limit is over.
    fn open_again(&self, mut reason: String) -> Result<Connection, String> {
        let limit = self.context.site.host_timeout;
        let mut wait = WAIT_MIN;
        loop {
            let silent = self.context.clock.now().since(self.progress);
            if silent.0 > limit.0 {
                return Err(format!("no contact for {:.0} s; last error: {reason}", silent.0));
            }
            thread::sleep(wait);
            wait = (2 * wait).min(WAIT_MAX);
            match self.open(Seconds((limit.0 - silent.0).max(WAIT_MAX.as_secs_f64()))) {
                Ok(connection) => return Ok(connection),
                Err(error) => reason = error,
            }
        }
    }

    /// Passes orders and replies on until the connection is cut or nobody needs it.
    fn use_connection(&mut self, connection: &mut Connection) -> End {
        let started = self.sessions.keys().cloned().collect::<Vec<_>>();
        for session in started {
            if let Err(error) = self.start_and_attach(connection, &session) {
                return End::of(&error);
            }
        }
        let (clock, replies, orders) = (self.context.clock.clone(), connection.replies.clone(), self.orders.clone());
        let limit = self.context.site.host_timeout;
        let silence_max = if limit < SILENCE_MAX { limit } else { SILENCE_MAX };
        let ticks = tick(PING_INTERVAL);
        let mut heard = clock.now();
        loop {
            select! {
                recv(replies) -> incoming => {
                    heard = clock.now();
                    match incoming {
                        Ok(incoming) => if let Err(end) = self.take(connection, incoming) { return end },
                        Err(_) => return End::Ended,
                    }
                }
                recv(orders) -> order => match order {
                    Ok(order) => if let Err(error) = self.obey(connection, order) { return End::of(&error) },
                    Err(_) => return End::Closed,
                },
                recv(ticks) -> _ => {
                    if clock.now().since(heard) > silence_max {
                        return End::Cut(format!("no answer from the host for {:.0} s", silence_max.0));
                    }
                    if let Err(error) = connection.send(&Request::Ping) {
                        return End::of(&error);
                    }
                }
            }
        }
    }

    /// Asks for everything that is not here, because `path` is not as it was left.
    fn ask_anew(&mut self, connection: &mut Connection, session: String, path: &str) -> Result<(), End> {
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        open.resent += 1;
        if open.resent <= RESENT_MAX {
            return self.start_and_attach(connection, &session).map_err(|error| End::of(&error));
        }
        let reason =
            format!("`{path}` is incomplete: is another program changing or deleting the results on this machine?");
        self.give_up(connection, session, reason)
    }

    /// Ends a session whose files cannot be written here, so that nothing runs beside the next case.
    fn give_up(&mut self, connection: &mut Connection, session: String, reason: String) -> Result<(), End> {
        self.sessions.remove(&session);
        let sent = connection.send(&Request::Interrupt { session: session.clone() });
        self.tell(LinkNews::Failed { session, reason });
        sent.map_err(|error| End::of(&error))
    }

    /// Starts a session that does not run yet, and asks for what it writes.
    fn start_and_attach(&mut self, connection: &mut Connection, session: &str) -> io::Result<()> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let name = session.to_owned();
        let have: BTreeMap<String, u64> = list_files(&open.folder)?;
        open.round += 1;
        let mut requests = Vec::new();
        if let Some(task) = &open.task {
            requests.push(Request::Start { session: name.clone(), task: task.clone() });
        }
        requests.push(Request::Attach { session: name.clone(), have, round: open.round });
        requests.extend(open.released.iter().map(|step| Request::Release { session: name.clone(), step: *step }));
        requests.extend(self.interrupted.then_some(Request::Interrupt { session: name }));
        requests.iter().try_for_each(|request| connection.send(request))
    }

    fn obey(&mut self, connection: &mut Connection, order: LinkOrder) -> io::Result<()> {
        match order {
            LinkOrder::Start { session, task, folder } => {
                let open = OpenSession { task: Some(task), folder, released: Vec::new(), round: 0, resent: 0 };
                self.sessions.insert(session.clone(), open);
                self.start_and_attach(connection, &session)
            }
            LinkOrder::Release { session, step } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.released.push(step));
                connection.send(&Request::Release { session, step })
            }
            LinkOrder::Remove { session } => connection.send(&Request::Remove { session }),
            LinkOrder::Interrupt => {
                self.interrupted = true;
                let interrupt = |session: &String| Request::Interrupt { session: session.clone() };
                self.sessions.keys().map(interrupt).try_for_each(|request| connection.send(&request))
            }
        }
    }

    /// Takes a reply.
    fn take(&mut self, connection: &mut Connection, incoming: Incoming) -> Result<(), End> {
        let (reply, payload) = incoming.map_err(|reason| End::Cut(short(&reason)))?;
        if !matches!(reply, Reply::Failed { session: None, .. }) {
            self.progress = self.context.clock.now();
        }
        match reply {
            Reply::Present { .. } | Reply::Missing { .. } | Reply::Report { .. } => {}
            Reply::Started { session } => {
                self.sessions.get_mut(&session).into_iter().for_each(|open| open.task = None);
            }
            Reply::Part { session, path, offset, round } => {
                let open = self.sessions.get_mut(&session).filter(|open| open.round == round);
                let Some(open) = open else { return Ok(()) };
                match write_part(&open.folder, &path, offset, &payload) {
                    Ok(()) => {}
                    Err(WriteFault::MissingPart) => return self.ask_anew(connection, session, &path),
                    Err(WriteFault::Unwritable(error)) => {
                        let reason = format!("cannot write `{}`: {error}", open.folder.join(&path).display());
                        return self.give_up(connection, session, reason);
                    }
                }
            }
            Reply::Event { session, phase, event } => self.tell(LinkNews::Event { session, phase, event }),
            Reply::Ready { session, step } => self.tell(LinkNews::Ready { session, step }),
            Reply::Ended { session, outcome, files, log, round } => {
                let open = self.sessions.get(&session).filter(|open| open.round == round);
                let Some(open) = open else { return Ok(()) };
                // Another process may have changed the files here.
                let here = list_files(&open.folder).unwrap_or_default();
                let lacking = files.iter().find(|(path, size)| here.get(*path) != Some(size));
                if let Some((path, _)) = lacking {
                    return self.ask_anew(connection, session, path);
                }
                self.sessions.remove(&session);
                self.tell(LinkNews::Ended { session, outcome, log });
            }
            Reply::Failed { session: Some(session), reason } => {
                self.sessions.remove(&session);
                self.tell(LinkNews::Failed { session, reason: short(&reason) });
            }
            Reply::Failed { session: None, reason } => return Err(End::Cut(short(&reason))),
        }
        Ok(())
    }
}
