//! The replicas of a case: their names, their records, and their parts of the summary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::agent::wall_time;
use super::clock_offset::ClockOffset;
use super::network::HostAddress;
use super::planned::{PlannedCase, different_input};
use super::rescale::checkpoints_by_host;
use super::session::SessionOutcome;
use super::transfer_rate::is_too_slow;
use flagperf_config::{CaseKey, Replica};
use flagperf_core::hash::{Seed, hash_bytes};
use flagperf_core::measure::Nanos;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::run_files::{EVENTS_FILE, MANIFEST_FILE, RECORD_FILE};
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;
use flagperf_plan::CasePlan;
use flagperf_result::{ProcessorTime, Record, ReplicaSummary, ResultManifest, read_windows};
use flagperf_run::{LostCase, finished_record};

/// The checkpoints that processes compare: each host keeps two, and may be one behind another host.
const CHECKPOINTS_MAX: usize = 3;

/// Returns the replicas of a case, in the order of its hosts and devices.
pub(super) fn replicas_of(key: &CaseKey, hosts: &[String]) -> Vec<Replica> {
    let devices = key.scale.devices;
    let of_host = |(rank, host): (u32, &String)| {
        let host = host.clone();
        (0..devices).map(move |device| Replica {
            host: host.clone(),
            node_rank: rank,
            device: (devices > 1).then_some(device),
        })
    };
    (0..key.scale.hosts).zip(hosts).flat_map(of_host).collect()
}

/// An attempt at a training that was cut off.
pub(super) struct EarlierAttempt {
    /// Its folder, which was moved aside.
    pub(super) folder: PathBuf,
    pub(super) replicas: Vec<Replica>,
}

/// Returns the processes that train a case, in the order of its replicas; none if nothing is trained. `addresses` are those of the
/// network cards that host.yaml selects; other hosts use the card of the route.
pub(super) fn process_groups(
    key: &CaseKey,
    replicas: &[Replica],
    (master_port, addresses): (u16, &BTreeMap<String, HostAddress>),
    seed: Seed,
    earlier: Option<&EarlierAttempt>,
) -> Vec<ProcessGroup> {
    if key.training.is_none() {
        return Vec::new();
    }
    let checkpoints = earlier.map(|earlier| checkpoints_by_host(&earlier.folder, &earlier.replicas));
    // An engine knows the id, but not the seed.
    let id: String = hash_bytes(&seed.derive("group", 0).bytes()).chars().take(16).collect();
    let chosen = |replica: &Replica| addresses.get(&replica.host);
    let address = |replica: &Replica| match (chosen(replica), key.scale.hosts) {
        (None, 1) => "127.0.0.1".to_owned(),
        (chosen, _) => group_address(&replica.host, chosen),
    };
    let group = |(rank, replica): (usize, &Replica)| {
        let peer = replicas.iter().find(|other| other.node_rank != replica.node_rank).unwrap_or(replica);
        ProcessGroup {
            rank: rank as u32,
            size: replicas.len() as u32,
            node_rank: replica.node_rank,
            local_rank: replica.device.unwrap_or(0),
            local_size: key.scale.devices,
            id: id.clone(),
            master_address: address(&replicas[0]),
            master_port,
            peer_address: address(peer),
            own_address: chosen(replica).map(|chosen| chosen.address.to_string()),
            interface: chosen(replica).map(|chosen| chosen.interface.clone()),
            seed,
            writes_checkpoints: is_first_of_host(replica),
            checkpoints: checkpoints.as_ref().map(|hosts| checkpoints_of(hosts, &replica.host)).unwrap_or_default(),
        }
    };
    replicas.iter().enumerate().map(group).collect()
}

/// Returns the address by which the processes of a group on other hosts reach a host: that of the network card that host.yaml selects, or
/// its name.
pub(super) fn group_address(host: &str, chosen: Option<&HostAddress>) -> String {
    let name = || host.rsplit('@').next().unwrap_or_default().to_owned();
    chosen.map_or_else(name, |chosen| chosen.address.to_string())
}

/// Whether a replica is the first one of its host.
pub(super) fn is_first_of_host(replica: &Replica) -> bool {
    replica.device.is_none_or(|device| device == 0)
}

/// Returns the newest checkpoints of an earlier attempt by their names: with the hash on a host, or an empty one if only another host
/// has the checkpoint. `hosts` has the hashes on each host.
fn checkpoints_of(hosts: &IndexMap<String, IndexMap<String, String>>, host: &str) -> IndexMap<String, String> {
    let names: BTreeSet<&String> = hosts.values().flat_map(IndexMap::keys).collect();
    let hash = |name: &String| hosts.get(host).and_then(|own| own.get(name)).cloned().unwrap_or_default();
    let newest = names.into_iter().rev().take(CHECKPOINTS_MAX);
    newest.map(|name| (name.clone(), hash(name))).collect()
}

