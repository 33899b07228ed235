//! `container.out.log`: the course of a case, in the lines that FlagPerf writes in its container.

use std::io;
use std::path::Path;

use super::log::Log;
use crate::config::{CaseKey, Site};
use crate::event::{Event, Level};
use crate::measure::Measurement;
use crate::result::FinishInfo;
use crate::step::{Phase, Step};

/// The log of a case's workers.
#[derive(Debug)]
pub(super) struct WorkerLog {
    log: Log,
    framework: String,
    log_freq: u64,
    pass: Option<u32>,
}

impl WorkerLog {
    pub(super) fn create(path: &Path, site: &Site, key: &CaseKey, log_freq: u32) -> io::Result<Self> {
        let framework = key.framework_name().to_owned();
        Ok(WorkerLog { log: Log::create(path, site)?, framework, log_freq: u64::from(log_freq.max(1)), pass: None })
    }

    /// What a worker said.
    pub(super) fn event(&mut self, phase: Phase, event: &Event) {
        let place = format!("work:{}", phase.name());
        match event {
            Event::StepBegin { step, detail } => {
                self.pass = None;
                self.log.stage(&format!("{} Begin", stage(*step)), &place, detail);
            }
            Event::StepEnd { step, time_s } => {
                self.log.stage(&format!("{} End", stage(*step)), &place, &format!("{} seconds", time_s.0));
            }
            Event::Progress { warmup: false, pass, batch, batches, .. } => {
                if self.pass.replace(*pass) != Some(*pass) {
                    self.log.line(Level::Debug, &place, &format!("Repeat: {}", pass + 1));
                }
                if batch.is_multiple_of(self.log_freq) {
                    self.log.line(Level::Debug, &place, &format!("Step: {batch} / {batches}"));
                }
            }
            Event::Measured(measured) => self.measured(&place, measured),
            Event::Log { level, source, message } => self.log.line(*level, source, message),
            Event::SampleFailed { sample, reason } => {
                self.log.line(Level::Warning, &place, &format!("sample `{sample}` failed: {reason}"));
            }
            Event::Failed(failure) => self.failed(&place, &failure.reason, &failure.hint),
            _ => {}
        }
    }

    /// That a phase failed.
    pub(super) fn failed(&mut self, place: &str, reason: &str, hint: &str) {
        self.log.line(Level::Error, place, reason);
        if !hint.is_empty() {
            self.log.line(Level::Error, place, &format!("hint: {hint}"));
        }
    }

    /// FlagPerf's result, as it writes it: one line, whatever the level.
    pub(super) fn finish(&mut self, info: &FinishInfo) {
        let text = serde_json::to_string(info).unwrap_or_default();
        self.log.named("Finish Info", "run", &text);
    }

    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.log.failure()
    }

    fn measured(&mut self, place: &str, measured: &Measurement) {
        let name = if measured.step == Step::Validation { "Validation" } else { "Inference" };
        let name = format!("{name}({})", self.framework);
        let rates = [("", measured.throughput_whole_samples_per_s), ("core ", measured.throughput_core_samples_per_s)];
        for (part, rate) in rates {
            let rate = rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{} qps", rate.0));
            self.log.line(Level::Info, place, &format!("{name} {part}Perf: {rate}"));
        }
        for (metric, value) in &measured.accuracy {
            self.log.line(Level::Info, place, &format!("{name} {metric} Acc: {value}"));
        }
    }
}

/// The name of a step in FlagPerf's log.
const fn stage(step: Step) -> &'static str {
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
