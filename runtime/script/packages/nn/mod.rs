//! `nn`: models, built layer by layer with PyTorch's meaning and state_dict names.
//!
//! A graph is made with `nn::graph`; layers are methods of its values and give values. Knows no engine.

mod activations;
mod graph;
mod layers;
mod package;

pub(crate) use graph::Graph;
pub(super) use package::module;
