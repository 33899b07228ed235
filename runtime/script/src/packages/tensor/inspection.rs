//! Functions that inspect tensors, convert their type, or multiply them as matrices.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use super::Tensor;
use super::reduction;
use super::work::{Work, compute, compute_value};
use crate::packages::options::{Number, finite_number};
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::{DType, Dim, SpecError, Tensor as HostTensor};

/// Returns whether the reduction of all elements, which are booleans, is true.
fn truth(work: &Work<'_>, op: &str, tensor: &Tensor, if_empty: bool) -> Fallible<bool> {
    let x = booleans(work, tensor)?;
    if x.is_empty() {
        return Ok(if_empty);
    }
    let reduced = reduction::apply(work, op, &x, &Dynamic::UNIT, false)?;
    Ok(reduced.bytes() == [1])
}

fn booleans(work: &Work<'_>, tensor: &Tensor) -> Fallible<HostTensor> {
    let x = work.host(tensor)?;
    match x.dtype() {
        DType::Bool => Ok(x),
        _ => Err(work.refuse_for(&[Some(&x)], "the tensor must contain booleans: compare it first, as in `x > 0`")),
    }
}

/// Returns whether |a - b| <= absolute + relative * |b| for all elements.
fn all_close(work: &Work<'_>, a: &Tensor, b: &Tensor, [relative, absolute]: [f64; 2]) -> Fallible<bool> {
    let (a, b) = (work.host(a)?, work.host(b)?);
    if a.shape() != b.shape() {
        return Err(work.refuse_for(&[Some(&a), Some(&b)], "the shapes differ"));
    }
    work.request((a.len() as u64).saturating_mul(16), &[Some(&a), Some(&b)])?;
    let is_close = |(x, y): (f64, f64)| x == y || y.is_finite() && (x - y).abs() <= absolute + relative * y.abs();
    if let (Ok(a), Ok(b)) = (a.as_slice::<i64>(), b.as_slice::<i64>()) {
        // Neighbours above 2^53 are equal as f64.
        let is_close =
            |(x, y): (&i64, &i64)| x == y || x.abs_diff(*y) as f64 <= absolute + relative * (*y as f64).abs();
        return Ok(a.iter().zip(b).all(is_close));
    }
    Ok(a.to_f64().into_iter().zip(b.to_f64()).all(is_close))
}

#[export_module]
pub(super) mod functions {
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

