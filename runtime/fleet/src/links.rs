//! Connects to the hosts of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::clock_offset::ClockOffset;
use super::conduct::POLL_INTERVAL;
use super::fleet_error::FleetError;
use super::given_up::GivenUpSessions;
use super::host_link::{HostLink, LinkCommand, LinkContext, LinkEvent};
use super::launcher::launcher_for;
use super::network::{HostAddress, chosen_address};
use super::state::RunState;
use flagperf_config::BusyHost;
use flagperf_core::hash::hash_bytes;
use flagperf_run::{Interrupt, Notice};

/// Digits of the id of a machine.
const MACHINE_DIGITS: usize = 16;

/// The links to the hosts of a run.
pub(super) struct Fleet {
    pub(super) links: BTreeMap<String, HostLink>,
    pub(super) events: Receiver<(String, LinkEvent)>,
    /// By how much the wall clock of each host is ahead of the clock of this machine.
    pub(super) offsets: BTreeMap<String, ClockOffset>,
    /// The lost hosts, each with the reason.
    pub(super) lost: BTreeMap<String, String>,
    pub(super) state: RunState,
    /// The hosts, each with its machine: the id of its kernel and its hostname.
    machines: BTreeMap<String, (String, String)>,
    /// The addresses of each host.
    addresses: BTreeMap<String, Vec<HostAddress>>,
    /// The hosts whose lock cannot be used, each with the reason.
    unlocked: BTreeMap<String, String>,
    /// The sessions that earlier runs have given up.
    pub(super) given_up: GivenUpSessions,
    /// SHA-256 of the files that were sent to the hosts, by path in the checkout.
    pub(super) sent_files: BTreeMap<String, String>,
    /// The folder for results, which contains the runs of this user.
    results: PathBuf,
}

impl Fleet {
    /// Connects to all hosts at the same time.
    ///
    /// # Errors
    /// When a host cannot be used, or the connecting is interrupted.
    pub(super) fn connect(
        context: LinkContext,
        hosts: &[String],
        state: RunState,
        skips_unreachable: bool,
        notify: &mut dyn FnMut(&Notice<'_>),
        interrupt: &Interrupt,
    ) -> Result<Self, FleetError> {
        let context = Arc::new(context);
        let site = &context.site;
        let sent_files = context.tree.files.iter().map(|file| (file.path.clone(), file.sha256.clone())).collect();
        let (sender, events): (Sender<_>, Receiver<_>) = unbounded();
        let link = |host: &String| {
            let launcher = launcher_for(host, site.launcher);
            (host.clone(), HostLink::start(host.clone(), launcher, context.clone(), sender.clone()))
        };
        let links = hosts.iter().map(link).collect();
        let (offsets, lost, machines, unlocked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let results = site.flagperf_log_path.clone();
        let mut fleet = Fleet {
            links,
            events,
            offsets,
            lost,
            state,
            machines,
            addresses: BTreeMap::new(),
            unlocked,
            given_up: GivenUpSessions::of_user(),
            sent_files,
            results,
        };
        let mut waiting: BTreeSet<&String> = hosts.iter().collect();
        while !waiting.is_empty() && !interrupt.is_set() {
            let Ok((host, event)) = fleet.events.recv_timeout(POLL_INTERVAL) else { continue };
            match event {
                LinkEvent::Connected(facts) => {
                    waiting.remove(&host);
                    notify(&Notice::Host { host: &host, what: "is connected", is_warning: false });
                    let machine = (facts.boot_id, facts.hostname);
                    fleet.remove_given_up(&host);
                    fleet.offsets.insert(host.clone(), facts.clock_offset);
                    fleet.addresses.insert(host.clone(), facts.addresses);
                    fleet.machines.insert(host.clone(), machine);
                    if let Some(what) = fleet.same_machine(&host, hosts) {
                        notify(&Notice::Host { host: &host, what: &what, is_warning: true });
                    }
                }
                LinkEvent::HostLost(reason) => {
                    waiting.remove(&host);
                    fleet.lost.insert(host, reason);
                }
                other => fleet.note(&host, other, notify),
            }
        }
        if interrupt.is_set() {
            return Err(FleetError::Interrupted);
        }
        let is_usable = fleet.lost.is_empty() || skips_unreachable && fleet.lost.len() < hosts.len();
        match is_usable {
            true => Ok(fleet),
            false => Err(FleetError::Hosts(std::mem::take(&mut fleet.lost).into_iter().collect())),
        }
    }

    /// Asks a host to remove the sessions that earlier runs have given up.
    fn remove_given_up(&self, host: &str) {
        let Some(link) = self.links.get(host) else { return };
        self.given_up.on_host(host).into_iter().for_each(|session| link.send(LinkCommand::Remove { session }));
    }

    /// Returns another one of these hosts that is the same machine as a host.
    pub(super) fn other_name<'h>(&self, host: &str, hosts: &'h [String]) -> Option<&'h String> {
        // Containers on one machine share its kernel, but have different hostnames.
        let machine = self.machines.get(host).filter(|(kernel, _)| !kernel.is_empty())?;
        hosts.iter().find(|other| *other != host && self.machines.get(*other) == Some(machine))
    }

