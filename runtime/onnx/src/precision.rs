//! Turns a graph into half precision. The graph given is left as it is.
//!
//! Only specifications change: a weight's values are converted when they are read, and those beyond the range of f16
//! then become its largest value.

use std::collections::{HashMap, HashSet};

use half::f16;
use indexmap::IndexMap;

use crate::file::code_of;
use crate::inference::{Attributes, constant_value};
use crate::weights::narrowed;
use crate::{Attribute, DType, Graph, Node, Tensor};

/// The same graph with f16 in place of f32: inputs, outputs, weights, and every layer but those in `keep_f32`.
///
/// A name there stands for a layer or for all layers whose names begin with it and a dot. Around what stays f32, casts
/// are inserted. Inputs that ONNX wants in f32 always (the scales of `Resize`) stay so.
///
/// # Errors
/// When a name stands for no layer, or a layer has a subgraph.
pub fn to_f16(graph: &Graph, keep_f32: &[String]) -> Result<Graph, HalfError> {
    let covers = |name: &String, layer: &str| {
        layer.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(name) = keep_f32.iter().find(|name| !graph.nodes.iter().any(|node| covers(name, &node.name))) {
        return Err(HalfError::NoLayer { name: name.clone(), graph: graph.name.clone() });
    }
    let encoded = |node: &&Node| node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_)));
    if let Some(node) = graph.nodes.iter().find(encoded) {
        return Err(HalfError::Subgraph { layer: node.name.clone(), op: node.op.clone() });
    }
    let kept = |node: &Node| node.op == "NonMaxSuppression" || keep_f32.iter().any(|name| covers(name, &node.name));
    // Types must be known to tell what is f32: a file may leave them out.
    let mut graph = graph.clone();
    crate::infer(&mut graph);
    let mut pass = Pass::new(&graph, &kept);
    for node in &graph.nodes {
        pass.node(node, kept(node));
    }
    Ok(pass.finish())
}

/// A graph that cannot be turned into half precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HalfError {
    /// A name in the list of what stays f32 is none of the graph's.
    #[error("cannot keep `{name}` in f32: graph `{graph}` has no such layer")]
    NoLayer {
        /// The name.
        name: String,
        /// The graph.
        graph: String,
    },
    /// A layer has a subgraph, whose types are not known.
    #[error("cannot turn layer `{layer}` ({op}) into f16: it has a subgraph")]
    Subgraph {
        /// The layer.
        layer: String,
        /// The operator.
        op: String,
    },
}

/// Inputs that are f32 whatever the rest is, by operator and index.
fn always_f32(op: &str, index: usize) -> bool {
    matches!((op, index), ("Resize", 2) | ("Upsample", 1))
}

/// The rewriting under way.
struct Pass<'a> {
    from: &'a Graph,
    to: Graph,
    /// Values that were f32, with the type they have now.
    real: HashMap<String, DType>,
    /// Casts made, by the value's name and the type wanted.
    casts: HashMap<(String, DType), String>,
    outputs: HashSet<&'a str>,
}

impl<'a> Pass<'a> {
    fn new(graph: &'a Graph, kept: &impl Fn(&Node) -> bool) -> Self {
        let to = Graph { nodes: Vec::new(), values: IndexMap::new(), ..graph.clone() };
        let outputs = graph.outputs.iter().map(|output| output.name.as_str()).collect();
        let mut pass = Pass { from: graph, to, real: HashMap::new(), casts: HashMap::new(), outputs };
        for info in pass.to.inputs.iter_mut().chain(&mut pass.to.outputs) {
            if info.spec.dtype == DType::F32 {
                info.spec.dtype = DType::F16;
            }
        }
        for input in graph.inputs.iter().filter(|input| input.spec.dtype == DType::F32) {
            pass.real.insert(input.name.clone(), DType::F16);
        }
        // A weight is f32 only when nobody reads it as f16.
        let readers =
            graph.nodes.iter().flat_map(|node| node.inputs.iter().enumerate().map(move |input| (node, input)));
        let halves: HashSet<&str> = readers
            .filter(|(node, (index, _))| !kept(node) && !always_f32(&node.op, *index))
            .map(|(_, (_, name))| name.as_str())
            .chain(pass.outputs.iter().copied())
            .collect();
        for (name, weight) in pass.to.weights.iter_mut().filter(|(_, weight)| weight.spec.dtype == DType::F32) {
            weight.spec.dtype = if halves.contains(name.as_str()) { DType::F16 } else { DType::F32 };
            pass.real.insert(name.clone(), weight.spec.dtype);
        }
        pass
    }

