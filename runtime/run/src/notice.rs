//! Notices: what the conductor reports to the display of a run.

use std::path::Path;

use flagperf_config::CaseKey;
use flagperf_core::event::Event;
use flagperf_core::step::Phase;
use flagperf_result::{ManifestFault, Record, Summary, WriteError};

/// Something that happened in a run.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The run begins; its folder exists. If the hosts of the run cannot be used, nothing is run and the folder is removed.
    RunBegins {
        /// Folder of the run.
        folder: &'a Path,
    },
    /// Everything that the run needs is there, and its first case follows.
    RunIsReady {
        /// Folder of the run.
        folder: &'a Path,
    },
    /// A case begins.
    CaseBegins {
        key: &'a CaseKey,
        /// Number of the case, from 1.
        number: usize,
        /// Number of cases in the run.
        count: usize,
    },
    /// An earlier attempt at a case was cut off, and the case is run again.
    CutOff {
        key: &'a CaseKey,
        /// The folder with the files of the earlier attempt.
        kept: &'a Path,
    },
    /// A step of preparing the run or a case, such as a step of building an image.
    Preparation {
        /// The step.
        line: &'a str,
    },
    /// A worker emitted an event.
    Event {
        /// Phase of the worker.
        phase: Phase,
        event: &'a Event,
    },
    /// A host was connected, cut off, or lost.
    Host {
        /// Name of the host.
        host: &'a str,
        /// What happened, as a sentence without its subject: `is connected`.
        what: &'a str,
        /// Whether this is worth a warning.
        is_warning: bool,
    },
    /// A worker on another host or device emitted an event.
    ReplicaEvent {
        /// The host and the device: `node3`, `node3 device 7`.
        replica: &'a str,
        /// Phase of the worker.
        phase: Phase,
        event: &'a Event,
    },
    /// The killed process whose run is resumed had completed and reported a case.
    FinishedBefore {
        record: &'a Record,
        /// The host and the device, if the case has several records.
        place: Option<&'a str>,
        /// File of the record.
        path: &'a Path,
    },
    /// A case that ran on several hosts or devices ended.
    SummaryEnds {
        summary: &'a Summary,
        /// File of the summary.
        path: &'a Path,
    },
    /// A case ended, with or without success.
    CaseEnds {
        record: &'a Record,
        /// The host and the device, such as `node3 device 7`, if the case has several such records.
        place: Option<&'a str>,
        /// Whether the report of the case is that of a summary, which follows, because the case has several such records.
        is_part: bool,
        /// File of the record.
        path: &'a Path,
        /// Why the record could not be written; `None` when it is on disk.
        unwritten: Option<&'a WriteError>,
        /// The digest of the result's manifest; `None` when it has none.
        digest: Option<&'a str>,
        /// Why the manifest could not be written.
        unsealed: Option<&'a ManifestFault>,
    },
}
