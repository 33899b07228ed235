//! `container.out.log`: the progress of a case, in the lines that FlagPerf writes in its container.

use std::io;
use std::path::Path;

use super::log::LogFile;
use super::worker_update::WorkerUpdate;
use flagperf_config::{CaseKey, Site};
use flagperf_core::event::{Event, Level};
use flagperf_core::measure::{Measurement, Nanos};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_result::{FinishInfo, ValidityCheck};

/// Time after which a line says what a phase does, if no other line did.
const LINE_INTERVAL: Seconds = Seconds(30.0);

/// The log of the workers of a case.
#[derive(Debug)]
pub(super) struct WorkerLog {
    log: LogFile,
    framework: String,
    log_freq: u64,
    pass: Option<u32>,
    /// When the last line about the course of a phase was written.
    last_line: Option<Nanos>,
    /// The last progress of the measured loop as text.
    progress: String,
}

impl WorkerLog {
    pub(super) fn create(path: &Path, site: &Site, key: &CaseKey, log_freq: u32) -> io::Result<Self> {
        let framework = key.framework_name().to_owned();
        Ok(WorkerLog {
            log: LogFile::create(path, site)?,
            framework,
            log_freq: u64::from(log_freq.max(1)),
            pass: None,
            last_line: None,
            progress: String::new(),
        })
    }

    /// Writes the lines for what the conductor hears from a worker, and a line every half a minute if it hears nothing of
    /// importance: FlagPerf wants one each 0.5 to 1 minute.
    pub(super) fn write_update(&mut self, phase: Phase, update: WorkerUpdate<'_>) {
        let at = match update {
            WorkerUpdate::Event(received, _) => {
                self.write_event(phase, received.event);
                if matches!(received.event, Event::StepBegin { .. } | Event::StepEnd { .. }) {
                    self.last_line = Some(received.at);
                }
                received.at
            }
            WorkerUpdate::Nothing(at) => at,
            WorkerUpdate::Started(_) => return,
        };
        if at.since(*self.last_line.get_or_insert(at)).0 >= LINE_INTERVAL.0 {
            self.last_line = Some(at);
            let text = format!("running: {}", self.progress);
            self.log.write_line(Level::Info, &format!("work:{}", phase.name()), &text);
        }
    }

    /// Writes the lines for an event of a worker.
    fn write_event(&mut self, phase: Phase, event: &Event) {
        let place = format!("work:{}", phase.name());
        if let Some(text) = progress_text(event) {
            self.progress = text;
        }
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

    /// Writes the verdict on the result, regardless of the minimum level.
    pub(super) fn write_verdict(&mut self, validity: &ValidityCheck) {
        self.log.write_unlimited("Verdict", "run", &validity.line());
    }

    /// Writes FlagPerf's result in its format: one line, regardless of the minimum level.
    pub(super) fn write_finish_info(&mut self, info: &FinishInfo) {
        let text = serde_json::to_string(info).unwrap_or_default();
        self.log.write_unlimited("Finish Info", "run", &text);
    }

    /// Checks that the log was neither removed nor replaced.
    pub(super) fn check(&self) -> io::Result<()> {
        self.log.check()
    }

    pub(super) fn error(&self) -> Option<&io::Error> {
        self.log.error()
    }

    /// Writes the figures of a measured loop after its last pass.
    pub(super) fn write_measurement(&mut self, phase: Phase, measured: Option<&Measurement>) {
        let Some(measured) = measured else { return };
        let place = &format!("work:{}", phase.name());
        let name = format!("{}({})", capitalised(measured.step.name()), self.framework);
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

/// Returns what the worker does from now on: `inference, pass 2 of 5, batch 77 of 1000`.
fn progress_text(event: &Event) -> Option<String> {
    match event {
        Event::StepBegin { step, .. } => Some(step.name().to_owned()),
        Event::Progress { step, warmup: true, .. } => Some(format!("{}, warm-up", step.name())),
        Event::Progress { step, pass, passes, batch, batches, .. } => {
            Some(format!("{}, pass {} of {passes}, batch {batch} of {batches}", step.name(), pass + 1))
        }
        Event::TrialProgress { trial, answered, .. } => {
            Some(format!("scenario, trial {}, {answered} queries", trial + 1))
        }
        _ => None,
    }
}

/// `Inference` for `inference`.
fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

/// Returns the name of a step in FlagPerf's log.
const fn stage_name(step: Step) -> &'static str {
    match step {
        Step::Init => "Init",
        Step::Build => "Build",
        Step::Validation => "Model Forward",
        Step::Export => "Export",
        Step::Training => "Training",
        Step::Compile => "Vendor Compile",
        Step::Inference => "Vendor Inference",
        Step::Record => "Record",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::Overrides;
    use flagperf_config::fixture::Checkout;
    use flagperf_core::run_files::CASE_LOG;
    use flagperf_result::{PhaseCollector, ReceivedEvent};

    #[test]
    fn a_long_step_has_a_line_every_half_a_minute() {
        let checkout = Checkout::new();
        let site = checkout.load(&Overrides::default()).unwrap().site;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CASE_LOG);
        let mut log = WorkerLog::create(&path, &site, &"tiny:mock".parse().unwrap(), 1000).unwrap();
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let begin = Event::StepBegin { step: Step::Inference, detail: "x".into() };
        let progress = Event::Progress {
            step: Step::Inference,
            warmup: false,
            pass: 1,
            passes: 5,
            batch: 77,
            batches: 1000,
            samples: 77,
            elapsed_s: Seconds(1.0),
            repetition: None,
        };
        let collector = PhaseCollector::new(Phase::Infer, at(0));
        log.write_update(Phase::Infer, WorkerUpdate::Event(ReceivedEvent { at: at(100), event: &begin }, &collector));
        log.write_update(Phase::Infer, WorkerUpdate::Nothing(at(129)));
        log.write_update(Phase::Infer, WorkerUpdate::Nothing(at(130)));
        log.write_update(Phase::Infer, WorkerUpdate::Nothing(at(131)));
        log.write_update(
            Phase::Infer,
            WorkerUpdate::Event(ReceivedEvent { at: at(161), event: &progress }, &collector),
        );
        let text = std::fs::read_to_string(path).unwrap();
        let running: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("running: ")?.1)).collect();
        assert_eq!(running, ["inference", "inference, pass 2 of 5, batch 77 of 1000"]);
    }
}