    fn node(&mut self, node: &Node, kept: bool) {
        let mut new = node.clone();
        for (index, input) in new.inputs.iter_mut().enumerate() {
            let wanted = if kept || always_f32(&node.op, index) { DType::F32 } else { DType::F16 };
            *input = self.as_type(input, wanted);
        }
        if !kept {
            narrow(&mut new);
        }
        let is_real = |name: &str| self.from.values.get(name).is_none_or(|spec| spec.dtype == DType::F32);
        let mut wide_outputs = Vec::new();
        for output in &mut new.outputs {
            if output.is_empty() || !is_real(output) {
                continue;
            }
            if kept && self.outputs.contains(output.as_str()) {
                // The caller's name goes to the f16 copy.
                let wide = format!("{output}/f32");
                wide_outputs.push((wide.clone(), std::mem::replace(output, wide)));
            } else {
                self.real.insert(output.clone(), if kept { DType::F32 } else { DType::F16 });
            }
        }
        self.to.nodes.push(new);
        for (wide, name) in wide_outputs {
            self.real.insert(wide.clone(), DType::F32);
            self.real.insert(name.clone(), DType::F16);
            self.casts.insert((name.clone(), DType::F32), wide.clone());
            self.cast(&wide, name, DType::F16);
        }
    }

    /// The value under the name that it has in the wanted type; a cast is inserted when there is none yet.
    fn as_type(&mut self, name: &str, wanted: DType) -> String {
        if self.real.get(name).is_none_or(|is| *is == wanted) {
            return name.to_owned();
        }
        let key = (name.to_owned(), wanted);
        if let Some(cast) = self.casts.get(&key) {
            return cast.clone();
        }
        let cast = format!("{name}/{wanted}");
        self.cast(name, cast.clone(), wanted);
        self.casts.insert(key, cast.clone());
        cast
    }

    fn cast(&mut self, from: &str, to: String, dtype: DType) {
        self.to.nodes.push(Node {
            name: format!("{to}/cast"),
            op: "Cast".to_owned(),
            inputs: vec![from.to_owned()],
            outputs: vec![to],
            attributes: IndexMap::from([("to".to_owned(), Attribute::Int(i64::from(code_of(dtype))))]),
            ..Node::default()
        });
    }

    /// Infers the values' types anew, which also proves that the casts fit.
    fn finish(mut self) -> Graph {
        crate::infer(&mut self.to);
        self.to
    }
}

/// Attributes that carry f32 values or name the type, in f16.
fn narrow(node: &mut Node) {
    let f32_code = i64::from(code_of(DType::F32));
    for (name, value) in &mut node.attributes {
        match value {
            Attribute::Tensor(tensor) if tensor.dtype() == DType::F32 => *tensor = narrowed(tensor, DType::F16),
            Attribute::Int(code) if *code == f32_code && name == if node.op == "Cast" { "to" } else { "dtype" } => {
                *code = i64::from(code_of(DType::F16));
            }
            _ => {}
        }
    }
    match node.op.as_str() {
        "Constant" => {
            if let Ok(tensor) = constant_value(Attributes(&node.attributes)) {
                let is_real = tensor.dtype() == DType::F32;
                let tensor = if is_real { narrowed(&tensor, DType::F16) } else { tensor };
                node.attributes = IndexMap::from([("value".to_owned(), Attribute::Tensor(tensor))]);
            }
        }
        // Without a value it makes zeros in f32.
        "ConstantOfShape" if node.attributes.is_empty() => {
            let zero = Tensor::scalar(f16::ZERO).reshape([1]).expect("one element is one element");
            node.attributes.insert("value".to_owned(), Attribute::Tensor(zero));
        }
        _ => {}
    }
}
