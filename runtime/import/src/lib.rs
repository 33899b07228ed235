//! Converts the configuration of FlagPerf's inference and training into this program's: host.yaml, cases, overlays, vendors.
//!
//! Runs nothing of the source, and knows no particular vendor and no particular case.

mod case;
mod file;
mod host;
mod overlay;
mod python;
mod python_text;
mod python_value;
mod report;
#[cfg(test)]
mod schema_tests;
mod source;
#[cfg(test)]
mod tests;
mod training;
mod training_own;
mod training_program;
mod training_site;
#[cfg(test)]
mod training_tests;
mod training_values;
mod tree;
mod vendor;
mod yaml_text;

pub use report::{CaseReport, FileOutcome, FileReport, ImportReport, KeyChange, KeyReport, ProblemReport, SCHEMA};
pub use source::{ImportError, SourceTree};
pub use tree::{Import, import};