/// Returns the name of a replica in messages: `node3`, or `node3 device 7`.
pub(super) fn display_name(replica: &Replica) -> String {
    let device = replica.device.map(|device| format!(" device {device}")).unwrap_or_default();
    format!("{}{device}", replica.host)
}

/// How a replica ended.
#[derive(Clone, Debug)]
pub(super) enum ReplicaEnd {
    /// The session ended with this outcome, and all of its files have arrived.
    Ended(SessionOutcome),
    /// The session did not report an outcome: the reason, and a hint, which may be empty.
    Lost(String, String),
}

/// A replica of the case that runs.
pub(super) struct ReplicaState {
    pub(super) replica: Replica,
    pub(super) session: String,
    /// The folder of its files on this machine.
    pub(super) folder: PathBuf,
    /// How the replica ended; `None` while it runs.
    pub(super) end: Option<ReplicaEnd>,
    /// The step at whose barrier the replica waits.
    pub(super) waits_for: Option<Step>,
    /// When the files last grew, and by how many bytes since the begin or the interruption.
    received: Option<Nanos>,
    pub(super) received_bytes: u64,
    /// The wall clock of this machine when the replica was started; `None` when a killed process had started it.
    started: Option<Seconds>,
    /// The wall clock of its host, as measured when the replica began.
    offset: Option<ClockOffset>,
    has_begun: bool,
    /// Why this run ended the replica, if it did: another process of its group has failed.
    pub(super) ended_because: Option<String>,
    /// Whether its session has ended unexpectedly, or nothing was heard of it for too long.
    pub(super) is_given_up: bool,
}

impl ReplicaState {
    /// Returns a replica that is being started, or one that cannot run because of `end`.
    pub(super) fn new(
        replica: Replica,
        session: String,
        folder: PathBuf,
        end: Option<ReplicaEnd>,
        is_resumed: bool,
    ) -> Self {
        let (started, offset) = ((!is_resumed).then(wall_time), None);
        ReplicaState {
            replica,
            session,
            folder,
            end,
            waits_for: None,
            received: None,
            received_bytes: 0,
            started,
            offset,
            has_begun: false,
            ended_because: None,
            is_given_up: false,
        }
    }

    /// Whether a killed process had started the replica.
    pub(super) fn is_resumed(&self) -> bool {
        self.started.is_none()
    }

    /// Notes the wall clock of the host when the first event of the replica arrives.
    pub(super) fn begins(&mut self, offset: Option<ClockOffset>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.offset = offset;
        }
    }

    /// Returns why the replica did not complete its training; `None` while it runs, and if this run ended it. A training that has ended
    /// without reaching its target does not keep the others from their end.
    pub(super) fn failure(&self) -> Option<String> {
        match self.end.as_ref()? {
            _ if self.ended_because.is_some() => None,
            ReplicaEnd::Lost(reason, _) => Some(reason.clone()),
            ReplicaEnd::Ended(outcome) => {
                let refused = outcome.refused.first().map(|refused| refused.text.clone());
                let of_record = || {
                    let record = finished_record(&self.folder).ok()?;
                    let failure = record.failures.first().map(|failure| failure.reason.clone());
                    let has_ended = record.phases.last()?.ending.as_deref() == Some(COMPLETE_ENDING);
                    failure.filter(|_| !has_ended)
                };
                refused.or_else(|| outcome.interrupted.clone()).or_else(of_record)
            }
        }
    }

    /// Notes that the files have grown.
    pub(super) fn receive(&mut self, growth: u64, now: Nanos) {
        self.received = Some(now);
        self.received_bytes += growth;
    }

    /// Ends a replica that was interrupted at the time `interrupted` and neither ended nor sent a file for `limit`, or sends its files
    /// too slowly. Its session ends by itself.
    pub(super) fn give_up(&mut self, interrupted: Nanos, now: Nanos, limit: Seconds) {
        let last = self.received.map_or(interrupted, |received| received.max(interrupted));
        let is_slow = is_too_slow(now.since(interrupted), self.received_bytes, limit);
        if self.end.is_none() && (now.since(last).0 > limit.0 || is_slow) {
            let reason = format!("host `{}` did not end the case after the interruption", self.replica.host);
            self.end = Some(ReplicaEnd::Lost(reason, String::new()));
            self.is_given_up = true;
        }
    }

    /// Returns the time of this machine's wall clock at which the case began on its host. `None` when the clock of the host is
    /// unknown, or was set between its measurement and the begin.
    pub(super) fn began_here(&self, record: &Record) -> Option<Seconds> {
        let offset = self.offset?;
        let started = record.started.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64();
        let began = offset.time_here(Seconds(started));
        let margin = offset.error_max.0 + BEGIN_MARGIN.0;
        let is_possible =
            self.started.is_none_or(|started| began.0 >= started.0 - margin) && began.0 <= wall_time().0 + margin;
        is_possible.then_some(began)
    }
}

