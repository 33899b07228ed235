//! Arithmetic and comparisons of whole tensors, with broadcasting.

use super::activation::scalar_like;
use super::{add_node, attributes};
use crate::{Attribute, BuildError, DType, GraphBuilder, Var};

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
    /// `a` to the power `b`.
    pow => "Pow";
    /// The smaller element.
    minimum => "Min";
    /// The larger element.
    maximum => "Max";
    /// The remainder of `a / b` between integers, with the sign of `b`.
    modulo => "Mod";
    /// Whether `a` equals `b`, as bool.
    equal => "Equal";
    /// Whether `a` is less than `b`, as bool.
    less => "Less";
    /// Whether `a` is less than or equal to `b`, as bool.
    less_or_equal => "LessOrEqual";
    /// Whether `a` is greater than `b`, as bool.
    greater => "Greater";
    /// Whether `a` is greater than or equal to `b`, as bool.
    greater_or_equal => "GreaterOrEqual";
    /// Logical and of two bools.
    and => "And";
    /// Logical or of two bools.
    or => "Or";
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

/// Whether `a` differs from `b`, as bool.
///
/// # Errors
/// When the shapes or element types of the operands are incompatible.
pub fn not_equal(builder: &mut GraphBuilder, name: &str, a: &Var, b: &Var) -> Result<Var, BuildError> {
    let same = equal(builder, &format!("{name}.equal"), a, b)?;
    add_node(builder, name, "Not", &[Some(&same)], attributes([]))
}

/// Einstein's sum over the indices that the equation names, such as `bij,bjk->bik`.
///
/// # Errors
/// When the equation does not fit the operands.
pub fn einsum(builder: &mut GraphBuilder, name: &str, equation: &str, operands: &[&Var]) -> Result<Var, BuildError> {
    let operands: Vec<Option<&Var>> = operands.iter().copied().map(Some).collect();
    let equation = Attribute::String(equation.to_owned());
    add_node(builder, name, "Einsum", &operands, attributes([("equation", equation)]))
}

/// Converts the elements to another type. Floats are truncated to integers; every number except zero is true.
///
/// # Errors
/// When the name is already used.
pub fn cast(builder: &mut GraphBuilder, name: &str, x: &Var, dtype: DType) -> Result<Var, BuildError> {
    let to = Attribute::Int(i64::from(crate::file::onnx_code(dtype)));
    add_node(builder, name, "Cast", &[Some(x)], attributes([("to", to)]))
}

/// The integers from `start` below `end` in steps of `step`: scalars of the same type that the graph computes.
///
/// # Errors
/// When an operand is no scalar, or the types differ.
pub fn range(builder: &mut GraphBuilder, name: &str, [start, end, step]: [&Var; 3]) -> Result<Var, BuildError> {
    add_node(builder, name, "Range", &[Some(start), Some(end), Some(step)], attributes([]))
}
