//! The columns of the table of operators.

use crate::count::MultiplyAdds;
use crate::gradient::Derivative;
use crate::lower::Decomposition;
use crate::shape_inference::{ShapeRule, Types};

/// The facts about one operator of the standard.
#[derive(Debug)]
pub struct Operator {
    /// The name, as in a node.
    pub name: &'static str,
    /// The version of the standard operator set in which the operator appeared. If its meaning changed after
    /// [`OPSET`](crate::OPSET), the version in which it got its present one.
    pub since: i64,
    /// Which element types the inputs may have, and those of the outputs.
    pub(crate) types: Types,
    /// The shapes of the outputs; `None` if they are not inferred.
    pub(crate) shape: Option<ShapeRule>,
    /// The multiply-adds of a node.
    pub(crate) multiply_adds: MultiplyAdds,
    /// The decomposition into operators of [`OPSET`](crate::OPSET).
    pub(crate) decomposition: Option<Decomposition>,
    /// The gradients of a node's inputs from those of its outputs.
    pub(crate) derivative: Option<Derivative>,
    /// The version from which on nodes have their present form, and the conversion of older nodes to that form.
    pub(crate) conversion: Option<(i64, Decomposition)>,
    /// The version in which the attribute `axes` became input 1.
    pub(crate) axes_input_since: Option<i64>,
    /// An input that is f32 even if the node computes in half precision.
    pub(crate) f32_input: Option<usize>,
    /// Whether the operator is f32 in a graph of half precision.
    pub(crate) stays_f32: bool,
    /// The type in which a training in mixed precision computes the operator.
    pub(crate) mixed_precision: MixedPrecision,
}

/// The type in which a training in mixed precision computes an operator, as PyTorch's `autocast` chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MixedPrecision {
    /// Half precision: products.
    Half,
    /// F32: sums of many terms, normalizations, losses, and functions that half precision cannot represent well.
    Wide,
    /// Half precision if all computed operands are, otherwise f32.
    Follows,
}

/// Returns the row of an operator that computes no products and follows the types of the graph.
pub(super) const fn op(name: &'static str, since: i64, types: Types, shape: Option<ShapeRule>) -> Operator {
    Operator {
        name,
        since,
        types,
        shape,
        multiply_adds: |_| Some(0),
        decomposition: None,
        derivative: None,
        conversion: None,
        axes_input_since: None,
        f32_input: None,
        stays_f32: false,
        mixed_precision: MixedPrecision::Follows,
    }
}

/// What differs from the defaults of [`op`].
impl Operator {
    pub(super) const fn counts(self, multiply_adds: MultiplyAdds) -> Self {
        Operator { multiply_adds, ..self }
    }

    pub(super) const fn lowers(self, decomposition: Decomposition) -> Self {
        Operator { decomposition: Some(decomposition), ..self }
    }

    pub(super) const fn derives(self, derivative: Derivative) -> Self {
        Operator { derivative: Some(derivative), ..self }
    }

    pub(super) const fn converts(self, before: i64, conversion: Decomposition) -> Self {
        Operator { conversion: Some((before, conversion)), ..self }
    }

    /// Returns whether the operator can be decomposed into others.
    pub const fn is_composite(&self) -> bool {
        self.decomposition.is_some()
    }

    pub(super) const fn axes_input(self, version: i64) -> Self {
        Operator { axes_input_since: Some(version), ..self }
    }

    pub(super) const fn f32_input(self, input: usize) -> Self {
        Operator { f32_input: Some(input), ..self }
    }

    pub(super) const fn f32(self) -> Self {
        Operator { stays_f32: true, mixed_precision: MixedPrecision::Wide, ..self }
    }

    pub(super) const fn half(self) -> Self {
        Operator { mixed_precision: MixedPrecision::Half, ..self }
    }

    pub(super) const fn wide(self) -> Self {
        Operator { mixed_precision: MixedPrecision::Wide, ..self }
    }
}
