//! The fixed host of flagperf: it measures AI hardware through its real software stack.
//!
//! The modules are listed in dependency order: a module may use those above it, never those below it.
//! `tests/architecture.rs` enforces the order.

pub mod units;
pub mod hash;
pub mod text;
pub mod suggestion;
pub mod file;
pub mod tensor;
pub mod precision;
pub mod metric;
pub mod step;
pub mod measure;
pub mod event;
pub mod diagnostics;
pub mod description;
pub mod config;
pub mod plan;
pub mod scaffold;
pub mod import;
pub mod monitor;
pub mod host;
pub mod container;
pub mod engine;
pub mod data;
pub mod script;
pub mod sampling;
pub mod evaluation;
pub mod check;
pub mod work;
pub mod result;
pub mod verify;
pub mod run;
pub mod fleet;
pub mod report;
pub mod review;
pub mod history;
pub mod cli;
