//! Checks a result: that its files are those of its manifest, that every figure of the record follows from the raw times in
//! the events and accuracy from the stored outputs, and who vouches for it.
//!
//! Reads files only in the folder of the result, each with a size limit, and writes none. Of the scripts in a result, it
//! calls only the evaluator and the schedule of a training, in the sandbox. Knows no engine.

mod accuracy;
mod authenticity;
mod difference;
mod events;
mod facts;
mod figures;
mod files;
mod folder;
mod log;
mod monitors;
mod record_file;
mod report;
mod settings;
mod sources;
mod summary;
mod training;

pub use authenticity::{KnownKey, Trust, is_digest};
pub use figures::recomputed;
pub use folder::{find_results, find_results_of_runs, is_folder_of_result, verify_published, verify_result};
pub use report::{CaseReport, Standing, VerifyFinding};
pub use settings::{DifferentSetting, different_settings};
pub use summary::{missing_summary, verify_summary};
