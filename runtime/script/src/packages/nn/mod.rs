//! `nn`: models, built layer by layer with PyTorch's semantics and state_dict names.
//!
//! `nn::graph` creates a graph; layers are methods of its values and return values. Knows nothing about engines.

mod activations;
mod arithmetic;
mod attention;
mod convolutions;
mod elementwise;
mod gradients;
mod graph;
mod layers;
mod losses;
mod normalizations;
mod operand;
mod operators;
mod package;
mod reductions;
mod selection;
mod shape;
mod weights;

pub(super) use attention::Rotary;
pub(crate) use graph::{Graph, Node, refuse_node};
pub(super) use operators::attributes;
pub(super) use package::module;
