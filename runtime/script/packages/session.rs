//! `session`: the loaded model that a forward function drives. It is never made by a script: the host hands it over.

#![expect(clippy::unwrap_used, reason = "the code that rhai's macro makes")]

use std::sync::{Arc, Mutex};

use rhai::plugin::*;
use rhai::{Array, Dynamic, Map, Module, NativeCallContext};

use super::tensor::Tensor;
use crate::engine::{EngineError, Session, Value};
use crate::script::nearest::nearest;
use crate::script::sandbox::{Fallible, Host, host_of, lock};

/// A loaded model.
#[derive(Clone)]
pub(crate) struct Model(pub(crate) Arc<Mutex<Box<dyn Session>>>);

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Model>("Model");
    module
}

/// Runs the model; what the engine takes of time and memory is not the script's.
fn submit(host: &Arc<Host>, model: &Model, inputs: &[Value]) -> Fallible<Vec<Dynamic>> {
    host.budget.check()?;
    let rows = inputs.first().and_then(|input| input.spec().fixed_shape()?.first().copied()).unwrap_or(1);
    let told = |error: EngineError| match error.hint() {
        "" => error.to_string(),
        hint => format!("{}; {hint}", error.at_batch(rows)),
    };
    let outputs = host.budget.aside(|| lock(&model.0).submit(inputs)).map_err(told)?;
    outputs.into_iter().map(|output| Ok(Dynamic::from(Tensor::counted(output, &host.budget)))).collect()
}

fn tensor(name: &dyn std::fmt::Display, value: &Dynamic) -> Fallible<Value> {
    let tensor = value.read_lock::<Tensor>();
    tensor
        .map(|t| t.value().clone())
        .ok_or_else(|| format!("input {name} is no tensor but {}", value.type_name()).into())
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
            let session = lock(&model.0);
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
        host.budget.aside(|| lock(&model.0).sync()).map_err(|error| error.to_string().into())
    }
}
