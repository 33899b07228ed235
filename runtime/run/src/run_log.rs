//! `host.out.log` of a run: FlagPerf's lines about the plan and each case.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::log::{LogFile, LogLayer};
use flagperf_config::CaseKey;
use flagperf_core::event::Level;
use flagperf_core::run_files::RUN_LOG;
use flagperf_plan::Plan;
use flagperf_result::{Record, WriteError};

/// The log of a run.
#[derive(Clone)]
pub struct RunLog(Arc<Mutex<LogFile>>);

impl RunLog {
    /// Opens `host.out.log` in the folder of a run, and writes the findings of the plan and the planned cases.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(plan: &Plan, folder: &Path) -> io::Result<Self> {
        let log = RunLog(Arc::new(Mutex::new(LogFile::create(&folder.join(RUN_LOG), &plan.site)?)));
        log.run_starts(plan, folder);
        Ok(log)
    }

    /// Returns a subscriber that writes the messages of this program to the log.
    pub(super) fn layer(&self) -> LogLayer {
        LogLayer(self.0.clone())
    }

    /// Locks the log. A panic elsewhere leaves it usable: each line is written at once.
    fn lock(&self) -> MutexGuard<'_, LogFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_starts(&self, plan: &Plan, folder: &Path) {
        let mut log = self.lock();
        log.write_line(Level::Info, "plan", "======== Step 1: Check key configs. ========");
        for finding in &plan.findings {
            for line in finding.to_string().lines() {
                log.write_line(finding.level, "plan", line);
            }
        }
        log.write_line(Level::Info, "plan", "Get valid cases list......[SUCCESS]");
        let cases: Vec<String> = plan.cases.iter().map(|case| case.key.to_string()).collect();
        let is_training = |wanted: bool| plan.cases.iter().any(|case| case.key.training.is_some() == wanted);
        let kinds = [("Inference", is_training(false)), ("Training", is_training(true))];
        let kinds: Vec<&str> = kinds.into_iter().filter_map(|(kind, is_planned)| is_planned.then_some(kind)).collect();
        let line = format!("Prepare to run flagperf {} benchmarks: {}", kinds.join(" and "), cases.join(", "));
        log.write_line(Level::Info, "plan", &line);
        log.write_line(Level::Info, "run", "========= Step 2: Prepare and Run test cases. =========");
        log.write_line(Level::Info, "run", &format!("Results in {}", folder.display()));
    }

    /// Writes that a case starts.
    pub fn case_starts(&self, key: &CaseKey) {
        self.lock().write_line(Level::Info, "run", &format!("-== Testcase {key} starts ==-"));
    }

    /// Writes that a case is not run.
    pub fn case_not_run(&self, key: &CaseKey) {
        self.lock().write_line(Level::Warning, "run", &format!("-== Testcase {key} not run ==-"));
    }

    /// Writes FlagPerf's lines at the end of a case: `key : value`, with 43 columns for keys and 23 for values; of a training only
    /// the values that it has.
    pub fn case_ends(
        &self,
        record: &Record,
        place: Option<&str>,
        unwritten: Option<&WriteError>,
        sealed: &Result<Option<String>, impl Display>,
    ) {
        let mut log = self.lock();
        let key = place.map_or_else(|| record.key(), |place| format!("{} on {place}", record.key()));
        log.write_line(Level::Info, "run", &format!("-== Testcase {key} finished ==-"));
        for failure in &record.failures {
            log.write_line(Level::Error, "run", &format!("{key} [FAILED] {}", failure.reason));
        }
        if let Some(error) = unwritten {
            log.write_line(Level::Error, "run", &error.to_string());
        }
        match sealed {
            Ok(Some(digest)) => log.write_unlimited("Digest", "run", &format!("{key} {digest}")),
            Ok(None) => {}
            Err(error) => log.write_line(Level::Error, "run", &format!("{key} has no manifest: {error}")),
        }
        log.write_unlimited("Verdict", "run", &format!("{key} {}", record.validity.line()));
        let is_training = record.training_key.is_some();
        let title = if is_training { "Training Case Performance" } else { "2.3 Compilation Case Performance" };
        log.write_line(Level::Info, "run", &format!("=== {title} ==="));
        let info = serde_json::to_string(&record.finish_info).expect("the result is plain data");
        let info: indexmap::IndexMap<String, serde_json::Value> =
            serde_json::from_str(&info).expect("the result is a JSON object");
        for (key, value) in info.into_iter().filter(|(_, value)| !(is_training && value.is_null())) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            log.write_line(Level::Info, "run", &format!("{key:<43} : {value:<23}"));
        }
    }
}
