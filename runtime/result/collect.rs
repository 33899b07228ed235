//! The events of one phase, made into its part of the record.

use super::{ClockCheck, FileRecord, PhaseRecord, SampleFailure, StepRecord};
use crate::event::{Event, Failure, Level};
use crate::measure::Nanos;
use crate::step::{Phase, Step};
use crate::units::Seconds;

/// Failed samples that are kept with their reasons; the measurement has the full count.
const FAILED_SAMPLES_KEPT: usize = 100;
/// Warnings of the worker that are kept.
const WARNINGS_KEPT: usize = 100;
/// The worker's clock may differ from the conductor's by this share...
const DISCREPANCY: f64 = 0.05;
/// ...or by this much, for events take time to arrive.
const ARRIVAL: Seconds = Seconds(0.05);

/// An event and when it arrived, by the conductor's clock.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When.
    pub at: Nanos,
    /// What.
    pub event: &'a Event,
}

/// Collects the events of a phase.
#[derive(Debug)]
pub struct PhaseCollector {
    record: PhaseRecord,
    began: Nanos,
    step_began: Option<Nanos>,
    warnings: Vec<String>,
    failure: Option<Failure>,
    finished: bool,
}

impl PhaseCollector {
    /// A phase whose worker is started now.
    pub fn new(phase: Phase, now: Nanos) -> Self {
        PhaseCollector {
            record: PhaseRecord::new(phase),
            began: now,
            step_began: None,
            warnings: Vec::new(),
            failure: None,
            finished: false,
        }
    }

    /// Takes an event.
    pub fn take(&mut self, Arrival { at, event }: Arrival<'_>) {
        let record = &mut self.record;
        match event {
            Event::StepBegin { step, detail } => {
                self.step_began = Some(at);
                record.steps.push(StepRecord { step: *step, detail: detail.clone(), time_s: None, clock: None });
            }
            Event::StepEnd { step, time_s } => self.end_step(*step, *time_s, at),
            Event::Model(facts) => record.model = Some(facts.clone()),
            Event::Dataset(facts) => record.dataset = Some(facts.clone()),
            Event::Engine(facts) => record.engine = Some((**facts).clone()),
            Event::Sidecar(facts) => {
                if let Some(engine) = &mut record.engine {
                    engine.sidecar = Some((**facts).clone());
                }
            }
            Event::SampleFailed { sample, reason } if record.failed_samples.len() < FAILED_SAMPLES_KEPT => {
                record.failed_samples.push(SampleFailure { sample: sample.clone(), reason: reason.clone() });
            }
            Event::Wrote { what, path, size_bytes, sha256 } => {
                let (what, path, sha256) = (what.clone(), path.clone(), sha256.clone());
                record.files.retain(|file| file.path != path);
                record.files.push(FileRecord { what, path, size_bytes: *size_bytes, sha256 });
            }
            Event::Measured(measured) => {
                // Sent after every pass, so that what is measured outlives a worker that does not.
                let measured = (**measured).clone();
                match record.measured.iter().position(|earlier| earlier.step == measured.step) {
                    Some(place) => {
                        let earlier = record.measured.remove(place);
                        record.measured.insert(place, measured.after(earlier));
                    }
                    None => record.measured.push(measured),
                }
            }
            Event::Agreement(agreement) => record.agreement = Some(agreement.clone()),
            Event::Log { level: Level::Warning, source, message } => self.warn(format!("{source}: {message}")),
            Event::Failed(failure) => self.failure = Some(failure.clone()),
            Event::Finished { memory_bytes_max } => {
                record.memory_bytes_max = Some(*memory_bytes_max);
                self.finished = true;
            }
            Event::Started { .. } | Event::Progress { .. } | Event::SampleFailed { .. } | Event::Log { .. } => {}
        }
    }

    fn end_step(&mut self, step: Step, time_s: Seconds, at: Nanos) {
        let Some(began) = self.step_began.take() else { return };
        let Some(record) = self.record.steps.last_mut().filter(|record| record.step == step) else { return };
        let conductor_s = at.since(began);
        let discrepancy = if conductor_s.0 > 0.0 { time_s.0 / conductor_s.0 - 1.0 } else { 0.0 };
        record.time_s = Some(time_s);
        record.clock = Some(ClockCheck { conductor_s, discrepancy });
        if discrepancy.abs() > DISCREPANCY && (time_s - conductor_s).0.abs() > ARRIVAL.0 {
            self.warn(format!(
                "clocks disagree on {}: {:.3} s by the worker, {:.3} s by the conductor",
                step.name(),
                time_s.0,
                conductor_s.0
            ));
        }
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_KEPT && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The failure that the worker told of.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether the worker said that it ended well.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The step that is under way.
    pub fn step(&self) -> Option<Step> {
        self.step_began.and(self.record.steps.last()).map(|record| record.step)
    }

    /// The phase's part of the record, and its warnings; `ending` says how the process ended.
    pub fn finish(mut self, now: Nanos, ending: Option<String>) -> (PhaseRecord, Vec<String>) {
        self.record.time_s = now.since(self.began);
        self.record.ending = ending;
        (self.record, self.warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_of(worker_s: f64, conductor_s: f64) -> (PhaseRecord, Vec<String>) {
        let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
        let nanos = |s: f64| Nanos((s * 1e9) as u64);
        let begin = Event::StepBegin { step: Step::Inference, detail: String::new() };
        collector.take(Arrival { at: nanos(1.0), event: &begin });
        assert_eq!(collector.step(), Some(Step::Inference));
        let end = Event::StepEnd { step: Step::Inference, time_s: Seconds(worker_s) };
        collector.take(Arrival { at: nanos(1.0 + conductor_s), event: &end });
        collector.finish(nanos(9.0), None)
    }

    #[test]
    fn a_worker_whose_clock_runs_slow_is_reported() {
        let (record, warnings) = step_of(1.0, 2.0);
        assert!((record.steps[0].clock.unwrap().discrepancy + 0.5).abs() < 1e-9);
        assert_eq!(warnings, ["clocks disagree on inference: 1.000 s by the worker, 2.000 s by the conductor"]);
    }

    #[test]
    fn clocks_that_agree_are_recorded_in_silence() {
        let (record, warnings) = step_of(2.0, 2.04);
        assert!(record.steps[0].clock.is_some() && warnings.is_empty());
        assert!(step_of(0.001, 0.02).1.is_empty(), "the way of an event is no discrepancy");
    }

    #[test]
    fn figures_that_are_told_again_replace_the_earlier_ones() {
        let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
        for samples in [16, 32] {
            let measured =
                crate::measure::Measurement { samples, ..crate::result::testing::measurement(Step::Inference) };
            collector.take(Arrival { at: Nanos(0), event: &Event::Measured(Box::new(measured)) });
        }
        let (record, _) = collector.finish(Nanos(1), None);
        assert_eq!((record.measured.len(), record.measured[0].samples), (1, 32));
    }

    #[test]
    fn of_many_warnings_and_failed_samples_the_first_are_kept() {
        let mut collector = PhaseCollector::new(Phase::Validate, Nanos(0));
        for i in 0..300 {
            let event = Event::SampleFailed { sample: i.to_string(), reason: "cut short".into() };
            collector.take(Arrival { at: Nanos(0), event: &event });
            let event = Event::Log { level: Level::Warning, source: "loader".into(), message: (i % 3).to_string() };
            collector.take(Arrival { at: Nanos(0), event: &event });
        }
        let (record, warnings) = collector.finish(Nanos(1), None);
        assert_eq!((record.failed_samples.len(), warnings.len()), (FAILED_SAMPLES_KEPT, 3));
    }
}
