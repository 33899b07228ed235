//! What a training loop observes: its steps, its evaluations, and where it ended.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::metric::Agreement;
use crate::units::{Seconds, null_is_nan, null_items_are_nan, nulls_are_nan};

/// What the steps of one pass computed, as columns with one value per step. A pass is an epoch, or a part of one that ends before
/// an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochLosses {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The learning rates.
    #[serde(deserialize_with = "null_items_are_nan")]
    pub learning_rate: Vec<f64>,
    /// The losses, of the batch before the step changed the parameters; not finite in a step that mixed precision skipped.
    #[serde(deserialize_with = "null_items_are_nan")]
    pub loss: Vec<f64>,
    /// The norms of all gradients together, before they were limited; empty if a training program does not tell.
    #[serde(deserialize_with = "null_items_are_nan")]
    pub gradient_norm: Vec<f64>,
}

/// An evaluation by the host, with parameters that it read back from the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Evaluation {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The epochs before it, the last of which may not have ended.
    pub epochs: u32,
    /// The steps before it.
    pub steps: u64,
    /// The samples of the evaluation's dataset.
    pub samples: u64,
    /// The metrics.
    #[serde(deserialize_with = "nulls_are_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "IndexMap<String, Option<f64>>"))]
    pub metrics: IndexMap<String, f64>,
    /// Wall time, with reading the parameters back.
    pub time_s: Seconds,
}

/// The end of a training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingEnd {
    /// Which training of the case, from 0.
    pub round: u32,
    /// Wall time from the first request for a batch to the end of the last evaluation.
    pub train_s: Seconds,
    /// Wall time of the initialisation before it: data, model, engine.
    pub init_s: Seconds,
}

/// How far the trainings of a case had come when a checkpoint was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingProgress {
    /// The trainings of the case that had ended.
    pub rounds: u32,
    /// The epochs that had ended of the one that had not.
    pub epochs: u32,
    /// Its steps.
    pub steps: u64,
    /// Its updates that mixed precision skipped.
    #[serde(default)]
    pub skipped: u64,
    /// Its wall time.
    pub train_s: Seconds,
    /// The seed of its first parameters, its samples and its masks.
    #[serde(default)]
    pub seed: u64,
}

/// Steps of one of the processes that train together without any exchange between them, timed after the training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LocalSteps {
    /// Core time of each step.
    pub core_s: Vec<Seconds>,
    /// The steps of an update.
    #[serde(default = "one_step")]
    pub per_update: u32,
}

fn one_step() -> u32 {
    1
}

/// From which step on how many processes have trained: `flagperf resume` continues a training with another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainedBy {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The steps of it before.
    pub after_step: u64,
    /// The number of processes.
    pub ranks: u32,
}

/// Steps of a training and outputs of its last evaluation, computed again by another engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrainingReplay {
    /// The engine that computed them again.
    pub engine: String,
    /// The steps, in order.
    pub steps: Vec<StepReplay>,
    /// Outputs of the last evaluation for some samples, compared with those that the engine computes from the same parameters.
    pub evaluation: Option<Agreement>,
    /// Why something was not computed again, one fragment each.
    pub not_computed: Vec<String>,
}

/// A step of a training that was computed again from the batch and the states before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepReplay {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The number of the step, from 1.
    pub step: u64,
    /// Whether it was drawn at random. Others are always computed again, such as the first two.
    #[serde(default)]
    pub drawn: bool,
    /// Number of compared values: loss, norm of the gradients, and states.
    pub values: u32,
    /// Number of values that differ by more than rounding explains.
    pub imprecise: u32,
    /// Number of these whose difference is a considerable share of what the step changes them by.
    pub wrong: u32,
    /// The value whose difference is largest in proportion to its limit.
    pub worst: ReplayedValue,
}

/// The difference of a value between two engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ReplayedValue {
    /// `loss`, `gradient_norm` or the name of the state.
    pub name: String,
    /// L2 norm of the difference.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub difference: f64,
    /// Largest difference that rounding explains.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub limit: f64,
}
