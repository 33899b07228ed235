//! The worker: runs one phase of one case, from job to events.
//!
//! Owns the loop, the clock and the counters. Knows nothing about vendors, prints nothing and decides no verdict.

mod audit;
mod changed_model;
mod device_memory;
mod engine_facts;
mod export;
mod facts;
mod input_check;
mod lend;
mod load;
mod measured_loop;
mod memory_need;
mod model_files;
mod modules;
mod operations;
mod order;
mod outputs;
mod pass_comparison;
mod phase;
mod reference;
mod rewrite;
mod step;
mod totals;
mod trace;
mod training;

pub use phase::{Emit, run};
