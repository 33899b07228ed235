//! Arithmetic on whole tensors, with broadcasting.

use super::activation::number;
use super::{attributes, one};
use crate::{Attribute, BuildError, GraphBuilder, Var};

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When shapes or element types do not fit each other.
            pub fn $name(builder: &mut GraphBuilder, name: &str, a: &Var, b: &Var) -> Result<Var, BuildError> {
                one(builder, name, $op, &[Some(a), Some(b)], attributes([]))
            }
        )*
    };
}

binary! {
    /// `a + b`.
    add => "Add";
    /// `a - b`.
    sub => "Sub";
    /// `a · b`, element by element.
    mul => "Mul";
    /// `a / b`.
    div => "Div";
    /// Matrix product of the last two dimensions; those before are broadcast.
    matmul => "MatMul";
}

/// `x · factor`.
///
/// # Errors
/// When the name is taken.
pub fn scale(builder: &mut GraphBuilder, name: &str, x: &Var, factor: f32) -> Result<Var, BuildError> {
    let factor = number(builder, &format!("{name}.factor"), factor, x)?;
    mul(builder, name, x, &factor)
}

/// Tensors one after the other along `axis`.
///
/// # Errors
/// When they differ in another dimension or in element type.
pub fn concat(builder: &mut GraphBuilder, name: &str, parts: &[&Var], axis: i64) -> Result<Var, BuildError> {
    let parts: Vec<Option<&Var>> = parts.iter().copied().map(Some).collect();
    one(builder, name, "Concat", &parts, attributes([("axis", Attribute::Int(axis))]))
}

/// The mean over `axes`; they stay as dimensions of size 1 when `keep` says so.
///
/// # Errors
/// When there is no such axis.
pub fn mean(builder: &mut GraphBuilder, name: &str, x: &Var, axes: &[i64], keep: bool) -> Result<Var, BuildError> {
    let attributes =
        attributes([("axes", Attribute::Ints(axes.to_vec())), ("keepdims", Attribute::Int(i64::from(keep)))]);
    one(builder, name, "ReduceMean", &[Some(x)], attributes)
}
