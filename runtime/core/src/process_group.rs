//! The group of processes that train one model together.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::hash::Seed;

/// The option by which an engine learns the group of a training on several devices. The host sets it, so a configuration may not.
pub const PROCESS_GROUP_OPTION: &str = "process_group";

/// What an engine says in the error of a step that failed because another process of the group did, or could not be reached.
pub const LOST_PROCESS: &str = "another process of the group failed or cannot be reached";

/// Returns the number and the reason of the process, or of the host, that failed by itself; if all have only lost another one, of the first
/// of them.
pub fn first_failure<'f>(failures: &[Option<&'f str>]) -> Option<(usize, &'f str)> {
    let failures = || failures.iter().enumerate().filter_map(|(place, reason)| Some((place, (*reason)?)));
    failures().find(|(_, reason)| !reason.contains(LOST_PROCESS)).or_else(|| failures().next())
}

/// A process of a group that trains one model together, each on batches of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGroup {
    /// The number of this process, from 0: those of the first host come first.
    pub rank: u32,
    /// The number of processes.
    pub size: u32,
    /// The number of its host among those of the group, from 0.
    #[serde(default)]
    pub node_rank: u32,
    /// The number of this process among those of its host, from 0, and how many these are.
    #[serde(default)]
    pub local_rank: u32,
    #[serde(default)]
    pub local_size: u32,
    /// Distinguishes the group from those of other runs.
    pub id: String,
    /// The host of rank 0, as the others reach it.
    pub master_address: String,
    /// The TCP port of that host at which rank 0 waits for the others.
    pub master_port: u16,
    /// Another host of the group, or that of rank 0 if there is no other. The route to it shows which of its addresses a host uses.
    pub peer_address: String,
    /// The address of this host that the site chose, and the name of its network card; `None` if the route decides.
    #[serde(default)]
    pub own_address: Option<String>,
    #[serde(default)]
    pub interface: Option<String>,
    /// The seed that the processes share, in place of one that each would draw.
    pub seed: Seed,
    /// Whether this process writes the checkpoints of its host: the first one does. All have the same states.
    #[serde(default)]
    pub writes_checkpoints: bool,
    /// The checkpoints of an earlier attempt, by their names, of which every process of the group has the same. The hash of each is that
    /// of the files on this host, or empty if only another host has it.
    #[serde(default)]
    pub checkpoints: IndexMap<String, String>,
}

impl ProcessGroup {
    /// Returns the value of the option [`PROCESS_GROUP_OPTION`]. An engine learns neither the seed nor the checkpoints.
    pub fn option(&self) -> serde_json::Value {
        let ProcessGroup { rank, size, id, master_address, master_port, peer_address, own_address, .. } = self;
        let mut option = serde_json::json!({
            "rank": rank,
            "size": size,
            "id": id,
            "master_address": master_address,
            "master_port": master_port,
            "peer_address": peer_address,
        });
        // An option has no null: without a choice of the site, the engine finds its address.
        if let Some(own_address) = own_address {
            option["own_address"] = own_address.as_str().into();
        }
        option
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_failed_by_itself_is_named_before_those_that_lost_it() {
        let lost = format!("{LOST_PROCESS}: Connection closed by peer");
        assert_eq!(first_failure(&[None, Some(&lost), Some("out of memory")]), Some((2, "out of memory")));
        assert_eq!(first_failure(&[None, Some(&lost)]), Some((1, lost.as_str())));
        assert_eq!(first_failure(&[None, None]), None);
    }
}
