//! Where a job runs, and the processes that run it. Now: this machine, without a container.
//!
//! Knows no event and no record: a process is lines in, lines out, and how it ended.

mod companion;
mod ending;
mod process;

pub use companion::{Beside, Companion, Heard};
pub use ending::Ending;
pub use process::{Next, Process, ProcessError, Program, end_with_input, run_to_end};
