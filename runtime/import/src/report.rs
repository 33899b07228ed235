//! The report of an import, which is also the schema of its JSON.

use std::path::PathBuf;

use serde::Serialize;

use flagperf_config::{Finding, Origin};

/// Version of the schema of a report.
pub const SCHEMA: u32 = 1;

/// What an import did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportReport {
    /// Version of the schema.
    pub schema: u32,
    /// The folder of FlagPerf's inference, or of its training if it has no inference.
    pub source: PathBuf,
    /// The checkout into which it was imported.
    pub checkout: PathBuf,
    /// Whether nothing was written: the outcomes are those that the import would have.
    pub is_dry_run: bool,
    /// The files of the checkout that the source has a counterpart of.
    pub files: Vec<FileReport>,
    /// The keys and names of the source that are not in these files under the same name.
    pub keys: Vec<KeyReport>,
    /// The cases of the source.
    pub cases: Vec<CaseReport>,
    /// What could not be converted or written.
    pub problems: Vec<ProblemReport>,
    /// Whether a file could not be written.
    #[serde(skip)]
    pub has_unwritten_files: bool,
}

impl ImportReport {
    /// Returns the number of files with an outcome.
    pub fn count(&self, outcome: FileOutcome) -> usize {
        self.files.iter().filter(|file| file.outcome == outcome).count()
    }
}

/// A file of the checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileReport {
    /// The path in the checkout.
    pub path: PathBuf,
    /// The file or folder of the source.
    pub from: String,
    /// What happened to it.
    pub outcome: FileOutcome,
    /// What differs from a file that existed before: keys, or `text`.
    pub differences: Vec<String>,
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileOutcome {
    /// The file did not exist before.
    Created,
    /// The file existed with the same content.
    Unchanged,
    /// The file existed with another content and stays as it was.
    Kept,
    /// The file existed with another content and was replaced.
    Replaced,
    /// The file could not be written.
    Unwritten,
}

/// A key or a name of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyReport {
    /// The file or folder of the source.
    pub file: String,
    /// Line, from 1; null for the whole file.
    pub line: Option<usize>,
    /// The key, or the name of an engine.
    pub key: String,
    /// What became of it.
    pub change: KeyChange,
    /// Its new name, for a renamed one.
    pub to: Option<String>,
    /// Why.
    pub reason: String,
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyChange {
    /// It has another name here.
    Renamed,
    /// The checkout has another value, which stays.
    Kept,
    /// A vendor sets it there and may not set it here, so it was left out.
    Refused,
    /// Nothing here takes its place, so it was left out.
    NoEquivalent,
}

/// A case of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaseReport {
    /// The name.
    pub case: String,
    /// Whether the checkout has no scripts for it: it can be configured, but not run.
    pub needs_scripts: bool,
    /// The vendors with an overlay for it.
    pub vendors: Vec<String>,
}

/// Something that could not be converted or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProblemReport {
    /// The file; null if the problem is about none.
    pub file: Option<String>,
    /// Line, from 1; null for the whole file.
    pub line: Option<usize>,
    /// Column, from 1; null if unknown.
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl From<&Finding> for ProblemReport {
    fn from(finding: &Finding) -> Self {
        let place = |number: usize| (number > 0).then_some(number);
        let (file, line, column) = match &finding.origin {
            Origin::File { file, line, column } | Origin::Script { file, line, column } => {
                (Some(file.to_string()), place(*line), place(*column))
            }
            _ => (None, None, None),
        };
        ProblemReport { file, line, column, message: finding.message.clone(), hint: finding.hint.clone() }
    }
}
