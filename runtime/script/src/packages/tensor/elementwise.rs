//! Elementwise functions of one tensor.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use rhai::NativeCallContext;
use rhai::plugin::*;

use super::Tensor;
use super::work::compute;
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

fn unary(context: &NativeCallContext<'_>, function: &'static str, op: &str, tensor: &Tensor) -> Fallible<Tensor> {
    compute(context, function, |work| work.apply(op, [], &[&work.host(tensor)?]))
}

#[export_module]
pub(super) mod functions {
    /// Returns e to the power of every element.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").exp()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn exp(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "exp", "Exp", tensor)
    }

    /// Returns the natural logarithm of every element.
    ///
    /// ```rhai
    /// tensor::from([1, 2], "2,f32").log()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn log(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "log", "Log", tensor)
    }

    /// Returns the square root of every element.
    ///
    /// ```rhai
    /// tensor::from([4, 9], "2,f32").sqrt()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sqrt(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "sqrt", "Sqrt", tensor)
    }

    /// Returns the absolute value of every element.
    ///
    /// ```rhai
    /// tensor::from([-1, 2], "2,i64").abs()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn abs(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "abs", "Abs", tensor)
    }

    /// Returns every element with the opposite sign.
    ///
    /// ```rhai
    /// tensor::from([-1, 2], "2,i64").neg()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn neg(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "neg", "Neg", tensor)
    }

    /// Returns the largest whole number that is not above each element.
    ///
    /// ```rhai
    /// tensor::from([1.5, -1.5], "2,f32").floor()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn floor(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "floor", "Floor", tensor)
    }

    /// Returns the smallest whole number that is not below each element.
    ///
    /// ```rhai
    /// tensor::from([1.5, -1.5], "2,f32").ceil()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn ceil(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "ceil", "Ceil", tensor)
    }

    /// Returns the whole number nearest to each element; of two equally near ones the even one.
    ///
    /// ```rhai
    /// tensor::from([0.5, 1.5], "2,f32").round()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn round(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "round", "Round", tensor)
    }

    /// Returns -1, 0 or 1 for every element that is below, equal to or above 0.
    ///
    /// ```rhai
    /// tensor::from([-3, 0, 2], "3,i64").sign()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sign(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "sign", "Sign", tensor)
    }

    /// Returns the sine of every element, an angle in radians.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").sin()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sin(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "sin", "Sin", tensor)
    }

    /// Returns the cosine of every element, an angle in radians.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").cos()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn cos(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "cos", "Cos", tensor)
    }

    /// Returns the hyperbolic tangent of every element.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").tanh()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn tanh(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "tanh", "Tanh", tensor)
    }

    /// Returns the error function of every element.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").erf()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn erf(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "erf", "Erf", tensor)
    }

    /// Returns 1 / (1 + e^-x) for every element x.
    ///
    /// ```rhai
    /// tensor::from([0, 1], "2,f32").sigmoid()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn sigmoid(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "sigmoid", "Sigmoid", tensor)
    }

    /// Returns every element, or 0 where the element is negative.
    ///
    /// ```rhai
    /// tensor::from([-1, 2], "2,f32").relu()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn relu(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        unary(&context, "relu", "Relu", tensor)
    }

    /// Returns every element, limited to the range from `low` to `high`; `()` stands for no limit.
    ///
    /// ```rhai
    /// tensor::from([-5, 0, 5], "3,f32").clip(-1, ())
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn clip(context: NativeCallContext, tensor: &mut Tensor, low: Dynamic, high: Dynamic) -> Fallible<Tensor> {
        compute(&context, "clip", |work| {
            let x = work.host(tensor)?;
            let bound = |bound: &Dynamic| -> Fallible<Option<HostTensor>> {
                if bound.is_unit() { Ok(None) } else { work.scalar(x.dtype(), bound).map(Some) }
            };
            let (low, high) = (bound(&low)?, bound(&high)?);
            let mut outputs = work.apply_all("Clip", [], &[Some(&x), low.as_ref(), high.as_ref()], 1)?;
            Ok(outputs.remove(0))
        })
    }
}
