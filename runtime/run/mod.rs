//! The conductor: turns a plan into workers, their events into logs and records.
//!
//! Knows no engine and no script, and draws nothing: whoever watches is told by [`Notice`]s.

mod caches;
mod case;
mod conclude;
mod conduct;
mod interrupt;
mod log;
mod notice;
mod phase;
#[cfg(test)]
mod testing;
mod worker_log;

pub use conduct::{Options, Outcome, RunError, conduct};
pub use interrupt::{Interrupt, survive_file_size_limit};
pub use notice::Notice;
