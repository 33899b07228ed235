//! Seeded random tensors, which are the same on every machine: the streams of `flagperf_onnx::RandomStream`, that is,
//! ChaCha8 keyed by the SHA-256 of the seed and the name of the function.

use flagperf_onnx::RandomStream;
use rhai::NativeCallContext;
use rhai::plugin::*;

use super::Tensor;
use super::creation::{from_numbers, parse_fixed_spec};
use super::torch_random;
use super::work::{Work, compute};
use crate::packages::options::{Number, finite_number};
use crate::sandbox::Fallible;
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// Returns a tensor of a float type whose elements are `draw`n in row-major order.
fn floats(work: &Work<'_>, spec: &str, mut draw: impl FnMut() -> f64) -> Fallible<HostTensor> {
    let (shape, dtype, elements) = parse_fixed_spec(spec)?;
    if !dtype.is_float() {
        return Err(work.refuse(format!("`{spec}` is not of a float type")));
    }
    work.request((elements as u64).saturating_mul(8 + dtype.size() as u64), &[])?;
    from_numbers(&shape, dtype, (0..elements).map(|_| draw()).collect())
}

fn normal(context: &NativeCallContext<'_>, spec: &str, seed: i64, [mean, std]: [f64; 2]) -> Fallible<Tensor> {
    compute(context, "random_normal", &|work| {
        let mut stream = RandomStream::new(seed as u64, "random_normal");
        let mut second = None;
        floats(work, spec, || {
            let standard = second.take().unwrap_or_else(|| {
                let [first, next] = stream.normal_pair();
                second = Some(next);
                first
            });
            mean + std * standard
        })
    })
}

fn uniform(context: &NativeCallContext<'_>, spec: &str, seed: i64, [low, high]: [f64; 2]) -> Fallible<Tensor> {
    compute(context, "random_uniform", &|work| {
        let mut stream = RandomStream::new(seed as u64, "random_uniform");
        floats(work, spec, || low + (high - low) * stream.unit())
    })
}

#[export_module]
pub(super) mod functions {
    /// Returns normally distributed numbers with mean 0 and standard deviation 1. They depend only on the spec and the
    /// seed, on every machine: the generator is ChaCha8, the transformation that of Box and Muller in f64.
    ///
    /// ```rhai
    /// tensor::random_normal("2,3,f32", 42)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn random_normal(context: NativeCallContext, spec: &str, seed: i64) -> Fallible<Tensor> {
        normal(&context, spec, seed, [0.0, 1.0])
    }

    /// Returns normally distributed numbers with this mean and standard deviation.
    ///
    /// ```rhai
    /// tensor::random_normal("2,3,f32", 42, 0, 0.02)
    /// ```
    #[rhai_fn(name = "random_normal", return_raw)]
    pub fn random_normal_with(
        context: NativeCallContext,
        spec: &str,
        seed: i64,
        mean: Number,
        std: Number,
    ) -> Fallible<Tensor> {
        let numbers = [finite_number("the mean", &mean)?, finite_number("the standard deviation", &std)?];
        normal(&context, spec, seed, numbers)
    }

    /// Returns the numbers of PyTorch's generator on the processor, `torch.randn` with `torch.Generator().manual_seed(seed)` in fp32; they
    /// differ from them by at most 2e-6. There must be at least 16.
    ///
    /// ```rhai
    /// tensor::torch_normal("1,4,8,8,f32", 42)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn torch_normal(context: NativeCallContext, spec: &str, seed: i64) -> Fallible<Tensor> {
        compute(&context, "torch_normal", &|work| {
            let (shape, dtype, elements) = parse_fixed_spec(spec)?;
            if dtype != DType::F32 {
                return Err(work.refuse(format!("`{spec}` is not of the type f32")));
            }
            work.request((elements as u64).saturating_mul(8), &[])?;
            let numbers = torch_random::normal_numbers(seed as u64, elements);
            let numbers = numbers.ok_or_else(|| work.refuse(format!("`{spec}` has fewer than 16 numbers")))?;
            HostTensor::from_vec(shape, numbers).map_err(|error| work.refuse(error.to_string()))
        })
    }

    /// Returns numbers that are uniform from 0 to below 1: multiples of 2^-53 of the generator ChaCha8, rounded to the
    /// type of the spec.
    ///
    /// ```rhai
    /// tensor::random_uniform("2,3,f32", 42)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn random_uniform(context: NativeCallContext, spec: &str, seed: i64) -> Fallible<Tensor> {
        uniform(&context, spec, seed, [0.0, 1.0])
    }

    /// Returns numbers that are uniform from `low` to `high`.
    ///
    /// ```rhai
    /// tensor::random_uniform("2,3,f32", 42, -1, 1)
    /// ```
    #[rhai_fn(name = "random_uniform", return_raw)]
    pub fn random_uniform_between(
        context: NativeCallContext,
        spec: &str,
        seed: i64,
        low: Number,
        high: Number,
    ) -> Fallible<Tensor> {
        uniform(&context, spec, seed, [finite_number("`low`", &low)?, finite_number("`high`", &high)?])
    }

    /// Returns whole numbers that are uniform from `low` to below `high`, of an integer type, from the generator
    /// ChaCha8.
    ///
    /// ```rhai
    /// tensor::random_int("8,i64", 42, 0, 1000)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn random_int(context: NativeCallContext, spec: &str, seed: i64, low: i64, high: i64) -> Fallible<Tensor> {
        compute(&context, "random_int", &|work| {
            let (shape, dtype, elements) = parse_fixed_spec(spec)?;
            if dtype.is_float() || dtype == DType::Bool {
                return Err(work.refuse(format!("`{spec}` is not of an integer type")));
            }
            if low >= high {
                return Err(work.refuse(format!("`low` must be below `high`, not {low} and {high}")));
            }
            let fits = |bound: i64| HostTensor::scalar(bound).cast(dtype).cast(DType::I64) == HostTensor::scalar(bound);
            if !fits(low) || !fits(high - 1) {
                return Err(work.refuse(format!("{low} to {high} exceeds the range of `{dtype}`")));
            }
            work.request((elements as u64).saturating_mul(8 + dtype.size() as u64), &[])?;
            let mut stream = RandomStream::new(seed as u64, "random_int");
            let count = high.wrapping_sub(low) as u64;
            let numbers: Vec<i64> = (0..elements).map(|_| low.wrapping_add(stream.below(count) as i64)).collect();
            let tensor = HostTensor::from_vec(shape, numbers).map_err(|error| work.refuse(error.to_string()))?;
            Ok(tensor.cast(dtype))
        })
    }
}
