//! Converts a graph to half precision, as a new graph.
//!
//! Only specifications change. A weight's values are converted when they are read; values beyond the range of the
//! type then become its largest value.

use std::collections::{HashMap, HashSet};

use flagperf_core::precision::Precision;
use indexmap::IndexMap;

use crate::file::onnx_code;
use crate::weights::cast_saturating;
use crate::{Attribute, DType, Graph, Model, Node, Tensor, find_operator};

/// A type of half precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfPrecision {
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an f32.
    BF16,
}

impl HalfPrecision {
    /// Returns the element type.
    pub const fn dtype(self) -> DType {
        match self {
            HalfPrecision::F16 => DType::F16,
            HalfPrecision::BF16 => DType::BF16,
        }
    }
}

/// Converts a model in fp32 to a precision: all graphs, except the layers in `keep_f32`.
///
/// # Errors
/// Those of [`to_half_precision`].
pub fn to_precision(model: Model, precision: Precision, keep_f32: &[String]) -> Result<Model, HalfPrecisionError> {
    let half = match precision {
        Precision::Fp32 | Precision::Tf32 => return Ok(model),
        Precision::Fp16 => HalfPrecision::F16,
        Precision::Bf16 => HalfPrecision::BF16,
    };
    let convert = |(name, graph): (String, Graph)| Ok((name, to_half_precision(&graph, half, keep_f32)?));
    Ok(Model { graphs: model.graphs.into_iter().map(convert).collect::<Result<_, _>>()? })
}

/// Returns the same graph in f16: see [`to_half_precision`].
///
/// # Errors
/// Those of [`to_half_precision`].
pub fn to_f16(graph: &Graph, keep_f32: &[String]) -> Result<Graph, HalfPrecisionError> {
    to_half_precision(graph, HalfPrecision::F16, keep_f32)
}

/// Returns the same graph with the half-precision type in place of f32: inputs, outputs, weights and every layer except those in
/// `keep_f32`.
///
/// A name in `keep_f32` stands for the layer of that name and for all layers whose names begin with it and a dot. Casts
/// are inserted around layers that stay f32. Inputs that ONNX requires in f32 (the scales of `Resize`) stay f32.
///
/// # Errors
/// When a name in `keep_f32` matches no layer, or a layer has a subgraph.
pub fn to_half_precision(graph: &Graph, half: HalfPrecision, keep_f32: &[String]) -> Result<Graph, HalfPrecisionError> {
    let covers = |name: &String, layer: &str| {
        layer.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(name) = keep_f32.iter().find(|name| !graph.nodes.iter().any(|node| covers(name, &node.name))) {
        return Err(HalfPrecisionError::NoLayer { name: name.clone(), graph: graph.name.clone() });
    }
    let encoded = |node: &&Node| node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_)));
    if let Some(node) = graph.nodes.iter().find(encoded) {
        return Err(HalfPrecisionError::Subgraph { layer: node.name.clone(), op: node.op.clone() });
    }
    let stays_f32 = |node: &Node| find_operator(&node.op).is_some_and(|operator| operator.stays_f32);
    let kept = |node: &Node| stays_f32(node) || keep_f32.iter().any(|name| covers(name, &node.name));
    // The types of all values must be known to find those of f32, and a file may omit them.
    let mut graph = graph.clone();
    crate::infer_shapes(&mut graph);
    let mut rewriter = HalfRewriter::new(&graph, half.dtype(), &kept);
    for node in &graph.nodes {
        rewriter.node(node, kept(node));
    }
    Ok(rewriter.finish())
}

/// Why a graph cannot be converted to half precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HalfPrecisionError {
    /// A layer that should stay f32 does not exist.
    #[error("cannot keep layer `{name}` in fp32: graph `{graph}` has no such layer")]
    NoLayer { name: String, graph: String },
    /// A layer has a subgraph, whose types are unknown.
    #[error("cannot convert layer `{layer}` ({op}) to half precision: it has a subgraph")]
    Subgraph {
        layer: String,
        /// The operator.
        op: String,
    },
}

/// Returns whether an operator's input is f32 in every graph.
fn always_f32(op: &str, index: usize) -> bool {
    find_operator(op).is_some_and(|operator| operator.f32_input == Some(index))
}

/// Rewrites one graph to half precision.
struct HalfRewriter<'a> {
    from: &'a Graph,
    to: Graph,
    half: DType,
    /// The current types of the values that were f32 in the original graph.
    float_types: HashMap<String, DType>,
    /// The names of inserted casts, by the name of the value and the target type.
    casts: HashMap<(String, DType), String>,
    outputs: HashSet<&'a str>,
}

