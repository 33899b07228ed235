//! Cases on other hosts, and on several devices or hosts at once.
//!
//! A *replica* is a case on one device of one host: a run with a result folder of its own. An *agent* is started on each
//! host through a launcher. It keeps the files that a run needs, by their content, and starts a *session* for each replica:
//! a process that goes on when the connection is cut. The folder of results on the host is what the agent sends, by
//! offset, so that after a cut the sender goes on where the receiver is.
//!
//! Knows no engine, and computes no figure of a replica.

mod agent;
mod bootstrap;
mod conduct;
mod connection;
mod control;
mod frame;
mod health;
mod host_link;
mod hosts;
mod launcher;
mod links;
mod mirror;
mod protocol;
mod replica;
mod scheduler;
mod session;
mod state;
mod store;
mod tree;

pub use agent::serve;
pub use conduct::{FleetError, FleetOptions, conduct_fleet};
pub use health::{HostHealth, check_hosts};
pub use hosts::{is_elsewhere, needs_fleet};
pub use launcher::{Launcher, launchers};
pub use protocol::HostFacts;
pub use scheduler::{JobRequest, Scheduler, schedulers};
pub use session::{Outcome, Prepared, SessionTask, run_session};
pub use state::RunState;
