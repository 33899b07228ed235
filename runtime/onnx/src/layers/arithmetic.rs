//! Arithmetic on whole tensors, with broadcasting.

use super::activation::scalar_like;
use super::{add_node, attributes};
use crate::{Attribute, BuildError, GraphBuilder, Var};

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the shapes or element types of the operands are incompatible.
            pub fn $name(builder: &mut GraphBuilder, name: &str, a: &Var, b: &Var) -> Result<Var, BuildError> {
                add_node(builder, name, $op, &[Some(a), Some(b)], attributes([]))
            }
        )*
    };
}

binary! {
    /// `a + b`.
    add => "Add";
    /// `a - b`.
    sub => "Sub";
    /// `a · b`, elementwise.
    mul => "Mul";
    /// `a / b`.
    div => "Div";
    /// Matrix product over the last two dimensions; the other dimensions are broadcast.
    matmul => "MatMul";
}

/// `x · factor`.
///
/// # Errors
/// When the name is already used.
pub fn scale(builder: &mut GraphBuilder, name: &str, x: &Var, factor: f32) -> Result<Var, BuildError> {
    let factor = scalar_like(builder, &format!("{name}.factor"), factor, x)?;
    mul(builder, name, x, &factor)
}

/// Concatenates tensors along `axis`.
///
/// # Errors
/// When the tensors differ in another dimension or in element type.
pub fn concat(builder: &mut GraphBuilder, name: &str, parts: &[&Var], axis: i64) -> Result<Var, BuildError> {
    let parts: Vec<Option<&Var>> = parts.iter().copied().map(Some).collect();
    add_node(builder, name, "Concat", &parts, attributes([("axis", Attribute::Int(axis))]))
}

/// The mean over `axes`. If `keep` is true, they remain as dimensions of size 1.
///
/// # Errors
/// When an axis is out of range.
pub fn mean(builder: &mut GraphBuilder, name: &str, x: &Var, axes: &[i64], keep: bool) -> Result<Var, BuildError> {
    let attributes =
        attributes([("axes", Attribute::Ints(axes.to_vec())), ("keepdims", Attribute::Int(i64::from(keep)))]);
    add_node(builder, name, "ReduceMean", &[Some(x)], attributes)
}
