//! The two functions that run once per step: the forward function and the evaluator. Whatever does not change between
//! steps is prepared once.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use rhai::{Dynamic, Map, Scope};

use flagperf_core::metric::Accumulator;
use flagperf_core::tensor::Tensor as HostTensor;
use flagperf_core::units::Bytes;
use flagperf_engine::{AnswerTimes, Value};

use super::case::ScriptConfig;
use super::compiled::CompiledScript;
use super::error::ScriptError;
use super::output::StepOutput;
use super::packages::metric;
use super::packages::session::{ModelRuns, RunCounter};
use super::packages::tensor::Tensor;
use super::packages::timing::Span;
use super::sandbox::lock;

/// A forward function with the loaded models that it runs.
pub struct ForwardFn {
    script: Arc<CompiledScript>,
    function: &'static str,
    model: Dynamic,
    runs: IndexMap<String, Arc<Mutex<RunCounter>>>,
    config: LastArgument,
    scope: Scope<'static>,
}

impl ForwardFn {
    /// `runs` has the counter of each model in `model`.
    pub(super) fn new(
        script: Arc<CompiledScript>,
        function: &'static str,
        model: Dynamic,
        runs: IndexMap<String, Arc<Mutex<RunCounter>>>,
    ) -> Self {
        let config = LastArgument::of(&script, function, 3);
        ForwardFn { script, function, model, runs, config, scope: Scope::new() }
    }

    /// Sets the settings that a function with the parameter `config` receives.
    ///
    /// # Errors
    /// When the settings cannot be converted to a value of a script.
    pub fn with_config(mut self, config: &ScriptConfig) -> Result<Self, ScriptError> {
        self.config.set(&self.script, self.function, config)?;
        Ok(self)
    }

    /// Runs one step on the inputs of a batch. The device may still be computing the outputs when this returns.
    ///
    /// # Errors
    /// When the script or the engine fails, or the script returns anything but tensors or an input of the batch.
    pub fn call(&mut self, inputs: &IndexMap<String, HostTensor>) -> Result<StepOutput<Value>, ScriptError> {
        let arguments = || self.config.after([self.model.clone(), to_map(inputs).into()]);
        let names = || inputs.keys().cloned().collect();
        self.script.call(&mut self.scope, self.function, arguments, names, |returned| {
            let output = StepOutput::from_script(returned)?;
            refuse_inputs(self.function, &output, inputs).map(|()| output)
        })
    }

    /// Returns the bytes that the calls so far have leaked.
    #[cfg(test)]
    pub(super) fn leaked_bytes(&self) -> i64 {
        self.script.state.budget.leaked_bytes()
    }

    /// Returns the rows run through each model since the last call of this function: the largest count of any model.
    pub fn take_rows(&mut self) -> u64 {
        self.runs.values().map(|runs| lock(runs).take_rows()).max().unwrap_or(0)
    }

    /// Returns the runs of each model since the last call of this function.
    pub fn take_runs(&mut self) -> IndexMap<String, ModelRuns> {
        self.runs.iter().map(|(name, runs)| (name.clone(), lock(runs).take_runs())).collect()
    }

    /// Returns the most bytes that one set of states has held.
    pub fn state_memory_max(&self) -> Bytes {
        Bytes(self.script.state.state_bytes_max.load(Ordering::Relaxed))
    }

    /// Keeps the times of the answers of an engine that generates text from now on, or no longer.
    pub fn keep_answers(&mut self, keeps: bool) {
        lock(&self.script.state.spans).keep_answers(keeps);
    }

    /// Returns whether the engine has told when tokens of answers arrived.
    pub fn has_answers(&self) -> bool {
        lock(&self.script.state.spans).has_answers()
    }

    /// Returns the times of the answers since the last call of this function: of each row of each run, in order.
    pub fn take_answers(&mut self) -> Vec<AnswerTimes> {
        lock(&self.script.state.spans).take_answers()
    }

    /// Returns the named spans measured since the last call of this function, one per name, in the order of their first
    /// run.
    pub fn take_spans(&mut self) -> Vec<Span> {
        lock(&self.script.state.spans).take()
    }
}

