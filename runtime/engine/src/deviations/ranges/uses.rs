//! How the values of a graph are used: as sizes and positions, or in computations.
//!
//! Knows no engine.

use std::collections::{HashMap, HashSet};

use flagperf_onnx::captured_names;

use crate::deviations::conditions::int;
use crate::deviations::{KnownValues, NodeUse};

/// Operators that keep every number, in another shape.
const RESHAPING: [&str; 7] = ["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand"];
/// Other operators whose result, if it fits in 32 bits, is right although an operand did not.
const WRAPPING: [&str; 10] = ["Add", "Cast", "Concat", "Gather", "Mul", "Neg", "ReduceProd", "Slice", "Split", "Sub"];

/// How the values are used.
pub(super) struct Uses {
    /// Values that are used as something else than sizes and positions.
    computed: HashSet<String>,
    /// The size of the dimension in which a value is used as index.
    indexed: HashMap<String, usize>,
}

impl Uses {
    pub(super) fn of(known: &KnownValues<'_>) -> Self {
        let nodes = || known.graph.nodes.iter();
        let read: HashSet<&String> = nodes().flat_map(|node| &node.inputs).collect();
        // A subgraph lacks the list of its outputs.
        let unread = nodes().flat_map(|node| &node.outputs).filter(|output| !read.contains(output));
        let outputs = known.graph.outputs.iter().map(|output| &output.name);
        let computed = outputs.chain(unread).cloned().collect();
        let mut uses = Uses { computed, indexed: HashMap::new() };
        for node in nodes().rev() {
            uses.add(&NodeUse { node, known });
        }
        uses
    }

    /// Returns whether a value is used as a size or position only, which would be an error if it were too large.
    pub(super) fn is_place(&self, value: &str) -> bool {
        !self.computed.contains(value)
    }

    /// Returns the size of the dimension in which a value is used as index: larger numbers are errors.
    pub(super) fn indexed_size(&self, value: &str) -> Option<usize> {
        self.indexed.get(value).copied()
    }

    /// Adds the uses of a node's inputs, after those of its outputs.
    fn add(&mut self, usage: &NodeUse<'_>) {
        let (node, op) = (usage.node, usage.node.op.as_str());
        let wraps = RESHAPING.contains(&op) || WRAPPING.contains(&op);
        let makes_places = wraps && node.outputs.iter().all(|output| self.is_place(output));
        for (index, input) in node.inputs.iter().enumerate() {
            if !makes_places && !is_place_input(op, index) {
                self.computed.insert(input.clone());
            }
        }
        self.computed.extend(captured_names(node, usage.known.graph.opset));
        if let Some((input, size)) = self.index(usage) {
            let smallest = self.indexed.get(&input).map_or(size, |known| size.min(*known));
            self.indexed.insert(input, smallest);
        }
    }

    /// Returns the input of a node that is an index, with the size of the dimension.
    fn index(&self, usage: &NodeUse<'_>) -> Option<(String, usize)> {
        match usage.node.op.as_str() {
            "Gather" | "GatherElements" | "ScatterElements" => {
                let dims = &usage.spec(0)?.dims;
                let axis = int(usage, "axis").unwrap_or(0);
                let axis = usize::try_from(if axis < 0 { axis + dims.len() as i64 } else { axis }).ok()?;
                Some((usage.input(1)?.to_owned(), dims.get(axis)?.fixed()?))
            }
            "Cast" if usage.spec(0)?.dtype.is_float() => None,
            op if op == "Cast" || RESHAPING.contains(&op) => {
                Some((usage.input(0)?.to_owned(), self.indexed_size(usage.node.outputs.first()?)?))
            }
            _ => None,
        }
    }
}

/// Returns whether an input of an operator has sizes, positions or dimensions.
fn is_place_input(op: &str, index: usize) -> bool {
    match op {
        "ConstantOfShape" | "Loop" => index == 0,
        "Slice" | "Resize" | "MaxUnpool" => index > 1 || (op == "Slice" && index == 1),
        "Reshape" | "Expand" | "Tile" | "Pad" | "Split" | "TopK" | "Upsample" | "Range" | "Squeeze" | "Unsqueeze"
        | "AffineGrid" | "CenterCropPad" | "Trilu" | "CumSum" | "Gather" | "GatherElements" | "GatherND"
        | "ScatterElements" | "ScatterND" => index == 1,
        _ => op.starts_with("Reduce") && index == 1,
    }
}
