//! Functions that create tensors from specs and numbers.

use rhai::plugin::*;
use rhai::{Array, Dynamic, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute};
use crate::names::script_type;
use crate::packages::options::{finite_number, number, size};
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor, TensorError, TensorSpec, byte_count};

/// Parses a spec whose dimensions are all fixed; returns the shape, the type and the number of elements.
pub(super) fn parse_fixed_spec(spec: &str) -> Fallible<(Vec<usize>, DType, usize)> {
    let spec: TensorSpec = spec.parse().map_err(|error| format!("`{spec}`: {error}"))?;
    let shape = spec.fixed_shape().ok_or_else(|| format!("every dimension of `{spec}` must be a number"))?;
    let bytes = byte_count(&shape, spec.dtype).ok_or_else(|| format!("`{spec}`: {}", TensorError::TooLarge))?;
    Ok((shape, spec.dtype, bytes / spec.dtype.size()))
}

/// Returns a number as a tensor without dimensions. A float type rounds it; an integer type must represent it exactly. A
/// boolean is a truth value or a number, of which all but 0 are true.
fn element(value: &Dynamic, dtype: DType) -> Result<HostTensor, String> {
    if let (Ok(truth), DType::Bool) = (value.as_bool(), dtype) {
        return HostTensor::from_bools([], &[truth]).map_err(|error| error.to_string());
    }
    let number = match (value.as_int(), number(value)) {
        (Ok(whole), _) => HostTensor::scalar(whole),
        (_, Some(number)) => HostTensor::scalar(number),
        _ => return Err(format!("the elements of a tensor must be numbers, not `{}`", script_type(value))),
    };
    let element = number.cast(dtype);
    match dtype.is_float() || dtype == DType::Bool || element.cast(number.dtype()) == number {
        true => Ok(element),
        false => Err(format!("`{value}` is not a number of `{dtype}`")),
    }
}

/// Returns a tensor of `dtype` with these numbers.
pub(super) fn from_numbers(shape: &[usize], dtype: DType, numbers: Vec<f64>) -> Fallible<HostTensor> {
    Ok(HostTensor::from_vec(shape, numbers).map_err(|error| error.to_string())?.cast(dtype))
}

/// Returns a tensor whose elements are all `value`.
fn filled(work: &Work<'_>, spec: &str, value: &Dynamic) -> Fallible<HostTensor> {
    let (shape, dtype, elements) = parse_fixed_spec(spec)?;
    let element = element(value, dtype).map_err(|reason| work.refuse(reason))?;
    work.request((elements as u64).saturating_mul(dtype.size() as u64), &[])
        .map_err(|error| error_with_spec(error, spec))?;
    let bytes = match element.bytes() {
        zero if zero.iter().all(|byte| *byte == 0) => vec![0; elements * dtype.size()],
        bytes => bytes.repeat(elements),
    };
    HostTensor::from_bytes(shape, dtype, &bytes).map_err(|error| work.refuse(error.to_string()))
}

/// Adds the spec to the error about a request that exceeds the memory of the script.
fn error_with_spec(error: Box<EvalAltResult>, spec: &str) -> Box<EvalAltResult> {
    match *error {
        EvalAltResult::ErrorTerminated(reason, position) => {
            EvalAltResult::ErrorTerminated(format!("`{spec}`: {reason}").into(), position).into()
        }
        _ => error,
    }
}

