//! `nn`: models, built layer by layer with PyTorch's semantics and state_dict names.
//!
//! `nn::graph` creates a graph; layers are methods of its values and return values. Knows nothing about engines.

mod activations;
mod graph;
mod layers;
mod package;

pub(crate) use graph::Graph;
pub(super) use package::module;
