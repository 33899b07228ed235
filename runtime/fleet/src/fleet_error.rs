//! Why a run on hosts does not start.

use std::io;

use super::host_plan::HostRefusal;
use super::tree::TreeError;
use flagperf_run::RunError;

/// An error that prevents a run on hosts from starting. Of an error with several hosts, the message names none: the
/// command line prints a line for each.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The results folder is not writable.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The checkout cannot be sent.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The file of the running program cannot be read.
    #[error("cannot read the file of this program, which is sent to the hosts: {0}")]
    Program(io::Error),
    /// The nodes of a Slurm job are unknown, or the hosts too few.
    #[error("{0}")]
    Nodes(String),
    /// The run was interrupted before its first case.
    #[error("interrupted before the hosts were ready; nothing was run")]
    Interrupted,
    /// Other runs use hosts: each host with a description of that run.
    #[error("other runs use hosts")]
    Busy(Vec<(String, String)>),
    /// The hosts that cannot be used, each with the reason.
    #[error("hosts cannot be used")]
    Hosts(Vec<(String, String)>),
    /// Errors of the plan on hosts, each with the hosts that report it.
    #[error("hosts refuse the plan")]
    Refused(Vec<HostRefusal>),
}