/// Returns the numbers from `start` to before `end`, `step` apart: i64 if all three are whole numbers, else f32.
fn range(work: &Work<'_>, [start, end, step]: [&Dynamic; 3]) -> Fallible<HostTensor> {
    let [first, last, by] =
        [finite_number("`start`", start)?, finite_number("`end`", end)?, finite_number("`step`", step)?];
    if by == 0.0 {
        return Err(work.refuse("the step is 0"));
    }
    if let (Ok(start), Ok(end), Ok(step)) = (start.as_int(), end.as_int(), step.as_int()) {
        let distance = i128::from(end) - i128::from(start);
        let sign = i128::from(step.signum());
        let count = u64::try_from((distance * sign).max(0)).unwrap_or(0).div_ceil(step.unsigned_abs());
        work.request(count.saturating_mul(8), &[])?;
        let numbers: Vec<i64> = (0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect();
        return HostTensor::from_vec([numbers.len()], numbers).map_err(|error| work.refuse(error.to_string()));
    }
    let count = ((last - first) / by).ceil().max(0.0);
    work.request((count * 16.0) as u64, &[])?;
    let count = count as usize;
    from_numbers(&[count], DType::F32, (0..count).map(|i| first + i as f64 * by).collect())
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
        compute(&context, "zeros", &|work| filled(work, spec, &Dynamic::from(0_i64)))
    }

    /// Returns a tensor whose elements are all `value`. An integer type must represent it exactly.
    ///
    /// ```rhai
    /// tensor::full("1,f32", 7.5)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn full(context: NativeCallContext, spec: &str, value: Dynamic) -> Fallible<Tensor> {
        compute(&context, "full", &|work| filled(work, spec, &value))
    }

    /// Returns a tensor with the numbers of an array, in row-major order. An integer type must represent them exactly.
    ///
    /// ```rhai
    /// tensor::from([1, 2, 3, 4], "2,2,i64")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn from(context: NativeCallContext, values: Array, spec: &str) -> Fallible<Tensor> {
        compute(&context, "from", &|work| {
            let (shape, dtype, elements) = parse_fixed_spec(spec)?;
            if values.len() != elements {
                return Err(format!("`{spec}` has {elements} elements, but the array has {}", values.len()).into());
            }
            work.request((elements * dtype.size()) as u64, &[])?;
            let mut bytes = Vec::with_capacity(elements * dtype.size());
            for value in &values {
                bytes.extend_from_slice(element(value, dtype)?.bytes());
            }
            HostTensor::from_bytes(shape, dtype, &bytes).map_err(|error| work.refuse(error.to_string()))
        })
    }

    /// Returns the whole numbers from 0 to before `end`, as i64.
    ///
    /// ```rhai
    /// tensor::arange(4)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn arange(context: NativeCallContext, end: i64) -> Fallible<Tensor> {
        compute(&context, "arange", &|work| range(work, [&Dynamic::ZERO, &Dynamic::from(end), &Dynamic::ONE]))
    }

    /// Returns the numbers from `start` to before `end`, one apart: i64 if both are whole numbers, else f32.
    ///
    /// ```rhai
    /// tensor::arange(2, 6)
    /// ```
    #[rhai_fn(name = "arange", return_raw)]
    pub fn arange_from(context: NativeCallContext, start: Dynamic, end: Dynamic) -> Fallible<Tensor> {
        compute(&context, "arange", &|work| range(work, [&start, &end, &Dynamic::ONE]))
    }

    /// Returns the numbers from `start` to before `end`, `step` apart: i64 if all are whole numbers, else f32.
    ///
    /// ```rhai
    /// tensor::arange(1, 0, -0.25)
    /// ```
    #[rhai_fn(name = "arange", return_raw)]
    pub fn arange_by(context: NativeCallContext, start: Dynamic, end: Dynamic, step: Dynamic) -> Fallible<Tensor> {
        compute(&context, "arange", &|work| range(work, [&start, &end, &step]))
    }

    /// Returns `count` f32 numbers at equal distances from `start` to `end`, both included.
    ///
    /// ```rhai
    /// tensor::linspace(0, 1, 5)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn linspace(context: NativeCallContext, start: Dynamic, end: Dynamic, count: i64) -> Fallible<Tensor> {
        let (start, end) = (finite_number("`start`", &start)?, finite_number("`end`", &end)?);
        let count = size("the count", count)?;
        compute(&context, "linspace", &|work| {
            work.request((count as u64).saturating_mul(12), &[])?;
            let last = count.saturating_sub(1).max(1) as f64;
            let at = |i: usize| if i > 0 && i + 1 == count { end } else { start + (end - start) * (i as f64 / last) };
            from_numbers(&[count], DType::F32, (0..count).map(at).collect())
        })
    }

    /// Returns the f32 identity matrix of `size` rows and columns.
    ///
    /// ```rhai
    /// tensor::eye(3)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn eye(context: NativeCallContext, size: i64) -> Fallible<Tensor> {
        let size = crate::packages::options::size("the size", size)?;
        compute(&context, "eye", &|work| {
            work.request((size as u64).saturating_mul(size as u64).saturating_mul(4), &[])?;
            let mut elements = vec![0.0f32; size * size];
            elements.iter_mut().step_by(size + 1).for_each(|element| *element = 1.0);
            HostTensor::from_vec([size, size], elements).map_err(|error| work.refuse(error.to_string()))
        })
    }
}
