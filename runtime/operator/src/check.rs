//! Compares an operator with the standard operators that mean the same, computed in f64.

use flagperf_config::{OperatorCase, OperatorDescription};
use flagperf_core::suggestion::list_names;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{EngineError, Value};
use flagperf_onnx::Graph;
use flagperf_onnx::rewrite::expand_operators;
use flagperf_onnx_exec::{Executor, ReferenceOps};
use serde::{Deserialize, Serialize};

use super::inputs::{Change, VALUES, draw};
use super::node::{CaseError, case_dtypes, node_graph};
use super::target::Target;

/// One comparison of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// The element type of the inputs that state none.
    pub dtype: String,
    /// Where the tensors lay.
    pub memory: String,
    pub outcome: CaseOutcome,
}

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseOutcome {
    /// The largest difference, relative to the largest finite element, and the largest that is allowed.
    Compared { error: f64, limit: f64 },
    /// What is wrong.
    Failed { reason: String },
    /// The engine does not compute in the type on this device.
    NotCompared { reason: String },
}

impl CaseOutcome {
    /// Returns whether the operator does not compute what it means.
    pub fn is_wrong(&self) -> bool {
        match self {
            CaseOutcome::Compared { error, limit } => error > limit,
            CaseOutcome::Failed { .. } => true,
            CaseOutcome::NotCompared { .. } => false,
        }
    }
}

/// Returns the largest relative difference that rounding to a type explains.
fn rounding_limit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 0.0,
    }
}

/// Compares a case with each of its types and in each memory that the engine has, and passes each result to `report` as soon as
/// it is known. A case whose inputs all state their types is compared with these only.
///
/// # Errors
/// When operator.yaml is wrong; what goes wrong with the operator is a result.
pub fn check_case(
    operator: &OperatorDescription,
    case: usize,
    target: &Target,
    report: &mut dyn FnMut(Tested),
) -> Result<(), CaseError> {
    let missing = || CaseError::Case(format!("there is no case {case}"));
    let description = operator.tests.get(case).ok_or_else(missing)?;
    for dtype in case_dtypes(operator, description)? {
        let graph = node_graph(operator, description, dtype)?;
        let dtype = graph.inputs[0].spec.dtype;
        let change = change_of(description)?;
        // Each memory has other elements: an operator that remembers those of the call before is found.
        for (memory, seed) in target.memories().iter().zip(0..) {
            let drawn = graph.inputs.iter().map(|input| draw(&input.name, &input.spec, change, seed));
            let inputs: Vec<Tensor> = drawn.collect::<Option<_>>().expect("the shapes of a case are fixed");
            let expected = reference(&graph, &inputs)?;
            let outcome = match run(operator, &graph, &inputs, dtype, target, memory) {
                Ok(calls) => compare_calls(&expected, &calls, description.limit),
                Err(CaseError::Engine(error @ EngineError::Precision { .. })) => {
                    CaseOutcome::NotCompared { reason: error.to_string() }
                }
                Err(error) => CaseOutcome::Failed { reason: error.to_string() },
            };
            report(Tested { dtype: dtype.to_string(), memory: (*memory).to_owned(), outcome });
        }
    }
    Ok(())
}

/// Returns the number of results that a case has for each memory, if it is possible.
///
/// # Errors
/// When operator.yaml is wrong.
pub fn check_description(operator: &OperatorDescription, case: &OperatorCase) -> Result<usize, CaseError> {
    change_of(case)?;
    let dtypes = case_dtypes(operator, case)?;
    dtypes.iter().try_for_each(|dtype| node_graph(operator, case, *dtype).map(drop))?;
    Ok(dtypes.len())
}

/// Returns how drawn elements are changed.
fn change_of(case: &OperatorCase) -> Result<Change, CaseError> {
    let change = VALUES.iter().find(|(name, _)| *name == case.values).map(|(_, change)| *change);
    change.ok_or_else(|| {
        let known = list_names(VALUES.iter().map(|(name, _)| *name));
        CaseError::Case(format!("`values`: `{}` is unknown (known: {known})", case.values))
    })
}

