//! Cases on other hosts, and on several devices or hosts at once.
//!
//! A *replica* is a case on one device of one host: a complete run with a result folder of its own, conducted on that
//! host. Each figure is therefore computed on the machine that has the device and its clock, and `verify` checks a
//! replica like any other result. The process that the user started computes only the summary.
//!
//! A *launcher* starts an *agent* on each host. The agent stores the files that a run needs under the hashes of their
//! content, and starts a *session* for each replica: a process that conducts the replica and keeps running when the
//! connection breaks. Each session is a process of its own, so that the orphans of one are not mistaken for those of
//! another. The agent sends the files of a session's result folder while they grow.
//!
//! `flagperf peak --hosts` has neither cases nor sessions: each agent runs a command that measures, and ends it when anything fails.
//!
//! A run on one device of this machine has no sessions, and its workers end with their conductor.
//!
//! Knows no engine, and computes no figure of a replica.

mod agent;
mod bootstrap;
mod clock_offset;
mod conclude;
mod conduct;
mod connection;
mod control;
mod displayed_events;
mod doctor_report;
mod fleet_error;
mod forwarder;
mod frame;
mod given_up;
mod group_end;
mod group_hosts;
mod group_member;
mod health;
mod host_link;
mod host_plan;
mod host_text;
mod hosts;
mod launcher;
mod link_replies;
mod link_sessions;
mod link_thread;
mod links;
mod mirror;
mod monitored_stream;
mod network;
mod outage;
mod planned;
mod protocol;
mod received_files;
mod replica;
mod reply_sender;
mod rescale;
mod reservation;
mod run_events;
mod scheduler;
mod session;
mod state;
mod store;
mod store_cleaning;
mod stored_checkout;
mod transfer_rate;
mod tree;

pub use agent::serve;
pub use clock_offset::ClockOffset;
pub use conduct::{FleetOptions, conduct_fleet};
pub use doctor_report::{DoctorReport, DoctorRow};
pub use fleet_error::FleetError;
pub use group_hosts::{GroupFailure, GroupHosts, GroupSettings};
pub use health::{HostHealth, HostReport, check_hosts};
pub use host_plan::HostRefusal;
pub use host_text::HostError;
pub use hosts::needs_fleet;
pub use launcher::{Launcher, launchers};
pub use link_thread::contact_limit;
pub use network::HostAddress;
pub use protocol::HostFacts;
pub use rescale::RescaleRefusal;
pub use scheduler::{JobRequest, Scheduler, schedulers};
pub use session::{SessionOutcome, SessionPlan, SessionTask, run_session, user_name};
pub use state::RunState;
