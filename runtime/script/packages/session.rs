//! `session`: the loaded model that a forward function runs. Scripts cannot create one: the host passes it to them.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, Module, NativeCallContext};
use serde_json::Value as Json;

use super::tensor::Tensor;
use crate::engine::{EngineError, Session, Value};
use crate::script::budget::Budget;
use crate::script::sandbox::{Fallible, ScriptState, catch_panic, lock, script_state};
use crate::script::suggestion::suggestion;

/// A loaded model.
#[derive(Clone)]
pub(crate) struct Model {
    session: Arc<Mutex<Box<dyn Session>>>,
    rows: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn new(session: Arc<Mutex<Box<dyn Session>>>) -> Self {
        Model { session, rows: Arc::default() }
    }

    /// Returns the counter of the rows that were run through the model.
    pub(crate) fn row_counter(&self) -> Arc<AtomicU64> {
        self.rows.clone()
    }
}

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Model>("Model");
    module
}

/// Runs the model. The time and memory of the engine do not count against the script's budget.
fn submit(script: &Arc<ScriptState>, model: &Model, inputs: &[Value]) -> Fallible<Vec<Dynamic>> {
    script.budget.check()?;
    let rows = row_count(inputs);
    let describe = |error: EngineError| match error.hint() {
        "" => error.to_string(),
        hint => format!("{}; {hint}", error.with_batch_size(rows)),
    };
    let mut outputs =
        script.budget.paused(|| catch_panic(|| lock(&model.session).submit(inputs)))?.map_err(describe)?;
    model.rows.fetch_add(rows as u64, Ordering::Relaxed);
    let counted = outputs.drain(..).map(|output| Dynamic::from(Tensor::counted(output, &script.budget))).collect();
    Budget::uncounted(|| drop(outputs));
    Ok(counted)
}

/// Returns the number of rows of a run: the largest outermost dimension of its inputs.
fn row_count(inputs: &[Value]) -> usize {
    inputs
        .iter()
        .map(|input| input.spec().fixed_shape().and_then(|s| s.first().copied()).unwrap_or(1))
        .max()
        .unwrap_or(1)
}

fn input_tensor(name: &dyn std::fmt::Display, value: &Dynamic) -> Fallible<Value> {
    let tensor = value.read_lock::<Tensor>();
    tensor
        .map(|t| t.value().clone())
        .ok_or_else(|| format!("input `{name}` must be a tensor, not {}", value.type_name()).into())
}

/// Converts the descriptions of inputs or outputs for a script: `#{name, spec}` each.
fn describe_values(infos: &[flagperf_onnx::ValueInfo]) -> Array {
    let text = |text: &str| Dynamic::from(ImmutableString::from(text));
    let map = |info: &flagperf_onnx::ValueInfo| {
        Map::from([("name".into(), text(&info.name)), ("spec".into(), text(&info.spec.to_string()))])
    };
    infos.iter().map(|info| Dynamic::from(map(info))).collect()
}

/// Queries the engine. Its time and memory do not count against the script's budget, but the answer does.
fn query(context: &NativeCallContext, model: &Model, question: &str, argument: &Dynamic) -> Fallible<Dynamic> {
    let script = script_state(context)?;
    let argument = to_json("argument", argument)?;
    let answer = script.budget.paused(|| catch_panic(|| lock(&model.session).ask(question, &argument)))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let converted = rhai::serde::to_dynamic(&answer);
    Budget::uncounted(|| drop(answer));
    script.budget.check()?;
    converted
}

/// Converts a script's value to JSON: numbers, text, `true`, `false`, `()`, and arrays and maps of these.
fn to_json(what: &str, value: &Dynamic) -> Fallible<Json> {
    rhai::serde::from_dynamic(value)
        .map_err(|_| format!("the {what} may contain only numbers, text, arrays and maps").into())
}

