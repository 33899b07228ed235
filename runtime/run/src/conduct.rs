//! Conducts a run: creates its folder, runs its cases in sequence, writes its records.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use jiff::Zoned;

use super::case::{RunContext, run_case};
use super::checkout::CheckoutState;
use super::folder_state::FolderState;
use super::launch::Containers;
use super::resume::{EarlierAttempt, is_killed, link_checkpoints, set_aside, store_checkpoints};
use super::run_log::RunLog;
use super::{HostUse, Interrupt, Notice};
use flagperf_config::{CaseKey, Container};
use flagperf_core::exit_code;
use flagperf_core::measure::Clock;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::run_files::{MANIFEST_FILE, RECORD_FILE};
use flagperf_core::step::Step;
use flagperf_plan::{AuditScope, CasePlan, EffectiveValue, Plan};
use flagperf_result::{
    ManifestFault, Provenance, Record, Status, Validity, WriteError, write_checked_manifest, write_record,
};

/// Options of a run.
#[derive(Clone)]
pub struct RunOptions {
    /// Whether progress is displayed, so that workers must report it frequently.
    pub has_live_display: bool,
    /// What the audit of inference includes.
    pub audit: AuditScope,
    /// The program and arguments that start a worker.
    pub worker: Vec<OsString>,
    /// The conductor's clock.
    pub clock: Arc<dyn Clock>,
    /// The folder of the run; `None` selects a name by the time. In the folder of a resumed run, cases that have a record
    /// are not run again.
    pub folder: Option<PathBuf>,
    /// The hash and the versions of this program and the state of the checkout; `None` asks git.
    pub program: Option<Provenance>,
    /// The same of the killed process whose run is resumed, as far as it is known.
    pub resumed: Option<Provenance>,
    /// The barrier at which workers wait for each other before each measured loop; `None` when the case runs on one device.
    pub barrier: Option<Arc<dyn Barrier>>,
    /// What is known about other runs on the host.
    pub host_use: HostUse,
    /// The folder in which the processes of this host that train together find the checkpoints of an earlier attempt.
    pub checkpoint_store: Option<PathBuf>,
}

/// Lets workers on several devices begin to measure together.
pub trait Barrier: Send + Sync {
    /// Returns when every worker is ready for the measured loop of this step, or the run was interrupted.
    fn wait(&self, step: Step);
}

/// The outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Folder of the run.
    pub folder: PathBuf,
    /// The record of every case that was started, also by the killed process of a resumed run.
    pub records: Vec<Record>,
    /// The verdicts of the cases on several hosts or devices that ended in this run, each as a whole.
    pub summaries: Vec<Validity>,
    /// Records that could not be written, with their indices in `records`.
    pub unwritten: Vec<(usize, WriteError)>,
    /// Results without a manifest, with the index of their record.
    pub unsealed: Vec<(usize, ManifestFault)>,
    /// The cases that were not started because the run was interrupted.
    pub not_run: Vec<CaseKey>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Whether the worker of a training was killed, which can go on from a checkpoint.
    pub has_checkpoints: bool,
}

impl RunOutcome {
    /// Returns the outcome of a run in `folder` before its first case.
    pub fn empty(folder: PathBuf) -> Self {
        RunOutcome {
            folder,
            records: Vec::new(),
            summaries: Vec::new(),
            unwritten: Vec::new(),
            unsealed: Vec::new(),
            not_run: Vec::new(),
            has_checkpoints: false,
            interrupted: false,
        }
    }

    /// Returns whether every case was run and its record written.
    pub fn is_complete(&self) -> bool {
        self.not_run.is_empty() && self.unwritten.is_empty()
    }

    /// Returns the program's exit code. An `official` run requires that every result is valid.
    pub fn exit_code(&self, official: bool) -> u8 {
        let worst = if official { Validity::Valid } else { Validity::Unofficial };
        if !self.unwritten.is_empty() || !self.unsealed.is_empty() {
            exit_code::UNWRITTEN
        } else if self.interrupted {
            exit_code::INTERRUPTED
        } else if self.verdicts().any(|verdict| verdict > worst) {
            exit_code::FAILED
        } else {
            exit_code::OK
        }
    }

