//! Turns the reports of a training program into the events of a training. Each interval between two reports of steps counts as one
//! step of the host; a pass ends with an epoch, before an evaluation, or after many such steps. The first interval begins when the
//! program starts: only the program knows when it begins to train.

use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{EpochLosses, Evaluation, Nanos, PassReport, StepColumns, StepTimes, TrainingEnd};
use flagperf_core::metric;
use flagperf_core::step::Step;
use flagperf_core::units::Seconds;
use flagperf_plan::TrainingSettings;
use indexmap::IndexMap;
use serde_json::Value;

use super::super::super::phase::{Emit, failure};
use super::report::{Report, StepReport, final_metrics, final_samples};

/// Steps after which a pass ends, so that what was measured is on disk.
const PASS_STEPS_MAX: usize = 1000;
/// Share of evaluations in the time of a training above which there is a warning: only the program knows when it evaluates.
const EVALUATION_SHARE_MAX: f64 = 0.5;
/// Reports that are read of a program, which is beyond any honest one.
const REPORTS_MAX: u64 = 1_000_000;

/// Collects the reports of one run of a program.
pub(super) struct Collector<'c> {
    batch_size: u32,
    settings: &'c TrainingSettings,
    round: u32,
    /// Passes of all rounds that have ended.
    passes: &'c mut u32,
    /// The present epoch, from 0, and whether a pass of it has ended.
    own_epoch: u32,
    has_passes: bool,
    /// Steps of the host in the passes of this round.
    own_steps: u64,
    emit: &'c Emit,
    /// When the program was started, and the begin of the interval that the next report of steps ends.
    begin: Nanos,
    interval_begin: Nanos,
    /// The last report.
    last: Nanos,
    steps: Vec<StepTimes>,
    losses: EpochLosses,
    /// Steps and samples so far, and the step that the program said it begins.
    step: u64,
    samples: u64,
    announced: Option<u64>,
    /// Epochs whose end was reported, and how often the number of the epoch changed, of which `epoch` is the last one.
    ended_epochs: u32,
    changed_epochs: u32,
    epoch: Option<u64>,
    /// When the program said that the training ended.
    ended: Option<Nanos>,
    reports: u64,
    metrics: IndexMap<String, f64>,
    evaluation_s: Seconds,
    has_disorder: bool,
    is_done: bool,
}

impl<'c> Collector<'c> {
    /// Creates a collector for the run of a program that was started at `begin`.
    pub fn new(
        batch_size: u32,
        settings: &'c TrainingSettings,
        round: u32,
        passes: &'c mut u32,
        begin: Nanos,
        emit: &'c Emit,
    ) -> Self {
        Collector {
            batch_size,
            settings,
            round,
            passes,
            own_epoch: 0,
            has_passes: false,
            own_steps: 0,
            emit,
            begin,
            interval_begin: begin,
            last: begin,
            steps: Vec::new(),
            losses: EpochLosses::default(),
            step: 0,
            samples: 0,
            announced: None,
            ended_epochs: 0,
            changed_epochs: 0,
            epoch: None,
            ended: None,
            reports: 0,
            metrics: IndexMap::new(),
            evaluation_s: Seconds(0.0),
            has_disorder: false,
            is_done: false,
        }
    }

    /// Returns whether the training has reached its target, passed its last epoch or step, or printed its last line.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Adds a report that arrived at this time.
    ///
    /// # Errors
    /// When the loss is not finite, or the program reports more than can be.
    pub fn add(&mut self, at: Nanos, report: Report) -> Result<(), Failure> {
        self.reports += 1;
        if self.reports > REPORTS_MAX {
            let reason = format!("the program made more than {REPORTS_MAX} reports, which is the limit");
            return Err(failure(&reason, "it can report less often"));
        }
        // What a program does until it is ended is no part of the training.
        if self.is_done && !matches!(report, Report::Finished(_)) {
            return Ok(());
        }
        if !self.is_done {
            self.last = at;
        }
        match report {
            Report::Begin(step) => {
                self.announced = step.or(self.announced);
                self.is_done = self.samples > 0 && self.has_whole_length();
            }
            Report::Step(step) => self.add_step(at, &step)?,
            Report::EpochEnd => {
                self.end_pass(at);
                self.begin_epoch();
                self.ended_epochs += 1;
            }
            Report::Evaluation { metrics, time_s } => self.evaluate(at, metrics, time_s),
            Report::End => {
                self.end_pass(at);
                self.ended = Some(at);
            }
            Report::Finished(values) => self.finish_report(at, values)?,
        }
        Ok(())
    }

