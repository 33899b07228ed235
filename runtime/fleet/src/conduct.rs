//! Conducts a run on hosts: connects to the hosts, starts the replicas of each case together, and collects their results.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use super::bootstrap::OwnProgram;
use super::fleet_error::FleetError;
use super::host_link::{HostLink, LinkCommand, LinkContext};
use super::hosts::{hosts_of, tree_of};
use super::link_thread::contact_limit;
use super::links::Fleet;
use super::replica::{EarlierAttempt, ReplicaState, process_groups, replicas_of};
use super::rescale::{Rescaled, store_checkpoints};
use super::run_events::lost_host;
use super::session::{SessionTask, started_by};
use super::state::{RunState, SessionState};
use flagperf_config::{Overrides, Replica, Scale, Site};
use flagperf_core::hash::{Seed, hash_bytes};
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::step::Step;
use flagperf_plan::{AuditScope, CasePlan, EffectiveValue, Plan};
use flagperf_result::Provenance;
use flagperf_run::{
    CheckoutState, Interrupt, Notice, RunError, RunLog, RunOutcome, case_parts, make_run_folder, move_aside,
};

/// How often the conductor checks for an interruption.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a run on hosts.
pub struct FleetOptions {
    /// The values from the command line.
    pub overrides: Overrides,
    /// Whether progress is displayed.
    pub has_live_display: bool,
    /// What the audit of inference includes.
    pub audit: AuditScope,
    /// Whether every result must be valid.
    pub official: bool,
    /// Whether a resumed run goes on without the hosts that cannot be reached.
    pub skips_unreachable: bool,
    /// The clock of this process.
    pub clock: Arc<dyn Clock>,
}

/// Runs every case of a plan on its hosts and devices. The next case runs even if a case fails. `resumed` is the folder and
/// the state of a run whose main process was killed: its finished cases are not run again, and the results of its sessions are
/// collected if these still exist.
///
/// # Errors
/// When the results folder is not writable, or a host that a case needs cannot be used; then no case was run.
pub fn conduct_fleet(
    plan: &Plan,
    rows: &[EffectiveValue],
    options: &FleetOptions,
    resumed: Option<(PathBuf, RunState)>,
    interrupt: &Interrupt,
    notify: &mut dyn FnMut(&Notice<'_>),
) -> Result<RunOutcome, FleetError> {
    let hosts = match &resumed {
        Some((_, state)) => state.hosts.clone(),
        None => hosts_of(&plan.site)?,
    };
    let needed = plan.cases.iter().map(|case| case.key.scale.hosts as usize).max().unwrap_or(0);
    if needed > hosts.len() {
        return Err(FleetError::Nodes(format!(
            "a case needs {needed} hosts, but the Slurm job, or `run.json` of a resumed run, lists {}",
            hosts.len()
        )));
    }
    let checkout = CheckoutState::read(&plan.site.flagperf_path);
    let program = checkout.clone().provenance();
    let is_new = resumed.is_none();
    let (folder, state) = match resumed {
        Some(resumed) => resumed,
        None => {
            let folder = make_run_folder(&plan.site.flagperf_log_path)?;
            let FleetOptions { overrides, audit, official, .. } = options;
            (folder, RunState::new(overrides, *audit, *official, hosts.clone(), &program, case_parts(plan, rows)))
        }
    };
    notify(&Notice::RunBegins { folder: &folder });
    let context = link_context(plan, &folder, &state, options);
    let connected = context.and_then(|context| {
        Fleet::connect(context, &hosts[..needed], state, options.skips_unreachable, notify, interrupt)
    });
    let reserved = connected.and_then(|fleet| fleet.reserve(plan.site.busy_host, notify, interrupt));
    let ready = reserved.and_then(|fleet| {
        let log =
            RunLog::create(plan, &folder).map_err(|source| RunError::Folder { folder: folder.clone(), source })?;
        let (folder, begun) = (folder.as_path(), None);
        let mut run = FleetRun { plan, rows, options, interrupt, folder, log, checkout, program, fleet, hosts, begun };
        run.check_interface()?;
        // A resumed run collects what was measured, whatever its hosts can do now.
        if is_new && plan.site.uses_other_hosts() {
            run.plan_on_hosts(notify)?;
        }
        Ok(run)
    });
    if ready.is_err() && is_new {
        // The folder contains no result; the error quotes the output of ssh.
        let _ = fs::remove_dir_all(&folder);
    }
    let mut run = ready?;
    notify(&Notice::RunIsReady { folder: &folder });
    Ok(run.run_cases(notify))
}

/// Returns what the links to the hosts of a run share.
fn link_context(
    plan: &Plan,
    folder: &Path,
    state: &RunState,
    options: &FleetOptions,
) -> Result<LinkContext, FleetError> {
    Ok(LinkContext {
        site: plan.site.clone(),
        program: OwnProgram::read().map_err(FleetError::Program)?,
        tree: tree_of(plan)?,
        log: folder.join("hosts.err.log"),
        clock: options.clock.clone(),
        run: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        run_id: state.id.clone(),
        contact_limit: contact_limit(&plan.site),
    })
}

/// A run on hosts.
pub(super) struct FleetRun<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [EffectiveValue],
    pub(super) options: &'a FleetOptions,
    pub(super) interrupt: &'a Interrupt,
    pub(super) folder: &'a Path,
    pub(super) log: RunLog,
    checkout: CheckoutState,
    /// This program and the state of the checkout.
    pub(super) program: Provenance,
    pub(super) fleet: Fleet,
    pub(super) hosts: Vec<String>,
    /// The replicas of the first case if they have planned it and wait.
    pub(super) begun: Option<Vec<ReplicaState>>,
}