    /// Returns that a host is the same machine as another one of these hosts.
    fn same_machine(&self, host: &str, hosts: &[String]) -> Option<String> {
        let other = self.other_name(host, hosts)?;
        Some(format!("is the same machine as `{other}`: the sum over both hosts is not the throughput of two machines"))
    }

    /// Returns why it is not certain that a replica has its host, and a machine, for itself. `hosts` are those of its case.
    pub(super) fn host_doubts(&self, host: &str, hosts: &[String]) -> Vec<String> {
        let same = self.same_machine(host, hosts).map(|what| format!("host `{host}` {what}"));
        self.unlocked.get(host).cloned().into_iter().chain(same).collect()
    }

    /// Reserves every host for this run, or none. A run that waits for a host holds only hosts that come before it in the order
    /// of the machines, so two runs never wait for each other.
    ///
    /// # Errors
    /// When another run uses a host and this run does not wait, or is interrupted while it waits.
    pub(super) fn reserve(
        mut self,
        choice: BusyHost,
        notify: &mut dyn FnMut(&Notice<'_>),
        interrupt: &Interrupt,
    ) -> Result<Self, FleetError> {
        if choice == BusyHost::Share {
            return Ok(self);
        }
        let reachable = |host: &&String| !self.lost.contains_key(*host);
        let hosts: Vec<String> = self.links.keys().filter(reachable).cloned().collect();
        let mut busy = BTreeMap::new();
        self.request(&hosts, false, &mut busy, notify, interrupt)?;
        if busy.is_empty() {
            return Ok(self);
        }
        if choice == BusyHost::Refuse {
            return Err(FleetError::Busy(busy.into_iter().collect()));
        }
        busy.iter().for_each(|(host, reason)| notify_waiting(host, reason, notify));
        self.links.values().for_each(|link| link.send(LinkCommand::EndReservation));
        let mut in_order: Vec<_> = hosts.iter().map(|host| (self.machines.get(host).cloned(), host)).collect();
        in_order.sort_unstable();
        for (_, host) in in_order {
            self.request(std::slice::from_ref(host), true, &mut busy, notify, interrupt)?;
        }
        Ok(self)
    }

    /// Requests the reservation of hosts and waits for the answers. `busy` lists the hosts that another run uses, each with a
    /// description of that run. A run that waits names another one when that has become the user of a host.
    fn request(
        &mut self,
        hosts: &[String],
        waits: bool,
        busy: &mut BTreeMap<String, String>,
        notify: &mut dyn FnMut(&Notice<'_>),
        interrupt: &Interrupt,
    ) -> Result<(), FleetError> {
        let mut waiting: BTreeSet<&String> = hosts.iter().collect();
        hosts.iter().filter_map(|host| self.links.get(host)).for_each(|link| link.send(LinkCommand::Reserve { waits }));
        while !waiting.is_empty() {
            if interrupt.is_set() {
                return Err(FleetError::Interrupted);
            }
            let Ok((host, event)) = self.events.recv_timeout(POLL_INTERVAL) else { continue };
            match event {
                LinkEvent::Reserved(warning) => {
                    waiting.remove(&host);
                    if let Some(warning) = warning {
                        notify(&Notice::Host { host: &host, what: &format!("warns: {warning}"), is_warning: true });
                        self.unlocked.insert(host, warning);
                    }
                }
                LinkEvent::HostBusy { reason, run_id, waits } => {
                    let reason = self.busy_reason(reason, &run_id);
                    if waits && busy.get(&host) != Some(&reason) {
                        notify_waiting(&host, &reason, notify);
                    }
                    if !waits {
                        waiting.remove(&host);
                    }
                    busy.insert(host, reason);
                }
                LinkEvent::HostLost(reason) => return Err(FleetError::Hosts(vec![(host, reason)])),
                other => self.note(&host, other, notify),
            }
        }
        Ok(())
    }

    /// Handles an event that may arrive at any time; others are ignored.
    pub(super) fn note(&mut self, host: &str, event: LinkEvent, notify: &mut dyn FnMut(&Notice<'_>)) {
        match event {
            LinkEvent::Clock(measured) => self.update_clock(host, measured),
            LinkEvent::Removed { session } => self.given_up.remove(&session),
            LinkEvent::Warning(what) => notify(&Notice::Host { host, what: &what, is_warning: true }),
            _ => {}
        }
    }

    /// Returns what a user needs to know about the run that uses a host.
    fn busy_reason(&self, reason: String, run_id: &str) -> String {
        let Some(killed) = RunState::killed_run(&self.results, run_id) else { return reason };
        let killed = killed.display();
        format!(
            "{reason}; that is your own run, whose main process has ended: `flagperf resume {killed}` collects its results and \
             frees the host"
        )
    }

    /// Returns the address of each of these hosts that `INTERFACE` of host.yaml selects; none without it.
    ///
    /// # Errors
    /// The hosts that have no such address, each with the reason.
    pub(super) fn chosen_addresses(
        &self,
        choice: Option<&str>,
        hosts: &[String],
    ) -> Result<BTreeMap<String, HostAddress>, FleetError> {
        let Some(choice) = choice else { return Ok(BTreeMap::new()) };
        let (mut chosen, mut refused) = (BTreeMap::new(), Vec::new());
        for host in hosts.iter().filter(|host| !self.lost.contains_key(*host)) {
            match chosen_address(choice, self.addresses.get(host).map_or(&[], Vec::as_slice)) {
                Ok(address) => drop(chosen.insert(host.clone(), address)),
                Err(reason) => refused.push((host.clone(), reason)),
            }
        }
        if refused.is_empty() { Ok(chosen) } else { Err(FleetError::Hosts(refused)) }
    }

    /// Returns the id of a host's machine, which does not tell who owns it.
    pub(super) fn machine(&self, host: &str) -> Option<String> {
        let (boot_id, hostname) = self.machines.get(host).filter(|(boot_id, _)| !boot_id.is_empty())?;
        Some(hash_bytes(format!("{boot_id} {hostname}").as_bytes())[..MACHINE_DIGITS].to_owned())
    }

    /// Notes a measurement of a host's wall clock.
    fn update_clock(&mut self, host: &str, measured: ClockOffset) {
        let offset = self.offsets.get(host).map_or(measured, |known| known.or_newer(measured));
        self.offsets.insert(host.to_owned(), offset);
    }
}

impl Drop for Fleet {
    /// Closes all links at the same time; dropping them then waits for each.
    fn drop(&mut self) {
        self.links.values_mut().for_each(HostLink::close);
    }
}

/// Reports that the run waits for another one.
fn notify_waiting(host: &str, reason: &str, notify: &mut dyn FnMut(&Notice<'_>)) {
    let what = format!("is not free: {reason}; waiting for that run to end");
    notify(&Notice::Host { host, what: &what, is_warning: false });
}
