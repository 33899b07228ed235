//! What a training loop observes: its steps, its evaluations, and where it ended.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::units::{Seconds, null_elements_are_nan, nulls_are_nan};

/// What the steps of one epoch computed, as columns with one value per step. Their times are those of the pass of the same
/// number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochLosses {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The learning rates.
    pub learning_rate: Vec<f64>,
    /// The losses, of the batch before the step changed the parameters; not finite in a step that mixed precision skipped.
    #[serde(deserialize_with = "null_elements_are_nan")]
    pub loss: Vec<f64>,
    /// The norms of all gradients together, before they were limited.
    #[serde(deserialize_with = "null_elements_are_nan")]
    pub gradient_norm: Vec<f64>,
}

/// An evaluation by the host, with parameters that it read back from the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Evaluation {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The epochs before it.
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
