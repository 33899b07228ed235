//! The conductor: starts workers for a plan and turns their events into logs and records.
//!
//! Knows nothing about engines and scripts, and displays nothing: the display receives [`Notice`]s.

mod caches;
mod case;
mod case_monitors;
mod checkout;
mod conclude;
mod conduct;
mod device_watch;
mod environment;
mod folder_state;
mod host_lock;
mod host_use;
mod interrupt;
mod job_paths;
mod launch;
mod log;
mod lost;
mod notice;
mod observer;
mod phase;
mod resume;
mod run_log;
mod sources;
#[cfg(test)]
mod testing;
mod training_log;
mod worker_log;
mod worker_update;

pub use case::planned_settings;
pub use checkout::CheckoutState;
pub use conduct::{Barrier, RunError, RunOptions, RunOutcome, conduct, make_run_folder};
pub use host_lock::{HostBusy, HostLock, LockNotice};
pub use host_use::HostUse;
pub use interrupt::{ExitOnSignal, Interrupt, survive_file_size_limit};
pub use lost::LostCase;
pub use notice::Notice;
pub use resume::{checkpoint_hashes, finished_record, move_aside, was_killed};
pub use run_log::RunLog;
pub use sources::{CaseParts, case_parts};
