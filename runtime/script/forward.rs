//! The two functions that run once a step: forward and evaluator. Everything that can be made ready is made ready once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use rhai::{Dynamic, Map, Scope};

use crate::engine::Value;
use crate::metric::Accumulator;
use crate::tensor::Tensor as HostTensor;

use super::compiled::Compiled;
use super::error::ScriptError;
use super::output::Output;
use super::packages::metric::Metrics;
use super::packages::tensor::Tensor;
use super::packages::timing::Span;
use super::sandbox::lock;

/// A forward function with the models that it drives.
pub struct ForwardFn {
    script: Arc<Compiled>,
    function: &'static str,
    model: Dynamic,
    rows: Vec<Arc<AtomicU64>>,
    scope: Scope<'static>,
}

impl ForwardFn {
    /// `rows` counts what is run through each of the models in `model`.
    pub(super) fn new(
        script: Arc<Compiled>,
        function: &'static str,
        model: Dynamic,
        rows: Vec<Arc<AtomicU64>>,
    ) -> Self {
        ForwardFn { script, function, model, rows, scope: Scope::new() }
    }

    /// One step on the inputs of a batch. Outputs may still be under way on the device.
    ///
    /// # Errors
    /// When the script or the engine fails, or it gives back something else than tensors.
    pub fn call(&mut self, inputs: &IndexMap<String, HostTensor>) -> Result<Output<Value>, ScriptError> {
        let arguments = || (self.model.clone(), fields(inputs));
        let names = || inputs.keys().cloned().collect();
        self.script.call(&mut self.scope, self.function, arguments, names, Output::from_script)
    }

    /// Bytes that the calls so far left behind.
    #[cfg(test)]
    pub(super) fn left(&self) -> i64 {
        self.script.host.budget.left()
    }

    /// The most rows that one of the models was run on since this was last called.
    pub fn take_rows(&mut self) -> u64 {
        self.rows.iter().map(|rows| rows.swap(0, Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// The named parts of the steps since it was last asked, one for each name, in the order of their first run.
    pub fn take_spans(&mut self) -> Vec<Span> {
        lock(&self.script.host.spans).take()
    }
}

/// Metrics of a case at most, over all steps.
const METRICS_MAX: usize = 100;

/// An evaluator.
pub struct EvaluatorFn {
    script: Arc<Compiled>,
    scope: Scope<'static>,
    /// The names of the metrics so far.
    names: HashSet<String>,
}

impl EvaluatorFn {
    const FUNCTION: &'static str = "evaluator";

    pub(super) fn new(script: Arc<Compiled>) -> Self {
        EvaluatorFn { script, scope: Scope::new(), names: HashSet::new() }
    }

    /// Bytes that the calls so far left behind.
    #[cfg(test)]
    pub(super) fn left(&self) -> i64 {
        self.script.host.budget.left()
    }

    /// Compares the outputs of a batch with its truth, row by row, padding left out by the host.
    ///
    /// # Errors
    /// When the script fails or gives back no metrics.
    pub fn call(
        &mut self,
        output: &Output<HostTensor>,
        truth: &IndexMap<String, HostTensor>,
    ) -> Result<Accumulator, ScriptError> {
        let arguments = || (output.to_script(), fields(truth));
        let properties = || truth.keys().cloned().collect();
        let names = &mut self.names;
        self.script.call(&mut self.scope, Self::FUNCTION, arguments, properties, |returned| {
            let metrics = returned.read_lock::<Metrics>().map(|metrics| metrics.0.clone());
            let is = returned.type_name();
            let metrics =
                metrics.ok_or_else(|| format!("`evaluator` must return metrics (`metric::...`), not {is}"))?;
            let new: Vec<String> = metrics.names().filter(|name| !names.contains(*name)).map(str::to_owned).collect();
            names.extend(new);
            if names.len() > METRICS_MAX {
                return Err(format!("`evaluator` returns more than {METRICS_MAX} different metrics"));
            }
            Ok(metrics)
        })
    }
}

/// The fields of a batch as a script sees them: `batch.images`.
fn fields(tensors: &IndexMap<String, HostTensor>) -> Map {
    let lent = |tensor: &HostTensor| Dynamic::from(Tensor::lent(Value::Host(tensor.clone())));
    tensors.iter().map(|(name, tensor)| (name.as_str().into(), lent(tensor))).collect()
}
