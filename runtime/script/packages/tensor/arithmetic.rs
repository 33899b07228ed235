//! Elementwise operators of tensors.

use std::sync::Arc;

use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::functions::create;
use crate::script::packages::options::number;
use crate::script::sandbox::{Fallible, ScriptState, script_state};
use crate::tensor::Tensor as HostTensor;

/// Applies `operation` to every element in f64, and converts the result back to the type of `tensor`.
fn map_elements(script: &Arc<ScriptState>, tensor: &Tensor, operation: impl Fn(f64) -> f64) -> Fallible<Tensor> {
    let input = tensor.to_host(&script.budget)?;
    create(script, input.len(), 16 + input.dtype().size(), || {
        let values: Vec<f64> = input.to_f64().into_iter().map(operation).collect();
        Ok(HostTensor::from_vec(input.shape(), values)?.cast(input.dtype()))
    })
}

/// Applies `operation` to the pairs of elements of two tensors with the same shape; the result has the type of `a`.
fn zip_elements(
    script: &Arc<ScriptState>,
    a: &Tensor,
    b: &Tensor,
    operation: impl Fn(f64, f64) -> f64,
) -> Fallible<Tensor> {
    let (a, b) = (a.to_host(&script.budget)?, b.to_host(&script.budget)?);
    if a.shape() != b.shape() {
        return Err(format!("tensors `{}` and `{}` have different shapes", a.spec(), b.spec()).into());
    }
    create(script, a.len(), 24 + a.dtype().size(), || {
        let values = a.to_f64().into_iter().zip(b.to_f64()).map(|(x, y)| operation(x, y)).collect();
        Ok(HostTensor::from_vec::<f64>(a.shape(), values)?.cast(a.dtype()))
    })
}

/// Applies a binary operator whose right operand is a number or a tensor of the same shape.
fn arithmetic(
    context: &NativeCallContext<'_>,
    a: &Tensor,
    b: &Dynamic,
    operation: fn(f64, f64) -> f64,
) -> Fallible<Tensor> {
    let script = script_state(context)?;
    match (number(b), b.read_lock::<Tensor>()) {
        (Some(scalar), _) => map_elements(&script, a, |x| operation(x, scalar)),
        (None, Some(other)) => zip_elements(&script, a, &other, operation),
        (None, None) => Err(format!("the right operand must be a number or a tensor, not {}", b.type_name()).into()),
    }
}

#[export_module]
pub(super) mod functions {
    /// Adds two tensors elementwise, or a number to every element.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) + 2
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x + y)
    }

    /// Subtracts two tensors elementwise, or a number from every element.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) - tensor::full("2,f32", 0.5)
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x - y)
    }

    /// Multiplies two tensors elementwise, or every element by a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) * 2.5
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x * y)
    }

    /// Divides two tensors elementwise, or every element by a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) / 4
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x / y)
    }
}
