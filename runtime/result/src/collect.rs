//! Collects the events of one phase into its record.

use super::loops::LoopCollector;
use super::trials::TrialCollector;
use super::{ClockCheck, FileRecord, PhaseRecord, SampleFailure, StepRecord};
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{Measurement, Nanos};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, Seconds};

/// Largest number of failed samples kept with their reasons; the measurement contains the full count.
const FAILED_SAMPLES_KEPT: usize = 100;
/// Largest number of warnings kept.
const WARNINGS_KEPT: usize = 100;
/// Largest relative difference between the worker's clock and the conductor's that is not a warning.
const DISCREPANCY_MAX: f64 = 0.05;
/// Largest absolute difference that is not a warning, because events take time to arrive.
const ARRIVAL_DELAY_MAX: Seconds = Seconds(0.2);

/// An event with the time of its arrival by the conductor's clock.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedEvent<'a> {
    /// Time of arrival.
    pub at: Nanos,
    pub event: &'a Event,
}

/// Collects the events of a phase.
#[derive(Debug)]
pub struct PhaseCollector {
    record: PhaseRecord,
    started: Nanos,
    step_started: Option<Nanos>,
    warnings: Vec<String>,
    failure: Option<Failure>,
    finished: bool,
    loops: Vec<LoopCollector>,
    trials: TrialCollector,
    contradiction: Option<String>,
}

impl PhaseCollector {
    /// Creates a collector for a phase whose worker is started at `now`.
    pub fn new(phase: Phase, now: Nanos) -> Self {
        PhaseCollector {
            record: PhaseRecord::new(phase),
            started: now,
            step_started: None,
            warnings: Vec::new(),
            failure: None,
            finished: false,
            loops: Vec::new(),
            trials: TrialCollector::default(),
            contradiction: None,
        }
    }

    /// Adds an event.
    pub fn add(&mut self, ReceivedEvent { at, event }: ReceivedEvent<'_>) {
        let record = &mut self.record;
        match event {
            Event::StepBegin { step, detail } => {
                self.step_started = Some(at);
                record.steps.push(StepRecord { step: *step, detail: detail.clone(), time_s: None, clock: None });
            }
            Event::StepEnd { step, time_s } => self.end_step(*step, *time_s, at),
            Event::Model(facts) => record.model = Some(facts.clone()),
            Event::Rewrite(rewrite) => record.rewrites.push((**rewrite).clone()),
            Event::Dataset(facts) => record.dataset = Some(facts.clone()),
            Event::Decoder(facts) => {
                if let Some(dataset) = &mut record.dataset {
                    dataset.decoder = Some(facts.clone());
                }
            }
            Event::Loading(search) => {
                if let Some(dataset) = &mut record.dataset {
                    dataset.loading = Some(search.clone());
                }
            }
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
            Event::PassBegin { step, pass } => {
                let begun = self.open_loop(*step).and_then(|open| open.begin(*pass, at));
                self.note_contradiction(begun);
            }
            Event::Steps { step, times } => {
                let added = self.open_loop(*step).and_then(|open| open.add_times(&times.0, at));
                self.note_contradiction(added);
            }
            Event::PassEnd(report) => {
                let ended = self.open_loop(report.step).and_then(|open| open.end(report));
                self.note_contradiction(ended);
            }
            Event::Queries { .. } | Event::TrialEnd(_) | Event::Scenario(_) => {
                let added = self.add_scenario(event);
                self.note_contradiction(added);
            }
            Event::TrainingDataset(facts) => record.training.get_or_insert_default().dataset = Some(facts.clone()),
            Event::EpochLosses(losses) => {
                let added = record.training.get_or_insert_default().add_losses(losses);
                self.note_contradiction(added);
            }
            Event::Evaluation(evaluation) => {
                let samples = record.dataset.as_ref().map_or(0, |dataset| dataset.samples);
                let added = record.training.get_or_insert_default().add_evaluation(evaluation, samples);
                self.note_contradiction(added);
            }
            Event::TrainingEnd(end) => record.training.get_or_insert_default().end(end),
            Event::TrainingResumed(resumed) => record.training.get_or_insert_default().resumed = Some(*resumed),
            Event::LocalSteps(steps) => {
                let trained = self.loops.last().map(LoopCollector::core_times).unwrap_or_default();
                let added = record.training.get_or_insert_default().add_local_steps(steps, &trained);
                self.note_contradiction(added);
            }
            Event::TrainedBy { parts } => record.training.get_or_insert_default().trained_by.clone_from(parts),
            Event::TrainingReplay(replay) => {
                record.training.get_or_insert_default().replay = Some((**replay).clone());
            }
            Event::Reported { round, values } => record.training.get_or_insert_default().add_reported(*round, values),
            Event::Protected(protection) => record.protection = Some(*protection),
            Event::Audit(audit) => record.audit = Some((**audit).clone()),
            Event::Agreement(agreement) => record.agreement = Some(agreement.clone()),
            Event::Log { level: Level::Warning, source, message } => self.add_warning(format!("{source}: {message}")),
            Event::Failed(failure) => self.failure = Some(failure.clone()),
            Event::Finished { memory_bytes_max } => {
                record.memory_bytes_max = Some(*memory_bytes_max);
                self.finished = true;
            }
            Event::Started { .. }
            | Event::Checkpoint { .. }
            | Event::Trace { .. }
            | Event::Ready { .. }
            | Event::TrialBegin { .. }
            | Event::Progress { .. }
            | Event::TrialProgress { .. }
            | Event::Observed { .. }
            | Event::SampleFailed { .. }
            | Event::Log { .. } => {}
        }
    }

