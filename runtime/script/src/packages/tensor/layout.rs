//! The arrangement of elements: shapes, axes, joining and repeating.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use flagperf_onnx::Attribute;
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use super::Tensor;
use super::work::{Work, compute, ints, whole_array, whole_numbers};
use crate::sandbox::Fallible;
use flagperf_core::tensor::Tensor as HostTensor;

/// Joins tensors along an axis.
fn concat(work: &Work<'_>, tensors: &[HostTensor], axis: i64) -> Fallible<HostTensor> {
    let inputs: Vec<Option<&HostTensor>> = tensors.iter().map(Some).collect();
    if inputs.is_empty() {
        return Err(work.refuse("the array is empty"));
    }
    let first = &tensors[0];
    if let Some(other) = tensors.iter().find(|tensor| tensor.dtype() != first.dtype()) {
        let reason = "tensors of different types cannot be joined; convert them first with `.cast(...)`";
        return Err(work.refuse_for(&[Some(first), Some(other)], reason));
    }
    if let Some(other) = tensors.iter().find(|tensor| !can_be_joined(first.shape(), tensor.shape(), axis)) {
        let reason = "tensors can be joined only if their other dimensions are equal";
        return Err(work.refuse_for(&[Some(first), Some(other)], reason));
    }
    Ok(work.apply_all("Concat", &[("axis", Attribute::Int(axis))], &inputs, 1)?.remove(0))
}

/// Returns whether two shapes have the same number of dimensions and differ at most in that of `axis`.
fn can_be_joined(a: &[usize], b: &[usize], axis: i64) -> bool {
    let axis = if axis < 0 { axis + a.len() as i64 } else { axis };
    a.len() == b.len() && (0..).zip(a.iter().zip(b)).all(|(dim, (a, b))| dim == axis || a == b)
}

fn pad(work: &Work<'_>, x: &HostTensor, pads: &Array, value: Option<&Dynamic>, mode: &str) -> Fallible<HostTensor> {
    let pads = ints(&whole_array("the padding", pads)?);
    let value = value.map(|value| work.scalar(x.dtype(), value)).transpose()?;
    let mode = [("mode", Attribute::String(mode.to_owned()))];
    Ok(work.apply_all("Pad", &mode, &[Some(x), Some(&pads), value.as_ref()], 1)?.remove(0))
}