/// Computes what the operator means, in f64.
fn reference(graph: &Graph, inputs: &[Tensor]) -> Result<Tensor, CaseError> {
    let failed = |error: &dyn std::fmt::Display| CaseError::Case(format!("the standard operators: {error}"));
    let standard = expand_operators(graph).map_err(|error| failed(&error))?;
    let executor = Executor::load(&standard, ReferenceOps).map_err(|error| failed(&error))?;
    let outputs = executor.run_host(inputs).map_err(|error| failed(&error))?;
    outputs.into_iter().next().ok_or_else(|| failed(&"there is no output"))
}

fn run(
    operator: &OperatorDescription,
    graph: &Graph,
    inputs: &[Tensor],
    dtype: DType,
    target: &Target,
    memory: &str,
) -> Result<[Tensor; 2], CaseError> {
    let failed = |error: std::io::Error| CaseError::Case(format!("the temporary folder: {error}"));
    let scratch = tempfile::tempdir().map_err(failed)?;
    let options: &[(&str, serde_json::Value)] = match target.memories().len() {
        1 => &[],
        _ => &[("operator_memory", memory.into())],
    };
    let mut session = target.load(operator, graph, dtype, options, scratch.path())?;
    // An engine may lend the operator the memory of these tensors, which it must not change.
    let values: Vec<Value> = inputs.iter().map(|input| Value::Host(own_copy(input))).collect();
    let mut call = || {
        let outputs = session.submit(&values)?;
        session.sync()?;
        let first = outputs.first().ok_or_else(|| CaseError::Case("the engine returned no output".to_owned()))?;
        Ok::<_, CaseError>(first.to_host()?)
    };
    let calls = [call()?, call()?];
    let is_changed =
        |(input, value): (&Tensor, &Value)| matches!(value, Value::Host(own) if own.bytes() != input.bytes());
    match inputs.iter().zip(&values).position(is_changed) {
        Some(place) => Err(CaseError::Case(format!("it changes the input `{}`", graph.inputs[place].name))),
        None => Ok(calls),
    }
}

/// Returns the same tensor in memory of its own.
fn own_copy(tensor: &Tensor) -> Tensor {
    let copy = Tensor::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes());
    copy.expect("the bytes are those of a tensor of this shape and type")
}

/// Compares the outputs of two calls with the same inputs: the larger difference counts.
fn compare_calls(expected: &Tensor, [first, second]: &[Tensor; 2], limit: f64) -> CaseOutcome {
    match [compare(expected, first, limit), compare(expected, second, limit)] {
        [CaseOutcome::Compared { error: first, limit }, CaseOutcome::Compared { error: second, .. }] => {
            CaseOutcome::Compared { error: first.max(second), limit }
        }
        [CaseOutcome::Compared { .. }, CaseOutcome::Failed { reason }] => {
            CaseOutcome::Failed { reason: format!("in the second call, {reason}") }
        }
        [first, _] => first,
    }
}

fn compare(expected: &Tensor, actual: &Tensor, limit: f64) -> CaseOutcome {
    if expected.shape() != actual.shape() || expected.dtype() != actual.dtype() {
        let reason = format!("the output is `{}` instead of `{}`", actual.spec(), expected.spec());
        return CaseOutcome::Failed { reason };
    }
    let limit = if limit > 0.0 { limit } else { rounding_limit(expected.dtype()) };
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let largest =
        expected.iter().filter(|value| value.is_finite()).fold(0.0f64, |largest, value| largest.max(value.abs()));
    let mut error = 0.0f64;
    for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        error = error.max(match (expected, actual) {
            (expected, actual) if expected == actual || expected.is_nan() && actual.is_nan() => 0.0,
            (expected, actual) if expected.is_finite() && actual.is_finite() => (expected - actual).abs(),
            _ => return CaseOutcome::Failed { reason: format!("element {place} is {actual} instead of {expected}") },
        });
    }
    CaseOutcome::Compared { error: if error == 0.0 { 0.0 } else { error / largest.max(f64::MIN_POSITIVE) }, limit }
}
