//! Starts processes on this machine, limits their time and kills them.
//!
//! Knows no container, no event and no record: a process has lines of input, lines of output, and an ending.

mod bounded;
mod capture;
mod child;
mod companion;
mod descendants;
mod duplex;
mod ending;
mod file_holder;
mod inspection;
mod lines;
mod memory;
mod open_files;
mod process;
mod program_file;
mod protection;
mod stderr;
mod streams;
mod worker;

pub use bounded::run_while;
pub use capture::{CaptureError, CapturedCommand, capture};
pub use child::{read_output, run_to_end};
pub use companion::{CompanionCommand, CompanionOutput, CompanionProcess, isolate_companions};
pub use descendants::{LeftoverProcess, adopt_orphans};
pub use duplex::{DuplexProcess, start_detached};
pub use ending::Ending;
pub use file_holder::{hold_files, launch_companion};
pub use inspection::{ExecutedCode, descends_from, executed_code, program_name};
pub use memory::{above as memory_above, descendants_peak, in_use as memory_in_use};
pub use open_files::allow_open_files;
pub use process::{Process, ProcessError, Program, THIS_PROGRAM, exit_when_input_ends};
pub use program_file::program_file;
pub use protection::{WorkerNeeds, protect_worker};
pub use streams::{Streams, WorkerInput, WorkerStreams};
pub use worker::{ProcessEvent, StoppedTime, Worker};
