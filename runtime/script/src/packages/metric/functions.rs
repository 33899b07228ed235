//! Metrics of classification, means that a script computes itself, and their combination.

use rhai::plugin::*;
use rhai::{Array, NativeCallContext};

use super::return_value::{self, COUNT_MAX, Metrics};
use crate::packages::options::{Number, number, size, sizes};
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::Tensor as HostTensor;

/// Copies tensors to host memory. Metrics need at most 8 bytes per element beside them.
pub(super) fn host_tensors<const N: usize>(
    context: &NativeCallContext<'_>,
    tensors: [Tensor; N],
) -> Fallible<[HostTensor; N]> {
    let script = script_state(context)?;
    for tensor in &tensors {
        script.budget.check_request(tensor.elements()? as u64 * 8)?;
    }
    let copies: Vec<HostTensor> =
        tensors.iter().map(|tensor| tensor.to_host(&script.budget)).collect::<Fallible<_>>()?;
    copies.try_into().map_err(|_| "a tensor is missing".into())
}

#[export_module]
pub(super) mod functions {
    /// Returns the top-k accuracy as one metric for each of `ks`: `top1`, `top5`, ... `scores` is `N,C` of a float
    /// type, `labels` is `N,i64`. Equal scores rank by index, lower first; NaN ranks last.
    ///
    /// ```rhai
    /// let scores = tensor::from([0.1, 0.9, 0.8, 0.2], "2,2,f32");
    /// let labels = tensor::from([1, 1], "2,i64");
    /// metric::top_k(scores, labels, [1])
    /// ```
    #[rhai_fn(return_raw)]
    pub fn top_k(context: NativeCallContext, scores: Tensor, labels: Tensor, ks: Array) -> Fallible<Metrics> {
        let script = script_state(&context)?;
        let ks = sizes("`ks`", &ks)?;
        // Ranking converts the scores to f64.
        script.budget.check_request(scores.elements()? as u64 * 8)?;
        let (scores, labels) = (scores.to_host(&script.budget)?, labels.to_host(&script.budget)?);
        let sums = flagperf_core::metric::top_k(&scores, &labels, &ks).map_err(|error| error.to_string())?;
        Ok(Metrics(sums))
    }

    /// Returns a custom metric `name`: the mean of `count` observations whose sum is `sum`. The mean of a metric that the
    /// host knows, such as `top1`, must be in its range.
    ///
    /// ```rhai
    /// metric::mean("words", 12.0, 3)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn mean(context: NativeCallContext, name: &str, sum: Number, count: i64) -> Fallible<Metrics> {
        script_state(&context)?.budget.check()?;
        let sum = number(&sum).ok_or_else(|| format!("the sum must be a number, not `{sum}`"))?;
        let count = size("the count", count)? as u64;
        Ok(Metrics(return_value::mean(name, sum, count)?))
    }

    /// Returns the share of rows whose prediction is the label as `accuracy`, the mean over the groups as
    /// `group_accuracy`, and the accuracy of each group as `accuracy[NAME]`. `predictions` and `labels` are `N` of an
    /// integer type; `groups` is `N` of an integer type, or names as `N,L,u8`: UTF-8 text padded with zeros. At most 90
    /// groups. The average that MMLU publishes is `accuracy`, over all questions.
    ///
    /// ```rhai
    /// let labels = tensor::from([2, 0, 1], "3,i64");
    /// metric::accuracy_by_group(tensor::from([2, 0, 3], "3,i64"), labels, tensor::from([7, 7, 8], "3,i64"))
    /// ```
    #[rhai_fn(return_raw)]
    pub fn accuracy_by_group(
        context: NativeCallContext,
        predictions: Tensor,
        labels: Tensor,
        groups: Tensor,
    ) -> Fallible<Metrics> {
        let [predictions, labels, groups] = host_tensors(&context, [predictions, labels, groups])?;
        let figures = flagperf_core::metric::accuracy_by_group(&predictions, &labels, &groups);
        Ok(Metrics(figures.map_err(|error| error.to_string())?))
    }

    /// Combines two sets of metrics; those of the same name are merged.
    ///
    /// ```rhai
    /// metric::mean("words", 12.0, 3) + metric::mean("letters", 60.0, 3)
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn merge(first: Metrics, second: Metrics) -> Fallible<Metrics> {
        let mut merged = first.0;
        merged.merge(&second.0).map_err(|error| error.to_string())?;
        match merged.observations() {
            0..=COUNT_MAX => Ok(Metrics(merged)),
            more => Err(format!("the metrics have {more} observations (at most {COUNT_MAX} per call)").into()),
        }
    }
}
