//! `metric`: the return value of an evaluator. Sums over the samples of a batch, which the host adds up over a pass and
//! turns into the final figures.

use rhai::plugin::*;
use rhai::{Array, Module, NativeCallContext};

use super::options::{size, sizes};
use super::tensor::Tensor;
use crate::metric::Accumulator;
use crate::script::sandbox::{Fallible, script_state};

/// Metrics as sums over some samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(pub(crate) Accumulator);

/// Largest number of observations per call: small enough that no number of steps overflows a 64-bit count.
const COUNT_MAX: u64 = 1 << 32;
/// Largest length of a name in bytes.
const NAME_BYTES_MAX: usize = 200;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Metrics>("Metrics");
    module
}

#[export_module]
mod functions {
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
        let sums = crate::metric::top_k(&scores, &labels, &ks).map_err(|error| error.to_string())?;
        Ok(Metrics(sums))
    }

    /// Returns a custom metric `name`: the mean of `count` observations whose sum is `sum`.
    ///
    /// ```rhai
    /// metric::mean("words", 12.0, 3)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn mean(context: NativeCallContext, name: &str, sum: f64, count: i64) -> Fallible<Metrics> {
        script_state(&context)?.budget.check()?;
        if !sum.is_finite() {
            return Err(format!("the mean `{name}` has a sum of {sum}: are the outputs finite?").into());
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!("a metric's name must be one line of 1 to {NAME_BYTES_MAX} bytes").into());
        }
        let count = size("the count", count)? as u64;
        if count == 0 && sum != 0.0 {
            return Err(format!("the mean `{name}` has a sum of {sum} but no observations").into());
        }
        if count > COUNT_MAX {
            return Err(format!("the mean `{name}` has {count} observations (at most {COUNT_MAX} per call)").into());
        }
        let mut sums = Accumulator::default();
        sums.add(name, sum, count);
        Ok(Metrics(sums))
    }

    /// Combines two sets of metrics; those of the same name are merged.
    ///
    /// ```rhai
    /// metric::mean("words", 12.0, 3) + metric::mean("letters", 60.0, 3)
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn merge(first: Metrics, second: Metrics) -> Fallible<Metrics> {
        let mut merged = first.0;
        merged.merge(&second.0);
        match merged.observations() {
            0..=COUNT_MAX => Ok(Metrics(merged)),
            more => Err(format!("the metrics have {more} observations (at most {COUNT_MAX} per call)").into()),
        }
    }
}
