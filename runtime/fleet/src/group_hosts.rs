//! The hosts on which processes of one group measure together, without cases and sessions: `flagperf peak --hosts`.
//!
//! What fails on one host ends the measurement on all. A host whose connection breaks is lost at once, because the processes of the
//! others wait for its own. Knows nothing of what is measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bootstrap::OwnProgram;
use super::conduct::{POLL_INTERVAL, session_name};
use super::fleet_error::FleetError;
use super::host_link::{LinkCommand, LinkContext, LinkEvent};
use super::hosts::hosts_of;
use super::links::Fleet;
use super::network::HostAddress;
use super::replica::group_address;
use super::state::RunState;
use super::tree::Tree;
use flagperf_config::Site;
use flagperf_core::hash::{Seed, hash_bytes};
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::process_group::{LOST_PROCESS, ProcessGroup, first_failure};
use flagperf_core::units::Seconds;
use flagperf_run::{Interrupt, Notice};

/// Time without contact after which a host ends a measurement, of which nothing is kept.
const CONTACT_MAX: Seconds = Seconds(30.0);
/// Longest time of a measurement: longer than each host measures.
const TIME_MAX: Seconds = Seconds(1860.0);
/// How long the reason of a failure is waited for when hosts have only lost a process of another one: longer than until the connection to
/// that host counts as broken.
const LOST_WAIT: Seconds = Seconds(15.0);
/// Longest wait for the end of the processes that are killed on a host.
const STOP_WAIT: Seconds = Seconds(15.0);
/// The digits of the id of a group.
const GROUP_DIGITS: usize = 16;

/// How the hosts are reached, and which files they get.
#[derive(Clone, Copy, Debug)]
pub struct GroupSettings<'s> {
    pub site: &'s Site,
    /// The host.yaml of the site.
    pub host_file: &'s Path,
    /// Libraries of engines; those of the checkout are sent.
    pub libraries: &'s [PathBuf],
    /// File to which the programs of launchers write their standard error.
    pub log: &'s Path,
}

/// Why the processes of a group did not measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFailure {
    /// The number of the host that failed; `None` if it was none of them.
    pub host: Option<usize>,
    pub reason: String,
}

/// The hosts, connected and reserved until this value is dropped.
pub struct GroupHosts {
    fleet: Fleet,
    hosts: Vec<String>,
    /// The addresses that `INTERFACE` of host.yaml selects; other hosts use that of the route.
    addresses: BTreeMap<String, HostAddress>,
    master_port: u16,
    clock: Arc<dyn Clock>,
    interrupt: Interrupt,
}

impl GroupHosts {
    /// Returns the names of the hosts, at least two.
    ///
    /// # Errors
    /// When there are fewer, or the nodes of a Slurm job are unknown.
    pub fn names(site: &Site) -> Result<Vec<String>, FleetError> {
        let hosts = hosts_of(site)?;
        if let Some((_, twice)) = hosts.iter().enumerate().find(|(place, host)| hosts[..*place].contains(host)) {
            return Err(FleetError::Nodes(format!("`HOSTS` in host.yaml, or the Slurm job, has host `{twice}` twice")));
        }
        match hosts.len() {
            0 | 1 => Err(FleetError::Nodes(format!(
                "at least two hosts are needed, and `HOSTS` in host.yaml, or the Slurm job, has {}",
                hosts.len()
            ))),
            _ => Ok(hosts),
        }
    }