#[export_module]
mod functions {
    /// Runs the model on tensors in the order of its inputs and returns its outputs in order. The device may still be
    /// computing the outputs; they can be inputs of the next call without a copy.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn run(context: NativeCallContext, model: &mut Model, inputs: Array) -> Fallible<Array> {
        let script = script_state(&context)?;
        let inputs: Vec<Value> =
            inputs.iter().enumerate().map(|(index, value)| input_tensor(&index, value)).collect::<Fallible<_>>()?;
        submit(&script, model, &inputs)
    }

    /// Runs the model on tensors by the names of its inputs and returns its outputs by name.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.run(#{input: batch.images}).output
    /// }
    /// ```
    #[rhai_fn(name = "run", global, return_raw, volatile)]
    pub fn run_named(context: NativeCallContext, model: &mut Model, inputs: Map) -> Fallible<Map> {
        let script = script_state(&context)?;
        let (input_names, output_names) = {
            let session = lock(&model.session);
            let names = |infos: &[flagperf_onnx::ValueInfo]| infos.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
            (names(session.inputs()), names(session.outputs()))
        };
        if let Some(unknown) = inputs.keys().find(|key| !input_names.iter().any(|name| name == key.as_str())) {
            let near = suggestion(unknown, input_names.iter().map(String::as_str));
            return Err(format!("the model has no input `{unknown}`{near}").into());
        }
        let input = |name: &String| {
            let value = inputs.get(name.as_str()).ok_or_else(|| format!("the model's input `{name}` is missing"))?;
            input_tensor(name, value)
        };
        let ordered: Vec<Value> = input_names.iter().map(input).collect::<Fallible<_>>()?;
        let outputs = submit(&script, model, &ordered)?;
        Ok(output_names.into_iter().map(Into::into).zip(outputs).collect())
    }

    /// Waits until the device has computed everything that was run. The host does so after every step.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let output = model.run([batch.images])[0];
    ///     model.wait();
    ///     output
    /// }
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn wait(context: NativeCallContext, model: &mut Model) -> Fallible<()> {
        let script = script_state(&context)?;
        script.budget.paused(|| catch_panic(|| lock(&model.session).sync()))?.map_err(|error| error.to_string().into())
    }

    /// Returns the model's inputs in order, each as `#{name, spec}`, where `spec` is the shape and the type
    /// (`N,3,224,224,f16`).
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let name = model.inputs()[0].name;
    ///     let inputs = #{};
    ///     inputs[name] = batch.images;
    ///     model.run(inputs).output
    /// }
    /// ```
    #[rhai_fn(global, volatile)]
    pub fn inputs(model: &mut Model) -> Array {
        describe_values(lock(&model.session).inputs())
    }

    /// Returns the model's outputs in order, each as `#{name, spec}`.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let classes = model.outputs()[0].spec.split(",")[1].parse_int();
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, volatile)]
    pub fn outputs(model: &mut Model) -> Array {
        describe_values(lock(&model.session).outputs())
    }

    /// Returns the bytes in use on the device, or `()` when the engine does not report them.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let output = model.run([batch.images])[0];
    ///     if model.device_memory() != () && model.device_memory() > 80_000_000_000 { throw "too large" }
    ///     output
    /// }
    /// ```
    #[rhai_fn(global, volatile)]
    pub fn device_memory(model: &mut Model) -> Dynamic {
        let bytes = lock(&model.session).device_memory();
        bytes.map_or(Dynamic::UNIT, |bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX).into())
    }

    /// Queries the engine about the loaded model (`layers`, `profiles`). The answer consists of numbers, text, arrays
    /// and maps. The README of an engine lists the questions that it answers; the engine `null` answers `sleep_ms`.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     if model.ask("sleep_ms") > 0.0 { throw "the device must not sleep" }
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(name = "ask", global, return_raw, volatile)]
    pub fn ask_engine(context: NativeCallContext, model: &mut Model, question: &str) -> Fallible<Dynamic> {
        query(&context, model, question, &Dynamic::UNIT)
    }

    /// Queries the engine with an argument, such as the number of a layer.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let milliseconds = model.ask("sleep_ms", #{of: "sync"});
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(name = "ask", global, return_raw, volatile)]
    pub fn ask_engine_with(
        context: NativeCallContext,
        model: &mut Model,
        question: &str,
        argument: Dynamic,
    ) -> Fallible<Dynamic> {
        query(&context, model, question, &argument)
    }

    /// Changes a setting of the loaded model (`profile`) for all later runs. The README of an engine lists its
    /// settings; the engine `null` has `sleep_ms`.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.tune("sleep_ms", 0);
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn tune(context: NativeCallContext, model: &mut Model, setting: &str, value: Dynamic) -> Fallible<()> {
        let script = script_state(&context)?;
        let value = to_json("value", &value)?;
        script
            .budget
            .paused(|| catch_panic(|| lock(&model.session).tune(setting, &value)))?
            .map_err(|error| error.to_string().into())
    }
}
