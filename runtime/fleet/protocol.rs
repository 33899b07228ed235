//! What the process that the user started and an agent tell each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::session::{Outcome, SessionTask};
use super::tree::TreeFile;
use crate::event::Event;
use crate::step::{Phase, Step};
use crate::units::{Bytes, Seconds};

/// A request to an agent. The payload of a frame follows it where that is stated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Are these files of a checkout there? The reply is [`Reply::Missing`]. Later requests are about this checkout.
    Offer {
        /// The files.
        files: Vec<TreeFile>,
    },
    /// The content of a file, as payload.
    Content {
        /// SHA-256 of the content, hexadecimal.
        sha256: String,
    },
    /// Start a session in the offered checkout, unless it was started before.
    Start {
        /// Name of the session.
        session: String,
        /// What it runs.
        task: Box<SessionTask>,
    },
    /// Send what a session writes.
    Attach {
        /// Name of the session.
        session: String,
        /// The number of bytes of each file that need not be sent.
        have: BTreeMap<String, u64>,
        /// Number of this request; what is sent for it has the same.
        round: u32,
    },
    /// Let a session that waits at the barrier of this step go on.
    Release {
        /// Name of the session.
        session: String,
        /// The step.
        step: Step,
    },
    /// Interrupt a session.
    Interrupt {
        /// Name of the session.
        session: String,
    },
    /// Remove a session that has ended, with its files.
    Remove {
        /// Name of the session.
        session: String,
    },
    /// Check this host for cases of the offered checkout. The reply is [`Reply::Report`].
    Examine {
        /// Arguments of `flagperf doctor`, after the folder of host.yaml.
        arguments: Vec<String>,
    },
    /// Is the agent there? The reply is [`Reply::Present`].
    Ping,
}

/// What an agent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The agent runs. It says this first, and after each [`Request::Ping`].
    Present {
        /// Facts about the host.
        host: HostFacts,
    },
    /// The hashes of offered files whose content is not there.
    Missing {
        /// SHA-256 of each, hexadecimal.
        sha256: Vec<String>,
        /// Time of the host's wall clock since 1970.
        time_s: Seconds,
    },
    /// What `flagperf doctor` printed.
    Report {
        /// Its text.
        text: String,
        /// Whether the cases can run.
        can_run: bool,
    },
    /// A session was started, or runs already.
    Started {
        /// Name of the session.
        session: String,
    },
    /// A part of a file that a session wrote, as payload.
    Part {
        /// Name of the session.
        session: String,
        /// Path in the folder of the replica, with `/`.
        path: String,
        /// Where the part begins; 0 replaces what was sent before.
        offset: u64,
        /// Number of the request for which it is sent.
        round: u32,
    },
    /// An event that the display shows.
    Event {
        /// Name of the session.
        session: String,
        /// The phase that emitted it.
        phase: Phase,
        /// The event.
        event: Box<Event>,
    },
    /// A session waits at the barrier of this step.
    Ready {
        /// Name of the session.
        session: String,
        /// The step.
        step: Step,
    },
    /// A session has ended, and all of its files were sent.
    Ended {
        /// Name of the session.
        session: String,
        /// How it ended; `None` when it ended without saying so.
        outcome: Option<Box<Outcome>>,
        /// Its files with their sizes in bytes.
        files: BTreeMap<String, u64>,
        /// The last lines that it wrote to its log, if it ended without an outcome.
        log: Vec<String>,
        /// Number of the request for which all was sent.
        round: u32,
    },
    /// A request failed.
    Failed {
        /// The session that it was about.
        session: Option<String>,
        /// The reason.
        reason: String,
    },
}

/// What an agent knows about its host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Version of the program.
    pub version: String,
    /// Name of the host as it knows itself.
    pub hostname: String,
    /// Id of its kernel since it was started; empty when it is unknown.
    #[serde(default)]
    pub boot_id: String,
    /// Time of its wall clock since 1970.
    pub time_s: Seconds,
    /// What that clock is ahead of the one of the machine that asked.
    #[serde(default)]
    pub clock_offset_s: Seconds,
    /// Free space where results are kept.
    pub free_bytes: Bytes,
}
