//! The observations of the audit of a measured loop.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::StepTimes;
use crate::metric::{Agreement, OutputAgreement, PassDifference};
use crate::units::{Seconds, nulls_are_nan};

/// Observations of the audit. Its steps run after randomly drawn passes and are not part of any other figure.
///
/// A group of steps runs a batch of the dataset again (`repeated`), mixtures of its samples with others that exist in no
/// other run (`fresh`), and one sample in every row (`uniform`), in a random order. Each list has one value per
/// group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct AuditReport {
    /// Index of the pass after which the group ran, from 0.
    pub after_pass: Vec<u32>,
    /// Core time of the batch in that pass.
    pub measured_s: Vec<Seconds>,
    /// Mean core time of the full batches of that pass.
    pub pass_s: Vec<Seconds>,
    /// Core times of batches that had run before.
    pub repeated_s: Vec<Seconds>,
    /// Core times of the same batches with fresh inputs.
    pub fresh_s: Vec<Seconds>,
    /// Core times of batches with one sample in every row; empty when the cost of an input depends on its content.
    pub uniform_s: Vec<Seconds>,
    /// For each output, how much the fresh inputs changed it. Outputs whose size depends on the content are left out.
    pub changes: IndexMap<String, PassDifference>,
    /// For each output, how much it differs when the samples of the batch are in another order. Empty with one sample per
    /// batch.
    pub permuted: IndexMap<String, PassDifference>,
    /// Agreement of the outputs of fresh inputs with those of validation; `None` when only one of the phases ran.
    pub fresh: Option<Agreement>,
    /// Agreement of validation's outputs of fresh inputs with what an engine would return that knows a thousand times as many other
    /// samples as validation kept: the output of the nearest one. For each floating-point output.
    #[serde(default)]
    pub nearest: IndexMap<String, OutputAgreement>,
    /// Agreement of some outputs of fresh inputs, which validation did not compute, with those of flagperf's interpreter; `None` if
    /// the vendor supplies no engine of inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Agreement>,
    /// A pass with changed weights; `None` without `--audit full`, or when only the compiler can read the model.
    #[serde(default)]
    pub changed_model: Option<ChangedModelReport>,
}

/// A pass over the dataset with a model whose weights were changed, in the order of the first pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ChangedModelReport {
    /// Number of steps.
    pub steps: u64,
    /// Number of steps with the same outputs as in the first pass.
    pub unchanged_steps: u64,
    /// Core times of the first 1,000 steps.
    pub core_s: Vec<Seconds>,
    /// Core times of the same batches in the first pass.
    pub measured_s: Vec<Seconds>,
    /// Metrics of the pass by name; empty when they are meaningless.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub accuracy: IndexMap<String, f64>,
}

/// Largest number of steps whose times are kept.
const STEPS_KEPT: usize = 1000;

impl ChangedModelReport {
    /// Compares the steps of a pass with those of the first pass.
    pub fn of(steps: &[StepTimes], first_pass: &[StepTimes], accuracy: IndexMap<String, f64>) -> Self {
        let same = steps.iter().zip(first_pass).filter(|(changed, first)| changed.outputs == first.outputs).count();
        let times = |steps: &[StepTimes]| steps.iter().take(STEPS_KEPT).map(|step| step.core_s).collect();
        ChangedModelReport {
            steps: steps.len() as u64,
            unchanged_steps: same as u64,
            core_s: times(steps),
            measured_s: times(first_pass),
            accuracy,
        }
    }
}
