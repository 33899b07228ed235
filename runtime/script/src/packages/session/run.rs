//! Running a model on a script's tensors.

use std::sync::Arc;

use rhai::{Array, Dynamic, Map};

use super::Model;
use super::states::States;
use crate::budget::Budget;
use crate::names::script_type;
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, ScriptState, catch_panic, lock};
use crate::suggestion::suggestion;
use flagperf_engine::{EngineError, Session, Value};

/// Runs the model on tensors in the order of its inputs, and returns its outputs in order.
pub(super) fn run_in_order(script: &Arc<ScriptState>, model: &Model, inputs: &Array) -> Fallible<Array> {
    let inputs: Vec<Value> =
        inputs.iter().enumerate().map(|(index, value)| input_tensor(&index, value)).collect::<Fallible<_>>()?;
    let mut outputs = submit(script, model, &mut **lock(&model.session), &inputs)?;
    let counted = outputs.drain(..).map(|output| Dynamic::from(Tensor::counted(output, &script.budget))).collect();
    Budget::uncounted(|| drop(outputs));
    Ok(counted)
}

/// Runs the model on tensors by the names of its inputs, and returns its outputs by name. Inputs that `inputs` lacks
/// come from `states`, which keeps the outputs that are states.
pub(super) fn run_by_name(
    script: &Arc<ScriptState>,
    model: &Model,
    inputs: &Map,
    states: Option<&States>,
) -> Fallible<Map> {
    let mut session = lock(&model.session);
    let values = named_inputs(&**session, inputs, states)?;
    let outputs = submit(script, model, &mut **session, &values)?;
    drop(values);
    let mut outputs = Budget::uncounted(|| {
        let outputs = session.outputs().iter().map(|info| info.name.as_str()).zip(outputs);
        match states {
            Some(states) => states.keep(outputs),
            None => outputs.collect(),
        }
    });
    let mut named = Map::new();
    for (name, output) in outputs.drain(..) {
        named.insert(name.into(), Dynamic::from(Tensor::counted(output, &script.budget)));
    }
    Budget::uncounted(|| drop(outputs));
    Ok(named)
}

/// Returns the inputs of a run in the order of the model's inputs.
fn named_inputs(session: &dyn Session, inputs: &Map, states: Option<&States>) -> Fallible<Vec<Value>> {
    let infos = session.inputs();
    if let Some(unknown) = inputs.keys().find(|key| !infos.iter().any(|info| info.name == key.as_str())) {
        let near = suggestion(unknown, infos.iter().map(|info| info.name.as_str()));
        return Err(format!("the model has no input `{unknown}`{near}").into());
    }
    let given = infos.iter().map(|info| {
        let given = inputs.get(info.name.as_str()).map(|value| input_tensor(&info.name, value)).transpose()?;
        Ok(given.or_else(|| states?.value(&info.name)))
    });
    let given = given.collect::<Fallible<Vec<Option<Value>>>>()?;
    let missing = infos
        .iter()
        .zip(&given)
        .find(|(info, value)| value.is_none() && !states.is_some_and(|states| states.serves(&info.name)));
    if let Some((info, _)) = missing {
        return Err(format!("the model's input `{}` is missing", info.name).into());
    }
    match given.iter().all(Option::is_some) {
        true => Ok(given.into_iter().flatten().collect()),
        false => States::fill_missing(infos, given),
    }
}

fn input_tensor(name: &dyn std::fmt::Display, value: &Dynamic) -> Fallible<Value> {
    let tensor = value.read_lock::<Tensor>();
    tensor
        .map(|t| t.value().clone())
        .ok_or_else(|| format!("input `{name}` must be a tensor, not {}", script_type(value)).into())
}

/// Runs the model. The time and memory of the engine do not count against the script's budget.
fn submit(
    script: &Arc<ScriptState>,
    model: &Model,
    session: &mut dyn Session,
    inputs: &[Value],
) -> Fallible<Vec<Value>> {
    script.budget.check()?;
    let rows = row_count(inputs);
    let describe = |error: EngineError| match error.hint() {
        "" => error.to_string(),
        hint => format!("{}; {hint}", error.with_batch_size(rows)),
    };
    let begin = script.services.clock.now();
    let outputs = script.budget.paused(|| catch_panic(|| session.submit(inputs)))?.map_err(describe)?;
    lock(&model.runs).count(inputs, rows);
    Budget::uncounted(|| lock(&script.spans).add_answers(begin, &session.answer_times()))?;
    Ok(outputs)
}

/// Returns the number of rows of a run: the largest outermost dimension of its inputs.
fn row_count(inputs: &[Value]) -> usize {
    let rows = |input: &Value| match input {
        Value::Host(tensor) => tensor.shape().first().copied().unwrap_or(1),
        Value::Device(tensor) => tensor.spec().dims.first().and_then(flagperf_core::tensor::Dim::fixed).unwrap_or(1),
    };
    inputs.iter().map(rows).max().unwrap_or(1)
}
