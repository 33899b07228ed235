//! `container.out.log`: the progress of a case, in the lines that FlagPerf writes in its container.

use std::io;
use std::path::Path;

use super::log::LogFile;
use crate::config::{CaseKey, Site};
use crate::event::{Event, Level};
use crate::measure::Measurement;
use crate::result::FinishInfo;
use crate::step::{Phase, Step};

/// The log of the workers of a case.
#[derive(Debug)]
pub(super) struct WorkerLog {
    log: LogFile,
    framework: String,
    log_freq: u64,
    pass: Option<u32>,
}

impl WorkerLog {
    pub(super) fn create(path: &Path, site: &Site, key: &CaseKey, log_freq: u32) -> io::Result<Self> {
        let framework = key.framework_name().to_owned();
        Ok(WorkerLog { log: LogFile::create(path, site)?, framework, log_freq: u64::from(log_freq.max(1)), pass: None })
    }

    /// Writes the lines for an event of a worker.
    pub(super) fn write_event(&mut self, phase: Phase, event: &Event) {
        let place = format!("work:{}", phase.name());
        match event {
            Event::StepBegin { step, detail } => {
                self.pass = None;
                self.log.write_stage(&format!("{} Begin", stage_name(*step)), &place, detail);
            }
            Event::StepEnd { step, time_s } => {
                self.log.write_stage(&format!("{} End", stage_name(*step)), &place, &format!("{} seconds", time_s.0));
            }
            Event::Progress { warmup: false, pass, batch, batches, .. } => {
                if self.pass.replace(*pass) != Some(*pass) {
                    self.log.write_line(Level::Debug, &place, &format!("Repeat: {}", pass + 1));
                }
                if batch.is_multiple_of(self.log_freq) {
                    self.log.write_line(Level::Debug, &place, &format!("Step: {batch} / {batches}"));
                }
            }
            Event::Measured(measured) => self.write_measurement(&place, measured),
            Event::Log { level, source, message } => self.log.write_line(*level, source, message),
            Event::SampleFailed { sample, reason } => {
                self.log.write_line(Level::Warning, &place, &format!("sample `{sample}` failed: {reason}"));
            }
            Event::Failed(failure) => self.write_failure(&place, &failure.reason, &failure.hint),
            _ => {}
        }
    }

    /// Writes the reason and the hint of a failure.
    pub(super) fn write_failure(&mut self, place: &str, reason: &str, hint: &str) {
        self.log.write_line(Level::Error, place, reason);
        if !hint.is_empty() {
            self.log.write_line(Level::Error, place, &format!("hint: {hint}"));
        }
    }

    /// Writes FlagPerf's result in its format: one line, regardless of the minimum level.
    pub(super) fn write_finish_info(&mut self, info: &FinishInfo) {
        let text = serde_json::to_string(info).unwrap_or_default();
        self.log.write_unlimited("Finish Info", "run", &text);
    }

    pub(super) fn error(&self) -> Option<&io::Error> {
        self.log.error()
    }

    fn write_measurement(&mut self, place: &str, measured: &Measurement) {
        let name = if measured.step == Step::Validation { "Validation" } else { "Inference" };
        let name = format!("{name}({})", self.framework);
        let rates = [("", measured.throughput_whole_samples_per_s), ("core ", measured.throughput_core_samples_per_s)];
        for (part, rate) in rates {
            let rate = rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{} qps", rate.0));
            self.log.write_line(Level::Info, place, &format!("{name} {part}Perf: {rate}"));
        }
        for (metric, value) in &measured.accuracy {
            self.log.write_line(Level::Info, place, &format!("{name} {metric} Acc: {value}"));
        }
    }
}

/// Returns the name of a step in FlagPerf's log.
const fn stage_name(step: Step) -> &'static str {
    match step {
        Step::Init => "Init",
        Step::Build => "Build",
        Step::Validation => "Model Forward",
        Step::Export => "Export",
        Step::Compile => "Vendor Compile",
        Step::Inference => "Vendor Inference",
        Step::Record => "Record",
    }
}