/// Refuses outputs in the memory of an input, which the loader fills with the next batch.
fn refuse_inputs(
    function: &str,
    output: &StepOutput<Value>,
    inputs: &IndexMap<String, HostTensor>,
) -> Result<(), String> {
    let on_host =
        || output.iter().filter_map(|(_, value)| if let Value::Host(tensor) = value { Some(tensor) } else { None });
    let is_returned = |input: &HostTensor| {
        let memory = input.bytes().as_ptr_range();
        on_host().any(|tensor| memory.contains(&tensor.bytes().as_ptr()))
    };
    match inputs.iter().find(|(_, input)| is_returned(input)) {
        Some((name, _)) => {
            Err(format!("`{function}` returned the input `{name}` of the batch as an output: return a new tensor"))
        }
        None => Ok(()),
    }
}

/// Largest number of different metrics of a case, over all steps.
const METRICS_MAX: usize = 100;

/// The evaluator of a case.
pub struct EvaluatorFn {
    script: Arc<CompiledScript>,
    config: LastArgument,
    scope: Scope<'static>,
    /// The names of all metrics returned so far.
    names: HashSet<String>,
}

impl EvaluatorFn {
    const FUNCTION: &'static str = "evaluator";

    pub(super) fn new(script: Arc<CompiledScript>) -> Self {
        let config = LastArgument::of(&script, Self::FUNCTION, 3);
        EvaluatorFn { script, config, scope: Scope::new(), names: HashSet::new() }
    }

    /// Sets the settings that an evaluator with the parameter `config` receives.
    ///
    /// # Errors
    /// When the settings cannot be converted to a value of a script.
    pub fn with_config(mut self, config: &ScriptConfig) -> Result<Self, ScriptError> {
        self.config.set(&self.script, Self::FUNCTION, config)?;
        Ok(self)
    }

    /// Returns the bytes that the calls so far have leaked.
    #[cfg(test)]
    pub(super) fn leaked_bytes(&self) -> i64 {
        self.script.state.budget.leaked_bytes()
    }

    /// Compares the outputs of a batch with its truth, row by row. The caller has removed the padding.
    ///
    /// # Errors
    /// When the script fails or does not return metrics.
    pub fn call(
        &mut self,
        output: &StepOutput<HostTensor>,
        truth: &IndexMap<String, HostTensor>,
    ) -> Result<Accumulator, ScriptError> {
        let arguments = || self.config.after([output.to_script(), to_map(truth).into()]);
        let properties = || truth.keys().cloned().collect();
        let names = &mut self.names;
        let first = truth.values().next().or(output.iter().next().map(|(_, tensor)| tensor));
        let rows = first.and_then(|tensor| tensor.shape().first().copied()).unwrap_or(1);
        self.script.call(&mut self.scope, Self::FUNCTION, arguments, properties, |returned| {
            let metrics = metric::from_script(returned, rows)?;
            let new: Vec<String> = metrics.names().filter(|name| !names.contains(name)).collect();
            names.extend(new);
            if names.len() > METRICS_MAX {
                return Err(format!("`evaluator` returns more than {METRICS_MAX} different metrics"));
            }
            Ok(metrics)
        })
    }
}

/// The argument `config` of a function of every step: the settings, if the function has this parameter.
struct LastArgument(Option<Dynamic>);

impl LastArgument {
    /// Returns empty settings if the script defines the function with `arity` parameters, and no argument otherwise.
    fn of(script: &CompiledScript, function: &str, arity: usize) -> Self {
        LastArgument(script.defines_with(function, arity).then(|| Map::new().into()))
    }

    fn set(&mut self, script: &CompiledScript, function: &str, config: &ScriptConfig) -> Result<(), ScriptError> {
        if let Some(argument) = &mut self.0 {
            *argument = settings(script, function, config)?;
        }
        Ok(())
    }

    /// Returns the arguments of one call: each call receives a copy, so that a script keeps nothing between steps.
    fn after(&self, first: [Dynamic; 2]) -> Vec<Dynamic> {
        first.into_iter().chain(self.0.clone()).collect()
    }
}

/// Converts the settings of a case to a value of a script.
pub(super) fn settings(script: &CompiledScript, function: &str, config: &ScriptConfig) -> Result<Dynamic, ScriptError> {
    rhai::serde::to_dynamic(config).map_err(|error| script.function_error(function, error.to_string()))
}

/// Converts the fields of a batch to a map for a script: `batch.images`.
fn to_map(tensors: &IndexMap<String, HostTensor>) -> Map {
    let to_dynamic = |tensor: &HostTensor| Dynamic::from(Tensor::uncounted(Value::Host(tensor.clone())));
    tensors.iter().map(|(name, tensor)| (name.as_str().into(), to_dynamic(tensor))).collect()
}
