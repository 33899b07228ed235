//! Where a job runs, and the processes that run it. Now: this machine, without a container.
//!
//! Knows no event and no record: a process is lines in, lines out, and how it ended.

mod bounded;
mod child;
mod companion;
mod descendants;
mod ending;
mod lines;
mod memory;
mod process;
mod stderr;

pub use bounded::run_while;
pub use child::run_to_end;
pub use companion::{Beside, Companion, Heard};
pub use descendants::{LeftBehind, adopt_orphans};
pub use ending::Ending;
pub use process::{Next, Process, ProcessError, Program, THIS_PROGRAM, end_with_input};
