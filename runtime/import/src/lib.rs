//! Converts the configuration of FlagPerf's inference into this program's: host.yaml, cases, overlays, vendors.
//!
//! Runs nothing of the source, and knows no particular vendor and no particular case.

mod case;
mod file;
mod host;
mod overlay;
mod report;
#[cfg(test)]
mod schema_tests;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod vendor;
mod yaml_text;

pub use report::{CaseReport, FileOutcome, FileReport, ImportReport, KeyChange, KeyReport, ProblemReport, SCHEMA};
pub use source::{ImportError, SourceTree};
pub use tree::{Import, import};
