//! The worker: runs one phase of one case, from job to events.
//!
//! Owns the loop, the clock and the counters. Knows nothing about vendors, prints nothing and decides no verdict.

mod build;
mod device_memory;
mod export;
mod facts;
mod measured_loop;
mod model_files;
mod outputs;
mod phase;
mod samples;
mod step;
mod totals;

pub use phase::{Emit, run};