    /// Returns whether the measured step has ended. What the worker computes later, such as samples with the interpreter, is not
    /// the engine's.
    pub fn is_measured(&self) -> bool {
        let measured = self.record.phase.measured_step();
        self.record.steps.iter().any(|step| step.step == measured && step.time_s.is_some())
    }

    /// Adds a reading of the memory of the worker and of the processes that it started.
    pub fn observe_memory(&mut self, bytes: Bytes) {
        let peak = self.record.observed_memory_bytes_max.map_or(0, |peak| peak.0);
        self.record.observed_memory_bytes_max = Some(Bytes(peak.max(bytes.0)));
    }

    /// Adds what the scenario reports, which must be after the passes of inference.
    fn add_scenario(&mut self, event: &Event) -> Result<(), String> {
        let passes = self.loops.last().filter(|found| found.step() == Step::Inference).map_or(0, LoopCollector::passes);
        if self.step() != Some(Step::Inference) || passes == 0 {
            return Err("queries were reported that are not after the passes of inference".to_owned());
        }
        self.trials.add(event)
    }

    /// Returns the collector of the measured loop of `step`, which must be in progress.
    fn open_loop(&mut self, step: Step) -> Result<&mut LoopCollector, String> {
        if self.step() != Some(step) {
            return Err(format!("figures of {} were reported outside this step", step.name()));
        }
        if self.loops.last().is_none_or(|open| open.step() != step) {
            self.loops.push(LoopCollector::new(step));
        }
        Ok(self.loops.last_mut().expect("a loop was added"))
    }

    /// Keeps the first contradiction.
    fn note_contradiction(&mut self, result: Result<(), String>) {
        if let Err(reason) = result {
            self.contradiction.get_or_insert(reason);
        }
    }

    fn end_step(&mut self, step: Step, time_s: Seconds, at: Nanos) {
        let Some(started) = self.step_started.take() else { return };
        let Some(record) = self.record.steps.last_mut().filter(|record| record.step == step) else { return };
        if !time_s.0.is_finite() {
            self.contradiction.get_or_insert(format!("step `{}` ended without a time", step.name()));
            return;
        }
        let conductor_s = at.since(started);
        let discrepancy = if conductor_s.0 > 0.0 { time_s.0 / conductor_s.0 - 1.0 } else { 0.0 };
        record.time_s = Some(time_s);
        record.clock = Some(ClockCheck { conductor_s, discrepancy });
        // A delay of the first event makes the conductor's time shorter, which flatters nobody.
        if -discrepancy > DISCREPANCY_MAX && conductor_s.0 - time_s.0 > ARRIVAL_DELAY_MAX.0 {
            self.add_warning(format!(
                "step `{}` took {:.3} s by the clock of the worker, but {:.3} s by that of the main process: on a busy \
                 machine events arrive late, and otherwise the worker's clock is slow",
                step.name(),
                time_s.0,
                conductor_s.0
            ));
        }
    }

    fn add_warning(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_KEPT && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        self.record.phase
    }