impl FleetRun<'_> {
    fn run_cases(&mut self, notify: &mut dyn FnMut(&Notice<'_>)) -> RunOutcome {
        let mut outcome = RunOutcome::empty(self.folder.to_owned());
        let (count, mut has_run, mut killed) = (self.plan.cases.len(), false, Vec::new());
        for (index, case) in self.plan.cases.iter().enumerate() {
            if self.fleet.state.is_finished(&case.key.to_string()) {
                outcome.records.extend(self.report_finished(case, notify));
                continue;
            }
            if self.interrupt.is_set() && has_run {
                outcome.not_run = self.plan.cases[index..].iter().map(|case| case.key.clone()).collect();
                outcome.not_run.iter().for_each(|key| self.log.case_not_run(key));
                break;
            }
            has_run = true;
            let kept = self.set_interrupted_aside(case, notify);
            notify(&Notice::CaseBegins { key: &case.key, number: index + 1, count });
            self.log.case_starts(&case.key);
            let replicas = self.begun.take().unwrap_or_else(|| self.start(case, false, kept.as_ref()));
            let ended = self.collect(case, replicas, notify);
            if self.conclude(case, &ended, &mut outcome, notify) {
                outcome.has_checkpoints = true;
                killed.push(case.key.to_string());
            }
        }
        // The sessions of a resumed run may have been interrupted before they had measured all.
        let has_ended = |case: &CasePlan| {
            let key = case.key.to_string();
            self.fleet.state.is_finished(&key) || killed.contains(&key)
        };
        outcome.interrupted = self.interrupt.is_set() || !self.plan.cases.iter().all(has_ended);
        // All links close at the same time; dropping them then waits for each.
        self.fleet.links.values_mut().for_each(HostLink::close);
        self.fleet.links.clear();
        if outcome.is_complete() && !outcome.interrupted && !outcome.has_checkpoints {
            RunState::remove(self.folder);
        }
        outcome
    }

    /// Moves the results of a case aside that an interruption had ended, so that it can be run again. Returns their attempt.
    fn set_interrupted_aside(&self, case: &CasePlan, notify: &mut dyn FnMut(&Notice<'_>)) -> Option<EarlierAttempt> {
        let state = &self.fleet.state;
        let (key, own) = (case.key.to_string(), PathBuf::from(case.key.folder()));
        let is_there = |folder: &PathBuf| self.folder.join(folder).exists();
        // A training that goes on with other numbers has the folder of its earlier key until it has begun with them.
        let earlier = state.rescaled.get(&key).filter(|_| !is_there(&own)).and_then(Rescaled::attempt);
        let (folder, replicas) = earlier.unwrap_or_else(|| (own, replicas_of(&case.key, &self.hosts)));
        if state.has_sessions(&key) || !is_there(&folder) {
            return None;
        }
        match move_aside(self.folder, &folder) {
            Ok(kept) => {
                notify(&Notice::CutOff { key: &case.key, kept: &kept });
                if let Some(rescaled) = state.rescaled.get(&key)
                    && let Err(error) = store_checkpoints(&kept, &replicas, &state.id, &rescaled.stored_as)
                {
                    tracing::warn!(%error, "the checkpoints of the case cannot be stored");
                }
                Some(EarlierAttempt { folder: kept, replicas })
            }
            Err(error) => {
                tracing::warn!(%error, "the folder of the earlier measurements of the case cannot be moved");
                None
            }
        }
    }

    /// Checks that the hosts of the trainings have the network card that host.yaml selects.
    fn check_interface(&self) -> Result<(), FleetError> {
        let trains = |case: &&CasePlan| case.key.training.is_some() && case.key.scale != Scale::ONE;
        let needed = self.plan.cases.iter().filter(trains).map(|case| case.key.scale.hosts as usize).max();
        let hosts = &self.hosts[..needed.unwrap_or(0)];
        self.fleet.chosen_addresses(self.plan.site.interface.as_deref(), hosts).map(drop)
    }

    /// Starts the replicas of a case, which wait after they have planned it if it `holds` them. In a resumed run, replicas that were
    /// started before keep running, and those that train go on from the checkpoints of the `earlier` attempt.
    pub(super) fn start(
        &mut self,
        case: &CasePlan,
        holds: bool,
        earlier: Option<&EarlierAttempt>,
    ) -> Vec<ReplicaState> {
        let replicas = replicas_of(&case.key, &self.hosts);
        let waits = replicas.len() > 1;
        let mut open = Vec::new();
        let seed = Seed::draw().unwrap_or_default();
        let Site { master_port, interface, .. } = &self.plan.site;
        let hosts = &self.hosts[..case.key.scale.hosts as usize];
        // The addresses were checked before.
        let addresses = self.fleet.chosen_addresses(interface.as_deref(), hosts).unwrap_or_default();
        let groups = process_groups(&case.key, &replicas, (*master_port, &addresses), seed, earlier);
        let mut groups = groups.into_iter();
        for replica in replicas {
            let in_run = Path::new(&case.key.folder()).join(replica.folder());
            let folder = self.folder.join(&in_run);
            let mut task = SessionTask { holds, ..self.task(case, &replica, &in_run, waits) };
            task.overrides.process_group = groups.next();
            let known = self.fleet.state.session(&in_run).map(str::to_owned);
            let is_known = known.is_some();
            let session = known.unwrap_or_else(session_name);
            if !is_known {
                let (case, host) = (case.key.to_string(), replica.host.clone());
                self.fleet.state.add(SessionState { case, host, session: session.clone(), folder: in_run });
            }
            let end = self.fleet.lost.get(&replica.host).map(|reason| lost_host(&replica.host, reason));
            if end.is_none() {
                let (session, folder) = (session.clone(), folder.clone());
                // The agent ignores this if the session exists.
                self.send(&replica.host, LinkCommand::Start { session, task: Box::new(task), folder });
            }
            open.push(ReplicaState::new(replica, session, folder, end, is_known));
        }
        // `resume` finds the sessions by this file, so it is written before anything is measured.
        self.fleet.state.write(self.folder);
        open
    }

    fn task(&self, case: &CasePlan, replica: &Replica, in_run: &Path, waits: bool) -> SessionTask {
        let overrides = Overrides {
            config: None,
            host_file_name: Some(self.plan.host_file.name.to_string()),
            cases: vec![case.key.to_string()],
            replica: Some(replica.clone()),
            ..self.options.overrides.absolute()
        };
        SessionTask {
            run: self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            run_id: self.fleet.state.id.clone(),
            log_level: overrides.environment.log_level.clone(),
            overrides,
            audit: self.options.audit,
            has_live_display: self.options.has_live_display,
            folder: in_run.to_string_lossy().into_owned(),
            stored_as: self.fleet.state.rescaled.get(&case.key.to_string()).map(|known| known.stored_as.clone()),
            waits,
            contact_limit_s: contact_limit(&self.plan.site),
            checkout: self.checkout.clone(),
            started_by: started_by(),
            host_doubts: self.host_doubts(case, &replica.host),
            root: PathBuf::new(),
            program: PathBuf::new(),
            holds: false,
        }
    }

    /// Returns why it is not certain that a replica on a host has that host, and a machine, for itself.
    pub(super) fn host_doubts(&self, case: &CasePlan, host: &str) -> Vec<String> {
        self.fleet.host_doubts(host, &self.hosts[..case.key.scale.hosts as usize])
    }

    /// Handles the events of the replicas until each has ended or is lost.
    fn collect(
        &mut self,
        case: &CasePlan,
        mut replicas: Vec<ReplicaState>,
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> Vec<ReplicaState> {
        let mut interrupted: Option<Nanos> = None;
        let mut failure_noticed = None;
        while replicas.iter().any(|replica| replica.end.is_none()) {
            let now = self.options.clock.now();
            if self.interrupt.is_set() && interrupted.is_none() {
                interrupted = Some(now);
                replicas.iter_mut().for_each(|replica| replica.received_bytes = 0);
                self.fleet.links.values().for_each(|link| link.send(LinkCommand::Interrupt));
            }
            if let Some(at) = interrupted {
                replicas.iter_mut().for_each(|replica| replica.give_up(at, now, self.plan.site.host_timeout));
            }
            match self.fleet.events.recv_timeout(POLL_INTERVAL) {
                Ok((host, event)) => self.handle(&host, event, &mut replicas, notify),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if case.key.training.is_some() {
                self.end_group(&mut replicas, &mut failure_noticed);
            }
            self.release(&mut replicas);
        }
        replicas
    }

    /// Lets the replicas pass a barrier as soon as each of them waits or has ended. After `resume`, some may wait at an earlier
    /// barrier than others, because the killed process had released only those.
    fn release(&self, replicas: &mut [ReplicaState]) {
        let mut running = replicas.iter_mut().filter(|open| open.end.is_none()).collect::<Vec<_>>();
        let steps: Option<Vec<Step>> = running.iter().map(|open| open.waits_for).collect();
        let Some(step) = steps.and_then(|steps| steps.into_iter().min()) else { return };
        for open in running.iter_mut().filter(|open| open.waits_for == Some(step)) {
            open.waits_for = None;
            self.send(&open.replica.host, LinkCommand::Release { session: open.session.clone(), step });
        }
    }

    /// Sends a command to the link of a host.
    pub(super) fn send(&self, host: &str, command: LinkCommand) {
        if let Some(link) = self.fleet.links.get(host) {
            link.send(command);
        }
    }
}

/// Returns a random name, which no other run or session has.
pub(super) fn session_name() -> String {
    let random = Seed::draw().map(|seed| seed.bytes().to_vec()).unwrap_or_default();
    hash_bytes(&[&random[..], &std::process::id().to_le_bytes()].concat())
}
