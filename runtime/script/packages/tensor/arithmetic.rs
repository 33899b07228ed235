//! Operators on the elements of tensors.

use std::sync::Arc;

use rhai::plugin::*;
use rhai::{Dynamic, NativeCallContext};

use super::Tensor;
use super::functions::make;
use crate::script::packages::options::number;
use crate::script::sandbox::{Fallible, Host, host_of};
use crate::tensor::Tensor as HostTensor;

/// The same operation on every element; f64 in between.
fn each(host: &Arc<Host>, tensor: &Tensor, operation: impl Fn(f64) -> f64) -> Fallible<Tensor> {
    let is = tensor.to_host(&host.budget)?;
    make(host, is.len(), 16 + is.dtype().size(), || {
        let values: Vec<f64> = is.to_f64().into_iter().map(operation).collect();
        Ok(HostTensor::from_vec(is.shape(), values)?.cast(is.dtype()))
    })
}

/// The same operation on every pair of elements of two tensors of one shape; the first one's type.
fn pairs(host: &Arc<Host>, a: &Tensor, b: &Tensor, operation: impl Fn(f64, f64) -> f64) -> Fallible<Tensor> {
    let (a, b) = (a.to_host(&host.budget)?, b.to_host(&host.budget)?);
    if a.shape() != b.shape() {
        return Err(format!("tensors `{}` and `{}` differ in shape", a.spec(), b.spec()).into());
    }
    make(host, a.len(), 24 + a.dtype().size(), || {
        let values = a.to_f64().into_iter().zip(b.to_f64()).map(|(x, y)| operation(x, y)).collect();
        Ok(HostTensor::from_vec::<f64>(a.shape(), values)?.cast(a.dtype()))
    })
}

/// A number, or a tensor of the same shape, on the right of an operator.
fn arithmetic(
    context: &NativeCallContext<'_>,
    a: &Tensor,
    b: &Dynamic,
    operation: fn(f64, f64) -> f64,
) -> Fallible<Tensor> {
    let host = host_of(context)?;
    match (number(b), b.read_lock::<Tensor>()) {
        (Some(scalar), _) => each(&host, a, |x| operation(x, scalar)),
        (None, Some(other)) => pairs(&host, a, &other, operation),
        (None, None) => Err(format!("a tensor and {} cannot be computed with", b.type_name()).into()),
    }
}

#[export_module]
pub(super) mod functions {
    /// Sum of elements, pair by pair or with a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) + 2
    /// ```
    #[rhai_fn(name = "+", global, return_raw)]
    pub fn add(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x + y)
    }

    /// Difference of elements, pair by pair or with a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) - tensor::full("2,f32", 0.5)
    /// ```
    #[rhai_fn(name = "-", global, return_raw)]
    pub fn subtract(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x - y)
    }

    /// Product of elements, pair by pair or with a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) * 2.5
    /// ```
    #[rhai_fn(name = "*", global, return_raw)]
    pub fn multiply(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x * y)
    }

    /// Quotient of elements, pair by pair or with a number.
    ///
    /// ```rhai
    /// tensor::full("2,f32", 1.0) / 4
    /// ```
    #[rhai_fn(name = "/", global, return_raw)]
    pub fn divide(context: NativeCallContext, a: Tensor, b: Dynamic) -> Fallible<Tensor> {
        arithmetic(&context, &a, &b, |x, y| x / y)
    }
}