    /// Connects to the hosts, sends them what they lack, and reserves them as `BUSY_HOST` of host.yaml says.
    ///
    /// # Errors
    /// When a host cannot be used or is busy, or the program is interrupted.
    pub fn connect(
        hosts: Vec<String>,
        settings: GroupSettings<'_>,
        clock: Arc<dyn Clock>,
        interrupt: &Interrupt,
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> Result<Self, FleetError> {
        let GroupSettings { site, host_file, libraries, log } = settings;
        let state = RunState { id: session_name(), hosts: hosts.clone(), ..RunState::default() };
        let context = LinkContext {
            site: site.clone(),
            program: OwnProgram::read().map_err(FleetError::Program)?,
            tree: Tree::read(&site.flagperf_path, host_file, libraries)?,
            log: log.to_owned(),
            clock: clock.clone(),
            run: "`flagperf peak --hosts`".to_owned(),
            run_id: state.id.clone(),
            contact_limit: CONTACT_MAX,
        };
        let fleet = Fleet::connect(context, &hosts, state, false, notify, interrupt)?;
        let addresses = fleet.chosen_addresses(site.interface.as_deref(), &hosts)?;
        let fleet = fleet.reserve(site.busy_host, notify, interrupt)?;
        let (master_port, interrupt) = (site.master_port, interrupt.clone());
        Ok(GroupHosts { fleet, hosts, addresses, master_port, clock, interrupt })
    }

    /// Returns the id under which the hosts are reserved.
    pub fn run_id(&self) -> &str {
        &self.fleet.state.id
    }

    /// Returns which hosts are the same machine as another one: `host `a` is the same machine as host `b``.
    pub fn same_machines(&self) -> Vec<String> {
        let known = |place: usize| self.fleet.other_name(&self.hosts[place], &self.hosts[..place]);
        let named = |place: usize| {
            Some(format!("host `{}` is the same machine as host `{}`", self.hosts[place], known(place)?))
        };
        (0..self.hosts.len()).filter_map(named).collect()
    }

    /// Returns the first process of each host in a new group of so many processes on each.
    pub fn first_processes(&self, devices: u32) -> Vec<ProcessGroup> {
        let seed = Seed::draw().unwrap_or_default();
        let id: String = hash_bytes(&seed.derive("group", 0).bytes()).chars().take(GROUP_DIGITS).collect();
        let chosen = |place: usize| self.addresses.get(&self.hosts[place]);
        let address = |place: usize| group_address(&self.hosts[place], chosen(place));
        let first = |place: usize| ProcessGroup {
            rank: place as u32 * devices,
            size: self.hosts.len() as u32 * devices,
            node_rank: place as u32,
            local_size: devices,
            id: id.clone(),
            master_address: address(0),
            master_port: self.master_port,
            peer_address: address(usize::from(place == 0)),
            own_address: chosen(place).map(|chosen| chosen.address.to_string()),
            interface: chosen(place).map(|chosen| chosen.interface.clone()),
            seed,
            ..ProcessGroup::default()
        };
        (0..self.hosts.len()).map(first).collect()
    }

    /// Runs `flagperf peak` on all hosts at the same time, on each with its arguments. Returns what each printed.
    ///
    /// # Errors
    /// When a host fails or is lost, or the program is interrupted. Then nothing runs any more on a host that can be reached.
    pub fn measure(
        &mut self,
        arguments: Vec<Vec<String>>,
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> Result<Vec<String>, GroupFailure> {
        let lost = self.hosts.iter().position(|host| self.fleet.lost.contains_key(host));
        if let Some(place) = lost {
            return Err(GroupFailure { host: lost, reason: self.fleet.lost[&self.hosts[place]].clone() });
        }
        for (host, arguments) in self.hosts.iter().zip(arguments) {
            self.fleet.links[host].send(LinkCommand::Measure { arguments });
        }
        let mut ends: Vec<HostEnd> = vec![None; self.hosts.len()];
        let began = self.clock.now();
        let mut lost_since = None;
        while !ends.iter().all(|end| matches!(end, Some(Ok(_)))) {
            if let Some(failure) = self.failure(&ends, began, &mut lost_since) {
                self.stop(&mut ends, notify);
                return Err(failure);
            }
            self.receive(&mut ends, notify);
        }
        Ok(ends.into_iter().filter_map(|end| end?.ok()).collect())
    }

    /// Returns why the measurement cannot go on, if it cannot. `lost_since` is since when hosts have only lost a process of another one.
    fn failure(&self, ends: &[HostEnd], began: Nanos, lost_since: &mut Option<Nanos>) -> Option<GroupFailure> {
        let now = self.clock.now();
        if self.interrupt.is_set() {
            return Some(GroupFailure { host: None, reason: "it was stopped".to_owned() });
        }
        match failed_host(ends, now, lost_since) {
            Some((host, reason)) => Some(GroupFailure { host: Some(host), reason: reason.to_owned() }),
            None if now.since(began).0 > TIME_MAX.0 => {
                Some(GroupFailure { host: None, reason: format!("it took longer than {} s and was ended", TIME_MAX.0) })
            }
            None => None,
        }
    }

    /// Handles the next event of a host.
    fn receive(&mut self, ends: &mut [HostEnd], notify: &mut dyn FnMut(&Notice<'_>)) {
        let Ok((host, event)) = self.fleet.events.recv_timeout(POLL_INTERVAL) else { return };
        let Some(place) = self.hosts.iter().position(|known| *known == host) else { return };
        match event {
            LinkEvent::Measured(measured) => {
                ends[place].get_or_insert(measured);
            }
            LinkEvent::Disconnected(reason) | LinkEvent::HostLost(reason) => {
                ends[place].get_or_insert_with(|| Err(reason.clone()));
                self.fleet.lost.entry(host).or_insert(reason);
            }
            other => self.fleet.note(&host, other, notify),
        }
    }

    /// Ends the processes on every host on which they run. A host on which they do not end is lost.
    fn stop(&mut self, ends: &mut [HostEnd], notify: &mut dyn FnMut(&Notice<'_>)) {
        let running = self.hosts.iter().zip(ends.iter()).filter(|(_, end)| end.is_none());
        running.for_each(|(host, _)| self.fleet.links[host].send(LinkCommand::EndMeasurement));
        let began = self.clock.now();
        while ends.iter().any(Option::is_none) && self.clock.now().since(began).0 < STOP_WAIT.0 {
            self.receive(ends, notify);
        }
        for (host, _) in self.hosts.iter().zip(ends.iter()).filter(|(_, end)| end.is_none()) {
            let reason = format!("it did not end the measurement within {} s", STOP_WAIT.0);
            self.fleet.lost.insert(host.clone(), reason);
        }
    }
}

/// Returns the number and the reason of the host because of which the measurement ends, if one has failed. Hosts that have only lost a process
/// of another one are not named until that other one can be, or for too long: since `lost_since`.
fn failed_host<'e>(ends: &'e [HostEnd], now: Nanos, lost_since: &mut Option<Nanos>) -> Option<(usize, &'e str)> {
    let reasons: Vec<Option<&str>> = ends.iter().map(|end| end.as_ref()?.as_ref().err().map(String::as_str)).collect();
    first_failure(&reasons).filter(|(_, reason)| {
        let waits = reason.contains(LOST_PROCESS) && ends.iter().any(Option::is_none);
        !waits || now.since(*lost_since.get_or_insert(now)).0 > LOST_WAIT.0
    })
}

/// What a host printed, or why it failed; `None` while it measures.
type HostEnd = Option<Result<String, String>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_has_only_lost_another_one_is_named_when_no_other_host_has_failed_for_too_long() {
        let second = |second: u64| Nanos(second * 1_000_000_000);
        let lost = || Some(Err(format!("rank 0: {LOST_PROCESS}: Connection closed by peer")));
        let failed = |ends: &[HostEnd], seconds: &[u64]| {
            let mut lost_since = None;
            let at = |at: &u64| failed_host(ends, second(*at), &mut lost_since).map(|(host, _)| host);
            seconds.iter().map(at).collect::<Vec<_>>()
        };
        assert_eq!(failed(&[None, Some(Ok("{}".to_owned()))], &[0, 60]), [None, None]);
        assert_eq!(failed(&[lost(), None], &[5, 20, 21]), [None, None, Some(0)]);
        assert_eq!(failed(&[lost(), lost()], &[0]), [Some(0)], "nothing else can be learnt");
        assert_eq!(failed(&[lost(), Some(Err("no answer".to_owned()))], &[0]), [Some(1)]);
    }
}
