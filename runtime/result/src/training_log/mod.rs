//! The logs of a training for FlagPerf's and MLPerf's readers: `[PerfLog]` and `:::MLLOG` lines from its events.
//!
//! Pure functions of the events and of what the record states from the beginning, so that they are written while events arrive, and
//! `verify` derives them again byte for byte. `metadata` of each line names the line of `events.jsonl` from which it follows.

mod mllog;
mod perf_log;
mod subject;
#[cfg(test)]
mod tests;

use flagperf_core::event::Event;
use flagperf_core::measure::{EpochLosses, Evaluation, StepTimes, TrainingProgress};
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_core::units::Seconds;
use serde::Serialize;
use serde_json::Value;

use super::{Record, TrainingRecord, TrainingRound};
use subject::Subject;

/// Bytes of a file after which it has no more lines of steps.
const STEP_BYTES_MAX: u64 = 256 << 20;
/// What a file contains once in place of the lines of steps beyond that limit.
const STEPS_LEFT_OUT: &str = "flagperf: this log has reached its size limit; the lines of further steps are left out\n";

/// Lines for a file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogText {
    /// Path of the file in the folder of the result: `round1/localhost_noderank0/rank0.out.log`.
    pub path: String,
    /// Complete lines.
    pub text: String,
}

/// What a line is about.
enum Moment<'m> {
    /// A training of the case begins with its initialisation.
    Begin,
    /// The initialisation ended, and the first step follows, of a training with this seed. A training that was resumed has an
    /// earlier part.
    Start(Value, Option<TrainingProgress>),
    /// An epoch begins; the first is 1.
    EpochBegin(u64),
    /// A step begins; the first is 1.
    StepBegin(u64),
    StepEnd(StepFigures),
    EpochEnd(u64, f64),
    Evaluation(&'m Evaluation),
    /// The training ended.
    End(&'m TrainingRound, Option<TrainingProgress>),
    /// The training failed.
    Abort,
}

/// What a step computed.
struct StepFigures {
    step: u64,
    epoch: u64,
    loss: f64,
    learning_rate: f64,
    gradient_norm: f64,
    /// Samples of this step and all before it.
    samples: u64,
    samples_per_s: Option<f64>,
}

/// When a line was due, and the line of the events from which it follows.
#[derive(Clone, Copy, Debug, Serialize)]
struct Stamp {
    file: &'static str,
    lineno: u64,
    /// Milliseconds since 1970.
    #[serde(skip)]
    time_ms: i64,
}

/// Writes the logs of a training from its events.
pub struct TrainingLog {
    subject: Subject,
    /// The trainings so far.
    training: TrainingRecord,
    /// Samples and core time of the current training.
    samples: u64,
    core_s: Seconds,
    /// The times of the steps of the current pass, and when it began.
    steps: Vec<StepTimes>,
    pass_begin_ms: i64,
    /// The epoch that has begun and not ended, from 1.
    epoch: Option<u64>,
    /// The current training, from 0; `None` before the first.
    round: Option<u32>,
    is_started: bool,
    /// The arrival and the number of the current event.
    event_ms: i64,
    event: u64,
    last_ms: i64,
    /// Bytes for the current file, and whether lines of steps are left out.
    bytes: u64,
    is_cut: bool,
}

impl TrainingLog {
    /// Creates the logs of a case that trains on the host of this name.
    pub fn new(record: &Record, host: &str) -> Self {
        TrainingLog {
            subject: Subject::of(record, host),
            training: TrainingRecord::default(),
            samples: 0,
            core_s: Seconds(0.0),
            steps: Vec::new(),
            pass_begin_ms: 0,
            epoch: None,
            round: None,
            is_started: false,
            event_ms: 0,
            event: 0,
            last_ms: 0,
            bytes: 0,
            is_cut: false,
        }
    }

    /// Returns the lines for an event that arrived `at` after the begin of the case.
    pub fn add(&mut self, at: Seconds, event: &Event) -> Vec<LogText> {
        // Progress is not among the stored events.
        if event.is_progress() {
            return Vec::new();
        }
        self.event += 1;
        self.event_ms = self.subject.started_ms + (at.0 * 1e3) as i64;
        let mut lines = Lines::default();
        match event {
            Event::Started { .. } => self.begin(0, &mut lines),
            Event::TrainingResumed(progress) => {
                self.training.resumed = Some(*progress);
                if self.round != Some(progress.rounds) {
                    self.begin(progress.rounds, &mut lines);
                }
            }
            Event::Dataset(facts) => self.subject.evaluation_samples = Some(facts.samples),
            Event::TrainingDataset(facts) => self.subject.training_samples = Some(facts.samples),
            Event::PassBegin { .. } => self.begin_pass(&mut lines),
            Event::Steps { times, .. } => self.steps.extend_from_slice(&times.0),
            Event::EpochLosses(losses) => self.end_pass(losses, &mut lines),
            Event::Evaluation(evaluation) => {
                // The collector of the phase refuses what contradicts other events; here it is only written down.
                let _ = self.training.add_evaluation(evaluation, evaluation.samples);
                self.write(self.event_ms, &Moment::Evaluation(evaluation), &mut lines);
            }
            Event::TrainingEnd(end) => {
                self.training.end(end);
                self.end(&mut lines);
            }
            Event::Failed(_) if self.is_started => self.write(self.event_ms, &Moment::Abort, &mut lines),
            _ => {}
        }
        lines.into_texts()
    }

    fn begin(&mut self, round: u32, lines: &mut Lines) {
        self.round = Some(round);
        (self.samples, self.core_s, self.is_started) = (0, Seconds(0.0), false);
        (self.bytes, self.is_cut, self.epoch) = (0, false, None);
        self.write(self.event_ms, &Moment::Begin, lines);
    }

    fn begin_pass(&mut self, lines: &mut Lines) {
        if !self.is_started {
            self.is_started = true;
            let resumed = self.resumed();
            let seed =
                resumed.map_or_else(|| self.subject.seed(self.round.unwrap_or_default()), |part| part.seed.into());
            self.write(self.event_ms, &Moment::Start(seed, resumed), lines);
        }
        self.steps.clear();
        self.pass_begin_ms = self.event_ms;
        if self.epoch.is_none() {
            let epoch = self.epochs() + 1;
            self.epoch = Some(epoch);
            self.write(self.event_ms, &Moment::EpochBegin(epoch), lines);
        }
    }

    fn end_pass(&mut self, losses: &EpochLosses, lines: &mut Lines) {
        let (epoch, earlier) = (u64::from(losses.epoch) + 1, self.earlier());
        let before = earlier.steps + self.current().map_or(0, |round| round.steps);
        let samples_before = earlier.steps.saturating_mul(self.subject.batch_size);
        let steps = std::mem::take(&mut self.steps);
        let mut time_s = 0.0;
        for (index, times) in steps.iter().enumerate().take(losses.loss.len()) {
            let step = before + index as u64 + 1;
            let begin_ms = self.time_in_pass(time_s);
            time_s += times.total().0;
            self.samples += u64::from(times.samples);
            if !self.subject.is_logged(step) {
                continue;
            }
            let at = |column: &[f64]| column.get(index).copied().unwrap_or(f64::NAN);
            let figures = StepFigures {
                step,
                epoch,
                loss: at(&losses.loss),
                learning_rate: at(&losses.learning_rate),
                gradient_norm: at(&losses.gradient_norm),
                samples: samples_before + self.samples,
                samples_per_s: Some(f64::from(times.samples) / times.total().0),
            };
            self.write(begin_ms, &Moment::StepBegin(step), lines);
            self.write(self.time_in_pass(time_s), &Moment::StepEnd(figures), lines);
        }
        self.core_s = self.core_s + steps.iter().map(|times| times.core_s).sum::<Seconds>();
        let _ = self.training.add_losses(losses);
        if self.subject.ends_epoch(before + losses.loss.len() as u64) {
            self.end_epoch(lines);
        }
    }

    /// Ends the epoch that has begun, if there is one: the end of a training may cut it off.
    fn end_epoch(&mut self, lines: &mut Lines) {
        let Some(epoch) = self.epoch.take() else { return };
        let loss = self.current().and_then(|round| round.epoch_losses.last().copied()).unwrap_or(f64::NAN);
        self.write(self.event_ms, &Moment::EpochEnd(epoch, loss), lines);
    }

    fn end(&mut self, lines: &mut Lines) {
        self.end_epoch(lines);
        if let Some(mut round) = self.current().cloned() {
            round.set_rates(self.samples, self.core_s);
            self.write(self.event_ms, &Moment::End(&round, self.resumed()), lines);
        }
        self.is_started = false;
        let next = self.round.map_or(0, |round| round + 1);
        if next < self.subject.rounds {
            self.begin(next, lines);
        }
    }

    /// Returns the current training; `None` before the end of its first epoch.
    fn current(&self) -> Option<&TrainingRound> {
        let first = self.training.resumed.map_or(0, |resumed| resumed.rounds);
        self.training.rounds.get(self.round?.checked_sub(first)? as usize)
    }

    /// Returns what had been trained of the current training before the run was resumed.
    fn resumed(&self) -> Option<TrainingProgress> {
        self.training.resumed.filter(|resumed| Some(resumed.rounds) == self.round)
    }

    fn earlier(&self) -> TrainingProgress {
        self.resumed().unwrap_or_default()
    }

    fn epochs(&self) -> u64 {
        u64::from(self.earlier().epochs) + self.current().map_or(0, |round| u64::from(round.epochs))
    }

    /// Returns the time `seconds` after the begin of the pass, which is before the current event.
    fn time_in_pass(&self, seconds: f64) -> i64 {
        self.event_ms.min(self.pass_begin_ms.saturating_add((seconds * 1e3) as i64))
    }

    /// Adds the lines for a moment to the files of the current training.
    fn write(&mut self, time_ms: i64, moment: &Moment<'_>, lines: &mut Lines) {
        let Some(round) = self.round else { return };
        // The clocks of the worker and of the conductor may differ by a moment.
        self.last_ms = self.last_ms.max(time_ms);
        let stamp = Stamp { file: EVENTS_FILE, lineno: self.event, time_ms: self.last_ms };
        let mut text = perf_log::lines(&self.subject, moment, stamp);
        self.bytes += text.len() as u64;
        if self.bytes > STEP_BYTES_MAX && matches!(moment, Moment::StepBegin(_) | Moment::StepEnd(_)) {
            if std::mem::replace(&mut self.is_cut, true) {
                return;
            }
            STEPS_LEFT_OUT.clone_into(&mut text);
        }
        let folder = format!("round{}/{}_noderank0", round + 1, self.subject.host);
        lines.push(format!("{folder}/rank0.out.log"), &text);
        lines.push(format!("{folder}/rank0.mllog.log"), &mllog::lines(&self.subject, moment, stamp));
    }
}

/// The lines of an event, by file.
#[derive(Default)]
struct Lines(Vec<LogText>);

impl Lines {
    fn push(&mut self, path: String, text: &str) {
        match self.0.iter_mut().find(|file| file.path == path) {
            Some(file) => file.text += text,
            None => self.0.push(LogText { path, text: text.to_owned() }),
        }
    }

    fn into_texts(self) -> Vec<LogText> {
        self.0.into_iter().filter(|file| !file.text.is_empty()).collect()
    }
}
