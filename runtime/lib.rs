//! The fixed host of flagperf: measures AI hardware through its real software stack.
//!
//! The modules stand in dependency order: each may use those above it, never those below.
//! `tests/architecture.rs` holds the order.

pub mod units;
pub mod hash;
pub mod text;
pub mod file;
pub mod tensor;
pub mod metric;
pub mod step;
pub mod measure;
pub mod event;
pub mod config;
pub mod plan;
pub mod monitor;
pub mod host;
pub mod engine;
pub mod data;
pub mod script;
pub mod work;
pub mod result;
pub mod run;
pub mod report;
pub mod cli;
