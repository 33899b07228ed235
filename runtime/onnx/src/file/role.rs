//! The roles of weights in files that do not store them.

use std::collections::HashSet;

use crate::{Node, TensorSpec, WeightRole};

/// Guesses the roles of weights from the nodes that read them, for files that do not store roles.
pub(super) struct RoleGuesser {
    buffers: HashSet<String>,
}

impl RoleGuesser {
    pub(super) fn from_nodes(nodes: &[Node]) -> Self {
        let statistics = nodes
            .iter()
            .filter(|node| node.op == "BatchNormalization")
            .flat_map(|node| &node.inputs[3.min(node.inputs.len())..]);
        RoleGuesser { buffers: statistics.cloned().collect() }
    }

    /// Returns the role of a weight: running statistics are buffers, floating-point tensors with dimensions are
    /// parameters, all others are constants.
    pub(super) fn guess(&self, name: &str, spec: &TensorSpec) -> WeightRole {
        match () {
            () if self.buffers.contains(name) => WeightRole::Buffer,
            () if spec.dtype.is_float() && !spec.dims.is_empty() => WeightRole::Parameter,
            () => WeightRole::Constant,
        }
    }
}
