//! The two functions that run once a step: forward and evaluator. Everything that can be made ready is made ready once.

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
        let batch = fields(inputs);
        let arguments = (self.model.clone(), batch);
        let names = || inputs.keys().cloned().collect();
        let returned = self.script.call(&mut self.scope, self.function, arguments, names)?;
        Output::from_script(returned).map_err(|reason| self.script.error_at(self.function, reason))
    }

    /// The most rows that one of the models was run on since this was last called.
    pub fn take_rows(&mut self) -> u64 {
        self.rows.iter().map(|rows| rows.swap(0, Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// The named parts of the steps since it was last asked, one for each name, in the order of their first run.
    pub fn take_spans(&mut self) -> Vec<Span> {
        std::mem::take(&mut *lock(&self.script.host.spans))
    }
}

/// An evaluator.
pub struct EvaluatorFn {
    script: Arc<Compiled>,
    scope: Scope<'static>,
}

impl EvaluatorFn {
    const FUNCTION: &'static str = "evaluator";

    pub(super) fn new(script: Arc<Compiled>) -> Self {
        EvaluatorFn { script, scope: Scope::new() }
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
        let arguments = (output.to_script(), fields(truth));
        let names = || truth.keys().cloned().collect();
        let returned = self.script.call(&mut self.scope, Self::FUNCTION, arguments, names)?;
        let is = returned.type_name();
        returned.try_cast::<Metrics>().map(|metrics| metrics.0).ok_or_else(|| {
            let reason = format!("`evaluator` must return metrics (`metric::...`), not {is}");
            self.script.error_at(Self::FUNCTION, reason)
        })
    }
}

/// The fields of a batch as a script sees them: `batch.images`.
fn fields(tensors: &IndexMap<String, HostTensor>) -> Map {
    let lent = |tensor: &HostTensor| Dynamic::from(Tensor::lent(Value::Host(tensor.clone())));
    tensors.iter().map(|(name, tensor)| (name.as_str().into(), lent(tensor))).collect()
}
