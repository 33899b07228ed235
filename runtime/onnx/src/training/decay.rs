//! Which weight decay a parameter has.

use super::Optimizer;
use crate::Graph;

/// The weight decay of each parameter.
pub(super) struct Decays<'a> {
    optimizer: &'a Optimizer,
    /// The scales and biases of normalizations.
    of_norms: Vec<String>,
}

impl<'a> Decays<'a> {
    pub fn of(graph: &Graph, optimizer: &'a Optimizer) -> Self {
        let norms = graph.nodes.iter().filter(|node| node.op.ends_with("Normalization"));
        let of_norms = norms.flat_map(|node| node.inputs.iter().skip(1).take(2).cloned()).collect();
        Decays { optimizer, of_norms }
    }

    pub fn of_parameter(&self, name: &str) -> f64 {
        let own = match () {
            () if self.of_norms.iter().any(|norm| norm == name) => self.optimizer.norm_weight_decay,
            () if name.ends_with("bias") => self.optimizer.bias_weight_decay,
            () => None,
        };
        own.unwrap_or(self.optimizer.weight_decay)
    }
}