#[export_module]
pub(super) mod functions {
    /// Returns the same elements with another shape. One size may be -1: it stands for the number of elements that
    /// remains.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").reshape([3, -1])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn reshape(context: NativeCallContext, tensor: &mut Tensor, shape: Array) -> Fallible<Tensor> {
        compute(&context, "reshape", &|work| {
            let shape = whole_array("the shape", &shape)?;
            work.apply("Reshape", &[("allowzero", Attribute::Int(1))], &[&work.host(tensor)?, &ints(&shape)])
        })
    }

    /// Returns the tensor with its dimensions in reverse order.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,f32").transpose()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn transpose(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        compute(&context, "transpose", &|work| work.apply("Transpose", &[], &[&work.host(tensor)?]))
    }

    /// Returns the tensor with its dimensions in another order: dimension `i` of the result is dimension `order[i]`.
    ///
    /// ```rhai
    /// tensor::zeros("2,3,4,f32").transpose([0, 2, 1])
    /// ```
    #[rhai_fn(name = "transpose", global, return_raw, pure)]
    pub fn transpose_to(context: NativeCallContext, tensor: &mut Tensor, order: Array) -> Fallible<Tensor> {
        compute(&context, "transpose", &|work| {
            let order = whole_array("the order", &order)?;
            work.apply("Transpose", &[("perm", Attribute::Ints(order))], &[&work.host(tensor)?])
        })
    }

    /// Removes every dimension of size 1.
    ///
    /// ```rhai
    /// tensor::zeros("1,3,1,f32").squeeze()
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn squeeze(context: NativeCallContext, tensor: &mut Tensor) -> Fallible<Tensor> {
        compute(&context, "squeeze", &|work| work.apply("Squeeze", &[], &[&work.host(tensor)?]))
    }

    /// Removes one dimension or an array of dimensions, each of size 1.
    ///
    /// ```rhai
    /// tensor::zeros("1,3,1,f32").squeeze(-1)
    /// ```
    #[rhai_fn(name = "squeeze", global, return_raw, pure)]
    pub fn squeeze_axes(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        compute(&context, "squeeze", &|work| {
            work.apply("Squeeze", &[], &[&work.host(tensor)?, &ints(&whole_numbers("the axes", &axes)?)])
        })
    }

    /// Inserts one dimension or an array of dimensions of size 1, at these positions of the result.
    ///
    /// ```rhai
    /// tensor::zeros("3,f32").unsqueeze([0, -1])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn unsqueeze(context: NativeCallContext, tensor: &mut Tensor, axes: Dynamic) -> Fallible<Tensor> {
        compute(&context, "unsqueeze", &|work| {
            work.apply("Unsqueeze", &[], &[&work.host(tensor)?, &ints(&whole_numbers("the axes", &axes)?)])
        })
    }

    /// Repeats dimensions of size 1 so that the tensor has the shape to which its own and `shape` broadcast. A size of 1 in
    /// `shape` therefore keeps a dimension.
    ///
    /// ```rhai
    /// tensor::zeros("3,1,f32").expand([2, 1, 4])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn expand(context: NativeCallContext, tensor: &mut Tensor, shape: Array) -> Fallible<Tensor> {
        compute(&context, "expand", &|work| {
            let (x, shape) = (work.host(tensor)?, whole_array("the shape", &shape)?);
            if let Some(size) = shape.iter().find(|size| **size < 0) {
                let reason = format!("a size must be at least 0, not {size}; 1 keeps a dimension");
                return Err(work.refuse_for(&[Some(&x)], &reason));
            }
            work.apply("Expand", &[], &[&x, &ints(&shape)])
        })
    }

    /// Repeats the whole tensor along every axis: `repeats` has one number per axis.
    ///
    /// ```rhai
    /// tensor::arange(3).tile([2])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn tile(context: NativeCallContext, tensor: &mut Tensor, repeats: Array) -> Fallible<Tensor> {
        compute(&context, "tile", &|work| {
            let (x, repeats) = (work.host(tensor)?, whole_array("the repeats", &repeats)?);
            if repeats.len() != x.shape().len() || repeats.iter().any(|count| *count < 0) {
                let reason = format!("`tile` needs one number of at least 0 per axis, not {repeats:?}");
                return Err(work.refuse_for(&[Some(&x)], &reason));
            }
            work.apply("Tile", &[], &[&x, &ints(&repeats)])
        })
    }

    /// Adds zeros around the tensor: `pads` contains the numbers of entries before all axes, then those after them.
    ///
    /// ```rhai
    /// tensor::full("2,2,f32", 1).pad([1, 0, 0, 2])
    /// ```
    #[rhai_fn(global, return_raw, pure)]
    pub fn pad(context: NativeCallContext, tensor: &mut Tensor, pads: Array) -> Fallible<Tensor> {
        compute(&context, "pad", &|work| super::pad(work, &work.host(tensor)?, &pads, None, "constant"))
    }

    /// Pads the tensor with a number, or as the mode `"reflect"` (mirrored at the outermost entry) or `"edge"` (the
    /// outermost entry) says.
    ///
    /// ```rhai
    /// tensor::arange(3).pad([2, 0], "reflect")
    /// ```
    #[rhai_fn(name = "pad", global, return_raw, pure)]
    pub fn pad_with(context: NativeCallContext, tensor: &mut Tensor, pads: Array, value: Dynamic) -> Fallible<Tensor> {
        compute(&context, "pad", &|work| {
            let x = work.host(tensor)?;
            match value.read_lock::<ImmutableString>().as_deref().map(|mode| mode.as_str()) {
                Some(mode @ ("reflect" | "edge")) => super::pad(work, &x, &pads, None, mode),
                Some(other) => Err(work.refuse(format!("unknown mode `{other}` (known: reflect, edge)"))),
                None => super::pad(work, &x, &pads, Some(&value), "constant"),
            }
        })
    }

    /// Joins an array of tensors along an axis that they have; their other sizes are equal.
    ///
    /// ```rhai
    /// tensor::concat([tensor::zeros("2,3,f32"), tensor::zeros("1,3,f32")], 0)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn concat(context: NativeCallContext, tensors: Array, axis: i64) -> Fallible<Tensor> {
        compute(&context, "concat", &|work| super::concat(work, &work.hosts(&tensors)?, axis))
    }

    /// Joins an array of tensors of one shape along a new axis.
    ///
    /// ```rhai
    /// tensor::stack([tensor::zeros("3,f32"), tensor::zeros("3,f32")], 0)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn stack(context: NativeCallContext, tensors: Array, axis: i64) -> Fallible<Tensor> {
        compute(&context, "stack", &|work| {
            let at = ints(&[axis]);
            let tensors = work.hosts(&tensors)?;
            let unsqueezed: Fallible<Vec<_>> =
                tensors.iter().map(|tensor| work.apply("Unsqueeze", &[], &[tensor, &at])).collect();
            super::concat(work, &unsqueezed?, axis)
        })
    }
}
