//! The figures of a training, computed from its events.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Communication, Record};
use flagperf_config::CaseKey;
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::event::DatasetFacts;
use flagperf_core::measure::{
    EpochLosses, Evaluation, LocalSteps, Measurement, TrainedBy, TrainingEnd, TrainingProgress, TrainingReplay,
};
use flagperf_core::units::{SamplesPerSecond, Seconds, null_items_are_nan};

/// Returns a warning if the hardware in the key of a training is part of the name of no device on which it ran.
pub fn hardware_warning(record: &Record) -> Option<String> {
    let key: CaseKey = record.training_key.as_ref()?.parse().ok()?;
    let training = key.training?;
    // A training program does not tell its device.
    let engine = record.headline_phase()?.engine.as_ref().filter(|engine| engine.name != PROGRAM_ENGINE)?;
    let (hardware, device) = (&training.hardware, &engine.device);
    (!training.is_name_in(device))
        .then(|| format!("the key of the training names the hardware `{hardware}`, and it ran on `{device}`"))
}

/// What a training observed besides the times of its steps, which are those of a measured loop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingRecord {
    /// The dataset of the training; that of the phase is the dataset of the evaluations.
    pub dataset: Option<DatasetFacts>,
    /// What had been trained before, if the run was resumed; the rounds contain what was trained since then.
    #[serde(default)]
    pub resumed: Option<TrainingProgress>,
    /// How many processes have trained which steps, if the run was resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trained_by: Vec<TrainedBy>,
    /// One training for each repetition, in order.
    pub rounds: Vec<TrainingRound>,
    /// What training together costs this process; `None` for one process, and if it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication: Option<Communication>,
    /// What another engine computed again; `None` in an older record and for a training that did not end.
    #[serde(default)]
    pub replay: Option<TrainingReplay>,
}

/// One training from its first step to its last evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingRound {
    /// Number of epochs, the last of which may not have ended.
    pub epochs: u32,
    /// Number of passes of the measured loop: one for each epoch, and one more for each evaluation within an epoch. Not stored.
    #[serde(skip)]
    pub passes: u32,
    /// Number of steps.
    pub steps: u64,
    /// Number of samples in all steps.
    pub samples: u64,
    /// The mean loss of the steps of each epoch, without those that mixed precision skipped.
    #[serde(deserialize_with = "null_items_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Vec<Option<f64>>"))]
    pub epoch_losses: Vec<f64>,
    /// The number of losses in the last of these means. Not stored.
    #[serde(skip)]
    pub averaged: u64,
    /// The evaluations, in order.
    pub evaluations: Vec<Evaluation>,
    /// Time from the start of the worker to the first request for a batch; 0 after the first training.
    pub init_s: Seconds,
    /// Wall time from the first request for a batch to the end of the last evaluation; `None` when the training did not end.
    pub train_s: Option<Seconds>,
    /// Wall time of the evaluations.
    pub evaluation_s: Seconds,
    /// Core time of all steps: FlagPerf's *pure_training_computing_time*.
    #[serde(default)]
    pub core_s: Seconds,
    /// Samples divided by the wall time, evaluations included: FlagPerf's *p_whole*.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples divided by the wall time without evaluations: FlagPerf's *p_train*.
    pub throughput_train_samples_per_s: Option<SamplesPerSecond>,
    /// Samples divided by the core time of all steps: FlagPerf's *p_core*.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
    /// What a training program printed about itself at its end, by its own names; empty for other engines.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub reported: IndexMap<String, Value>,
}

impl TrainingRound {
    /// Returns the metrics of the last evaluation.
    pub fn final_metrics(&self) -> Option<&IndexMap<String, f64>> {
        self.evaluations.last().map(|evaluation| &evaluation.metrics)
    }

    /// Adds losses to the mean of the last epoch.
    fn add_to_mean(&mut self, losses: impl Iterator<Item = f64>) {
        let Some(mean) = self.epoch_losses.last_mut() else { return };
        let earlier = if self.averaged == 0 { 0.0 } else { *mean * self.averaged as f64 };
        let (count, sum) = losses.fold((self.averaged, 0.0), |(count, sum), loss| (count + 1, sum + loss));
        (*mean, self.averaged) = ((earlier + sum) / count as f64, count);
    }

    /// Sets the samples and the core time of all steps, and the rates that follow from them.
    pub(super) fn set_rates(&mut self, samples: u64, core: Seconds) {
        (self.samples, self.core_s) = (samples, core);
        let without_evaluations = self.train_s.map(|train| Seconds(train.0 - self.evaluation_s.0));
        let rate = |time: Option<Seconds>| SamplesPerSecond::of(samples, time?);
        [
            self.throughput_whole_samples_per_s,
            self.throughput_train_samples_per_s,
            self.throughput_core_samples_per_s,
        ] = [self.train_s, without_evaluations, Some(core)].map(rate);
    }
}

impl TrainingRecord {
    fn round(&mut self, round: u32) -> &mut TrainingRound {
        let earlier = self.resumed.map_or(0, |resumed| resumed.rounds);
        // A worker that skips a number is refused by the number of its trainings that ended.
        let index = (round.saturating_sub(earlier) as usize).min(self.rounds.len());
        if index == self.rounds.len() {
            self.rounds.push(TrainingRound::default());
        }
        &mut self.rounds[index]
    }

