//! Processes: starts, times out and kills them, on this machine and without containers.
//!
//! Knows no event and no record: a process has lines of input, lines of output, and an ending.

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
pub use child::{read_output, run_to_end};
pub use companion::{CompanionCommand, CompanionOutput, CompanionProcess};
pub use descendants::{LeftoverProcess, adopt_orphans};
pub use ending::Ending;
pub use process::{Process, ProcessError, ProcessEvent, Program, THIS_PROGRAM, exit_when_input_ends};
