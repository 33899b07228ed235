//! Decodes the subgraphs of `If`, `Loop` and `Scan`, which the reader keeps encoded.

use std::collections::HashSet;
use std::path::Path;

use prost::Message;

use super::proto::{AttributeProto, GraphProto};
use super::read::ModelReader;
use crate::limits::NESTING_MAX;
use crate::{Attribute, Graph, Node};

/// A subgraph. Its nodes may read values of the graphs around it.
#[derive(Clone, Debug)]
pub struct Subgraph {
    /// The names of the inputs, in order.
    pub inputs: Vec<String>,
    /// The names of the outputs, in order.
    pub outputs: Vec<String>,
    /// The nodes and weights. Inputs of unknown shape or type, and all outputs, are missing.
    pub graph: Graph,
}

impl Subgraph {
    /// Decodes an attribute of a node in a graph of operator set `opset`; `None` if it contains no subgraph.
    ///
    /// # Errors
    /// When the subgraph is malformed, or its weights are in a data file.
    pub fn decode(attribute: &Attribute, opset: i64) -> Result<Option<Self>, String> {
        let Attribute::Encoded(bytes) = attribute else { return Ok(None) };
        let proto = AttributeProto::decode(bytes.as_slice()).map_err(|error| error.to_string())?;
        let Some(encoded) = proto.g else { return Ok(None) };
        let proto = GraphProto::decode(encoded.as_slice()).map_err(|error| error.to_string())?;
        let graph = ModelReader::in_memory(Path::new("a subgraph")).body(&proto).map_err(|error| error.to_string())?;
        let names = |infos: &[super::proto::ValueInfoProto]| {
            infos.iter().map(|info| info.name.clone().unwrap_or_default()).collect::<Vec<_>>()
        };
        let (inputs, outputs) = (names(&proto.input), names(&proto.output));
        Ok(Some(Subgraph { inputs, outputs, graph: Graph { opset, ..graph } }))
    }

    /// Returns the names that the subgraph reads and does not define, with those of the subgraphs in it.
    pub fn outer_names(&self) -> HashSet<String> {
        self.outer_names_at(0)
    }

    fn outer_names_at(&self, depth: usize) -> HashSet<String> {
        let mut names: HashSet<String> = self.outputs.iter().cloned().collect();
        for node in &self.graph.nodes {
            names.extend(node.inputs.iter().cloned());
            names.extend(nested(node, self.graph.opset, depth));
        }
        let defined = self.graph.nodes.iter().flat_map(|node| &node.outputs);
        for name in defined.chain(&self.inputs).chain(self.graph.weights.keys()) {
            names.remove(name);
        }
        names.remove("");
        names
    }
}

fn nested(node: &Node, opset: i64, depth: usize) -> HashSet<String> {
    if depth > NESTING_MAX {
        return HashSet::new();
    }
    let decode = |attribute| Subgraph::decode(attribute, opset).ok().flatten();
    node.attributes.values().filter_map(decode).flat_map(|inner| inner.outer_names_at(depth + 1)).collect()
}

/// Returns the names of values outside a node that its subgraphs read.
pub fn captured_names(node: &Node, opset: i64) -> HashSet<String> {
    nested(node, opset, 0)
}
