//! Reads the record of a result. Anyone may have written it, so nothing in it is trusted.

use std::path::Path;

use flagperf_core::regular_file::read_regular;
use serde::Deserialize;

use super::CaseReport;
use super::difference::check_known;
use flagperf_core::run_files::RECORD_FILE;
use flagperf_result::Record;

/// Largest record in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The part of a record that every version has.
#[derive(Deserialize)]
struct AnyRecord {
    schema: u32,
    #[serde(default)]
    provenance: AnyProvenance,
}

#[derive(Default, Deserialize)]
struct AnyProvenance {
    #[serde(default)]
    events_sha256: String,
}

/// A record that was read.
pub(super) enum ReadRecord {
    /// A record of this version.
    Current(Box<Record>),
    /// A record of an older version, with the hash of its last event.
    Older {
        /// Version of its schema.
        schema: u32,
        /// Hash of the last event.
        events_sha256: String,
    },
}

/// Reads a record. Returns `None` when it cannot be read, after a finding or the reason.
pub(super) fn read_record(path: &Path, report: &mut CaseReport) -> Option<ReadRecord> {
    let text = match read_regular(path, BYTES_MAX) {
        Ok(text) => text,
        Err(error) => {
            report.give_up(format!("`{RECORD_FILE}` cannot be read: {error}"));
            return None;
        }
    };
    parse_record(&text, report)
}

/// Parses the text of a record. Returns `None` when it is none, after a finding or the reason.
pub(super) fn parse_record(text: &[u8], report: &mut CaseReport) -> Option<ReadRecord> {
    let read = serde_json::from_slice(text).and_then(|any: AnyRecord| match any.schema {
        Record::SCHEMA => serde_json::from_slice(text).map(|record| (any, Some(record))),
        _ => Ok((any, None)),
    });
    match read {
        Ok((_, Some(record))) => {
            check_known(report, RECORD_FILE, "record", &record, text);
            Some(ReadRecord::Current(Box::new(record)))
        }
        Ok((AnyRecord { schema, provenance }, None)) if schema < Record::SCHEMA => {
            Some(ReadRecord::Older { schema, events_sha256: provenance.events_sha256 })
        }
        Ok((AnyRecord { schema, .. }, None)) => {
            let known = Record::SCHEMA;
            report.give_up(format!(
                "schema {schema} was written by a newer version of flagperf (this one knows {known}): verify the result with that version"
            ));
            None
        }
        Err(error) => {
            report.add(RECORD_FILE, format!("it is not a record: {error}"), None, None);
            None
        }
    }
}