    fn verdicts(&self) -> impl Iterator<Item = Validity> {
        self.records.iter().map(|record| record.validity.verdict).chain(self.summaries.iter().copied())
    }
}

/// An error that prevents a run from starting.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results folder is not writable.
    #[error("cannot write results in `{folder}`: {source}")]
    Folder {
        /// The results folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Runs every case of a plan. The next case runs even if a case fails.
///
/// `effective_values` contains the effective settings with their origins, for the records.
///
/// # Errors
/// When the results folder is not writable; then no case was run.
pub fn conduct(
    plan: &Plan,
    effective_values: &[EffectiveValue],
    options: &RunOptions,
    interrupt: &Interrupt,
    notify: &mut dyn FnMut(&Notice<'_>),
) -> Result<RunOutcome, RunError> {
    let results = &plan.site.flagperf_log_path;
    let unwritable = |source| RunError::Folder { folder: results.clone(), source };
    let folder = match &options.folder {
        Some(folder) => fs::create_dir_all(folder).map(|()| folder.clone()).map_err(unwritable)?,
        None => make_run_folder(results)?,
    };
    let log = RunLog::create(plan, &folder).map_err(unwritable)?;
    notify(&Notice::RunBegins { folder: &folder });
    notify(&Notice::RunIsReady { folder: &folder });
    // Before the files are compared with their commit.
    let vendor_files = FolderState::read(&plan.vendor.folder);
    let program = options.program.clone().unwrap_or_else(|| CheckoutState::read(&plan.site.flagperf_path).provenance());
    let libraries = Arc::default();
    let rows = effective_values;
    Ok(tracing::subscriber::with_default(log.layer().subscriber(), || {
        // Without containers, no engine is asked.
        let containers = (plan.site.container == Container::Docker).then(|| {
            let hash = program.binary_sha256.as_deref();
            Containers::connect(hash, &mut |line| notify(&Notice::Preparation { line }))
        });
        let containers = containers.as_ref();
        let (folder, program) = (&*folder, &program);
        let context =
            RunContext { plan, rows, folder, options, interrupt, program, vendor_files, libraries, containers };
        run_cases(&context, &log, notify)
    }))
}

/// Runs the cases in sequence.
fn run_cases(context: &RunContext<'_>, log: &RunLog, notify: &mut dyn FnMut(&Notice<'_>)) -> RunOutcome {
    let RunContext { plan, folder, interrupt, options, .. } = *context;
    let mut outcome = RunOutcome::empty(folder.to_owned());
    for (index, case) in plan.cases.iter().enumerate() {
        // A run that is interrupted before its first case still has a record, which contains the interruption.
        if interrupt.is_set() && !outcome.records.is_empty() {
            outcome.not_run = plan.cases[index..].iter().map(|case| case.key.clone()).collect();
            for key in &outcome.not_run {
                log.case_not_run(key);
            }
            break;
        }
        let EndedCase { record, written, is_reported } = run_or_read(context, index, log, notify);
        let path = record_path(folder, case);
        if is_reported {
            notify(&Notice::FinishedBefore { record: &record, place: None, path: &path });
            outcome.records.push(record);
            continue;
        }
        if let (Some(group), Some(store)) = (group_of(case), &options.checkpoint_store) {
            store_checkpoints(&folder.join(&case.folder), store, group.writes_checkpoints, record.status == Status::Ok);
        }
        let sealed = seal(&record, &folder.join(&case.folder), written.is_ok());
        let (digest, unsealed) = (sealed.as_ref().ok().and_then(Option::as_deref), sealed.as_ref().err());
        let unwritten = written.as_ref().err();
        log.case_ends(&record, None, unwritten, &sealed);
        notify(&Notice::CaseEnds {
            record: &record,
            place: None,
            is_part: false,
            path: &path,
            unwritten,
            digest,
            unsealed,
        });
        outcome.has_checkpoints |= is_killed(&record, &folder.join(&case.folder));
        outcome.unsealed.extend(sealed.err().map(|error| (outcome.records.len(), error)));
        outcome.unwritten.extend(written.err().map(|error| (outcome.records.len(), error)));
        outcome.records.push(record);
    }
    outcome.interrupted = interrupt.is_set() && interrupt.reason().is_none();
    outcome
}

/// Returns the group of a process that trains with others.
fn group_of(case: &CasePlan) -> Option<&ProcessGroup> {
    case.jobs.iter().find_map(|job| job.process_group.as_ref())
}

/// A case that has ended.
struct EndedCase {
    record: Record,
    /// Whether the record is on disk.
    written: Result<(), WriteError>,
    /// Whether the process that was killed, of a resumed run, had completed and reported the result.
    is_reported: bool,
}

/// Runs a case and writes its record. If the killed process of a resumed run had finished the case, this reads its record.
fn run_or_read(context: &RunContext<'_>, index: usize, log: &RunLog, notify: &mut dyn FnMut(&Notice<'_>)) -> EndedCase {
    let RunContext { plan, folder, .. } = *context;
    let case = &plan.cases[index];
    let checkpoints = match set_aside(context, case) {
        EarlierAttempt::None => IndexMap::new(),
        EarlierAttempt::Finished(record) => {
            // The process may have been killed before it wrote the manifest.
            let is_reported = folder.join(&case.folder).join(MANIFEST_FILE).exists();
            return EndedCase { record: *record, written: Ok(()), is_reported };
        }
        EarlierAttempt::CutOff { kept, checkpoints } => {
            notify(&Notice::CutOff { key: &case.key, kept: &kept });
            checkpoints
        }
    };
    notify(&Notice::CaseBegins { key: &case.key, number: index + 1, count: plan.cases.len() });
    log.case_starts(&case.key);
    let checkpoints = match (group_of(case), &context.options.checkpoint_store) {
        (Some(group), Some(store)) => {
            link_checkpoints(store, &folder.join(&case.folder));
            group.checkpoints.clone()
        }
        _ => checkpoints,
    };
    let record = run_case(context, case, &checkpoints, notify);
    let written = write_record(&record, &record_path(folder, case));
    EndedCase { record, written, is_reported: false }
}

