//! A result as a page reads it: its record, and what `verify` says of it.

use std::path::{Path, PathBuf};

use flagperf_comparison::UnusedResult;
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::{MANIFEST_FILE, RECORD_FILE, SUMMARY_FILE};
use flagperf_core::text::one_line;
use flagperf_report::display_text;
use flagperf_result::{MANIFEST_BYTES_MAX, RECORD_BYTES_MAX, Record, digest, list_files};
use flagperf_verify::{CaseReport, Standing, Trust, verify_result};
use serde::Deserialize;

/// The most bytes of a result that is verified here, which takes a second or two; of a larger one, a page says how to verify it.
const VERIFIED_BYTES_MAX: u64 = 256 << 20;

/// A result that was read.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// The folder of the case, or a record without the other files of its folder.
    pub path: PathBuf,
    pub record: Record,
    /// The digest of the manifest; `None` without one.
    pub digest: Option<String>,
}

impl ReadResult {
    /// Reads the record of a result that `find_results` found.
    ///
    /// # Errors
    /// When there is no record, or it is of another version.
    pub fn read(path: &Path) -> Result<Self, UnusedResult> {
        #[derive(Deserialize)]
        struct AnyRecord {
            schema: u32,
        }
        let file = if path.is_dir() { path.join(RECORD_FILE) } else { path.to_owned() };
        let unused = |reason: String| UnusedResult { path: file.clone(), reason };
        let text = read_regular(&file, RECORD_BYTES_MAX).map_err(|error| unused(error.to_string()))?;
        let not_a_record = |error: serde_json::Error| unused(format!("it is not a record: {error}"));
        let AnyRecord { schema } = serde_json::from_slice(&text).map_err(not_a_record)?;
        if schema != Record::SCHEMA {
            let (known, other) = (Record::SCHEMA, if schema < Record::SCHEMA { "an older" } else { "a newer" });
            return Err(unused(format!(
                "it has schema {schema}, of {other} version of flagperf, which must be used (this one reads schema {known})"
            )));
        }
        let record = serde_json::from_slice(&text).map_err(not_a_record)?;
        let manifest =
            path.is_dir().then(|| read_regular(&path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX).ok()).flatten();
        Ok(ReadResult { path: path.to_owned(), record, digest: manifest.map(|text| digest(&text)) })
    }

    /// Verifies the result, unless its files are large.
    pub fn check(&self, trust: &Trust) -> Check {
        if self.is_large() { Check::TooLarge } else { Check::Verified(Box::new(verify_result(&self.path, trust))) }
    }

    /// Returns whether its files are too large to be verified here.
    pub(super) fn is_large(&self) -> bool {
        let size = |files: Vec<flagperf_result::FoundFile>| files.iter().map(|file| file.size).sum::<u64>();
        self.path.is_dir() && list_files(&self.path).is_ok_and(|files| size(files) > VERIFIED_BYTES_MAX)
    }

    /// Returns whether it is that of one of several devices, whose sum is the result of the case.
    pub(super) fn is_part(&self) -> bool {
        let summary = || self.folder()?.parent()?.join(SUMMARY_FILE).symlink_metadata().ok();
        self.record.device.is_some() || self.record.processes() > 1 || summary().is_some()
    }

    /// Returns where it was measured: its host, and its device if there are several.
    pub fn place(&self) -> String {
        let (host, device) = self.record.place();
        let device = device.map(|device| format!(" device {device}")).unwrap_or_default();
        text(&format!("{}{device}", host.unwrap_or_default()))
    }

    /// Returns the path of the record.
    pub fn record_path(&self) -> PathBuf {
        if self.path.is_dir() { self.path.join(RECORD_FILE) } else { self.path.clone() }
    }

    /// Returns the folder with the other files of the result; `None` for a record alone.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.path.is_dir().then_some(&*self.path)
    }
}

/// What is known of whether a result contradicts itself.
#[derive(Clone, Debug)]
pub enum Check {
    /// What `verify` found.
    Verified(Box<CaseReport>),
    /// Its files are too large to be verified here.
    TooLarge,
}

impl Check {
    /// What is said of a result that was not verified.
    pub(super) const NOT_CHECKED: &str = "not checked";

    /// Returns what `verify` said in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Check::Verified(report) => report.standing.name(),
            Check::TooLarge => Check::NOT_CHECKED,
        }
    }

    /// Returns whether the result is wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Check::Verified(report) if report.standing == Standing::Wrong)
    }
}

/// Returns a text of a record as a page shows it: as the report does, but on one line.
pub(super) fn text(text: &str) -> String {
    one_line(&display_text(text)).into_owned()
}
