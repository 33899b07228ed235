//! Runs one case: its phases in sequence, its logs and its record.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use jiff::Zoned;
use serde_json::Value;
use tracing::{debug, debug_span};

use super::caches;
use super::case_monitors::CaseMonitors;
use super::conclude::{conclude, host_record};
use super::folder_state::FolderState;
use super::launch::{Containers, WorkerLauncher, prepare_launcher};
use super::phase::{PhaseEnd, PhaseOutcome, run_phase};
use super::sources::CaseSources;
use super::training_log::TrainingLogFiles;
use super::worker_log::WorkerLog;
use super::worker_update::WorkerUpdate;
use super::{Interrupt, Notice, RunOptions};
use flagperf_container::ContainerError;
use flagperf_core::event::{Event, Failure, Level, Phase};
use flagperf_core::file;
use flagperf_core::hash::{Seed, hash_bytes};
use flagperf_core::measure::Nanos;
use flagperf_core::run_files::{CASE_LOG, EVENTS_FILE, WORKER_LOG};
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_host::{ExecutedCode, run_while};
use flagperf_plan::{CasePlan, EffectiveValue, Job, OUTPUTS_KIND, Plan};
use flagperf_result::{
    Accuracy, AgreementCheck, AuditCheck, EventChain, FailureRecord, FinishInfo, FlopCount, LibraryHashes,
    LibraryRecord, Provenance, Record, SampleFiles, Setting, Status, UnknownCode, ValidityCheck, conductor_facts,
    departure_text,
};

/// What all cases of a run share.
pub(super) struct RunContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [EffectiveValue],
    pub(super) folder: &'a Path,
    pub(super) options: &'a RunOptions,
    pub(super) interrupt: &'a Interrupt,
    pub(super) program: &'a Provenance,
    /// The vendor's folder at the start of the run.
    pub(super) vendor_files: FolderState,
    pub(super) libraries: Arc<Mutex<LibraryHashes>>,
    /// The container engine, or why there is none; `None` when no case runs in a container.
    pub(super) containers: Option<&'a Result<Containers, ContainerError>>,
}

