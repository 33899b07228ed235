//! The methods of a loaded model.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, NativeCallContext};
use serde_json::Value as Json;

use super::states::States;
use super::{Model, run as running};
use crate::budget::Budget;
use crate::sandbox::{Fallible, catch_panic, lock, script_state};

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
pub(super) mod functions {
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
        running::run_in_order(&script_state(&context)?, model, &inputs)
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
        running::run_by_name(&script_state(&context)?, model, &inputs, None)
    }

    /// Runs the model on tensors by the names of its inputs; the inputs that are missing come from `states`, which keep
    /// the outputs that are states. Returns the other outputs by name.
    ///
    /// ```rhai
    /// fn model_forward(model, batch) {
    ///     let states = session::states("present.", "past.");
    ///     model.run(#{input: batch.images}, states).output
    /// }
    /// ```
    #[rhai_fn(name = "run", global, return_raw, volatile)]
    pub fn run_with_states(
        context: NativeCallContext,
        model: &mut Model,
        inputs: Map,
        states: States,
    ) -> Fallible<Map> {
        running::run_by_name(&script_state(&context)?, model, &inputs, Some(&states))
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
