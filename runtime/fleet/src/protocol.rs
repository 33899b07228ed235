//! The protocol between the process that the user started and an agent: requests and replies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::clock_offset::ClockOffset;
use super::doctor_report::DoctorReport;
use super::host_text::{HostError, short};
use super::network::HostAddress;
use super::session::{SessionOutcome, SessionTask};
use super::tree::TreeFile;
use flagperf_core::event::Event;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, Seconds};

/// A request to an agent. A request has a payload only where this is stated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Asks which of these files of a checkout the host lacks. The reply is [`Reply::Missing`]. Later requests refer to this
    /// checkout.
    Offer { files: Vec<TreeFile> },
    /// Sends a part of the content of a file as payload; an empty part ends the file.
    Content {
        /// SHA-256 of the content, hexadecimal.
        sha256: String,
    },
    /// Starts a session in the offered checkout, unless it was started before.
    Start {
        /// Name of the session.
        session: String,
        task: Box<SessionTask>,
        /// Whether the launcher starts the process of the session. The agent then only prepares the folder of the session.
        by_launcher: bool,
    },
    /// Asks for the files of a session, now and while they grow.
    Attach {
        /// Name of the session.
        session: String,
        /// For each file, the number of bytes that have already arrived and are not sent again.
        have: BTreeMap<String, u64>,
        /// Number of this request, which its replies repeat.
        round: u32,
    },
    /// Lets a session pass the barrier of this step, at which it waits.
    Release {
        /// Name of the session.
        session: String,
        step: Step,
    },
    /// Interrupts a session.
    Interrupt {
        /// Name of the session.
        session: String,
        /// Why its case has failed, if it has.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Reserves the host for a run, which other runs then do not use. The reply is [`Reply::Reserved`] or [`Reply::HostBusy`].
    Reserve {
        run_id: String,
        /// Name of the run's folder.
        run: String,
        /// Who started the run, and on which machine.
        started_by: String,
        /// Whether to wait until the host is free.
        waits: bool,
        /// Time without contact after which the reservation ends.
        contact_limit_s: Seconds,
    },
    /// Ends the reservation, or stops waiting for it.
    EndReservation,
    /// Removes a session that has ended, and its files. The reply is [`Reply::Removed`], or [`Reply::Failed`] while it runs.
    Remove {
        /// Name of the session.
        session: String,
    },
    /// Checks whether the cases of the offered checkout can run on the host. The reply is [`Reply::Report`].
    Examine {
        /// Arguments of `flagperf doctor`, except the folder of host.yaml.
        arguments: Vec<String>,
    },
    /// Plans cases of the offered checkout on the host. The reply is [`Reply::Planned`].
    Plan {
        /// Arguments of `flagperf plan`, except the folder of host.yaml.
        arguments: Vec<String>,
    },
    /// Measures in the offered checkout with processes of a group. The reply is [`Reply::Measured`] or [`Reply::NotMeasured`].
    Measure {
        /// Arguments of `flagperf peak`, except the folder of host.yaml.
        arguments: Vec<String>,
        /// Time without contact after which the measurement ends.
        contact_limit_s: Seconds,
    },
    /// Ends the measurement. It then replies with [`Reply::NotMeasured`].
    EndMeasurement,
    /// Checks the connection. The reply is [`Reply::Present`].
    Ping,
}