impl<'a> HalfRewriter<'a> {
    fn new(graph: &'a Graph, half: DType, kept: &impl Fn(&Node) -> bool) -> Self {
        let to = Graph { nodes: Vec::new(), values: IndexMap::new(), ..graph.clone() };
        let outputs = graph.outputs.iter().map(|output| output.name.as_str()).collect();
        let mut rewriter =
            HalfRewriter { from: graph, to, half, float_types: HashMap::new(), casts: HashMap::new(), outputs };
        for info in rewriter.to.inputs.iter_mut().chain(&mut rewriter.to.outputs) {
            if info.spec.dtype == DType::F32 {
                info.spec.dtype = half;
            }
        }
        for input in graph.inputs.iter().filter(|input| input.spec.dtype == DType::F32) {
            rewriter.float_types.insert(input.name.clone(), half);
        }
        // A weight stays f32 only if no node reads it in half precision.
        let readers =
            graph.nodes.iter().flat_map(|node| node.inputs.iter().enumerate().map(move |input| (node, input)));
        let halves: HashSet<&str> = readers
            .filter(|(node, (index, _))| !kept(node) && !always_f32(&node.op, *index))
            .map(|(_, (_, name))| name.as_str())
            .chain(rewriter.outputs.iter().copied())
            .collect();
        for (name, weight) in rewriter.to.weights.iter_mut().filter(|(_, weight)| weight.spec.dtype == DType::F32) {
            weight.spec.dtype = if halves.contains(name.as_str()) { half } else { DType::F32 };
            rewriter.float_types.insert(name.clone(), weight.spec.dtype);
        }
        rewriter
    }

    fn node(&mut self, node: &Node, kept: bool) {
        let mut new = node.clone();
        for (index, input) in new.inputs.iter_mut().enumerate() {
            let wanted = if kept || always_f32(&node.op, index) { DType::F32 } else { self.half };
            *input = self.value_as(input, wanted);
        }
        if !kept {
            narrow_attributes(&mut new, self.half);
        }
        let is_real = |name: &str| self.from.values.get(name).is_none_or(|spec| spec.dtype == DType::F32);
        let mut wide_outputs = Vec::new();
        for output in &mut new.outputs {
            if output.is_empty() || !is_real(output) {
                continue;
            }
            if kept && self.outputs.contains(output.as_str()) {
                // The narrow copy keeps the name of the graph's output.
                let wide = format!("{output}/f32");
                wide_outputs.push((wide.clone(), std::mem::replace(output, wide)));
            } else {
                self.float_types.insert(output.clone(), if kept { DType::F32 } else { self.half });
            }
        }
        self.to.nodes.push(new);
        for (wide, name) in wide_outputs {
            self.float_types.insert(wide.clone(), DType::F32);
            self.float_types.insert(name.clone(), self.half);
            self.casts.insert((name.clone(), DType::F32), wide.clone());
            self.insert_cast(&wide, name, self.half);
        }
    }

    /// Returns the name of a value in the wanted type; inserts a cast if there is none yet.
    fn value_as(&mut self, name: &str, wanted: DType) -> String {
        if self.float_types.get(name).is_none_or(|actual| *actual == wanted) {
            return name.to_owned();
        }
        let key = (name.to_owned(), wanted);
        if let Some(cast) = self.casts.get(&key) {
            return cast.clone();
        }
        let cast = format!("{name}/{wanted}");
        self.insert_cast(name, cast.clone(), wanted);
        self.casts.insert(key, cast.clone());
        cast
    }

    fn insert_cast(&mut self, from: &str, to: String, dtype: DType) {
        self.to.nodes.push(Node {
            name: format!("{to}/cast"),
            op: "Cast".to_owned(),
            inputs: vec![from.to_owned()],
            outputs: vec![to],
            attributes: IndexMap::from([("to".to_owned(), Attribute::Int(i64::from(onnx_code(dtype))))]),
            ..Node::default()
        });
    }

    /// Infers the types of all values again, which also verifies the casts.
    fn finish(mut self) -> Graph {
        crate::infer_shapes(&mut self.to);
        self.to
    }
}

/// Converts attributes that contain f32 values, or that name f32 as a type, to the half-precision type.
fn narrow_attributes(node: &mut Node, half: DType) {
    let f32_code = i64::from(onnx_code(DType::F32));
    for (name, value) in &mut node.attributes {
        match value {
            Attribute::Tensor(tensor) if tensor.dtype() == DType::F32 => *tensor = cast_saturating(tensor, half),
            Attribute::Int(code) if *code == f32_code && name == if node.op == "Cast" { "to" } else { "dtype" } => {
                *code = i64::from(onnx_code(half));
            }
            _ => {}
        }
    }
    match node.op.as_str() {
        "Constant" => {
            if let Some(tensor) = node.constant() {
                let is_real = tensor.dtype() == DType::F32;
                let tensor = if is_real { cast_saturating(&tensor, half) } else { tensor };
                node.attributes = IndexMap::from([("value".to_owned(), Attribute::Tensor(tensor))]);
            }
        }
        // Without a value, the operator produces zeros in f32.
        "ConstantOfShape" if node.attributes.is_empty() => {
            let zero =
                cast_saturating(&Tensor::scalar(0.0_f32), half).reshape([1]).expect("one element is one element");
            node.attributes.insert("value".to_owned(), Attribute::Tensor(zero));
        }
        _ => {}
    }
}
