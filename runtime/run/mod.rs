//! The conductor: starts workers for a plan and turns their events into logs and records.
//!
//! Knows nothing about engines and scripts, and displays nothing: the display receives [`Notice`]s.

mod caches;
mod case;
mod checkout;
mod conclude;
mod conduct;
mod device_watch;
mod environment;
mod heard;
mod interrupt;
mod launch;
mod log;
mod notice;
mod observer;
mod phase;
mod sources;
#[cfg(test)]
mod testing;
mod worker_log;

pub use checkout::CheckoutState;
pub use conduct::{RunError, RunOptions, RunOutcome, conduct};
pub use interrupt::{ExitOnSignal, Interrupt, survive_file_size_limit};
pub use notice::Notice;
