//! Mixed precision: products in half precision, losses and normalizations in f32, as PyTorch's `autocast`. Weights stay f32: each
//! is converted where it is read.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use crate::file::onnx_code;
use crate::lower::int;
use crate::operators::MixedPrecision;
use crate::weights::cast_saturating;
use crate::{
    Attribute, DType, Graph, HalfPrecision, LowerError, Node, Weight, WeightSource, find_operator, infer_shapes,
    replace_nodes,
};

/// Returns the graph in mixed precision, with conversions where types meet. An attention is written out, so that its softmax is
/// f32, unless `keep_operators` is true.
pub(super) fn autocast(graph: &Graph, half: HalfPrecision, keep_operators: bool) -> Result<Graph, LowerError> {
    let attention = |node: &Node| {
        let is_attention = node.domain.is_empty() && node.op == "Attention";
        let operator = find_operator(&node.op).filter(|_| is_attention && !keep_operators);
        operator.and_then(|operator| operator.decomposition)
    };
    let graph = &replace_nodes(graph, attention)?;
    let mut casting = Casting::new(graph, half.dtype(), keep_operators);
    graph.nodes.iter().for_each(|node| casting.add(node));
    let mut graph = casting.to;
    infer_shapes(&mut graph);
    Ok(graph)
}

/// Operators that are computed in f32 when they are written out, because each part would round. As one operator of a library, they
/// read and write half precision and compute in f32.
const WIDE_IN_PARTS: [&str; 1] = ["Gelu"];

struct Casting {
    to: Graph,
    half: DType,
    keep_operators: bool,
    /// The present types of the values that were f32.
    types: HashMap<String, DType>,
    /// The values that depend on an input; the others have the type that their reader wants.
    computed: HashSet<String>,
    /// The values that are converted already, by name and type.
    converted: HashMap<(String, DType), String>,
}

impl Casting {
    fn new(graph: &Graph, half: DType, keep_operators: bool) -> Self {
        let inputs = graph.inputs.iter().map(|input| input.name.clone());
        let floats = graph.specs().into_iter().filter(|(_, spec)| spec.dtype == DType::F32);
        Casting {
            to: Graph { nodes: Vec::new(), values: IndexMap::new(), ..graph.clone() },
            half,
            keep_operators,
            types: floats.map(|(name, spec)| (name, spec.dtype)).collect(),
            computed: inputs.collect(),
            converted: HashMap::new(),
        }
    }

    /// Adds a node with its operands in the type that it computes in.
    fn add(&mut self, node: &Node) {
        let operator = find_operator(&node.op).filter(|_| node.domain.is_empty());
        let precision = match operator.map_or(MixedPrecision::Wide, |operator| operator.mixed_precision) {
            MixedPrecision::Wide if self.keep_operators && WIDE_IN_PARTS.contains(&&*node.op) => {
                MixedPrecision::Follows
            }
            precision => precision,
        };
        let wanted = self.wanted(node, precision);
        let mut node = node.clone();
        for (i, input) in node.inputs.iter_mut().enumerate() {
            let stays = match &*node.op {
                // The statistics, the scale and the bias are f32 beside an image in half precision; a ratio has any type.
                "BatchNormalization" | "Dropout" => i > 0,
                "Cast" | "CastLike" => true,
                _ => operator.is_some_and(|operator| operator.f32_input == Some(i)),
            };
            if !stays {
                *input = self.convert(input, wanted);
            }
        }
        let result = match (&*node.op, int(&node, "to")) {
            ("Cast", _) | ("CastLike", _) => DType::F32,
            _ => wanted,
        };
        let is_computed = node.inputs.iter().any(|input| self.computed.contains(input));
        for output in &node.outputs {
            if let Some(dtype) = self.types.get_mut(output) {
                *dtype = result;
            }
            if is_computed {
                self.computed.insert(output.clone());
            }
        }
        self.to.nodes.push(node);
    }

    /// Returns the type that a node computes in.
    fn wanted(&self, node: &Node, precision: MixedPrecision) -> DType {
        match precision {
            MixedPrecision::Half => self.half,
            MixedPrecision::Wide => DType::F32,
            MixedPrecision::Follows => {
                let operands = match &*node.op {
                    "BatchNormalization" | "Dropout" => &node.inputs[..1],
                    _ => &node.inputs[..],
                };
                let computed = operands.iter().filter(|input| self.computed.contains(*input));
                let types: Vec<DType> = computed.filter_map(|input| self.types.get(input).copied()).collect();
                let is_half = !types.is_empty() && types.iter().all(|dtype| *dtype == self.half);
                if is_half { self.half } else { DType::F32 }
            }
        }
    }

    /// Returns the name of a value in another type, and adds the conversion unless it exists.
    fn convert(&mut self, name: &str, wanted: DType) -> String {
        if self.types.get(name).is_none_or(|dtype| *dtype == wanted) {
            return name.to_owned();
        }
        let key = (name.to_owned(), wanted);
        if let Some(converted) = self.converted.get(&key) {
            return converted.clone();
        }
        let to = format!("{name}/{wanted}");
        match self.to.weights.get(name).map(|weight| (weight.role, &weight.source)) {
            // A mask of the least f32 stays finite.
            Some((role, WeightSource::Value(tensor))) if role != crate::WeightRole::Parameter => {
                let tensor = cast_saturating(tensor, wanted);
                let weight = Weight { spec: tensor.spec(), role, source: WeightSource::Value(tensor) };
                self.to.weights.insert(to.clone(), weight);
            }
            _ => self.to.nodes.push(Node {
                name: format!("{to}/cast"),
                op: "Cast".to_owned(),
                inputs: vec![name.to_owned()],
                outputs: vec![to.clone()],
                attributes: IndexMap::from([("to".to_owned(), Attribute::Int(i64::from(onnx_code(wanted))))]),
                ..Node::default()
            }),
        }
        if self.computed.contains(name) {
            self.computed.insert(to.clone());
        }
        self.types.insert(to.clone(), wanted);
        self.converted.insert(key, to.clone());
        to
    }
}
