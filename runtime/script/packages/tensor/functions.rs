//! Making tensors, looking at them, and changes of shape and type.

#![expect(clippy::unwrap_used, reason = "the code that rhai's macro makes")]

use std::sync::Arc;

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use super::Tensor;
use crate::engine::{HeapMemory, LentMemory, Value};
use crate::script::budget::Budget;
use crate::script::packages::options::{number, size, sizes};
use crate::script::sandbox::{Fallible, Host, host_of};
use crate::tensor::{DType, Dim, Tensor as HostTensor, TensorError, TensorSpec, byte_count};

pub(super) fn failed(error: TensorError) -> Box<EvalAltResult> {
    error.to_string().into()
}

/// Makes a tensor of `elements`, asking first for `width` bytes an element. `work` takes nothing along that it did not
/// allocate: its memory is counted by what the tensor is, not by who allocates it.
pub(super) fn make(
    host: &Arc<Host>,
    elements: usize,
    width: usize,
    work: impl FnOnce() -> Result<HostTensor, TensorError>,
) -> Fallible<Tensor> {
    host.budget.ask((elements as u64).saturating_mul(width as u64))?;
    let made = Budget::uncounted(work).map_err(failed)?;
    Ok(Tensor::counted(Value::Host(made), &host.budget))
}

/// Makes a tensor over the elements of another.
fn share(host: &Arc<Host>, work: impl FnOnce() -> Result<HostTensor, TensorError>) -> Fallible<Tensor> {
    let made = Budget::uncounted(work).map_err(failed)?;
    Ok(Tensor::counted(Value::Host(made), &host.budget))
}

fn fixed(spec: &str) -> Fallible<(Vec<usize>, DType, usize)> {
    let spec: TensorSpec = spec.parse().map_err(|error| format!("`{spec}`: {error}"))?;
    let shape = spec.fixed_shape().ok_or_else(|| format!("every dimension of `{spec}` must be a size"))?;
    let bytes = byte_count(&shape, spec.dtype).ok_or_else(|| TensorError::TooLarge.to_string())?;
    Ok((shape, spec.dtype, bytes / spec.dtype.size()))
}

#[export_module]
pub(super) mod functions {
    /// Zeros of a shape and type.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn zeros(context: NativeCallContext, spec: &str) -> Fallible<Tensor> {
        full(context, spec, Dynamic::from(0_i64))
    }

    /// One value everywhere.
    ///
    /// ```rhai
    /// tensor::full("1,f32", 7.5)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn full(context: NativeCallContext, spec: &str, value: Dynamic) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let (shape, dtype, elements) = fixed(spec)?;
        let value = number(&value).ok_or_else(|| format!("a tensor holds numbers, not `{value}`"))?;
        let element = HostTensor::scalar(value).cast(dtype);
        make(&host, elements, dtype.size(), || {
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

    /// The numbers of an array, in row-major order.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,i64")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn from(context: NativeCallContext, values: Array, spec: &str) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let (shape, dtype, elements) = fixed(spec)?;
        if values.len() != elements {
            return Err(format!("`{spec}` has {elements} elements, the array has {}", values.len()).into());
        }
        if let Some(other) = values.iter().find(|value| number(value).is_none()) {
            return Err(format!("a tensor holds numbers, not {}", other.type_name()).into());
        }
        make(&host, elements, 8 + dtype.size(), || {
            let numbers: Vec<f64> = values.iter().filter_map(number).collect();
            Ok(HostTensor::from_vec(shape.clone(), numbers)?.cast(dtype))
        })
    }

    /// Shape and type as text: `2,3,f32`.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").spec
    /// ```
    #[rhai_fn(get = "spec", pure)]
    pub fn spec(tensor: &mut Tensor) -> ImmutableString {
        tensor.value().spec().to_string().into()
    }

    /// The sizes, outermost first; -1 for one that is not known yet.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").shape
    /// ```
    #[rhai_fn(get = "shape", pure)]
    pub fn shape(tensor: &mut Tensor) -> Array {
        let size = |dim: &Dim| Dynamic::from(dim.fixed().map_or(-1, |size| size as i64));
        tensor.value().spec().dims.iter().map(size).collect()
    }

    /// The element type as text.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f16").dtype
    /// ```
    #[rhai_fn(get = "dtype", pure)]
    pub fn dtype(tensor: &mut Tensor) -> ImmutableString {
        tensor.value().spec().dtype.name().into()
    }

    /// The elements as an array in row-major order: whole numbers of integer types, else floats.
    ///
    /// ```rhai
    /// tensor::from([1, 2], "2,i64").to_array()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn to_array(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Array> {
        let host = host_of(&context)?;
        let elements = tensor.elements()?;
        if elements > context.engine().max_array_size() {
            return Err(format!("{elements} elements are too many for an array").into());
        }
        host.budget.ask(elements as u64 * 24)?;
        let is = tensor.to_host(&host.budget)?;
        let float = is.dtype().is_float();
        let value = |x: f64| if float { Dynamic::from(x) } else { Dynamic::from(x as i64) };
        Ok(is.to_f64().into_iter().map(value).collect())
    }

    /// The same elements under another shape.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").reshape([3, 2])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn reshape(context: NativeCallContext, tensor: &mut Tensor, shape: Array) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let shape = sizes("a shape", &shape)?;
        byte_count(&shape, DType::F64).ok_or_else(|| TensorError::TooLarge.to_string())?;
        let is = tensor.to_host(&host.budget)?;
        share(&host, || is.reshape(shape.clone()))
    }

    /// The same numbers in another type.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").cast("f16")
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn cast(context: NativeCallContext, tensor: &mut Tensor, dtype: &str) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let dtype: DType = dtype.parse().map_err(|error: crate::tensor::SpecError| error.to_string())?;
        let is = tensor.to_host(&host.budget)?;
        make(&host, is.len(), 16 + dtype.size(), || Ok(is.cast(dtype)))
    }

    /// The first `count` rows: entries of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32").rows(2)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn rows(context: NativeCallContext, tensor: &mut Tensor, count: i64) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let count = size("a number of rows", count)?;
        let is = tensor.to_host(&host.budget)?;
        share(&host, || is.rows(count))
    }

    /// The index of the largest element of each row of the innermost dimension; the first of equal ones. NaN is
    /// never the largest.
    ///
    /// ```rhai
    /// tensor::from([1, 5, 2, 9, 0, 3], "2,3,f32").argmax()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn argmax(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        let host = host_of(&context)?;
        let is = tensor.to_host(&host.budget)?;
        let Some((&width, outer)) = is.shape().split_last().filter(|(width, _)| **width > 0) else {
            return Err(format!("`{}` has no innermost elements", is.spec()).into());
        };
        let largest = |row: &[f64]| {
            let better =
                |best: usize, index: usize| if row[index] > row[best] || row[best].is_nan() { index } else { best };
            (0..row.len()).reduce(better).unwrap_or(0) as i64
        };
        make(&host, is.len(), 16, || {
            HostTensor::from_vec(outer, is.to_f64().chunks_exact(width).map(largest).collect())
        })
    }
}
