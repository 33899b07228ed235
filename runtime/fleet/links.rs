//! Connects to the hosts of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::bootstrap::OwnProgram;
use super::conduct::{FleetError, FleetOptions, POLL_INTERVAL};
use super::host_link::{HostLink, LinkContext, LinkEvent};
use super::hosts::tree_of;
use super::launcher::launcher_for;
use super::state::RunState;
use crate::plan::Plan;
use crate::run::{Interrupt, Notice};
use crate::units::Seconds;

/// The links to the hosts of a run.
pub(super) struct Fleet {
    pub(super) links: BTreeMap<String, HostLink>,
    pub(super) events: Receiver<(String, LinkEvent)>,
    /// By how much the wall clock of each host is ahead of the clock of this machine.
    pub(super) offsets: BTreeMap<String, Seconds>,
    /// The lost hosts, each with the reason.
    pub(super) lost: BTreeMap<String, String>,
    pub(super) state: RunState,
}

impl Fleet {
    /// Connects to all hosts at the same time.
    ///
    /// # Errors
    /// When a host cannot be used, or the connecting is interrupted.
    pub(super) fn connect(
        plan: &Plan,
        hosts: &[String],
        folder: &Path,
        options: &FleetOptions,
        notify: &mut dyn FnMut(&Notice<'_>),
        interrupt: &Interrupt,
    ) -> Result<Self, FleetError> {
        let site = &plan.site;
        let context = Arc::new(LinkContext {
            site: site.clone(),
            program: OwnProgram::read().map_err(FleetError::Program)?,
            tree: tree_of(plan, &options.overrides)?,
            log: folder.join("hosts.err.log"),
            clock: options.clock.clone(),
        });
        let (sender, events): (Sender<_>, Receiver<_>) = unbounded();
        let link = |host: &String| {
            let launcher = launcher_for(host, site.launcher);
            (host.clone(), HostLink::start(host.clone(), launcher, context.clone(), sender.clone()))
        };
        let links = hosts.iter().map(link).collect();
        let (offsets, lost, state) = (BTreeMap::new(), BTreeMap::new(), RunState::default());
        let mut fleet = Fleet { links, events, offsets, lost, state };
        let mut machines = BTreeMap::new();
        let mut waiting: BTreeSet<&String> = hosts.iter().collect();
        while !waiting.is_empty() && !interrupt.is_set() {
            let Ok((host, event)) = fleet.events.recv_timeout(POLL_INTERVAL) else { continue };
            match event {
                LinkEvent::Connected(facts) => {
                    waiting.remove(&host);
                    notify(&Notice::Host { host: &host, what: "is connected", is_warning: false });
                    // Containers on one machine share its kernel, but have different hostnames.
                    let machine = (facts.boot_id.clone(), facts.hostname.clone());
                    let other = machines.insert(machine, host.clone()).filter(|_| !facts.boot_id.is_empty());
                    if let Some(other) = other {
                        let what = format!(
                            "is the same machine as `{other}`: the sum over both hosts is not the throughput of two machines"
                        );
                        notify(&Notice::Host { host: &host, what: &what, is_warning: true });
                    }
                    fleet.offsets.insert(host, facts.clock_offset_s);
                }
                LinkEvent::HostLost(reason) => {
                    waiting.remove(&host);
                    fleet.lost.insert(host, reason);
                }
                _ => {}
            }
        }
        if interrupt.is_set() {
            return Err(FleetError::Interrupted);
        }
        match fleet.lost.is_empty() {
            true => Ok(fleet),
            false => Err(FleetError::Hosts(fleet.lost.into_iter().collect())),
        }
    }
}