    /// Returns the first contradiction in what the worker reported.
    pub fn contradiction(&self) -> Option<&str> {
        self.contradiction.as_deref()
    }

    /// Returns what is missing from the reports of a worker that reported success; `passes` is the number of passes of
    /// each measured loop.
    pub fn missing(&self, passes: u32) -> Option<String> {
        let measured = self.record.phase.measured_step();
        let open = self.record.steps.iter().find(|step| step.time_s.is_none());
        if let Some(step) = open {
            return Some(format!("step `{}` did not end", step.step.name()));
        }
        if self.record.phase == Phase::Train {
            // A training ends at its target, so that the number of its epochs is not known before.
            let training = self.record.training.as_ref();
            let ended = training.map_or(0, |training| training.ended_rounds());
            if ended != passes as usize {
                return Some(format!("{ended} of {passes} trainings ended"));
            }
            let stated: u64 = training.iter().flat_map(|training| &training.rounds).map(|round| round.steps).sum();
            let measured = self.measurement().map_or(0, |measured| measured.steps);
            if measured == 0 {
                return Some("no step of the training was measured".to_owned());
            }
            return (stated != measured).then(|| format!("{measured} steps have times, and {stated} have a loss"));
        }
        let ended = self.loops.iter().find(|found| found.step() == measured).map_or(0, LoopCollector::passes);
        (ended != passes as usize).then(|| format!("{} has {ended} of {passes} passes", measured.name()))
    }

    /// Returns the figures of the last measured loop so far; `None` when no pass has ended.
    pub fn measurement(&self) -> Option<Measurement> {
        self.loops.last()?.measurement()
    }

    /// Returns the failure that the worker reported.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether the worker reported success.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the current step; `None` between steps.
    pub fn step(&self) -> Option<Step> {
        self.step_started.and(self.record.steps.last()).map(|record| record.step)
    }

