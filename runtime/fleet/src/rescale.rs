//! Goes on with a training that was cut off on another number of hosts or devices.
//!
//! `batch_size` is that of all devices and a checkpoint does not depend on their number, so the training stays the same. Only a host
//! that has written checkpoints can go on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::hosts::hosts_of;
use super::replica::{is_first_of_host, replicas_of};
use super::session::CHECKPOINTS;
use super::state::RunState;
use flagperf_config::{CaseKey, Replica, Site, cache_folder, list_names};
use flagperf_core::run_files::{CHECKPOINTS_FOLDER, EVENTS_FILE};
use flagperf_result::Status;
use flagperf_run::{checkpoint_hashes, finished_record};

/// A training that goes on with other numbers than those of its last attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rescaled {
    /// The key of the case in that attempt.
    pub key: String,
    /// The hosts of that attempt.
    pub hosts: Vec<String>,
    /// The folder of its checkpoints in that of the run in the store of each host.
    pub stored_as: PathBuf,
}

impl Rescaled {
    fn key(&self) -> Option<CaseKey> {
        self.key.parse().ok()
    }

    /// Returns the folder of the attempt in that of the run, and its replicas.
    pub(super) fn attempt(&self) -> Option<(PathBuf, Vec<Replica>)> {
        let key = self.key()?;
        Some((key.folder().into(), replicas_of(&key, &self.hosts)))
    }
}

/// Why a training cannot go on with other numbers: the reason, and a hint.
pub type RescaleRefusal = (String, &'static str);

impl RunState {
    /// Lets a training that was cut off go on as `key` states, on the hosts that host.yaml lists now. `folder` is that of the run.
    ///
    /// # Errors
    /// When no training of the run can go on so.
    pub fn rescale(&mut self, folder: &Path, key: &CaseKey, site: &Site) -> Result<(), RescaleRefusal> {
        let hosts = hosts_of(site).map_err(|error| (error.to_string(), "`HOSTS` in host.yaml lists the hosts"))?;
        let earlier = self.earlier_key(key)?;
        let name = earlier.to_string();
        if self.has_sessions(&name) {
            let reason = format!("the results of `{name}` are not collected yet");
            return Err((
                reason,
                "run `flagperf resume` without `--case` first, with `--skip-unreachable` if a host is gone",
            ));
        }
        let needed = key.scale.hosts as usize;
        if needed > hosts.len() {
            let reason = format!("`{key}` needs {needed} hosts, but {} are listed", hosts.len());
            return Err((reason, "`HOSTS` in host.yaml lists the hosts"));
        }
        if self.hosts.is_empty() {
            self.note_finished(folder, &name);
        }
        let was_single = std::mem::take(&mut self.hosts);
        let then = if was_single.is_empty() { hosts.clone() } else { was_single };
        check_checkpoints(folder, &earlier, &then, &hosts[..needed])?;
        let stored_as = self.rescaled.remove(&name).map_or_else(|| earlier.folder().into(), |known| known.stored_as);
        self.rescaled.insert(key.to_string(), Rescaled { key: name.clone(), hosts: then, stored_as });
        let parts = self.parts.remove(&name).unwrap_or_default();
        self.parts.insert(key.to_string(), parts);
        self.overrides.cases = self.parts.keys().cloned().collect();
        self.hosts = hosts;
        Ok(())
    }

    /// Returns the key of the training that can go on as `key` states.
    fn earlier_key(&self, key: &CaseKey) -> Result<CaseKey, RescaleRefusal> {
        let with_scale = |other: &CaseKey| CaseKey { scale: key.scale, ..other.clone() };
        let keys: Vec<CaseKey> = self.parts.keys().filter_map(|key| key.parse().ok()).collect();
        let is_open = |other: &&CaseKey| other.training.is_some() && !self.is_finished(&other.to_string());
        let open: Vec<&CaseKey> = keys.iter().filter(is_open).collect();
        let hint =
            "the key is that of a training of the run that is not finished, with other numbers of hosts and devices";
        if keys.contains(key) {
            return Err((format!("`{key}` is the key with which the run goes on anyway"), hint));
        }
        match open.iter().filter(|other| with_scale(other) == *key).collect::<Vec<_>>()[..] {
            [earlier] => Ok((*earlier).clone()),
            [] => {
                let open: Vec<String> = open.iter().map(ToString::to_string).collect();
                let known = list_names(open.iter().map(String::as_str));
                Err((format!("no training of the run can go on as `{key}` (known: {known})"), hint))
            }
            _ => Err((format!("several trainings of the run can go on as `{key}`"), hint)),
        }
    }

    /// Notes which cases of a run on one device have ended: there, their records state it.
    fn note_finished(&mut self, folder: &Path, open: &str) {
        let has_ended = |key: &&String| {
            let record = key.parse::<CaseKey>().ok().and_then(|key| {
                let replica = fs::read_dir(folder.join(key.folder())).ok()?.flatten().next()?;
                finished_record(&replica.path()).ok()
            });
            *key != open && record.is_some_and(|record| record.status != Status::Interrupted)
        };
        self.finished = self.parts.keys().filter(has_ended).cloned().collect();
    }
}

/// Checks that each host that goes on has checkpoints, unless no host has any: then the training begins again.
fn check_checkpoints(folder: &Path, earlier: &CaseKey, then: &[String], now: &[String]) -> Result<(), RescaleRefusal> {
    let found = checkpoints_by_host(&folder.join(earlier.folder()), &replicas_of(earlier, then));
    let has = |host: &String| found.get(host).is_some_and(|hashes| !hashes.is_empty());
    match now.iter().find(|host| !has(host)) {
        Some(host) if found.keys().any(has) => {
            let have: Vec<&str> = found.keys().filter(|host| has(host)).map(String::as_str).collect();
            let reason = format!("host `{host}` has no checkpoint of `{earlier}` (known: {})", list_names(have));
            Err((reason, "list only hosts that trained it in `HOSTS` of host.yaml, or start a new run"))
        }
        _ => Ok(()),
    }
}

/// Returns the hashes of the checkpoints of an attempt in `folder` by their names, by the host whose first replica states them.
pub(super) fn checkpoints_by_host(folder: &Path, replicas: &[Replica]) -> IndexMap<String, IndexMap<String, String>> {
    let first = replicas.iter().filter(|replica| is_first_of_host(replica));
    first.map(|first| (first.host.clone(), checkpoint_hashes(&folder.join(first.folder()).join(EVENTS_FILE)))).collect()
}

/// Moves the checkpoints of a training on one device, which lie in the folder `kept` of its attempt, to the store of this machine,
/// where several processes find them.
///
/// # Errors
/// When they cannot be moved.
pub(super) fn store_checkpoints(kept: &Path, replicas: &[Replica], run_id: &str, stored_as: &Path) -> io::Result<()> {
    let Some(own) =
        replicas.iter().map(|replica| kept.join(replica.folder()).join(CHECKPOINTS_FOLDER)).find(|own| own.is_dir())
    else {
        return Ok(());
    };
    let store = cache_folder().ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    let store = store.join(CHECKPOINTS).join(run_id).join(stored_as);
    for checkpoint in fs::read_dir(&own)?.flatten() {
        let place = store.join(checkpoint.file_name());
        fs::create_dir_all(&place)?;
        for file in fs::read_dir(checkpoint.path())?.flatten() {
            let target = place.join(file.file_name());
            // The store may be on another file system.
            fs::hard_link(file.path(), &target).or_else(|_| fs::copy(file.path(), &target).map(drop))?;
        }
    }
    fs::remove_dir_all(own)
}
