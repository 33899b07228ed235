//! A run: its folder, its cases one after the other, its records on disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Zoned;

use super::case::{Course, run_case};
use super::log::Log;
use super::{Interrupt, Notice};
use crate::event::Level;
use crate::measure::Clock;
use crate::plan::{CasePlan, Plan, Row};
use crate::result::{Provenance, Record, Status, WriteError, write_record};

/// How a run is conducted.
#[derive(Clone)]
pub struct Options {
    /// Whether someone watches: workers then tell of every step.
    pub watched: bool,
    /// The program that is a worker, with its arguments.
    pub worker: Vec<OsString>,
    /// The conductor's clock.
    pub clock: Arc<dyn Clock>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The run's folder.
    pub folder: PathBuf,
    /// The record of every case that began.
    pub records: Vec<Record>,
    /// Records that are not on disk, by their place in `records`.
    pub unwritten: Vec<(usize, WriteError)>,
    /// Whether the run was ended before its end.
    pub interrupted: bool,
}

impl Outcome {
    /// Every case is well and its record on disk.
    pub const OK: u8 = 0;
    /// A case failed.
    pub const FAILED: u8 = 1;
    /// Records could not be written.
    pub const UNWRITTEN: u8 = 3;
    /// Somebody ended the run.
    pub const INTERRUPTED: u8 = 130;

    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        if !self.unwritten.is_empty() {
            Outcome::UNWRITTEN
        } else if self.interrupted {
            Outcome::INTERRUPTED
        } else if self.records.iter().any(|record| record.status != Status::Ok) {
            Outcome::FAILED
        } else {
            Outcome::OK
        }
    }
}

/// A run that could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The folder for results cannot be written.
    #[error("cannot write results in `{folder}`: {source}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs every case of a plan. A case that fails never stops the next.
///
/// `rows` are the effective values with their origins, for the records.
///
/// # Errors
/// When the folder for results cannot be written; nothing was run then.
pub fn conduct(
    plan: &Plan,
    rows: &[Row],
    options: &Options,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&Notice<'_>),
) -> Result<Outcome, RunError> {
    let results = &plan.site.flagperf_log_path;
    let unwritable = |source| RunError::Folder { folder: results.clone(), source };
    let folder = make_folder(results).map_err(unwritable)?;
    let mut log = Log::create(&folder.join("host.out.log"), &plan.site).map_err(unwritable)?;
    begin_log(&mut log, plan, &folder);
    watch(&Notice::RunBegins { folder: &folder });
    let program = Provenance::of_this_program();
    let course = Course { plan, rows, folder: &folder, options, interrupt, program: &program };
    let mut outcome =
        Outcome { folder: folder.clone(), records: Vec::new(), unwritten: Vec::new(), interrupted: false };
    for (index, case) in plan.cases.iter().enumerate() {
        // The record of the first case says that the run was interrupted, also when it was so before the case began.
        if interrupt.is_set() && !outcome.records.is_empty() {
            break;
        }
        watch(&Notice::CaseBegins { key: &case.key, number: index + 1, count: plan.cases.len() });
        log.line(Level::Info, "run", &format!("-== Testcase {} starts ==-", case.key));
        let record = run_case(&course, case, watch);
        let written = write_record(&record, &record_path(&folder, case));
        end_log(&mut log, &record, written.as_ref().err());
        watch(&Notice::CaseEnds { record: &record, unwritten: written.as_ref().err() });
        outcome.unwritten.extend(written.err().map(|error| (outcome.records.len(), error)));
        outcome.records.push(record);
    }
    outcome.interrupted = interrupt.is_set();
    Ok(outcome)
}

/// Where a case's record is.
fn record_path(folder: &Path, case: &CasePlan) -> PathBuf {
    folder.join(&case.folder).join("record.json")
}

/// Makes `run<YYYYmmddHHMMSS>`; a second run in the same second gets `_2` after it.
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

fn begin_log(log: &mut Log, plan: &Plan, folder: &Path) {
    log.line(Level::Info, "plan", "======== Step 1: Check key configs. ========");
    for finding in &plan.findings {
        log.line(finding.level, "plan", &finding.to_string());
    }
    log.line(Level::Info, "plan", "Get valid cases list......[SUCCESS]");
    let cases: Vec<String> = plan.cases.iter().map(|case| case.key.to_string()).collect();
    log.line(Level::Info, "plan", &format!("Prepare to run flagperf Inference benchmarks: {}", cases.join(", ")));
    log.line(Level::Info, "run", "========= Step 2: Prepare and Run test cases. =========");
    log.line(Level::Info, "run", &format!("Results in {}", folder.display()));
}

/// FlagPerf's lines at the end of a case: `key : value`, keys 43 and values 23 characters wide.
fn end_log(log: &mut Log, record: &Record, unwritten: Option<&WriteError>) {
    log.line(Level::Info, "run", &format!("-== Testcase {} finished ==-", record.key()));
    for failure in &record.failures {
        log.line(Level::Error, "run", &format!("{} [FAILED] {}", record.key(), failure.reason));
    }
    if let Some(error) = unwritten {
        log.line(Level::Error, "run", &error.to_string());
    }
    log.line(Level::Info, "run", "=== 2.3 Compilation Case Performance ===");
    let info = serde_json::to_string(&record.finish_info).expect("the result is plain data");
    let info: indexmap::IndexMap<String, serde_json::Value> = serde_json::from_str(&info).expect("it is an object");
    for (key, value) in info {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        log.line(Level::Info, "run", &format!("{key:<43} : {value:<23}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use crate::config::fixture::{Checkout, HOST};
    use crate::measure::MonotonicClock;
    use crate::plan::{Catalogue, KnownEngine, plan};
    use crate::tensor::DType;

    fn engine(name: &str) -> KnownEngine {
        KnownEngine {
            name: name.to_owned(),
            about: String::new(),
            framework: true,
            compiler: true,
            precisions: vec![DType::F32],
            takes_library: false,
            takes_compiled: true,
            takes_command: false,
        }
    }

    #[test]
    fn a_run_that_is_interrupted_before_its_first_case_leaves_that_cases_record() {
        let checkout = Checkout::new().overlay("fp16: false\n");
        let checkout = checkout.with("configs/host.yaml", &format!("{HOST}    \"toy:frame_2\": data\n"));
        let config = checkout.load(&Overrides::default()).unwrap();
        let catalogue = Catalogue::read(checkout.root(), ["candle", "rten"].map(engine).to_vec());
        let plan = plan(&config, &catalogue).unwrap();
        assert_eq!(plan.cases.len(), 2);
        let options = Options {
            watched: false,
            worker: ["/bin/sh", "-c", "sleep 600"].map(OsString::from).to_vec(),
            clock: Arc::new(MonotonicClock::start()),
        };
        let interrupt = Interrupt::default();
        interrupt.set();
        let outcome = conduct(&plan, &[], &options, &interrupt, &mut |_| ()).unwrap();
        assert_eq!((outcome.exit_code(), outcome.records.len()), (Outcome::INTERRUPTED, 1));
        let text = fs::read_to_string(record_path(&outcome.folder, &plan.cases[0])).unwrap();
        let record: Record = serde_json::from_str(&text).unwrap();
        assert_eq!((record.status, record.key().as_str()), (Status::Interrupted, "toy:frame"));
        assert!(!record_path(&outcome.folder, &plan.cases[1]).exists());
    }
}
