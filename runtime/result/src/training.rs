//! The figures of a training, computed from its events.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use flagperf_core::event::DatasetFacts;
use flagperf_core::measure::{EpochLosses, Evaluation, Measurement, TrainingEnd};
use flagperf_core::units::{SamplesPerSecond, Seconds, null_elements_are_nan};

/// What a training observed besides the times of its steps, which are those of a measured loop whose passes are epochs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingRecord {
    /// The dataset of the training; that of the phase is the dataset of the evaluations.
    pub dataset: Option<DatasetFacts>,
    /// One training for each repetition, in order.
    pub rounds: Vec<TrainingRound>,
}

/// One training from its first step to its last evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingRound {
    /// Number of epochs.
    pub epochs: u32,
    /// Number of steps.
    pub steps: u64,
    /// Number of samples in all steps.
    pub samples: u64,
    /// The mean loss of the steps of each epoch, without those that mixed precision skipped.
    #[serde(deserialize_with = "null_elements_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Vec<Option<f64>>"))]
    pub epoch_losses: Vec<f64>,
    /// The evaluations, in order.
    pub evaluations: Vec<Evaluation>,
    /// Time from the start of the worker to the first request for a batch; 0 after the first training.
    pub init_s: Seconds,
    /// Wall time from the first request for a batch to the end of the last evaluation; `None` when the training did not end.
    pub train_s: Option<Seconds>,
    /// Wall time of the evaluations.
    pub evaluation_s: Seconds,
    /// Samples divided by the wall time, evaluations included: FlagPerf's *p_whole*.
    pub throughput_whole_samples_per_s: Option<SamplesPerSecond>,
    /// Samples divided by the wall time without evaluations: FlagPerf's *p_train*.
    pub throughput_train_samples_per_s: Option<SamplesPerSecond>,
    /// Samples divided by the core time of all steps: FlagPerf's *p_core*.
    pub throughput_core_samples_per_s: Option<SamplesPerSecond>,
}

impl TrainingRound {
    /// Returns the metrics of the last evaluation.
    pub fn final_metrics(&self) -> Option<&IndexMap<String, f64>> {
        self.evaluations.last().map(|evaluation| &evaluation.metrics)
    }
}

impl TrainingRecord {
    fn round(&mut self, round: u32) -> &mut TrainingRound {
        // A worker that skips a number is refused by the number of its trainings that ended.
        let index = (round as usize).min(self.rounds.len());
        if index == self.rounds.len() {
            self.rounds.push(TrainingRound::default());
        }
        &mut self.rounds[index]
    }

    pub(super) fn add_losses(&mut self, losses: &EpochLosses) {
        let round = self.round(losses.round);
        round.epochs += 1;
        round.steps += losses.loss.len() as u64;
        let finite: Vec<f64> = losses.loss.iter().copied().filter(|loss| loss.is_finite()).collect();
        round.epoch_losses.push(finite.iter().sum::<f64>() / finite.len() as f64);
    }

    pub(super) fn add_evaluation(&mut self, evaluation: &Evaluation) {
        let round = self.round(evaluation.round);
        round.evaluation_s = round.evaluation_s + evaluation.time_s;
        round.evaluations.push(evaluation.clone());
    }

    pub(super) fn end(&mut self, end: &TrainingEnd) {
        let round = self.round(end.round);
        round.init_s = end.init_s;
        round.train_s = Some(end.train_s);
    }

    /// Returns the number of trainings that ended.
    pub(super) fn ended_rounds(&self) -> usize {
        self.rounds.iter().filter(|round| round.train_s.is_some()).count()
    }

    /// Computes the rates of each training from the passes of the loop, one for each epoch.
    pub(super) fn finish(&mut self, measured: Option<&Measurement>) {
        let mut passes = measured.into_iter().flat_map(|measured| &measured.passes);
        for round in &mut self.rounds {
            let epochs: Vec<_> = passes.by_ref().take(round.epochs as usize).collect();
            round.samples = epochs.iter().map(|pass| pass.samples).sum();
            let core = Some(epochs.iter().map(|pass| pass.core_s).sum::<Seconds>());
            let without_evaluations = round.train_s.map(|train| Seconds(train.0 - round.evaluation_s.0));
            let rate = |time: Option<Seconds>| SamplesPerSecond::of(round.samples, time?);
            let rates = [round.train_s, without_evaluations, core].map(rate);
            [
                round.throughput_whole_samples_per_s,
                round.throughput_train_samples_per_s,
                round.throughput_core_samples_per_s,
            ] = rates;
        }
    }
}