/// How a worker ended that has completed its phase, in the words of the record.
const COMPLETE_ENDING: &str = "exited with status 0";
/// By how much a begin may seem to lie outside the time in which the replica ran, because clocks drift.
const BEGIN_MARGIN: Seconds = Seconds(1.0);

/// The record of a replica.
pub(super) struct ReplicaRecord {
    pub(super) record: Record,
    /// Whether the host wrote it; otherwise it states only what had arrived.
    pub(super) is_own: bool,
}

/// Returns the record of a replica. `case` is what this process knows about it, and `planned` what it was to measure. `first` is the
/// record of another replica of the case.
pub(super) fn replica_record(
    case: LostCase<'_>,
    end: &ReplicaEnd,
    planned_case: &PlannedCase<'_>,
    first: Option<&Record>,
) -> ReplicaRecord {
    let LostCase { run, folder, case: planned, .. } = case;
    let lost = |reason: String, hint: &str| {
        set_aside(folder);
        ReplicaRecord { record: case.record(reason, hint), is_own: false }
    };
    let own = |record: Record| ReplicaRecord { record, is_own: true };
    let outcome = match end {
        ReplicaEnd::Lost(reason, hint) => {
            // The complete result may have arrived before the host was lost.
            let complete = finished_record(folder).ok().filter(|_| ResultManifest::digest_of_folder(folder).is_some());
            let complete = complete.filter(|record| {
                other_origin(record, run, planned).is_none() && deviation(record, planned_case, first).is_none()
            });
            return complete.map_or_else(|| lost(reason.clone(), hint), own);
        }
        ReplicaEnd::Ended(outcome) => outcome,
    };
    if let Some(first) = outcome.refused.first() {
        let more = outcome.refused.len() - 1;
        let more = if more > 0 { format!(" (and {more} more errors)") } else { String::new() };
        return lost(format!("the host refused the case: {}{more}", first.text), &first.hint);
    }
    match (finished_record(folder), &outcome.interrupted) {
        (Ok(record), interrupted) => match (other_origin(&record, run, planned), interrupted) {
            (Some(what), _) => lost(format!("the host sent the record of another {what}"), ""),
            (None, Some(reason)) => lost(format!("the host ended the case: {reason}"), ""),
            (None, None) => match deviation(&record, planned_case, first) {
                Some(what) => lost(what, "did another program change files of flagperf or its data on the host?"),
                None => own(record),
            },
        },
        (Err(error), _) => match &outcome.unsealed {
            Some(reason) => {
                lost(reason.clone(), "run the case again, and leave the files of flagperf on the host alone")
            }
            None => lost(format!("the host sent no usable record: {error}"), "is the disk of the host full?"),
        },
    }
}

/// Returns how a host measured otherwise than planned, or otherwise than the host of `first`; `None` if it did not.
fn deviation(record: &Record, planned: &PlannedCase<'_>, first: Option<&Record>) -> Option<String> {
    let differs = planned.difference(record).map(|what| format!("the host did not measure what was planned: {what}"));
    let host_of = |record: &Record| record.hosts.first().map(|host| host.name.clone()).unwrap_or_default();
    differs.or_else(|| {
        let first = first?;
        let what = different_input(first, record)?;
        Some(format!("the host did not measure the same as host `{}`: {what} differ", host_of(first)))
    })
}

/// Returns what shows that a record belongs to another run or case; `None` if it belongs to this one.
fn other_origin(record: &Record, run: &Path, case: &CasePlan) -> Option<&'static str> {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let differs = [
        ("run", record.run != name),
        ("case", record.case != case.key.case),
        ("framework", record.framework != case.key.framework),
    ];
    differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
}

/// Renames a record and a manifest from the host that do not count, to make place for the record that this process writes.
fn set_aside(folder: &Path) {
    for name in [RECORD_FILE, MANIFEST_FILE] {
        // This fails if the file does not exist.
        let _ = std::fs::rename(folder.join(name), folder.join(format!("{name}.from_host")));
    }
}