    fn has_whole_length(&self) -> bool {
        let length = &self.settings.length;
        self.ended_epochs.max(self.changed_epochs) >= length.max_epochs
            || length.max_steps.is_some_and(|steps| self.step >= u64::from(steps))
    }

    fn add_step(&mut self, at: Nanos, report: &StepReport) -> Result<(), Failure> {
        let step = report.step.or(self.announced.take()).unwrap_or(self.step + 1);
        // A program counts the samples of all devices, as FlagPerf's do, and the host those of this one.
        let reported = report.samples.map(|samples| samples / u64::from(self.settings.processes));
        let samples = reported.unwrap_or(step.saturating_mul(self.batch_size.into()));
        if let Some(epoch) = report.epoch
            && self.epoch.replace(epoch).is_some_and(|before| before != epoch)
        {
            // The step is the first one of the next epoch.
            self.end_pass(self.interval_begin);
            self.begin_epoch();
            self.changed_epochs += 1;
        }
        if self.samples > 0 && self.has_whole_length() {
            self.is_done = true;
            return Ok(());
        }
        if let Some(loss) = report.loss.filter(|loss| !loss.is_finite()) {
            let reason = format!("step {step}: the program reported the loss {loss}");
            return Err(failure(&reason, "a smaller learning rate or a warm-up may keep it finite"));
        }
        if samples <= self.samples {
            if !std::mem::replace(&mut self.has_disorder, true) {
                let before = self.samples;
                self.warn(format!("the program reported {samples} samples after {before}; such reports do not count"));
            }
            return Ok(());
        }
        let count = u32::try_from(samples - self.samples).map_err(|_| {
            let reason = format!("step {step}: the program reported {samples} samples after {}", self.samples);
            failure(&reason, "no program trains so many between two reports")
        })?;
        if self.steps.is_empty() {
            (self.emit)(Event::PassBegin { step: Step::Training, pass: *self.passes });
        }
        self.steps.push(StepTimes {
            pass: *self.passes,
            samples: count,
            core_s: at.since(self.interval_begin),
            ..StepTimes::default()
        });
        self.losses.loss.push(report.loss.unwrap_or(f64::NAN));
        self.losses.learning_rate.push(report.learning_rate.unwrap_or(f64::NAN));
        (self.step, self.samples, self.interval_begin) = (step, samples, at);
        if self.steps.len() >= PASS_STEPS_MAX {
            self.end_pass(at);
        }
        Ok(())
    }

    /// Ends the pass, if it has steps. The time since its last step is the host's.
    fn end_pass(&mut self, at: Nanos) {
        if let Some(last) = self.steps.last_mut() {
            last.host_s = last.host_s + at.since(self.interval_begin);
            let steps = std::mem::take(&mut self.steps);
            let count = steps.len() as u64;
            let losses = EpochLosses { round: self.round, epoch: self.own_epoch, ..std::mem::take(&mut self.losses) };
            (self.emit)(Event::Steps { step: Step::Training, times: StepColumns(steps) });
            (self.emit)(Event::EpochLosses(Box::new(losses)));
            (self.emit)(Event::PassEnd(Box::new(PassReport {
                step: Step::Training,
                pass: *self.passes,
                batch_size: self.batch_size,
                warmup_steady: true,
                ..PassReport::default()
            })));
            *self.passes += 1;
            self.has_passes = true;
            self.own_steps += count;
            self.interval_begin = at;
        }
    }

