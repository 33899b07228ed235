//! The vocabulary of flagperf: units, tensors, metrics, the clock, statistics and events.
//!
//! Knows no engine and no configuration. A module may use those above it, never those below it.

pub mod units;
pub mod exit_code;
pub mod panic;
pub mod regular_file;
pub mod hash;
pub mod text;
pub mod suggestion;
pub mod file;
pub mod file_kind;
pub mod tensor;
pub mod engine_error;
pub mod lent_memory;
pub mod image_decoder;
pub mod precision;
pub mod limits;
pub mod metric;
pub mod process_group;
pub mod step;
pub mod run_files;
pub mod measure;
pub mod event;
pub mod diagnostics;
pub mod description;