/// Writes the manifest of a case's folder, which is complete, and returns its digest. A case that was interrupted or can go on,
/// or whose record is not on disk has none, and neither has one with a file that is not as the record states.
fn seal(record: &Record, folder: &Path, is_written: bool) -> Result<Option<String>, ManifestFault> {
    if !is_written || record.status == Status::Interrupted || is_killed(record, folder) {
        return Ok(None);
    }
    write_checked_manifest(folder, &record.file_hashes()).map(Some)
}

/// Returns the path of a case's record.
fn record_path(folder: &Path, case: &CasePlan) -> PathBuf {
    folder.join(&case.folder).join(RECORD_FILE)
}

/// Creates the folder of a run in the folder for results.
///
/// # Errors
/// When the folder for results is not writable.
pub fn make_run_folder(results: &Path) -> Result<PathBuf, RunError> {
    make_folder(results).map_err(|source| RunError::Folder { folder: results.to_owned(), source })
}

/// Creates `run<YYYYmmddHHMMSS>`; the name of a second run in the same second ends with `_2`.
fn make_folder(results: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(results)?;
    let name = Zoned::now().strftime("run%Y%m%d%H%M%S").to_string();
    let names = std::iter::once(name.clone()).chain((2..100).map(|number| format!("{name}_{number}")));
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for name in names {
        let folder = results.join(name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::Overrides;
    use flagperf_config::fixture::{Checkout, HOST};
    use flagperf_core::description::{EngineDescription, Roles};
    use flagperf_core::measure::MonotonicClock;
    use flagperf_core::run_files::RUN_LOG;
    use flagperf_core::tensor::DType;
    use flagperf_plan::{Catalogue, plan};
    use flagperf_result::write_manifest;
    use flagperf_result::{ValidityCheck, testing};

    fn engine(name: &'static str) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: true, compiler: true },
            precisions: &[DType::F32],
            options: None,
            ..EngineDescription::unrestricted(name, "")
        }
    }

    /// Creates a checkout with the cases `toy:frame` and `toy:frame_2`.
    fn checkout() -> Checkout {
        let checkout = Checkout::new().overlay("fp16: false\n");
        checkout.with("configs/host.yaml", &format!("{HOST}    \"toy:frame_2\": data\n"))
    }

    fn plan_of(checkout: &Checkout) -> Plan {
        let config = checkout.load(&Overrides::default()).unwrap();
        let catalogue = Catalogue::read(checkout.root(), ["interpreter", "rten"].map(engine).to_vec());
        let plan = plan(&config, &catalogue).unwrap();
        assert_eq!(plan.cases.len(), 2);
        plan
    }

    fn options() -> RunOptions {
        RunOptions {
            audit: AuditScope::default(),
            has_live_display: false,
            folder: None,
            program: None,
            resumed: None,
            barrier: None,
            host_use: HostUse::default(),
            checkpoint_store: None,
            worker: ["/bin/sh", "-c", "sleep 600"].map(OsString::from).to_vec(),
            clock: Arc::new(MonotonicClock::start()),
        }
    }

    #[test]
    fn a_run_interrupted_before_its_first_case_writes_the_record_of_that_case() {
        let checkout = checkout();
        let plan = plan_of(&checkout);
        let interrupt = Interrupt::default();
        interrupt.set();
        let outcome = conduct(&plan, &[], &options(), &interrupt, &mut |_| ()).unwrap();
        assert_eq!((outcome.exit_code(false), outcome.records.len()), (exit_code::INTERRUPTED, 1));
        assert_eq!(outcome.not_run, [plan.cases[1].key.clone()]);
        let log = fs::read_to_string(outcome.folder.join(RUN_LOG)).unwrap();
        assert!(log.contains("-== Testcase toy:frame_2 not run ==-"), "{log}");
        let text = fs::read_to_string(record_path(&outcome.folder, &plan.cases[0])).unwrap();
        let record: Record = serde_json::from_str(&text).unwrap();
        assert_eq!((record.status, record.key().as_str()), (Status::Interrupted, "toy:frame"));
        assert!(!record_path(&outcome.folder, &plan.cases[1]).exists());
    }

    /// Resumes a run whose first case has this record, and which is interrupted before the second case. Returns the exit code as
    /// if it had not been interrupted; of each case that ended, whether it was reported before; and whether it has a manifest.
    fn resume(record: &Record, is_sealed: bool) -> (u8, Vec<bool>, bool) {
        let checkout = checkout();
        let plan = plan_of(&checkout);
        let folder = checkout.root().join("result/run1");
        let case = folder.join(&plan.cases[0].folder);
        fs::create_dir_all(&case).unwrap();
        write_record(record, &case.join(RECORD_FILE)).unwrap();
        if is_sealed {
            write_manifest(&case).unwrap();
        }
        let interrupt = Interrupt::default();
        interrupt.set();
        let (options, mut ended) = (RunOptions { folder: Some(folder), ..options() }, Vec::new());
        let mut notify = |notice: &Notice<'_>| match notice {
            Notice::CaseEnds { .. } => ended.push(false),
            Notice::FinishedBefore { .. } => ended.push(true),
            _ => {}
        };
        let mut outcome = conduct(&plan, &[], &options, &interrupt, &mut notify).unwrap();
        assert_eq!(outcome.not_run, [plan.cases[1].key.clone()]);
        outcome.interrupted = false;
        (outcome.exit_code(false), ended, case.join(MANIFEST_FILE).exists())
    }

    #[test]
    fn a_case_that_failed_before_a_run_was_killed_counts_in_the_exit_code_of_the_resumed_run() {
        let (good, bad) = (Validity::Unofficial, Validity::Invalid);
        let record =
            |verdict| Record { validity: ValidityCheck { verdict, ..Default::default() }, ..testing::record() };
        assert_eq!(resume(&record(good), true), (exit_code::OK, vec![true], true));
        assert_eq!(resume(&record(bad), true), (exit_code::FAILED, vec![true], true));
    }

    #[test]
    fn a_result_that_a_killed_run_had_not_sealed_is_sealed_and_reported_when_the_run_is_resumed() {
        let record = |status| Record { status, ..testing::record() };
        assert_eq!(resume(&record(Status::Ok), false).1, [false]);
        assert!(resume(&record(Status::Failed), false).2);
        let (_, ended, has_manifest) = resume(&record(Status::Interrupted), false);
        assert_eq!((ended, has_manifest), (vec![false], false));
    }
}