    /// Returns the size of the outermost dimension.
    ///
    /// ```rhai
    /// tensor::zeros("4,3,f32").len()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn len(tensor: &mut Tensor) -> Fallible<i64> {
        let spec = tensor.value().spec();
        let outermost = spec.dims.first().and_then(Dim::fixed);
        outermost.map(|size| size as i64).ok_or_else(|| format!("`len`: `{spec}` has no first dimension").into())
    }

    /// Returns the elements as an array in row-major order: integers for integer types, truth values for booleans,
    /// floats otherwise.
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
        Ok(match input.dtype() {
            float if float.is_float() => input.to_f64().into_iter().map(Dynamic::from).collect(),
            DType::Bool => input.bytes().iter().map(|byte| Dynamic::from(*byte != 0)).collect(),
            _ => {
                let whole = input.cast(DType::I64);
                whole.as_slice::<i64>().into_iter().flatten().map(|number| Dynamic::from(*number)).collect()
            }
        })
    }

    /// Returns the only element of a tensor: an integer for integer types, a truth value for booleans, else a float.
    ///
    /// ```rhai
    /// tensor::from([2, 3], "2,f32").sum().item()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn item(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Dynamic> {
        if tensor.elements()? != 1 {
            let spec = tensor.value().spec();
            return Err(format!("`item` needs a tensor of one element, not `{spec}`").into());
        }
        Ok(to_array(context, tensor)?.pop().unwrap_or_default())
    }

    /// Converts the elements to another type. A float that becomes an integer loses its fraction and is limited to the
    /// range of the type; an integer that does not fit an integer type wraps around, as in NumPy.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").cast("f16")
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn cast(context: NativeCallContext, tensor: &mut Tensor, dtype: &str) -> Fallible<Tensor> {
        compute(&context, "cast", &|work| {
            let dtype: DType = dtype.parse().map_err(|error: SpecError| work.refuse(error.to_string()))?;
            let x = work.host(tensor)?;
            if x.dtype() != dtype {
                work.request((x.len() as u64).saturating_mul(8 + dtype.size() as u64), &[Some(&x)])?;
            }
            Ok(x.cast(dtype))
        })
    }

    /// Returns whether at least one boolean is true.
    ///
    /// ```rhai
    /// (tensor::arange(4) > 2).any()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn any(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<bool> {
        compute_value(&context, "any", &|work| truth(work, "ReduceMax", tensor, false))
    }

    /// Returns where at least one boolean is true along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// (tensor::zeros("2,3,f32") > 0).any(1)
    /// ```
    #[rhai_fn(name = "any", global, return_raw, pure)]
    pub fn any_along(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        compute(&context, "any", &|work| reduction::apply(work, "ReduceMax", &booleans(work, tensor)?, &axes, false))
    }

    /// Returns whether all booleans are true.
    ///
    /// ```rhai
    /// (tensor::arange(4) >= 0).all()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn all(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<bool> {
        compute_value(&context, "all", &|work| truth(work, "ReduceMin", tensor, true))
    }

    /// Returns where all booleans are true along one axis or an array of axes, which the result lacks.
    ///
    /// ```rhai
    /// (tensor::zeros("2,3,f32") == 0).all(1)
    /// ```
    #[rhai_fn(name = "all", global, return_raw, pure)]
    pub fn all_along(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        compute(&context, "all", &|work| reduction::apply(work, "ReduceMin", &booleans(work, tensor)?, &axes, false))
    }

    /// Returns whether all elements of two tensors of one shape differ by at most 1e-8 plus 1e-5 times the absolute value
    /// of the second.
    ///
    /// ```rhai
    /// tensor::zeros("3,f32").allclose(tensor::full("3,f32", 1e-9))
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn allclose(context: NativeCallContext, a: &mut Tensor, b: Tensor) -> Fallible<bool> {
        compute_value(&context, "allclose", &|work| all_close(work, a, &b, [1e-5, 1e-8]))
    }

    /// Returns whether all elements of two tensors of one shape differ by at most `absolute` plus `relative` times the
    /// absolute value of the second.
    ///
    /// ```rhai
    /// tensor::zeros("3,f32").allclose(tensor::full("3,f32", 0.01), 0.0, 0.1)
    /// ```
    #[rhai_fn(name = "allclose", global, return_raw, pure)]
    pub fn allclose_within(
        context: NativeCallContext,
        a: &mut Tensor,
        b: Tensor,
        relative: Number,
        absolute: Number,
    ) -> Fallible<bool> {
        let tolerances = [finite_number("`relative`", &relative)?, finite_number("`absolute`", &absolute)?];
        compute_value(&context, "allclose", &|work| all_close(work, a, &b, tolerances))
    }

    /// Returns the product of two matrices, the last two dimensions; the others are broadcast. A tensor of one dimension
    /// is a row on the left and a column on the right.
    ///
    /// ```rhai
    /// tensor::eye(2).matmul(tensor::full("2,3,f32", 1.5))
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn matmul(context: NativeCallContext, a: &mut Tensor, b: Tensor) -> Fallible<Tensor> {
        compute(&context, "matmul", &|work| work.apply("MatMul", &[], &[&work.host(a)?, &work.host(&b)?]))
    }

    /// Replaces every integer i by `depth` f32 numbers along a new innermost axis: 1 at index i, 0 elsewhere. A negative
    /// index counts from the end; an index out of range gives only zeros.
    ///
    /// ```rhai
    /// tensor::from([2, 0], "2,i64").one_hot(3)
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn one_hot(context: NativeCallContext, tensor: &mut Tensor, depth: i64) -> Fallible<Tensor> {
        compute(&context, "one_hot", &|work| {
            let values = HostTensor::from_vec([2], vec![0.0f32, 1.0]).map_err(|error| error.to_string())?;
            let axis = [("axis", Attribute::Int(-1))];
            work.apply("OneHot", &axis, &[&work.host(tensor)?, &HostTensor::scalar(depth), &values])
        })
    }
}