/// Runs a case in its folder, which must exist, and returns its record.
/// `checkpoints` are the hashes of those of an earlier attempt by their names.
pub(super) fn run_case(
    run: &RunContext<'_>,
    case: &CasePlan,
    checkpoints: &IndexMap<String, String>,
    notify: &mut dyn FnMut(&Notice<'_>),
) -> Record {
    let (mut files, mut monitors, watch) = (None, None, run.options.host_use.watch());
    let (mut record, is_concluded) = run_phases(run, case, checkpoints, &mut files, &mut monitors, notify);
    if let (Some(job), false) = (case.jobs.last(), is_concluded) {
        conclude(&mut record, Vec::new(), &case.settings, &job.parameters, Seconds(0.0));
    }
    if let Some(monitors) = monitors {
        monitors.finish(&mut record);
        record.finish_info = record.finish_info.clone().with_figures(&record);
    }
    run.options.host_use.add_to(&mut record, watch);
    note_changed_files(run, &mut record);
    if let Some(files) = &mut files {
        files.end_events(run, &mut record);
    }
    record.validity = ValidityCheck::judge(&record);
    if let Some(CaseFiles { mut log, .. }) = files {
        log.write_verdict(&record.validity);
        log.write_finish_info(&record.finish_info);
    }
    record
}

/// The open files of a case.
struct CaseFiles {
    log: WorkerLog,
    chain: EventChain,
    events: PathBuf,
    /// The begin of the case, from which the times of events count.
    started: Nanos,
    /// Why an event is missing.
    chain_error: Option<io::Error>,
    /// The logs of a training.
    training: Option<TrainingLogFiles>,
}

impl CaseFiles {
    fn create(run: &RunContext<'_>, case: &CasePlan, folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let log = WorkerLog::create(&folder.join(CASE_LOG), &run.plan.site, &case.key, case.settings.log_freq)?;
        let events = folder.join(EVENTS_FILE);
        let (chain, started) = (EventChain::create(&events)?, run.options.clock.now());
        Ok(CaseFiles { log, chain, events, started, chain_error: None, training: None })
    }

    fn push(&mut self, at: Nanos, phase: Phase, event: &Event) {
        if let Err(error) = self.chain.push(at.since(self.started), phase, event) {
            self.chain_error.get_or_insert(error);
        }
        if let Some(training) = &mut self.training {
            training.write(at.since(self.started), event);
        }
    }

    /// Writes the last event, which states what is in the record and follows from no other event, and checks that the files are as
    /// they were written.
    fn end_events(&mut self, run: &RunContext<'_>, record: &mut Record) {
        let training = self.training.as_ref();
        let checks =
            [self.log.check(), self.chain.check(&self.events), training.map_or(Ok(()), TrainingLogFiles::check)];
        let changed = checks.into_iter().filter_map(Result::err);
        let changed: Vec<io::Error> = changed.collect();
        let training_error = training.and_then(TrainingLogFiles::error);
        let unwritten = self.chain_error.as_ref().or(self.log.error()).or(training_error);
        // What could not be written differs from what is there, without another program.
        let reasons: Vec<&io::Error> = match unwritten {
            Some(error) if !changed.is_empty() => vec![error],
            _ => changed.iter().collect(),
        };
        for error in reasons {
            record.failures.push(case_failure(&disk_failure(error)));
            record.status = if record.status == Status::Ok { Status::Failed } else { record.status };
        }
        if let Some(error) = unwritten {
            let folder = self.events.parent().unwrap_or(&self.events);
            record.warnings.push(format!("the logs in `{}` are incomplete: {error}", folder.display()));
        }
        let phase = record.phases.last().map_or(Phase::Validate, |phase| phase.phase);
        let facts = conductor_facts(record);
        self.push(run.options.clock.now(), phase, &Event::Observed { facts });
        self.chain.hash().clone_into(&mut record.provenance.events_sha256);
    }
}

/// Runs the phases of a case and returns its record without the verdict on the whole, and whether what follows from the phases
/// is in it: not if none could begin. `case_files` are the case's log and events, if they could be created; `monitors` run until the
/// caller stops them.
fn run_phases(
    run: &RunContext<'_>,
    case: &CasePlan,
    checkpoints: &IndexMap<String, String>,
    case_files: &mut Option<CaseFiles>,
    case_monitors: &mut Option<CaseMonitors>,
    notify: &mut dyn FnMut(&Notice<'_>),
) -> (Record, bool) {
    let _span = debug_span!("case", key = %case.key).entered();
    let folder = run.folder.join(&case.folder);
    let mut record = empty_record(run.plan, run.rows, run.folder, run.program, case);
    let files = match CaseFiles::create(run, case, &folder) {
        Ok(files) => case_files.insert(files),
        Err(error) => {
            record.fail(format!("cannot write in `{}`: {error}", folder.display()), file::write_hint(&error));
            return (record, false);
        }
    };
    if run.plan.site.clear_caches {
        record.warnings.extend(caches::drop_page_cache(Path::new(caches::DROP_CACHES)));
    }
    if !hash_sources(run, case, &folder, &mut record) {
        return (record, false);
    }
    let drawn =
        case.jobs.iter().find_map(|job| job.process_group.as_ref()).map_or_else(Seed::draw, |group| Ok(group.seed));
    let run_seed = match drawn {
        Ok(seed) => seed,
        Err(error) => {
            record.fail(format!("the system returned no random numbers: {error}"), "");
            return (record, false);
        }
    };
    record.provenance.run_seed = run_seed;
    let jobs = case.jobs_in(run.folder);
    let Some(launcher) = prepare_launcher(run, case, &folder, &mut record, notify) else {
        return (record, false);
    };
    record.code_variables = jobs.last().map(|job| launcher.code_variables(job)).unwrap_or_default();
    let started = run.options.clock.now();
    files.started = started;
    // Preparing may take minutes, and the times of events count from here.
    record.started = time_text(&Zoned::now());
    files.training = case.key.training.is_some().then(|| TrainingLogFiles::new(&record, &case.host, &folder));
    let monitors = case_monitors.insert(CaseMonitors::start(run.plan, case, &folder, &run.options.clock, started));
    let mut code = Vec::new();
    for job in &jobs {
        let RunOptions { has_live_display, audit, .. } = *run.options;
        let outputs_sha256 = hash_of_outputs(&record);
        let waits = run.options.barrier.is_some();
        let checkpoints = checkpoints.clone();
        let job = Job { has_live_display, audit, waits, run_seed, outputs_sha256, checkpoints, ..job.clone() };
        let output = folder.join(WORKER_LOG);
        let mut samples = SampleFiles::default();
        monitors.phase_begins();
        let mut on_update = |update: WorkerUpdate<'_>| {
            files.log.write_update(job.phase(), update);
            monitors.note(job.phase(), update);
            let WorkerUpdate::Event(received, collector) = update else { return Ok(()) };
            // The figures of a loop are computed from all of its steps, so computing them after each pass would be quadratic.
            if matches!(received.event, Event::PassEnd(report) if report.pass + 1 == job.settings.repeat) {
                files.log.write_measurement(job.phase(), collector.measurement().as_ref());
            }
            files.push(received.at, job.phase(), received.event);
            notify(&Notice::Event { phase: job.phase(), event: received.event });
            samples.append(&folder, job.phase(), received.event).map_err(|e| disk_failure(&e))
        };
        let mut outcome = run_phase(&job, &launcher, &output, run.options, run.interrupt, &mut on_update);
        if let Err(error) = restore_outputs(&job) {
            record.failures.push(case_failure(&disk_failure(&error)));
        }
        for file in samples.finish() {
            match file {
                Ok(file) => outcome.record.files.push(file),
                // Its times could not be written, so that the file lacks them.
                Err(_) if !matches!(outcome.end, PhaseEnd::Finished) => {}
                Err(error) => record.failures.push(case_failure(&disk_failure(&error))),
            }
        }
        code.push(std::mem::take(&mut outcome.code));
        if !record_outcome(&mut record, outcome, &mut files.log) {
            break;
        }
    }
    let e2e_time = run.options.clock.now().since(started);
    if let Some(job) = jobs.last() {
        run.hash_libraries(job, &launcher, code, &mut record);
        let hosts = vec![host_record(&case.host, &record.phases, &run.plan.vendor)];
        conclude(&mut record, hosts, &case.settings, &job.parameters, e2e_time);
    }
    (record, true)
}

/// Notes that a file of the vendor was written since the run compared it with its commit: the engine may have read either content.
fn note_changed_files(run: &RunContext<'_>, record: &mut Record) {
    let Plan { vendor, site, .. } = run.plan;
    let now = FolderState::read(&vendor.folder);
    let provenance = &mut record.provenance;
    if let (Some(path), Some(true)) = (run.vendor_files.first_difference(&now), provenance.git_clean) {
        let path = path.strip_prefix(&site.flagperf_path).unwrap_or(path).display();
        provenance.git_clean = Some(false);
        provenance.git_difference = Some(one_line(&format!("`{path}` changed during the run")).into_owned());
    }
}

/// Returns the hash of the outputs that validation wrote; `None` before that.
fn hash_of_outputs(record: &Record) -> Option<String> {
    let mut files = record.phases.iter().flat_map(|phase| &phase.files);
    files.find(|file| file.what == OUTPUTS_KIND).map(|file| file.sha256.clone())
}

/// Restores the file of validation's outputs, if the worker of inference masked it. Another file in its place stays, and is found by its
/// hash when the case has ended.
fn restore_outputs(job: &Job) -> io::Result<()> {
    match (&job.outputs, job.masked_outputs()) {
        (Some(path), Some(masked)) if job.outputs_sha256.is_some() && masked.is_file() && !path.exists() => {
            job.run_seed.mask_file(&masked)?;
            fs::rename(masked, path)
        }
        _ => Ok(()),
    }
}

fn disk_failure(error: &io::Error) -> Failure {
    let hint = format!(
        "{}; the results measured so far are kept; only flagperf may write to the folder of the run",
        file::write_hint(error)
    );
    Failure { step: None, reason: error.to_string(), hint }
}

fn case_failure(failure: &Failure) -> FailureRecord {
    let Failure { step, reason, hint } = failure.clone();
    FailureRecord { phase: None, step, reason, hint, stderr: Vec::new() }
}

impl RunContext<'_> {
    /// Runs `work` under the limits of a phase: until the phase's time limit or an interrupt. Returns `None` when it
    /// did not finish.
    pub(super) fn run_bounded<T: Send + 'static>(
        &self,
        job: &Job,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (clock, limit) = (&self.options.clock, job.limits.phase_time_s.0);
        let started = clock.now();
        run_while(work, || !self.interrupt.is_set() && clock.now().since(started).0 <= limit)
    }

    /// Adds to the record of each phase the code that it executed, with the hashes of the files.
    fn hash_libraries(
        &self,
        job: &Job,
        launcher: &WorkerLauncher,
        code: Vec<BTreeSet<ExecutedCode>>,
        record: &mut Record,
    ) {
        for (phase, code) in record.phases.iter_mut().zip(code) {
            let (mut files, mut unknown) = (BTreeSet::new(), Vec::new());
            for code in code {
                match code {
                    ExecutedCode::File(path) => drop(files.insert(path)),
                    ExecutedCode::Removed(name) => unknown.push(LibraryRecord::unknown(name, UnknownCode::Removed)),
                    ExecutedCode::Unreadable(name) => {
                        unknown.push(LibraryRecord::unknown(name, UnknownCode::Unreadable))
                    }
                }
            }
            let (hashes, hash_files) = (self.libraries.clone(), launcher.library_hasher(job));
            let hash = move || hash_files(&mut hashes.lock().unwrap_or_else(PoisonError::into_inner), files);
            phase.libraries = self.run_bounded(job, hash).unwrap_or_default();
            phase.libraries.extend(unknown);
        }
    }
}

