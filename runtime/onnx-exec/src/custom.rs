//! Operators of other domains than the standard's, which a tensor library brings.

use indexmap::IndexMap;

use super::OpError;
use super::operands::Operands;
use super::ops::TensorOps;
use flagperf_onnx::{Attribute, Node};

/// An operator of another domain, as a node uses it.
#[derive(Clone, Debug)]
pub struct CustomOperator {
    /// The domain.
    pub domain: String,
    /// The operator's name in its domain.
    pub op: String,
    /// The attributes of the node.
    pub attributes: IndexMap<String, Attribute>,
    /// The number of outputs that are read.
    pub outputs: usize,
}

impl CustomOperator {
    pub(super) fn of_node(node: &Node) -> Self {
        let (domain, op) = (node.domain.clone(), node.op.clone());
        CustomOperator { domain, op, attributes: node.attributes.clone(), outputs: node.outputs.len() }
    }

    /// Returns the operator's name with its domain.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.domain, self.op)
    }

    pub(super) fn evaluate<O: TensorOps>(&self, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
        let inputs = (0..operands.len()).map(|place| operands.optional_tensor(place)).collect::<Result<Vec<_>, _>>()?;
        operands.ops.custom(self, &inputs)
    }
}
