//! Runs one case: its phases in sequence, its logs and its record.

use std::fs;
use std::io;
use std::path::Path;

use indexmap::IndexMap;
use jiff::Zoned;
use serde_json::Value;
use tracing::{debug, debug_span};

use super::caches;
use super::conclude::conclude;
use super::phase::{PhaseEnd, PhaseOutcome, run_phase};
use super::worker_log::WorkerLog;
use super::{Interrupt, Notice, RunOptions};
use crate::event::Level;
use crate::hash::hash_bytes;
use crate::host::run_while;
use crate::plan::{CasePlan, EffectiveValue, Job, Plan};
use crate::result::{
    Accuracy, AgreementCheck, EventChain, FailureRecord, FinishInfo, FlopCount, Provenance, Record, Setting, Status,
    hash_scripts,
};

/// What all cases of a run share.
pub(super) struct RunContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [EffectiveValue],
    pub(super) folder: &'a Path,
    pub(super) options: &'a RunOptions,
    pub(super) interrupt: &'a Interrupt,
    pub(super) program: &'a Provenance,
}

/// Runs a case in its folder, which must exist, and returns its record.
pub(super) fn run_case(run: &RunContext<'_>, case: &CasePlan, notify: &mut dyn FnMut(&Notice<'_>)) -> Record {
    let _span = debug_span!("case", key = %case.key).entered();
    let folder = run.folder.join(&case.folder);
    let started = run.options.clock.now();
    let mut record = empty_record(run, case);
    let (mut log, mut chain) = match open_files(run.plan, case, &folder) {
        Ok(files) => files,
        Err(error) => {
            record.fail(format!("cannot write in `{}`: {error}", folder.display()), "is the disk full?");
            return record;
        }
    };
    if run.plan.site.clear_caches {
        record.warnings.extend(caches::drop_page_cache(Path::new(caches::DROP_CACHES)));
    }
    if !hash_case_scripts(run, case, &mut record) {
        return record;
    }
    let jobs = case.jobs_in(run.folder);
    let mut chain_error = None;
    for job in &jobs {
        let job = Job { has_live_display: run.options.has_live_display, ..job.clone() };
        let output = folder.join("stdout_err.out.log");
        let mut on_event = |received: crate::result::ReceivedEvent<'_>| {
            log.write_event(job.phase(), received.event);
            let at = received.at.since(started);
            if let Err(error) = chain.push(at, job.phase(), received.event) {
                chain_error.get_or_insert(error);
            }
            notify(&Notice::Event { phase: job.phase(), event: received.event });
        };
        let outcome = run_phase(&job, &output, run.options, run.interrupt, &mut on_event);
        if !record_outcome(&mut record, outcome, &mut log) {
            break;
        }
    }
    let e2e_time = run.options.clock.now().since(started);
    chain.hash().clone_into(&mut record.provenance.events_sha256);
    if let Some(error) = chain_error.as_ref().or(log.error()) {
        record.warnings.push(format!("the logs in `{}` are incomplete: {error}", folder.display()));
    }
    if let Some(job) = jobs.last() {
        conclude(&mut record, &case.host, &case.settings, &job.parameters, &run.plan.vendor, e2e_time);
    }
    log.write_finish_info(&record.finish_info);
    record
}

impl RunContext<'_> {
    /// Runs `work` under the limits of a phase: until the phase's time limit or an interrupt. Returns `None` when it
    /// did not finish.
    fn run_bounded<T: Send + 'static>(&self, job: &Job, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (clock, limit) = (&self.options.clock, job.limits.phase_time_s.0);
        let started = clock.now();
        run_while(work, || !self.interrupt.is_set() && clock.now().since(started).0 <= limit)
    }
}

