//! What whoever watches a run is told.

use std::path::Path;

use crate::config::CaseKey;
use crate::event::Event;
use crate::result::{Record, WriteError};
use crate::step::Phase;

/// Something happened in a run.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The run's folder is made.
    RunBegins {
        /// The folder.
        folder: &'a Path,
    },
    /// A case begins.
    CaseBegins {
        /// Which.
        key: &'a CaseKey,
        /// Its place, from 1.
        number: usize,
        /// Number of cases.
        count: usize,
    },
    /// A worker said something.
    Event {
        /// Its phase.
        phase: Phase,
        /// What it said.
        event: &'a Event,
    },
    /// A case ended, well or not; its record is on disk, or `unwritten` says why not.
    CaseEnds {
        /// The record.
        record: &'a Record,
        /// Why the record is not on disk.
        unwritten: Option<&'a WriteError>,
    },
}