/// A reply of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The agent runs. This is its first message, and its reply to each [`Request::Ping`].
    Present {
        /// Facts about the host.
        host: HostFacts,
    },
    /// The hashes of the offered files whose content the host lacks.
    Missing {
        /// SHA-256 of each, hexadecimal.
        sha256: Vec<String>,
        /// Time of the host's wall clock since 1970.
        time_s: Seconds,
    },
    /// Files that the host had stored were not as they had been sent, and are replaced or removed.
    Restored {
        /// The path of the first one in the checkout.
        first: String,
        /// Number of the others.
        others: usize,
    },
    /// The report of `flagperf doctor`.
    Report {
        /// What it found.
        report: DoctorReport,
    },
    /// The cases were planned.
    Planned {
        /// The errors that prevent the host from running them.
        errors: Vec<HostError>,
    },
    /// The processes of a group have measured.
    Measured {
        /// What `flagperf peak` printed.
        output: String,
    },
    /// The processes of a group have not measured.
    NotMeasured { reason: String },
    /// A session was started, or had been started before.
    Started {
        /// Name of the session.
        session: String,
        /// The process that the launcher must start; `None` if the session has a process or has had one.
        process: Option<SessionProcess>,
    },
    /// A part of a file of a session, as payload.
    Part {
        /// Name of the session.
        session: String,
        /// Path in the folder of the replica, with `/`.
        path: String,
        /// Offset of the part in the file. A part with offset 0 replaces the file.
        offset: u64,
        /// Number of the request that this part answers.
        round: u32,
    },
    /// An event for the display.
    Event {
        /// Name of the session.
        session: String,
        /// The phase that emitted it.
        phase: Phase,
        event: Box<Event>,
    },
    /// A session takes a step of preparing its workers, such as a step of building an image.
    Preparation {
        /// Name of the session.
        session: String,
        /// The step.
        line: String,
    },
    /// The agent is busy with a request that takes long.
    Working,
    /// The host is reserved for the run.
    Reserved {
        /// Why other runs may not notice the reservation, if they may not.
        warning: Option<String>,
    },
    /// The host is not reserved, because another run uses it.
    HostBusy {
        /// What uses the host.
        reason: String,
        /// Id of that run; empty when it is unknown.
        run_id: String,
        /// Whether the request waits for that run to end.
        waits: bool,
    },
    /// The process of a session runs. A session sends this every second.
    Alive {
        /// Name of the session.
        session: String,
    },
    /// A session waits at the barrier of this step.
    Ready {
        /// Name of the session.
        session: String,
        step: Step,
    },
    /// A session has ended, and all of its files were sent.
    Ended {
        /// Name of the session.
        session: String,
        /// The outcome; `None` when the session ended without writing one.
        outcome: Option<Box<SessionOutcome>>,
        /// The files of the session with their sizes in bytes.
        files: BTreeMap<String, u64>,
        /// The last lines of the session's log, if there is no outcome.
        log: Vec<String>,
        /// Number of the request that is now answered.
        round: u32,
    },
    /// A session and its files are removed, or do not exist.
    Removed {
        /// Name of the session.
        session: String,
    },
    /// A request failed.
    Failed {
        /// The session to which the request applied, if any.
        session: Option<String>,
        reason: String,
    },
}

impl Reply {
    /// Returns whether a reply shows that the run goes on. What an agent sends again on each connection does not; of a part of a file,
    /// only bytes that had not arrived before do.
    pub(super) fn is_progress(&self) -> bool {
        matches!(
            self,
            Reply::Started { .. }
                | Reply::Alive { .. }
                | Reply::Preparation { .. }
                | Reply::Event { .. }
                | Reply::Ended { .. }
                | Reply::Planned { .. }
                | Reply::Report { .. }
        )
    }

    /// Returns the session that a reply is about.
    pub(super) fn session(&self) -> Option<&str> {
        match self {
            Reply::Started { session, .. }
            | Reply::Part { session, .. }
            | Reply::Alive { session }
            | Reply::Preparation { session, .. }
            | Reply::Event { session, .. }
            | Reply::Ready { session, .. }
            | Reply::Ended { session, .. }
            | Reply::Removed { session } => Some(session),
            Reply::Failed { session, .. } => session.as_deref(),
            Reply::Present { .. }
            | Reply::Missing { .. }
            | Reply::Restored { .. }
            | Reply::Report { .. }
            | Reply::Planned { .. }
            | Reply::Measured { .. }
            | Reply::NotMeasured { .. }
            | Reply::Working
            | Reply::Reserved { .. }
            | Reply::HostBusy { .. } => None,
        }
    }
}

/// The process of a session that an agent has prepared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionProcess {
    /// This program on the host.
    pub program: PathBuf,
    /// The folder of the session.
    pub folder: PathBuf,
}

/// Most addresses of a host that are read.
const ADDRESSES_MAX: usize = 256;

/// Facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Version of the program.
    pub version: String,
    /// The hostname that the host itself uses.
    pub hostname: String,
    /// Id that the kernel draws each time it starts; empty when it is unknown.
    #[serde(default)]
    pub boot_id: String,
    /// Time of the host's wall clock since 1970.
    pub time_s: Seconds,
    /// Its wall clock, as the process that asked measured it.
    #[serde(skip)]
    pub clock_offset: ClockOffset,
    /// Free space on the disk on which the host stores results.
    pub free_bytes: Bytes,
    /// The addresses of its network cards.
    #[serde(default)]
    pub addresses: Vec<HostAddress>,
}

impl HostFacts {
    /// Returns the facts with their texts as a host may state them.
    pub(super) fn shortened(self) -> Self {
        let (version, hostname, boot_id) = (short(&self.version), short(&self.hostname), short(&self.boot_id));
        let named = |own: HostAddress| HostAddress { interface: short(&own.interface), ..own };
        let addresses = self.addresses.into_iter().take(ADDRESSES_MAX).map(named).collect();
        HostFacts { version, hostname, boot_id, addresses, ..self }
    }
}
