//! Converts operands to a type that an operation is written for, and its result back: f16 and bf16 are computed in f32,
//! integers of 8 and 16 bits in i32, u32 in i64, and each result is rounded once. Floating-point operations in f64 are those of the reference
//! library.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ndarray::{ArrayD, IxDyn};
use rayon::prelude::*;

use super::OpError;
use super::elementwise::CHUNK;
use super::storage::{Dense, Elements, row_major, with_elements};
use crate::reference::Array;
use flagperf_core::with_element_type;
use flagperf_onnx::{DType, Element};

/// Returns the type in which the arithmetic of elements of type `dtype` is computed.
pub(super) fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => DType::I32,
        DType::U32 => DType::I64,
        // No type that arithmetic is written for has all numbers of u64.
        wide => wide,
    }
}

/// Computes `f` of tensors of one type in their compute type. A result of the compute type is converted back.
pub(super) fn in_compute_type<const N: usize>(
    operands: [&Dense; N],
    f: impl FnOnce([&Dense; N]) -> Result<Dense, OpError>,
) -> Result<Dense, OpError> {
    let narrow = operands[0].dtype();
    let wide = compute_dtype(narrow);
    if let Some(other) = operands.iter().find(|operand| operand.dtype() != narrow) {
        return Err(OpError::invalid_operands(format!(
            "an operand has the element type `{}` instead of `{narrow}`",
            other.dtype()
        )));
    }
    if wide == narrow {
        return f(operands);
    }
    let widened = operands.map(|operand| cast(operand, wide));
    let result = f(widened.each_ref())?;
    Ok(if result.dtype() == wide { cast(&result, narrow) } else { result })
}

/// Computes a floating-point operation in f32 or, if the first operand is of type f64, in f64 by the reference library.
pub(super) fn in_float<const N: usize>(
    operands: [Option<&Dense>; N],
    in_f32: impl FnOnce([Option<&Dense>; N]) -> Result<Dense, OpError>,
    in_f64: impl FnOnce([Option<&Array>; N]) -> Result<Array, OpError>,
) -> Result<Dense, OpError> {
    let dtype = operands[0].map_or(DType::F32, Dense::dtype);
    match dtype {
        DType::F32 => in_f32(operands),
        DType::F16 | DType::BF16 => {
            let widened = operands.map(|operand| operand.map(|operand| cast(operand, DType::F32)));
            Ok(cast(&in_f32(widened.each_ref().map(Option::as_ref))?, dtype))
        }
        DType::F64 => {
            let arrays = operands.map(|operand| operand.map(to_array));
            Ok(Dense::F64(in_f64(arrays.each_ref().map(Option::as_ref))?.into_elements()))
        }
        integer => Err(OpError::unsupported(format!("this operator in `{integer}`"))),
    }
}

/// Returns the numbers as a tensor of the reference library, which shares the memory of a tensor of type f64.
fn to_array(x: &Dense) -> Array {
    match cast(x, DType::F64) {
        Dense::F64(elements) => Array::from_elements(elements),
        _ => unreachable!("the tensor was converted to f64"),
    }
}

/// Converts the numbers to another element type. Numbers that 16 bits cannot represent are rounded once.
pub(super) fn cast(x: &Dense, dtype: DType) -> Dense {
    if dtype == x.dtype() {
        return x.clone();
    }
    match (x, dtype) {
        (_, DType::Bool) => is_nonzero_each(x),
        (Dense::F16(x), DType::F32) => convert_chunks(x, |from, to| from.convert_to_f32_slice(to)),
        (Dense::BF16(x), DType::F32) => convert_chunks(x, |from, to| from.convert_to_f32_slice(to)),
        (Dense::F32(x), DType::F16) => convert_chunks::<_, f16>(x, |from, to| to.convert_from_f32_slice(from)),
        (Dense::F32(x), DType::BF16) => convert_chunks::<_, bf16>(x, |from, to| to.convert_from_f32_slice(from)),
        _ => with_elements!(x, x => with_element_type!(dtype, T => convert_each::<_, T>(x))),
    }
}

fn convert_each<T: Element, U: Element>(x: &Elements<T>) -> Dense
where
    Dense: From<ArrayD<U>>,
{
    x.mapv(U::convert::<T>).into()
}

fn is_nonzero_each(x: &Dense) -> Dense {
    with_elements!(x, x => x.mapv(|x| u8::from(x.to_f64() != 0.0)).into())
}

fn convert_chunks<T: Element, U: Element>(x: &Elements<T>, convert: impl Fn(&[T], &mut [U]) + Send + Sync) -> Dense
where
    Dense: From<ArrayD<U>>,
{
    let from = row_major(x);
    let mut to = vec![U::zeroed(); from.len()];
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| convert(from, to));
    ArrayD::from_shape_vec(IxDyn(x.shape()), to).expect("a conversion keeps the number of elements").into()
}