/// Hashes the scripts of a case. Returns `false`, which ends the case, when hashing did not finish.
fn hash_case_scripts(run: &RunContext<'_>, case: &CasePlan, record: &mut Record) -> bool {
    let Some(job) = case.jobs.last() else { return true };
    let scripts = job.scripts.clone();
    match run.run_bounded(job, move || hash_scripts(&scripts)) {
        Some(hashes) => {
            debug!(files = hashes.sha256.len(), "hashed the scripts");
            record.provenance.scripts_sha256 = hashes.sha256;
            record.warnings.extend(hashes.problems);
            return true;
        }
        None if run.interrupt.is_set() => record.status = Status::Interrupted,
        None => {
            let reason = format!("the scripts in `{}` could not be read in time", job.scripts.display());
            record.fail(reason, "`PHASE_TIMEOUT` in host.yaml sets the limit in seconds");
        }
    }
    false
}

/// Adds the outcome of a phase to the record and the log. Returns `false` when the case ends with this phase.
fn record_outcome(record: &mut Record, outcome: PhaseOutcome, log: &mut WorkerLog) -> bool {
    record.phases.push(outcome.record);
    record.warnings.extend(outcome.warnings);
    match outcome.end {
        PhaseEnd::Finished => return true,
        PhaseEnd::Failed(failure) => {
            log.write_failure("run", &failure.reason, &failure.hint);
            record.status = Status::Failed;
            record.failures.push(failure);
        }
        PhaseEnd::Interrupted => {
            log.write_failure("run", "interrupted", "");
            record.status = Status::Interrupted;
        }
    }
    false
}

impl Record {
    /// Records a failure of the case as a whole.
    fn fail(&mut self, reason: String, hint: &str) {
        self.status = Status::Failed;
        let hint = hint.to_owned();
        self.failures.push(FailureRecord { phase: None, step: None, reason, hint, stderr: Vec::new() });
    }
}

fn open_files(plan: &Plan, case: &CasePlan, folder: &Path) -> io::Result<(WorkerLog, EventChain)> {
    fs::create_dir_all(folder)?;
    let log = WorkerLog::create(&folder.join("container.out.log"), &plan.site, &case.key, case.settings.log_freq)?;
    Ok((log, EventChain::create(&folder.join("events.jsonl"))?))
}

/// Creates the record of a case before anything is measured.
fn empty_record(run: &RunContext<'_>, case: &CasePlan) -> Record {
    let config = case.jobs.last().map(|job| &job.config);
    let findings = run.plan.findings.iter().filter(|finding| finding.level == Level::Warning);
    let own = findings.filter(|finding| finding.concerns(&case.key));
    Record {
        schema: Record::SCHEMA,
        unit: crate::config::default_unit(),
        run: run.folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        case: case.key.case.clone(),
        framework: case.key.framework.clone(),
        vendor: run.plan.site.vendor.clone(),
        started: Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
        status: Status::Ok,
        failures: Vec::new(),
        warnings: own.map(ToString::to_string).collect(),
        finish_info: FinishInfo::default(),
        departures: case.departures.iter().map(|(key, value)| format!("{key}={}", override_text(value))).collect(),
        settings: settings(run.rows, case),
        accuracy: Accuracy::default(),
        agreement: AgreementCheck::default(),
        flops: FlopCount::default(),
        phases: Vec::new(),
        hosts: Vec::new(),
        provenance: Provenance {
            config_sha256: config.map(|config| hash_bytes(config_json(config).as_bytes())).unwrap_or_default(),
            ..run.program.clone()
        },
    }
}

/// Returns the settings of the site and the case with their origins.
fn settings(rows: &[EffectiveValue], case: &CasePlan) -> IndexMap<String, Setting> {
    let key = case.key.to_string();
    let rows = rows.iter().filter(|row| row.section == key || row.section == "site");
    rows.map(|row| (row.key.clone(), Setting { value: row.value.clone(), origin: row.origin.clone() })).collect()
}

fn config_json(config: &IndexMap<String, Value>) -> String {
    serde_json::to_string(config).expect("the configuration is plain data")
}

/// Returns a value in the form that `--set` accepts.
fn override_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
