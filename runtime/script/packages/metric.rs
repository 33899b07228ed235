//! `metric`: what an evaluator returns. Sums over the samples of a batch, which the host adds up and finishes once a
//! pass.

use rhai::plugin::*;
use rhai::{Array, Module, NativeCallContext};

use super::options::{size, sizes};
use super::tensor::Tensor;
use crate::metric::Accumulator;
use crate::script::sandbox::{Fallible, host_of};

/// A metric's sums over some samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(pub(crate) Accumulator);

/// Observations of one call at most: so many that no number of steps makes them more than 64 bits count.
const COUNT_MAX: u64 = 1 << 32;
/// Bytes of a name at most.
const NAME_BYTES: usize = 200;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Metrics>("Metrics");
    module
}

#[export_module]
mod functions {
    /// Top-k accuracy, one figure for each of `ks`: `top1`, `top5`, ... `scores`: `N,C` of a float type; `labels`:
    /// `N,i64`. Equal scores rank by index, lower first; NaN ranks last.
    ///
    /// ```rhai
    /// let scores = tensor::from([0.1, 0.9, 0.8, 0.2], "2,2,f32");
    /// let labels = tensor::from([1, 1], "2,i64");
    /// metric::top_k(scores, labels, [1])
    /// ```
    #[rhai_fn(return_raw)]
    pub fn top_k(context: NativeCallContext, scores: Tensor, labels: Tensor, ks: Array) -> Fallible<Metrics> {
        let host = host_of(&context)?;
        let ks = sizes("`ks`", &ks)?;
        // The scores are widened to f64 for ranking.
        host.budget.ask(scores.elements()? as u64 * 8)?;
        let (scores, labels) = (scores.to_host(&host.budget)?, labels.to_host(&host.budget)?);
        let seen = crate::metric::top_k(&scores, &labels, &ks).map_err(|error| error.to_string())?;
        Ok(Metrics(seen))
    }

    /// A mean of your own, called `name`: `count` observations that sum to `sum`.
    ///
    /// ```rhai
    /// metric::mean("words", 12.0, 3)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn mean(context: NativeCallContext, name: &str, sum: f64, count: i64) -> Fallible<Metrics> {
        host_of(&context)?.budget.check()?;
        if !sum.is_finite() {
            return Err(format!("the mean `{name}` of a sum of {sum}: are the outputs finite?").into());
        }
        if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            return Err(format!("a metric's name is a line of 1 to {NAME_BYTES} bytes").into());
        }
        let count = size("a count", count)? as u64;
        if count == 0 && sum != 0.0 {
            return Err(format!("the mean `{name}` has a sum of {sum} and no observation").into());
        }
        if count > COUNT_MAX {
            return Err(format!("the mean `{name}` of {count} observations: at most {COUNT_MAX} a call").into());
        }
        let mut seen = Accumulator::default();
        seen.add(name, sum, count);
        Ok(Metrics(seen))
    }

    /// Both: figures of the same name are added up.
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
            more => Err(format!("metrics of {more} observations: at most {COUNT_MAX} a call").into()),
        }
    }
}
