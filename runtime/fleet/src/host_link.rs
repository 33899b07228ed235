//! The link to one host, as the run uses it: commands to its thread, and events from it.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, unbounded};

use super::bootstrap::OwnProgram;
use super::clock_offset::ClockOffset;
use super::host_text::HostError;
use super::launcher::Launcher;
use super::link_thread::LinkThread;
use super::outage::Outage;
use super::protocol::HostFacts;
use super::session::{SessionOutcome, SessionTask};
use super::tree::Tree;
use flagperf_config::Site;
use flagperf_core::event::Event;
use flagperf_core::measure::Clock;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;

/// Longest wait for a link to end, which first removes the finished sessions from its host.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// What all links of a run share.
pub(super) struct LinkContext {
    pub(super) site: Site,
    pub(super) program: OwnProgram,
    pub(super) tree: Tree,
    /// File to which the programs of launchers write their standard error.
    pub(super) log: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    /// Name of the run's folder, and the id of the run.
    pub(super) run: String,
    pub(super) run_id: String,
    /// Time without contact after which a host ends what it does for the run.
    pub(super) contact_limit: Seconds,
}

/// A command to a link.
pub(super) enum LinkCommand {
    /// Start a session, whose files are written below `folder`.
    Start { session: String, task: Box<SessionTask>, folder: PathBuf },
    /// Let a session pass the barrier of this step.
    Release { session: String, step: Step },
    /// Interrupt every session.
    Interrupt,
    /// End one session, whose case has failed for this reason.
    EndSession { session: String, reason: String },
    /// Remove the files of a finished session from the host.
    Remove { session: String },
    /// Reserve the host for the run.
    Reserve { waits: bool },
    /// End the reservation, or stop waiting for it.
    EndReservation,
    /// Plan cases on the host; the arguments are those of `flagperf plan`.
    Plan { arguments: Vec<String> },
    /// Measure on the host with processes of a group; the arguments are those of `flagperf peak`.
    Measure { arguments: Vec<String> },
    /// End that measurement.
    EndMeasurement,
}

/// An event that a link reports.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// The first connection was opened.
    Connected(HostFacts),
    /// The connection broke, for this reason. The link tries to reconnect.
    Disconnected(String),
    /// A new connection was opened, this long after the last one broke.
    Reconnected(Seconds),
    /// The host is lost, for this reason: it could not be reached within the time limit.
    HostLost(String),
    /// What a user needs to know about the host: a predicate such as `had ...`.
    Warning(String),
    /// A session takes a step of preparing its workers.
    Preparation { session: String, line: String },
    /// A session emitted an event.
    Event { session: String, phase: Phase, event: Box<Event> },
    /// The files of a session have grown by so many bytes that had not arrived before.
    PartReceived { session: String, growth: u64 },
    /// A session waits at a barrier.
    Ready { session: String, step: Step },
    /// The wall clock of the host was measured.
    Clock(ClockOffset),
    /// The host is reserved; the text states why other runs may not notice it, if they may not.
    Reserved(Option<String>),
    /// The host is not reserved, because another run uses it: what uses it, the id of that run, and whether the request waits for
    /// it to end.
    HostBusy { reason: String, run_id: String, waits: bool },
    /// The host has planned the cases, with these errors.
    Planned(Vec<HostError>),
    /// The processes of a group have ended on the host: what they measured, or why they did not.
    Measured(Result<String, String>),
    /// A session has ended, and all of its files have arrived.
    SessionEnded { session: String, outcome: Option<Box<SessionOutcome>>, log: Vec<String> },
    /// A session failed to start, or its files cannot be written on this machine.
    SessionFailed { session: String, reason: String, end: SessionEnd },
    /// The files of a session are removed from its host.
    Removed { session: String },
}

/// Why a session failed, for its files on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Nothing was heard of it for too long.
    Silent,
    /// It did not start, or its files cannot be written on this machine.
    Unwritten,
}

/// The handle of a link. Dropping it closes the connection.
pub(super) struct HostLink {
    commands: Option<Sender<LinkCommand>>,
    /// Disconnects when the thread of the link has ended.
    done: Receiver<()>,
    /// Receives a message when a link that was closed is not waited for any more.
    late: Receiver<Instant>,
}

impl HostLink {
    /// Starts the link to a host. It sends its events to `events`, each with the name of the host.
    pub(super) fn start(
        host: String,
        launcher: &'static dyn Launcher,
        context: Arc<LinkContext>,
        events: Sender<(String, LinkEvent)>,
    ) -> Self {
        let (commands, receiver) = unbounded();
        let (running, done) = bounded::<()>(0);
        thread::spawn(move || {
            let sessions = HashMap::new();
            let progress = context.clock.now();
            let (commands, interrupted) = (receiver, false);
            let (reservation, plan_arguments, pings, outage) = (None, None, VecDeque::new(), Outage::default());
            LinkThread {
                host,
                launcher,
                context,
                commands,
                events,
                sessions,
                interrupted,
                progress,
                outage,
                received_bytes: 0,
                worked: None,
                reservation,
                plan_arguments,
                pings,
            }
            .run();
            drop(running);
        });
        HostLink { commands: Some(commands), done, late: never() }
    }

    /// Sends a command to the link, which ignores it if the host is lost.
    pub(super) fn send(&self, command: LinkCommand) {
        let _ = self.commands.as_ref().map(|commands| commands.send(command));
    }

    /// Asks the link to close its connection and end.
    pub(super) fn close(&mut self) {
        if self.commands.take().is_some() {
            self.late = after(CLOSE_WAIT);
        }
    }
}

impl Drop for HostLink {
    /// Waits until the host has answered the last commands, but not for long if the connection is broken. Links that were closed at
    /// the same time are waited for at the same time.
    fn drop(&mut self) {
        self.close();
        select! {
            recv(self.done) -> _ => {}
            recv(self.late) -> _ => {}
        }
    }
}
