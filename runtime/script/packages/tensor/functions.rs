//! Functions that create tensors, inspect them, and change their shape or type.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::sync::Arc;

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use super::Tensor;
use crate::engine::{HeapMemory, LentMemory, Value};
use crate::script::budget::Budget;
use crate::script::packages::options::{number, size, sizes};
use crate::script::sandbox::{Fallible, ScriptState, script_state};
use crate::tensor::{DType, Dim, Tensor as HostTensor, TensorError, TensorSpec, byte_count};

pub(super) fn tensor_error(error: TensorError) -> Box<EvalAltResult> {
    error.to_string().into()
}

/// Creates a tensor of `elements` elements after checking the budget for `width` bytes per element. `work` must not
/// move memory of the script into the tensor: its allocations are not counted, the bytes of the resulting tensor are.
pub(super) fn create(
    script: &Arc<ScriptState>,
    elements: usize,
    width: usize,
    work: impl FnOnce() -> Result<HostTensor, TensorError>,
) -> Fallible<Tensor> {
    script.budget.check_request((elements as u64).saturating_mul(width as u64))?;
    let tensor = Budget::uncounted(work).map_err(tensor_error)?;
    Ok(Tensor::counted(Value::Host(tensor), &script.budget))
}

/// Creates a tensor that shares the elements of another.
fn create_view(script: &Arc<ScriptState>, work: impl FnOnce() -> Result<HostTensor, TensorError>) -> Fallible<Tensor> {
    let tensor = Budget::uncounted(work).map_err(tensor_error)?;
    Ok(Tensor::counted(Value::Host(tensor), &script.budget))
}

/// Parses a spec whose dimensions are all fixed; returns the shape, the type and the number of elements.
fn parse_fixed_spec(spec: &str) -> Fallible<(Vec<usize>, DType, usize)> {
    let spec: TensorSpec = spec.parse().map_err(|error| format!("`{spec}`: {error}"))?;
    let shape = spec.fixed_shape().ok_or_else(|| format!("every dimension of `{spec}` must be a number"))?;
    let bytes = byte_count(&shape, spec.dtype).ok_or_else(|| TensorError::TooLarge.to_string())?;
    Ok((shape, spec.dtype, bytes / spec.dtype.size()))
}

