//! `session`: the loaded model that a forward function drives. It is never made by a script: the host hands it over.

#![expect(clippy::unwrap_used, reason = "the code that rhai's macro makes")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, Module, NativeCallContext};
use serde_json::Value as Json;

use super::tensor::Tensor;
use crate::engine::{EngineError, Session, Value};
use crate::script::budget::Budget;
use crate::script::nearest::nearest;
use crate::script::sandbox::{Fallible, Host, caught, host_of, lock};

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

    /// The number of rows that were run through it, which counts on.
    pub(crate) fn rows(&self) -> Arc<AtomicU64> {
        self.rows.clone()
    }
}

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Model>("Model");
    module
}

/// Runs the model; what the engine takes of time and memory is not the script's.
fn submit(host: &Arc<Host>, model: &Model, inputs: &[Value]) -> Fallible<Vec<Dynamic>> {
    host.budget.check()?;
    let rows = rows(inputs);
    let told = |error: EngineError| match error.hint() {
        "" => error.to_string(),
        hint => format!("{}; {hint}", error.at_batch(rows)),
    };
    let mut outputs = host.budget.aside(|| caught(|| lock(&model.session).submit(inputs)))?.map_err(told)?;
    model.rows.fetch_add(rows as u64, Ordering::Relaxed);
    let counted = outputs.drain(..).map(|output| Dynamic::from(Tensor::counted(output, &host.budget))).collect();
    Budget::uncounted(|| drop(outputs));
    Ok(counted)
}

/// Rows of a run: the largest outermost dimension of its inputs.
fn rows(inputs: &[Value]) -> usize {
    inputs
        .iter()
        .map(|input| input.spec().fixed_shape().and_then(|s| s.first().copied()).unwrap_or(1))
        .max()
        .unwrap_or(1)
}

fn tensor(name: &dyn std::fmt::Display, value: &Dynamic) -> Fallible<Value> {
    let tensor = value.read_lock::<Tensor>();
    tensor
        .map(|t| t.value().clone())
        .ok_or_else(|| format!("input {name} is no tensor but {}", value.type_name()).into())
}

/// Inputs or outputs as a script sees them: `#{name, spec}` each.
fn described(infos: &[flagperf_onnx::ValueInfo]) -> Array {
    let text = |text: &str| Dynamic::from(ImmutableString::from(text));
    let map = |info: &flagperf_onnx::ValueInfo| {
        Map::from([("name".into(), text(&info.name)), ("spec".into(), text(&info.spec.to_string()))])
    };
    infos.iter().map(|info| Dynamic::from(map(info))).collect()
}

/// Asks the engine; what it takes of time and memory is not the script's, the answer is.
fn ask(context: &NativeCallContext, model: &Model, question: &str, argument: &Dynamic) -> Fallible<Dynamic> {
    let host = host_of(context)?;
    let argument = json("argument", argument)?;
    let answer = host.budget.aside(|| caught(|| lock(&model.session).ask(question, &argument)))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let given = rhai::serde::to_dynamic(&answer);
    Budget::uncounted(|| drop(answer));
    host.budget.check()?;
    given
}

/// A script's value as JSON: numbers, text, `true`, `false`, `()`, arrays and maps of them.
fn json(what: &str, value: &Dynamic) -> Fallible<Json> {
    rhai::serde::from_dynamic(value)
        .map_err(|_| format!("the {what} holds more than numbers, text, arrays and maps").into())
}

#[export_module]
mod functions {
    /// Runs the model on tensors in the order of its inputs; gives its outputs in order. They may still be under way
    /// on the device, and can be inputs of the next call without a copy.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn run(context: NativeCallContext, model: &mut Model, inputs: Array) -> Fallible<Array> {
        let host = host_of(&context)?;
        let inputs: Vec<Value> =
            inputs.iter().enumerate().map(|(index, value)| tensor(&index, value)).collect::<Fallible<_>>()?;
        submit(&host, model, &inputs)
    }

    /// Runs the model on tensors by the names of its inputs; gives its outputs by name.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.run(#{input: batch.images}).output
    /// }
    /// ```
    #[rhai_fn(name = "run", global, return_raw, volatile)]
    pub fn run_named(context: NativeCallContext, model: &mut Model, inputs: Map) -> Fallible<Map> {
        let host = host_of(&context)?;
        let (takes, gives) = {
            let session = lock(&model.session);
            let names = |infos: &[flagperf_onnx::ValueInfo]| infos.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
            (names(session.inputs()), names(session.outputs()))
        };
        if let Some(unknown) = inputs.keys().find(|key| !takes.iter().any(|name| name == key.as_str())) {
            let near = nearest(unknown, takes.iter().map(String::as_str));
            return Err(format!("the model has no input `{unknown}`{near}").into());
        }
        let given = |name: &String| {
            let value = inputs.get(name.as_str()).ok_or_else(|| format!("the model's input `{name}` is missing"))?;
            tensor(name, value)
        };
        let ordered: Vec<Value> = takes.iter().map(given).collect::<Fallible<_>>()?;
        let outputs = submit(&host, model, &ordered)?;
        Ok(gives.into_iter().map(Into::into).zip(outputs).collect())
    }

    /// Waits until everything that was run is computed. The host does so after every step.
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
        let host = host_of(&context)?;
        host.budget.aside(|| caught(|| lock(&model.session).sync()))?.map_err(|error| error.to_string().into())
    }

    /// What the model is fed, in order: `#{name, spec}` each, where `spec` is shape and type (`N,3,224,224,f16`).
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
        described(lock(&model.session).inputs())
    }

    /// What the model gives, in order: `#{name, spec}` each.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let classes = model.outputs()[0].spec.split(",")[1].parse_int();
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, volatile)]
    pub fn outputs(model: &mut Model) -> Array {
        described(lock(&model.session).outputs())
    }

    /// Bytes in use on the device; `()` when the engine does not say.
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

    /// Asks the engine something about the loaded model (`layers`, `profiles`): numbers, text, arrays and maps. Its README
    /// says what it answers; the engine `null` answers `sleep_ms`.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     if model.ask("sleep_ms") > 0.0 { throw "the device is not to sleep" }
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(name = "ask", global, return_raw, volatile)]
    pub fn ask_engine(context: NativeCallContext, model: &mut Model, question: &str) -> Fallible<Dynamic> {
        ask(&context, model, question, &Dynamic::UNIT)
    }

    /// Asks the engine something with an argument, such as the number of a layer.
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
        ask(&context, model, question, &argument)
    }

    /// Changes a setting of the loaded model (`profile`), for what is run from now on. The engine's README says what it
    /// takes; the engine `null` takes `sleep_ms`.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     model.tune("sleep_ms", 0);
    ///     model.run([batch.images])[0]
    /// }
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn tune(context: NativeCallContext, model: &mut Model, setting: &str, value: Dynamic) -> Fallible<()> {
        let host = host_of(&context)?;
        let value = json("value", &value)?;
        host.budget
            .aside(|| caught(|| lock(&model.session).tune(setting, &value)))?
            .map_err(|error| error.to_string().into())
    }
}