    /// Begins an epoch. One without a pass has no number of its own.
    fn begin_epoch(&mut self) {
        self.own_epoch += u32::from(std::mem::take(&mut self.has_passes));
    }

    /// Adds an evaluation. It took no longer than the time since the last report of the training.
    fn evaluate(&mut self, at: Nanos, metrics: IndexMap<String, f64>, time_s: Option<f64>) {
        if metrics.is_empty() {
            return;
        }
        // Before the first step, an evaluation takes none of the time.
        let longest = if self.samples == 0 { 0.0 } else { at.since(self.interval_begin).0 };
        let time_s = Seconds(time_s.filter(|time| *time >= 0.0).map_or(0.0, |time| time.min(longest)));
        if self.steps.is_empty() {
            self.interval_begin = Nanos(self.interval_begin.0 + (time_s.0 * 1e9) as u64);
        }
        self.end_pass(at);
        self.evaluation_s = self.evaluation_s + time_s;
        (self.emit)(Event::Evaluation(Evaluation {
            round: self.round,
            epochs: self.own_epoch + u32::from(self.has_passes),
            steps: self.own_steps,
            samples: 0,
            metrics: metrics.clone(),
            time_s,
        }));
        self.metrics = metrics;
        let target = &self.settings.target;
        let reaches = |(name, target): (&String, &f64)| {
            self.metrics.get(name).is_some_and(|value| metric::is_reached(name, *value, *target))
        };
        // A model that reaches the target before its first step was not trained.
        self.is_done |= self.samples > 0 && !target.is_empty() && target.iter().all(reaches);
    }

    /// Adds the last line. The training of a program that reported no step is one step, up to the end that it reported.
    fn finish_report(&mut self, at: Nanos, values: IndexMap<String, Value>) -> Result<(), Failure> {
        if let Some(samples) = final_samples(&values).filter(|_| self.samples == 0) {
            let report = StepReport { step: Some(1), samples: Some(samples), ..StepReport::default() };
            self.add_step(self.ended.unwrap_or(at), &report)?;
        }
        self.end_pass(at);
        if self.metrics.is_empty() {
            self.evaluate(at, final_metrics(&values), None);
        }
        (self.emit)(Event::Reported { round: self.round, values });
        self.is_done = true;
        Ok(())
    }

    /// Ends the training after its program has ended.
    ///
    /// # Errors
    /// When the program reported nothing, no step, or no metric that has a target: of several programs, the first one must.
    pub fn finish(mut self, rank: u32) -> Result<(), Failure> {
        if self.reports == 0 {
            let hint = "it prints FlagPerf's `[PerfLog]` lines, or `patterns` in training.yaml find its figures";
            return Err(failure(&"the program reported nothing", hint));
        }
        if self.samples == 0 {
            let hint = "`STEP_END` lines, the patterns `step` and `samples`, or `num_trained_samples` of `FINISHED` count the work, \
                        without which there is no speed";
            return Err(failure(&"the program reported no step", hint));
        }
        let is_missing = |name: &&String| rank == 0 && !self.metrics.contains_key(*name);
        if let Some(name) = self.settings.target.keys().find(is_missing) {
            let known = self.metrics.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let reason = format!("the program reported no metric `{name}`, which `target` names (reported: {known})");
            return Err(failure(&reason, "`target` is set in the case's training.yaml"));
        }
        self.end_pass(self.last);
        let train_s = self.last.since(self.begin);
        let share = self.evaluation_s.0 / train_s.0;
        if share > EVALUATION_SHARE_MAX {
            self.warn(format!(
                "{:.0} % of the time is what the program calls evaluation: only `p_whole` contains it",
                100.0 * share
            ));
        }
        (self.emit)(Event::TrainingEnd(TrainingEnd { round: self.round, train_s, init_s: Seconds(0.0) }));
        Ok(())
    }

    fn warn(&self, message: String) {
        (self.emit)(Event::Log { level: Level::Warning, source: "program".to_owned(), message });
    }
}
