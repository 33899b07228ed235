//! Infers the shapes of a node's outputs by the rule of its operator.
//!
//! Knows nothing about element types.

use rten_shape_inference::{InferShapes, InferShapesContext, InferShapesError, SymExpr, SymTensor, SymbolGen};

use super::symbols::bound_complexity;
use super::values::KnownValue;
use super::{Attributes, InferError};
use crate::Dim;

/// The most inputs passed to a rule at once. A rule combines them into one expression whose depth is their number.
const MAX_INPUTS: usize = 64;

/// The shapes of a node's inputs; `None` stands for an omitted optional input.
pub(super) type Inputs<'a> = &'a [Option<SymTensor>];

/// The shapes of a node's outputs.
pub(crate) type Inferred = Result<Vec<SymTensor>, InferError>;

/// The shape rule of an operator: checks that the known sizes of the inputs fit and returns the shapes of the outputs.
pub(crate) type ShapeRule = fn(&mut ShapedNode<'_>) -> Inferred;

/// What a shape rule reads of a node.
pub(crate) struct ShapedNode<'a> {
    pub attributes: Attributes<'a>,
    pub inputs: Inputs<'a>,
    /// What is known of the inputs in addition to their shapes.
    pub(super) values: &'a [Option<KnownValue>],
    /// The number of outputs.
    pub outputs: usize,
    pub symbols: &'a mut SymbolGen,
}

impl ShapedNode<'_> {
    /// Applies a rule of `rten-shape-inference` to the inputs.
    pub fn apply(&mut self, rule: &dyn InferShapes) -> Inferred {
        apply_rule(rule, self.inputs, self.symbols)
    }

    /// Applies a rule whose output does not depend on how the inputs are divided: to one chunk at a time, with the
    /// result of the previous chunks as the first input of the next.
    pub(super) fn apply_in_chunks(&mut self, rule: &dyn InferShapes) -> Inferred {
        if self.inputs.len() <= MAX_INPUTS {
            return self.apply(rule);
        }
        let (first, rest) = self.inputs.split_at(MAX_INPUTS);
        let mut shapes = apply_rule(rule, first, self.symbols)?;
        for part in rest.chunks(MAX_INPUTS - 1) {
            let previous = shapes.into_iter().map(|shape| Some(bound_complexity(shape, self.symbols)));
            let part: Vec<_> = previous.chain(part.iter().cloned()).collect();
            shapes = apply_rule(rule, &part, self.symbols)?;
        }
        Ok(shapes)
    }

    /// Returns the sizes of an input; `None` if they are unknown.
    pub(super) fn sizes(&self, input: usize) -> Option<Vec<SymExpr>> {
        Some(self.inputs.get(input)?.as_ref()?.shape()?.collect())
    }

    /// Returns the dimensions of an input; `None` if their number is unknown.
    pub(super) fn dims(&self, input: usize) -> Option<Vec<Dim>> {
        self.values.get(input)?.as_ref()?.dims()
    }

    /// Reads the attribute `axis`.
    pub(super) fn axis(&self, default: i32) -> Result<i32, InferError> {
        Ok(self.attributes.small_int("axis")?.unwrap_or(default))
    }
}

/// Applies one shape rule.
pub(super) fn apply_rule(operator: &dyn InferShapes, inputs: Inputs<'_>, symbols: &mut SymbolGen) -> Inferred {
    operator.infer_shapes(InferShapesContext::new(inputs), symbols).map_err(|error| match error {
        InferShapesError::IncorrectInputCount => InferError::InputCount,
        InferShapesError::IncompatibleShapes => InferError::Shapes,
        InferShapesError::IncorrectRank => InferError::Rank,
        InferShapesError::InvalidValue | InferShapesError::UnknownOutputCount => InferError::Value,
    })
}

/// Returns the shapes of a node's outputs. No expression in them is deeper than a rule can traverse.
pub(super) fn output_shapes(rule: ShapeRule, mut node: ShapedNode<'_>) -> Inferred {
    let shapes = rule(&mut node)?;
    Ok(shapes.into_iter().map(|shape| bound_complexity(shape, node.symbols)).collect())
}