    /// Adds the losses of the next pass, which begins the next epoch or continues the last one.
    ///
    /// # Errors
    /// When they are those of another epoch, or the columns have different lengths.
    pub(super) fn add_losses(&mut self, losses: &EpochLosses) -> Result<(), String> {
        let (due, before) = (self.due_round(), self.resumed_in(losses.round));
        let round = self.round(losses.round);
        let EpochLosses { epoch, loss, gradient_norm, learning_rate, .. } = losses;
        let epoch_due = before.epochs.saturating_add(round.epochs);
        let continues = round.epochs > 0 && epoch.checked_add(1) == Some(epoch_due);
        if losses.round != due || !continues && *epoch != epoch_due {
            return Err(format!(
                "epoch {epoch} of training {} was reported when epoch {epoch_due} of training {due} was due",
                losses.round
            ));
        }
        let has_other_length = |column: &&Vec<f64>| !column.is_empty() && column.len() != loss.len();
        if loss.is_empty() || [gradient_norm, learning_rate].iter().any(has_other_length) {
            return Err(format!("epoch {epoch} has not one loss, one norm and one learning rate for each step"));
        }
        if !continues {
            round.epochs += 1;
            round.averaged = 0;
            round.epoch_losses.push(f64::NAN);
        }
        round.passes += 1;
        round.steps += losses.loss.len() as u64;
        round.add_to_mean(loss.iter().copied().filter(|loss| loss.is_finite()));
        Ok(())
    }

    /// Adds an evaluation on a dataset of this many samples.
    ///
    /// # Errors
    /// When it counts other epochs, steps or samples.
    pub(super) fn add_evaluation(&mut self, evaluation: &Evaluation, samples: u64) -> Result<(), String> {
        let (due, before) = (self.due_round(), self.resumed_in(evaluation.round));
        let round = self.round(evaluation.round);
        let counts = |round, epochs, steps, samples| {
            format!("training {round}, {epochs} epochs, {steps} steps and {samples} samples")
        };
        let epochs = before.epochs.saturating_add(round.epochs);
        let expected = counts(due, epochs, before.steps.saturating_add(round.steps), samples);
        let found = counts(evaluation.round, evaluation.epochs, evaluation.steps, evaluation.samples);
        if expected != found {
            return Err(format!("an evaluation is one of {found}, not of {expected}"));
        }
        round.evaluation_s = round.evaluation_s + evaluation.time_s;
        round.evaluations.push(evaluation.clone());
        Ok(())
    }

    /// Returns what had been trained of a training before the run was resumed.
    fn resumed_in(&self, round: u32) -> TrainingProgress {
        self.resumed.filter(|resumed| resumed.rounds == round).unwrap_or_default()
    }

    /// Returns what had been trained of the round with this index before the run was resumed.
    pub fn earlier(&self, index: usize) -> Option<TrainingProgress> {
        self.resumed.filter(|_| index == 0)
    }

    /// Returns the training that has not ended.
    fn due_round(&self) -> u32 {
        self.ended_rounds() as u32
    }

    pub(super) fn end(&mut self, end: &TrainingEnd) {
        let round = self.round(end.round);
        round.init_s = end.init_s;
        round.train_s = Some(end.train_s);
    }

    /// Adds the times of steps without exchange, which come once and after every training, whose core times are `trained`.
    ///
    /// # Errors
    /// When they were added before, a training has not ended, or there is no finite time.
    pub(super) fn add_local_steps(&mut self, steps: &LocalSteps, trained: &[Seconds]) -> Result<(), String> {
        let has_ended = !self.rounds.is_empty() && self.rounds.iter().all(|round| round.train_s.is_some());
        let is_finite = steps.core_s.iter().all(|time| time.0.is_finite() && time.0 >= 0.0);
        if !has_ended || !is_finite || self.communication.is_some() {
            return Err(
                "the times of steps without exchange are not finite, or did not follow the trainings".to_owned()
            );
        }
        self.communication = Communication::of(steps, trained);
        Ok(())
    }

    pub(super) fn add_reported(&mut self, round: u32, values: &IndexMap<String, Value>) {
        self.round(round).reported.clone_from(values);
    }

    /// Returns the number of trainings that ended, with those before the run was resumed.
    pub(super) fn ended_rounds(&self) -> usize {
        let earlier = self.resumed.map_or(0, |resumed| resumed.rounds as usize);
        earlier + self.rounds.iter().filter(|round| round.train_s.is_some()).count()
    }

    /// Computes the rates of each training from the passes of the loop.
    pub(super) fn finish(&mut self, measured: Option<&Measurement>) {
        let mut passes = measured.into_iter().flat_map(|measured| &measured.passes);
        for round in &mut self.rounds {
            let own: Vec<_> = passes.by_ref().take(round.passes as usize).collect();
            let samples = own.iter().map(|pass| pass.samples).sum();
            round.set_rates(samples, own.iter().map(|pass| pass.core_s).sum());
        }
    }
}

impl Record {
    /// Returns whether a training program of somebody else trained, so that the host knows no more than it printed, and each
    /// of its steps is one that the program reported.
    pub fn is_reported_by_program(&self) -> bool {
        let mut engines = self.phases.iter().filter_map(|phase| phase.engine.as_ref());
        engines.any(|engine| engine.name == PROGRAM_ENGINE)
    }

    /// Returns what training together with other processes costs; `None` if it was not measured.
    pub fn communication(&self) -> Option<Communication> {
        self.headline_phase()?.training.as_ref()?.communication
    }

    /// Returns the number of processes that trained the model together: 1 for one, and for an inference.
    pub fn processes(&self) -> u64 {
        let key = self.training_key.as_ref().and_then(|key| key.parse::<CaseKey>().ok());
        key.map_or(1, |key| u64::from(key.scale.hosts) * u64::from(key.scale.devices))
    }
}
