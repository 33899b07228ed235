//! Computes with the tensors of a script by the executor's operators, within the limits of the script.
//!
//! Everything that a call allocates is allocated and freed without being counted, except for its result, whose bytes
//! are counted while the script holds it. A call therefore only borrows the arguments, whose memory is counted.

use std::sync::Arc;

use flagperf_onnx::Attribute;
use flagperf_onnx_exec::Operation;
use rhai::{Array, Dynamic, EvalAltResult, NativeCallContext, Position};

use super::Tensor;
use crate::budget::Budget;
use crate::names::script_type;
use crate::sandbox::{Fallible, ScriptState, catch_panic, script_state};
use flagperf_core::tensor::{DType, Tensor as HostTensor};
use flagperf_engine::Value;

/// An attribute of an operator, with its name.
pub(super) type NamedAttribute<'a> = (&'a str, Attribute);

/// One call of a function of the package.
pub(super) struct Work<'c> {
    function: &'static str,
    script: &'c Arc<ScriptState>,
    /// Bytes that the script may still allocate.
    free: u64,
}

/// Runs one call of `function` and returns its result for the script.
pub(super) fn compute(
    context: &NativeCallContext<'_>,
    function: &'static str,
    work: &dyn Fn(&Work<'_>) -> Fallible<HostTensor>,
) -> Fallible<Tensor> {
    let script = script_state(context)?;
    let tensor = run(&script, function, work)?;
    Ok(Tensor::counted(Value::Host(tensor), &script.budget))
}

/// Runs one call of `function` that has several results.
pub(super) fn compute_all(
    context: &NativeCallContext<'_>,
    function: &'static str,
    work: &dyn Fn(&Work<'_>) -> Fallible<Vec<HostTensor>>,
) -> Fallible<Array> {
    let script = script_state(context)?;
    let mut tensors = run(&script, function, work)?;
    let counted = |tensor| Dynamic::from(Tensor::counted(Value::Host(tensor), &script.budget));
    let results = tensors.drain(..).map(counted).collect();
    Budget::uncounted(|| drop(tensors));
    Ok(results)
}

/// Runs one call of `function` whose result is a plain value.
pub(super) fn compute_value<T: Copy>(
    context: &NativeCallContext<'_>,
    function: &'static str,
    work: &dyn Fn(&Work<'_>) -> Fallible<T>,
) -> Fallible<T> {
    run(&script_state(context)?, function, work)
}

fn run<T>(script: &Arc<ScriptState>, function: &'static str, work: &dyn Fn(&Work<'_>) -> Fallible<T>) -> Fallible<T> {
    script.budget.check()?;
    let call = Work { function, script, free: script.budget.free_bytes() };
    let result = Budget::uncounted(|| catch_panic(|| work(&call)).and_then(|result| result));
    result.map_err(|error| {
        // The script may keep the error: its text is copied into memory that counts.
        let copy = match &*error {
            EvalAltResult::ErrorTerminated(reason, _) => {
                EvalAltResult::ErrorTerminated(reason.to_string().into(), Position::NONE)
            }
            EvalAltResult::ErrorRuntime(reason, _) => {
                EvalAltResult::ErrorRuntime(reason.to_string().into(), Position::NONE)
            }
            other => EvalAltResult::ErrorRuntime(other.to_string().into(), Position::NONE),
        };
        Budget::uncounted(|| drop(error));
        copy.into()
    })
}

impl Work<'_> {
    /// Returns a tensor of the script in host memory.
    pub(super) fn host(&self, tensor: &Tensor) -> Fallible<HostTensor> {
        tensor.to_host(&self.script.budget)
    }

    /// Returns the tensors of an array.
    pub(super) fn hosts(&self, values: &Array) -> Fallible<Vec<HostTensor>> {
        let host = |value: &Dynamic| match value.read_lock::<Tensor>() {
            Some(tensor) => self.host(&tensor),
            None => Err(self.refuse(format!("the array must contain only tensors, not `{}`", script_type(value)))),
        };
        values.iter().map(host).collect()
    }

    /// Returns the second operand of an elementwise function: a tensor, or a number, which gets the type of `like`.
    pub(super) fn operand(&self, like: &HostTensor, value: &Dynamic) -> Fallible<HostTensor> {
        match value.read_lock::<Tensor>() {
            Some(tensor) => self.host(&tensor),
            None => self.scalar(like.dtype(), value),
        }
    }

    /// Returns a number, or for booleans a truth value, as a tensor without dimensions.
    pub(super) fn scalar(&self, dtype: DType, value: &Dynamic) -> Fallible<HostTensor> {
        let refuse = || {
            let needed = if dtype == DType::Bool { "true, false" } else { "a number" };
            self.refuse(format!("the other operand must be a tensor or {needed}, not `{}`", script_type(value)))
        };
        if let (Ok(truth), DType::Bool) = (value.as_bool(), dtype) {
            return HostTensor::from_bools([], &[truth]).map_err(|error| self.refuse(error.to_string()));
        }
        match (value.as_int().ok(), value.as_float().ok()) {
            _ if dtype == DType::Bool => Err(refuse()),
            (None, None) => Err(refuse()),
            (_, Some(float)) if dtype.is_float() => Ok(HostTensor::scalar(float).cast(dtype)),
            (Some(whole), _) => {
                let scalar = HostTensor::scalar(whole).cast(dtype);
                let fits = dtype.is_float() || scalar.cast(DType::I64) == HostTensor::scalar(whole);
                let error = || self.refuse(format!("`{whole}` is out of the range of `{dtype}`"));
                fits.then_some(scalar).ok_or_else(error)
            }
            (None, Some(float)) => Err(self.refuse(format!(
                "a tensor of `{dtype}` and the number `{float:?}` cannot be combined; convert the tensor first, for \
                 example with `.cast(\"f32\")`"
            ))),
        }
    }

    /// Applies an operator with one output.
    pub(super) fn apply(
        &self,
        op: &str,
        attributes: &[NamedAttribute<'_>],
        inputs: &[&HostTensor],
    ) -> Fallible<HostTensor> {
        let inputs: Vec<Option<&HostTensor>> = inputs.iter().map(|input| Some(*input)).collect();
        let mut outputs = self.apply_all(op, attributes, &inputs, 1)?;
        outputs.pop().ok_or_else(|| self.refuse("there is no result".to_owned()))
    }

    /// Applies an operator. Its result is checked against the script's memory before it is allocated.
    pub(super) fn apply_all(
        &self,
        op: &str,
        attributes: &[NamedAttribute<'_>],
        inputs: &[Option<&HostTensor>],
        outputs: usize,
    ) -> Fallible<Vec<HostTensor>> {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let present: Vec<bool> = inputs.iter().map(Option::is_some).collect();
        let computed = Operation::new(op, attributes, &present, outputs).and_then(|operation| {
            let bytes = operation.bytes_max(inputs)?;
            Ok((bytes, operation))
        });
        let refuse = |error: flagperf_onnx_exec::OpError| self.refuse_for(inputs, &error.to_string());
        let (bytes, operation) = computed.map_err(refuse)?;
        self.request(bytes, inputs)?;
        operation.apply(inputs).map_err(refuse)
    }

    /// Checks that a result of `bytes` bytes may be allocated.
    pub(super) fn request(&self, bytes: u64, inputs: &[Option<&HostTensor>]) -> Fallible<()> {
        if bytes <= self.free {
            return Ok(());
        }
        let exceeded = self.script.budget.exceed_request(bytes);
        let reason = self.describe(inputs, &exceeded.to_string());
        Err(EvalAltResult::ErrorTerminated(reason.into(), Position::NONE).into())
    }

    /// Returns an error that names the function.
    pub(super) fn refuse(&self, reason: impl Into<String>) -> Box<EvalAltResult> {
        self.refuse_for(&[], &reason.into())
    }

    /// Returns an error that names the function and the shapes of its inputs.
    pub(super) fn refuse_for(&self, inputs: &[Option<&HostTensor>], reason: &str) -> Box<EvalAltResult> {
        self.describe(inputs, reason).into()
    }

    fn describe(&self, inputs: &[Option<&HostTensor>], reason: &str) -> String {
        const LISTED: usize = 4;
        let describe = |(i, input): (usize, &&HostTensor)| describe_input(input, i > 0);
        let named: Vec<String> = inputs.iter().flatten().enumerate().take(LISTED).map(describe).collect();
        let more = if inputs.len() > LISTED { " and others" } else { "" };
        let of = if named.is_empty() { String::new() } else { format!(" of {}{more}", named.join(" and ")) };
        format!("`{}`{of}: {reason}", self.function)
    }
}

/// Returns the spec of a tensor, or the numbers of a short list that may be a parameter, such as a shape or axes.
fn describe_input(input: &HostTensor, may_be_parameter: bool) -> String {
    const NUMBERS: usize = 8;
    match input.as_slice::<i64>() {
        Ok(numbers) if may_be_parameter && input.shape().len() == 1 && numbers.len() <= NUMBERS => {
            format!("{numbers:?}")
        }
        _ => format!("`{}`", input.spec()),
    }
}

/// Returns whole numbers as a tensor of one dimension, in which operators expect shapes and axes.
pub(super) fn ints(values: &[i64]) -> HostTensor {
    HostTensor::from_vec([values.len()], values.to_vec()).expect("the shape is the length of the vector")
}

/// Returns one whole number or an array of them.
pub(super) fn whole_numbers(what: &str, value: &Dynamic) -> Fallible<Vec<i64>> {
    match value.read_lock::<Array>() {
        Some(array) => whole_array(what, &array),
        None => Ok(vec![whole_number(what, value)?]),
    }
}

/// Returns the whole numbers of an array.
pub(super) fn whole_array(what: &str, array: &Array) -> Fallible<Vec<i64>> {
    array.iter().map(|value| whole_number(what, value)).collect()
}

fn whole_number(what: &str, value: &Dynamic) -> Fallible<i64> {
    let error = |_| format!("{what} must be a whole number or an array of them, not `{value}`");
    value.as_int().map_err(|actual| error(actual).into())
}