    /// Returns the record of the phase and its warnings. `ending` describes how the process ended.
    pub fn finish(mut self, now: Nanos, ending: Option<String>) -> (PhaseRecord, Vec<String>) {
        self.record.time_s = now.since(self.started);
        if let Some(training) = &mut self.record.training {
            training.finish(self.loops.last().and_then(LoopCollector::measurement).as_ref());
        }
        self.record.scenario = self.trials.finish();
        self.record.measured = self.loops.iter().filter_map(LoopCollector::measurement).collect();
        self.record.ending = ending;
        (self.record, self.warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn step_of(worker_s: f64, conductor_s: f64) -> (PhaseRecord, Vec<String>) {
        let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
        let nanos = |s: f64| Nanos((s * 1e9) as u64);
        let begin = Event::StepBegin { step: Step::Inference, detail: String::new() };
        collector.add(ReceivedEvent { at: nanos(1.0), event: &begin });
        assert_eq!(collector.step(), Some(Step::Inference));
        let end = Event::StepEnd { step: Step::Inference, time_s: Seconds(worker_s) };
        collector.add(ReceivedEvent { at: nanos(1.0 + conductor_s), event: &end });
        collector.finish(nanos(9.0), None)
    }

    #[test]
    fn a_worker_whose_clock_runs_slow_is_reported() {
        let (record, warnings) = step_of(1.0, 2.0);
        assert!((record.steps[0].clock.unwrap().discrepancy + 0.5).abs() < 1e-9);
        let expected = "step `inference` took 1.000 s by the clock of the worker, but 2.000 s by that of the main process: on a \
                        busy machine events arrive late, and otherwise the worker's clock is slow";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn clocks_that_agree_are_recorded_without_a_warning() {
        let (record, warnings) = step_of(2.0, 2.04);
        assert!(record.steps[0].clock.is_some() && warnings.is_empty());
        assert!(step_of(0.001, 0.02).1.is_empty(), "the arrival delay of events is not a discrepancy");
    }

    #[test]
    fn losses_and_evaluations_of_another_epoch_are_contradictions() {
        use flagperf_core::event::DatasetFacts;
        use flagperf_core::measure::{EpochLosses, Evaluation};
        let losses = |epoch, count: usize| {
            let (loss, gradient_norm) = (vec![1.0; 2], vec![1.0; count]);
            let learning_rate = vec![0.1; 2];
            Event::EpochLosses(Box::new(EpochLosses { round: 0, epoch, learning_rate, loss, gradient_norm }))
        };
        let evaluation =
            |epochs, steps, samples| Event::Evaluation(Evaluation { epochs, steps, samples, ..Evaluation::default() });
        let contradiction = |events: &[Event]| {
            let mut collector = PhaseCollector::new(Phase::Train, Nanos(0));
            let dataset = Event::Dataset(DatasetFacts { samples: 5, ..DatasetFacts::default() });
            for event in [dataset].iter().chain(events) {
                collector.add(ReceivedEvent { at: Nanos(0), event });
            }
            collector.contradiction().map(str::to_owned)
        };
        assert_eq!(contradiction(&[losses(0, 2), evaluation(1, 2, 5), losses(1, 2)]), None);
        let expected = "epoch 1 of training 0 was reported when epoch 0 of training 0 was due";
        assert_eq!(contradiction(&[losses(1, 2)]).as_deref(), Some(expected));
        let expected = "epoch 0 has not one loss, one norm and one learning rate for each step";
        assert_eq!(contradiction(&[losses(0, 1)]).as_deref(), Some(expected));
        for wrong in [evaluation(2, 2, 5), evaluation(1, 3, 5), evaluation(1, 2, 6)] {
            let found = contradiction(&[losses(0, 2), wrong]).unwrap();
            assert!(found.ends_with("not of training 0, 1 epochs, 2 steps and 5 samples"), "{found}");
        }
        let parts = [losses(0, 2), evaluation(1, 2, 5), losses(0, 2), evaluation(1, 4, 5), losses(1, 2)];
        assert_eq!(contradiction(&parts), None, "an evaluation may lie within an epoch");
        let expected = "epoch 0 of training 0 was reported when epoch 2 of training 0 was due";
        assert_eq!(contradiction(&[losses(0, 2), losses(1, 2), losses(0, 2)]).as_deref(), Some(expected));
    }

    /// Returns the collector of an inference step with one pass of one step.
    fn measured_pass() -> PhaseCollector {
        let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
        for event in testing::pass_events(Step::Inference, 0) {
            collector.add(ReceivedEvent { at: Nanos(0), event: &event });
        }
        collector
    }

    #[test]
    fn figures_of_another_step_and_repeated_passes_are_contradictions() {
        let mut collector = measured_pass();
        assert_eq!((collector.contradiction(), collector.measurement().unwrap().samples), (None, 2));
        let again = &testing::pass_events(Step::Inference, 0)[1];
        collector.add(ReceivedEvent { at: Nanos(0), event: again });
        assert_eq!(collector.contradiction(), Some("pass 0 began when pass 1 was due"));
        let mut collector = measured_pass();
        let other = &testing::pass_events(Step::Validation, 0)[1];
        collector.add(ReceivedEvent { at: Nanos(0), event: other });
        assert_eq!(collector.contradiction(), Some("figures of validation were reported outside this step"));
    }

    #[test]
    fn success_without_all_passes_or_with_an_open_step_lacks_something() {
        let mut collector = measured_pass();
        assert_eq!(collector.missing(1).unwrap(), "step `inference` did not end");
        let end = Event::StepEnd { step: Step::Inference, time_s: Seconds(0.0) };
        collector.add(ReceivedEvent { at: Nanos(0), event: &end });
        assert_eq!(
            (collector.missing(1), collector.missing(2).as_deref()),
            (None, Some("inference has 1 of 2 passes"))
        );
        let empty = PhaseCollector::new(Phase::Validate, Nanos(0));
        assert_eq!(empty.missing(1).unwrap(), "validation has 0 of 1 passes");
    }

    #[test]
    fn only_the_first_warnings_and_failed_samples_are_kept() {
        let mut collector = PhaseCollector::new(Phase::Validate, Nanos(0));
        for i in 0..300 {
            let event = Event::SampleFailed { sample: i.to_string(), reason: "cut short".into() };
            collector.add(ReceivedEvent { at: Nanos(0), event: &event });
            let event = Event::Log { level: Level::Warning, source: "loader".into(), message: (i % 3).to_string() };
            collector.add(ReceivedEvent { at: Nanos(0), event: &event });
        }
        let (record, warnings) = collector.finish(Nanos(1), None);
        assert_eq!((record.failed_samples.len(), warnings.len()), (FAILED_SAMPLES_KEPT, 3));
    }
}
