//! The fixed host of flagperf: measures AI hardware through its real software stack.
//!
//! The modules stand in dependency order: each may use those above it, never those below.
//! `tests/architecture.rs` holds the order.

pub mod cli;
pub mod config;
pub mod data;
pub mod engine;
pub mod event;
pub mod host;
pub mod measure;
pub mod metric;
pub mod plan;
pub mod report;
pub mod result;
pub mod run;
pub mod script;
pub mod tensor;
pub mod units;
pub mod work;