#[export_module]
pub(super) mod functions {
    /// Returns a tensor of zeros with the shape and the type of `spec`.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn zeros(context: NativeCallContext, spec: &str) -> Fallible<Tensor> {
        full(context, spec, Dynamic::from(0_i64))
    }

    /// Returns a tensor whose elements are all `value`.
    ///
    /// ```rhai
    /// tensor::full("1,f32", 7.5)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn full(context: NativeCallContext, spec: &str, value: Dynamic) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let (shape, dtype, elements) = parse_fixed_spec(spec)?;
        let value = number(&value).ok_or_else(|| format!("the elements of a tensor must be numbers, not `{value}`"))?;
        let element = HostTensor::scalar(value).cast(dtype);
        create(&script, elements, dtype.size(), || {
            let shape = shape.clone();
            let mut memory = HeapMemory::zeroed(elements * dtype.size()).map_err(|_| TensorError::TooLarge)?;
            if element.bytes().iter().any(|byte| *byte != 0) {
                memory
                    .bytes_mut()
                    .chunks_exact_mut(dtype.size())
                    .for_each(|slot| slot.copy_from_slice(element.bytes()));
            }
            HostTensor::from_memory(shape, dtype, Arc::new(memory), 0)
        })
    }

    /// Returns a tensor with the numbers of an array, in row-major order.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,i64")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn from(context: NativeCallContext, values: Array, spec: &str) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let (shape, dtype, elements) = parse_fixed_spec(spec)?;
        if values.len() != elements {
            return Err(format!("`{spec}` has {elements} elements, but the array has {}", values.len()).into());
        }
        if let Some(other) = values.iter().find(|value| number(value).is_none()) {
            return Err(format!("the elements of a tensor must be numbers, not {}", other.type_name()).into());
        }
        create(&script, elements, 8 + dtype.size(), || {
            let numbers: Vec<f64> = values.iter().filter_map(number).collect();
            Ok(HostTensor::from_vec(shape.clone(), numbers)?.cast(dtype))
        })
    }

    /// Shape and type as a string: `2,3,f32`.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").spec
    /// ```
    #[rhai_fn(get = "spec", pure)]
    pub fn spec(tensor: &mut Tensor) -> ImmutableString {
        tensor.value().spec().to_string().into()
    }

    /// The sizes of the dimensions, outermost first; -1 for an unknown size.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").shape
    /// ```
    #[rhai_fn(get = "shape", pure)]
    pub fn shape(tensor: &mut Tensor) -> Array {
        let size = |dim: &Dim| Dynamic::from(dim.fixed().map_or(-1, |size| size as i64));
        tensor.value().spec().dims.iter().map(size).collect()
    }

    /// The element type as a string: `f32`.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f16").dtype
    /// ```
    #[rhai_fn(get = "dtype", pure)]
    pub fn dtype(tensor: &mut Tensor) -> ImmutableString {
        tensor.value().spec().dtype.name().into()
    }

    /// Returns the elements as an array in row-major order: integers for integer types, floats otherwise.
    ///
    /// ```rhai
    /// tensor::from([1, 2], "2,i64").to_array()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn to_array(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Array> {
        let script = script_state(&context)?;
        let elements = tensor.elements()?;
        if elements > context.engine().max_array_size() {
            let max = context.engine().max_array_size();
            return Err(format!("a tensor of {elements} elements is too large for an array (at most {max})").into());
        }
        script.budget.check_request(elements as u64 * 24)?;
        let input = tensor.to_host(&script.budget)?;
        let float = input.dtype().is_float();
        let value = |x: f64| if float { Dynamic::from(x) } else { Dynamic::from(x as i64) };
        Ok(input.to_f64().into_iter().map(value).collect())
    }

    /// Returns the same elements with another shape.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").reshape([3, 2])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn reshape(context: NativeCallContext, tensor: &mut Tensor, shape: Array) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let shape = sizes("the shape", &shape)?;
        byte_count(&shape, DType::F64).ok_or_else(|| TensorError::TooLarge.to_string())?;
        let input = tensor.to_host(&script.budget)?;
        create_view(&script, || input.reshape(shape.clone()))
    }

    /// Converts the elements to another type.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").cast("f16")
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn cast(context: NativeCallContext, tensor: &mut Tensor, dtype: &str) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let dtype: DType = dtype.parse().map_err(|error: crate::tensor::SpecError| error.to_string())?;
        let input = tensor.to_host(&script.budget)?;
        create(&script, input.len(), 16 + dtype.size(), || Ok(input.cast(dtype)))
    }

    /// Returns the first `count` rows, that is, entries of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32").rows(2)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn rows(context: NativeCallContext, tensor: &mut Tensor, count: i64) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let count = size("the number of rows", count)?;
        let input = tensor.to_host(&script.budget)?;
        create_view(&script, || input.first_rows(count))
    }

    /// Returns the index of the largest element along the innermost dimension; of equal elements the first. NaN is
    /// never the largest.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmax()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn argmax(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let input = tensor.to_host(&script.budget)?;
        let Some((&width, outer)) = input.shape().split_last().filter(|(width, _)| **width > 0) else {
            return Err(
                format!("`argmax` needs an innermost dimension that is not empty, not `{}`", input.spec()).into()
            );
        };
        let largest = |row: &[f64]| {
            let better =
                |best: usize, index: usize| if row[index] > row[best] || row[best].is_nan() { index } else { best };
            (0..row.len()).reduce(better).unwrap_or(0) as i64
        };
        create(&script, input.len(), 16, || {
            HostTensor::from_vec(outer, input.to_f64().chunks_exact(width).map(largest).collect())
        })
    }
}