/// Returns the part of a replica in the summary. `folder` contains the files of the replica, and `began` is the time of this
/// machine's wall clock at which the case began on the host.
pub(super) fn replica_summary(
    replica: &Replica,
    record: &Record,
    (folder, digest): (&Path, Option<String>),
    processor: Option<ProcessorTime>,
    began: Option<Seconds>,
) -> ReplicaSummary {
    let windows = read_windows(&folder.join(EVENTS_FILE));
    ReplicaSummary::of(replica, record, digest, processor, |phase| {
        let passes = &windows.iter().find(|found| found.phase == phase)?.passes;
        let at = |time: Seconds| began.map(|began| Seconds(began.0 + time.0));
        Some([at(passes.first()?.begin)?, at(passes.last()?.end)?])
    })
}

#[cfg(test)]
mod tests {
    use flagperf_core::event::Event;
    use flagperf_core::step::Phase;
    use flagperf_result::EventChain;

    use super::*;

    #[test]
    fn an_interrupted_replica_that_sends_a_byte_now_and_then_is_given_up() {
        let second = |second: u64| Nanos(second * 1_000_000_000);
        let ended_after = |bytes_per_s: u64| {
            let replica = replicas_of(&"x:y".parse().unwrap(), &["h".to_owned()]).remove(0);
            let mut open = ReplicaState::new(replica, String::new(), PathBuf::new(), None, false);
            (1..1000).find(|at| {
                open.receive(bytes_per_s, second(*at));
                open.give_up(second(0), second(*at), Seconds(60.0));
                open.end.is_some()
            })
        };
        assert_eq!((ended_after(1), ended_after(10_000)), (Some(61), None));
    }

    #[test]
    fn processes_get_the_same_names_of_checkpoints_and_the_hashes_of_their_own_host() {
        let kept = tempfile::tempdir().unwrap();
        let hosts = ["a", "b"].map(str::to_owned);
        let key: CaseKey = "x:y:z:2:2:1".parse().unwrap();
        let replicas = replicas_of(&key, &hosts);
        for (replica, numbers) in [(&replicas[0], 1..4), (&replicas[2], 3..6)] {
            let folder = kept.path().join(replica.folder());
            std::fs::create_dir_all(&folder).unwrap();
            let mut events = EventChain::create(&folder.join(EVENTS_FILE)).unwrap();
            for number in numbers {
                let (name, sha256) = (format!("step{number}"), format!("{number} on {}", replica.host));
                events.push(Seconds(1.0), Phase::Train, &Event::Checkpoint { name, sha256 }).unwrap();
            }
        }
        let earlier = EarlierAttempt { folder: kept.path().to_owned(), replicas: replicas.clone() };
        let groups = process_groups(&key, &replicas, (1, &BTreeMap::new()), Seed::default(), Some(&earlier));
        let writers: Vec<bool> = groups.iter().map(|group| group.writes_checkpoints).collect();
        assert_eq!(writers, [true, false, true, false]);
        let of_host =
            |hashes: [&'static str; 3]| ["step5", "step4", "step3"].into_iter().zip(hashes).collect::<Vec<_>>();
        for (group, expected) in groups.iter().zip([0, 0, 1, 1]) {
            let found: Vec<_> = group.checkpoints.iter().map(|(name, hash)| (name.as_str(), hash.as_str())).collect();
            let hosts = [of_host(["", "", "3 on a"]), of_host(["5 on b", "4 on b", "3 on b"])];
            assert_eq!(found, hosts[expected]);
        }
        let alone: CaseKey = "x:y:z:1:1:1".parse().unwrap();
        let group = process_groups(
            &alone,
            &replicas_of(&alone, &hosts[1..]),
            (1, &BTreeMap::new()),
            Seed::default(),
            Some(&earlier),
        );
        let found: Vec<_> = group[0].checkpoints.values().map(String::as_str).collect();
        assert_eq!((group.len(), found), (1, vec!["5 on b", "4 on b", "3 on b"]), "the other host is gone");
    }

    #[test]
    fn a_case_has_a_replica_for_each_device_of_its_hosts() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let folders = |key: &str| {
            let replicas = replicas_of(&key.parse().unwrap(), &hosts);
            replicas.iter().map(Replica::folder).collect::<Vec<_>>()
        };
        assert_eq!(folders("x:y"), ["a_noderank0"]);
        assert_eq!(folders("x:y:2x1"), ["a_noderank0", "b_noderank1"]);
        assert_eq!(folders("x:y:1x2"), ["a_noderank0_device0", "a_noderank0_device1"]);
    }
}
