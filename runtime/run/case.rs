//! One case: its phases one after the other, its logs, its record.

use std::fs;
use std::io;
use std::path::Path;

use indexmap::IndexMap;
use jiff::Zoned;
use serde_json::Value;

use super::caches;
use super::conclude::conclude;
use super::phase::{PhaseEnd, PhaseOutcome, run_phase};
use super::worker_log::WorkerLog;
use super::{Interrupt, Notice, Options};
use crate::event::Level;
use crate::hash::hash_bytes;
use crate::host::run_while;
use crate::plan::{CasePlan, Job, Plan, Row};
use crate::result::{
    Accuracy, AgreementCheck, EventChain, FailureRecord, FinishInfo, FlopCount, Provenance, Record, Setting, Status,
    hash_scripts,
};

/// What every case of a run shares.
pub(super) struct Course<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [Row],
    pub(super) folder: &'a Path,
    pub(super) options: &'a Options,
    pub(super) interrupt: &'a Interrupt,
    pub(super) program: &'a Provenance,
}

/// Runs a case in its folder, which exists, and returns its record.
pub(super) fn run_case(course: &Course<'_>, case: &CasePlan, watch: &mut dyn FnMut(&Notice<'_>)) -> Record {
    let folder = course.folder.join(&case.folder);
    let began = course.options.clock.now();
    let mut record = blank(course, case);
    let (mut log, mut chain) = match open_files(course.plan, case, &folder) {
        Ok(files) => files,
        Err(error) => {
            record.fail(format!("cannot write in `{}`: {error}", folder.display()), "is the disk full?");
            return record;
        }
    };
    if course.plan.site.clear_caches {
        record.warnings.extend(caches::clear(Path::new(caches::DROP_CACHES)));
    }
    if !hash_sources(course, case, &mut record) {
        return record;
    }
    let jobs = case.jobs_in(course.folder);
    let mut unwritten = None;
    for job in &jobs {
        let job = Job { watched: course.options.watched, ..job.clone() };
        let output = folder.join("stdout_err.out.log");
        let mut hear = |arrival: crate::result::Arrival<'_>| {
            log.event(job.phase, arrival.event);
            let at = arrival.at.since(began);
            if let Err(error) = chain.push(at, job.phase, arrival.event) {
                unwritten.get_or_insert(error);
            }
            watch(&Notice::Event { phase: job.phase, event: arrival.event });
        };
        let outcome = run_phase(&job, &output, course.options, course.interrupt, &mut hear);
        if !take(&mut record, outcome, &mut log) {
            break;
        }
    }
    let e2e_time = course.options.clock.now().since(began);
    chain.hash().clone_into(&mut record.provenance.events_sha256);
    if let Some(error) = unwritten.as_ref().or(log.failure()) {
        record.warnings.push(format!("logs in `{}` are not complete: {error}", folder.display()));
    }
    if let Some(job) = jobs.last() {
        conclude(&mut record, &case.host, &case.settings, &job.parameters, &course.plan.vendor, e2e_time);
    }
    log.finish(&record.finish_info);
    record
}

impl Course<'_> {
    /// Reads files as a phase does: no longer than a phase may take, and not when somebody ends the run.
    fn bounded<T: Send + 'static>(&self, job: &Job, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (clock, limit) = (&self.options.clock, job.limits.phase_time_s.0);
        let began = clock.now();
        run_while(work, || !self.interrupt.is_set() && clock.now().since(began).0 <= limit)
    }
}

/// Hashes what a case is made of; `false` when that did not end, which ends the case.
fn hash_sources(course: &Course<'_>, case: &CasePlan, record: &mut Record) -> bool {
    let Some(job) = case.jobs.last() else { return true };
    let scripts = job.scripts.clone();
    match course.bounded(job, move || hash_scripts(&scripts)) {
        Some(hashes) => {
            record.provenance.scripts_sha256 = hashes.sha256;
            record.warnings.extend(hashes.problems);
            return true;
        }
        None if course.interrupt.is_set() => record.status = Status::Interrupted,
        None => {
            let reason = format!("the scripts in `{}` could not be read in time", job.scripts.display());
            record.fail(reason, "PHASE_TIMEOUT in host.yaml is the limit, in seconds");
        }
    }
    false
}

/// Takes what came of a phase; `false` ends the case.
fn take(record: &mut Record, outcome: PhaseOutcome, log: &mut WorkerLog) -> bool {
    record.phases.push(outcome.record);
    record.warnings.extend(outcome.warnings);
    match outcome.end {
        PhaseEnd::Finished => return true,
        PhaseEnd::Failed(failure) => {
            log.failed("run", &failure.reason, &failure.hint);
            record.status = Status::Failed;
            record.failures.push(failure);
        }
        PhaseEnd::Interrupted => {
            log.failed("run", "interrupted", "");
            record.status = Status::Interrupted;
        }
    }
    false
}

impl Record {
    /// The case failed as a whole.
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

/// The record of a case of which nothing is measured yet.
fn blank(course: &Course<'_>, case: &CasePlan) -> Record {
    let config = case.jobs.last().map(|job| &job.config);
    let findings = course.plan.findings.iter().filter(|finding| finding.level == Level::Warning);
    Record {
        schema: Record::SCHEMA,
        run: course.folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        case: case.key.case.clone(),
        framework: case.key.framework.clone(),
        vendor: course.plan.site.vendor.clone(),
        started: Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
        status: Status::Ok,
        failures: Vec::new(),
        warnings: findings.map(ToString::to_string).collect(),
        finish_info: FinishInfo::default(),
        departures: case.departures.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect(),
        settings: settings(course.rows, case, config),
        accuracy: Accuracy::default(),
        agreement: AgreementCheck::default(),
        flops: FlopCount::default(),
        phases: Vec::new(),
        hosts: Vec::new(),
        provenance: Provenance {
            config_sha256: config.map(|config| hash_bytes(text(config).as_bytes())).unwrap_or_default(),
            ..course.program.clone()
        },
    }
}

/// The site's and the case's values with their origins; values keep their types where the scripts see them too.
fn settings(rows: &[Row], case: &CasePlan, config: Option<&IndexMap<String, Value>>) -> IndexMap<String, Setting> {
    let key = case.key.to_string();
    let rows = rows.iter().filter(|row| row.section == key || row.section == "site");
    rows.map(|row| {
        let typed = config.and_then(|config| config.get(&row.key)).cloned();
        let value = typed.unwrap_or_else(|| Value::from(row.value.as_str()));
        (row.key.clone(), Setting { value, origin: row.origin.clone() })
    })
    .collect()
}

fn text(config: &IndexMap<String, Value>) -> String {
    serde_json::to_string(config).expect("the configuration is plain data")
}

/// A value as `--set` takes it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