/// Hashes and copies the scripts and the configuration of a case. Returns `false`, which ends the case, when that did not
/// finish.
fn hash_sources(run: &RunContext<'_>, case: &CasePlan, folder: &Path, record: &mut Record) -> bool {
    let Some(job) = case.jobs.last() else { return true };
    let Some(sources) = CaseSources::of(run.plan, run.rows, case, config_json(&job.config)) else { return true };
    let folder = folder.to_owned();
    match run.run_bounded(job, move || sources.hash_and_copy(&folder)) {
        Some(hashes) => {
            debug!(files = hashes.scripts.len(), "hashed the scripts");
            record.provenance.scripts_sha256 = hashes.scripts;
            record.provenance.config_files_sha256 = hashes.config_files;
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
    // Both phases may have the same one.
    let new = outcome.warnings.into_iter().filter(|warning| !record.warnings.contains(warning)).collect::<Vec<_>>();
    record.warnings.extend(new);
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

/// Creates the record of a case before anything is measured.
pub(super) fn empty_record(
    plan: &Plan,
    rows: &[EffectiveValue],
    run: &Path,
    program: &Provenance,
    case: &CasePlan,
) -> Record {
    let config = case.jobs.last().map(|job| &job.config);
    let findings = plan.findings.iter().filter(|finding| finding.level == Level::Warning);
    let own = findings.filter(|finding| finding.concerns(&case.key));
    Record {
        schema: Record::SCHEMA,
        unit: flagperf_config::default_unit(),
        run: run.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        case: case.key.case.clone(),
        framework: case.key.framework.clone(),
        training_key: case.key.training.is_some().then(|| case.key.to_string()),
        vendor: plan.site.vendor.clone(),
        started: time_text(&Zoned::now()),
        status: Status::Ok,
        validity: ValidityCheck::default(),
        failures: Vec::new(),
        warnings: own.map(ToString::to_string).collect(),
        finish_info: FinishInfo::default(),
        departures: case.departures.iter().map(|(key, value)| departure_text(key, value)).collect(),
        settings: planned_settings(rows, case),
        accuracy: Accuracy::default(),
        agreement: AgreementCheck::default(),
        audit: AuditCheck::default(),
        flops: FlopCount::default(),
        phases: Vec::new(),
        hosts: Vec::new(),
        code_variables: Vec::new(),
        host_doubts: Vec::new(),
        device: case.device,
        monitors: None,
        provenance: Provenance {
            config_sha256: config.map(|config| hash_bytes(config_json(config).as_bytes())).unwrap_or_default(),
            ..program.clone()
        },
    }
}

/// Returns a time as a record states it.
pub(super) fn time_text(time: &Zoned) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

/// Returns the settings of the site and the case with their origins, as the record of the case states them.
pub fn planned_settings(rows: &[EffectiveValue], case: &CasePlan) -> IndexMap<String, Setting> {
    let key = case.key.to_string();
    let rows = rows.iter().filter(|row| row.section == key || row.section == "site");
    rows.map(|row| (row.key.clone(), Setting { value: row.value.clone(), origin: row.origin.to_string() })).collect()
}

pub(super) fn config_json(config: &IndexMap<String, Value>) -> String {
    serde_json::to_string(config).expect("the configuration is plain data")
}
