//! The graphs of a measurement: the operator, its gradient, the inputs on the device, and a small part of an output.

use flagperf_core::tensor::{DType, Tensor, TensorSpec};
use flagperf_onnx::rewrite::{VendorOperator, expand_operators, extract, remove_unused};
use flagperf_onnx::{
    Attribute, Graph, Node, OPSET, ValueInfo, Weight, WeightRole, WeightSource, differentiate, float8_product_model,
    gradient_operator, infer_shapes,
};
use indexmap::IndexMap;

use super::operators::{Operator, Scale};
use super::sizes::Sizes;

/// The domain of the nodes that stand for operators until they are expanded.
const DOMAIN: &str = "microbenchmark";
/// The output of the operator, and the sum of its elements.
const OUTPUT: &str = "y";
const SUM: &str = "sum";

/// The text of an operator does not fit the standard.
#[derive(Clone, Debug, thiserror::Error)]
#[error("operator `{operator}`: {reason}")]
pub struct GraphFailure {
    operator: String,
    reason: String,
}

impl GraphFailure {
    pub(crate) fn new(operator: &str, reason: impl std::fmt::Display) -> Self {
        GraphFailure { operator: operator.to_owned(), reason: reason.to_string() }
    }
}

/// Who computes gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientBy {
    /// Standard operators, which the host adds to the graph.
    StandardOperators,
    /// The engine: the graph contains the operator `Gradient`.
    Engine,
}

/// A graph, and by what each of its outputs differs from that of one tile.
#[derive(Clone, Debug)]
pub(crate) struct OperatorGraph {
    pub graph: Graph,
    pub scales: Vec<Scale>,
}

/// Returns the graph of an operator in elements of a type; with `gradient`, its outputs are the sum of its elements and the gradient
/// of the sum with respect to the first input.
///
/// # Errors
/// When the standard does not allow the operator in this type.
pub(crate) fn operator_graph(
    operator: &Operator,
    sizes: &Sizes,
    dtype: DType,
    gradient: Option<GradientBy>,
) -> Result<OperatorGraph, GraphFailure> {
    let failed = |reason: String| GraphFailure::new(operator.name, reason);
    if operator.is_fp8_product() {
        let shape = |index: usize| -> Option<[usize; 2]> { sizes.shape(operator.inputs[index].1).try_into().ok() };
        let shapes = shape(0).zip(shape(1)).ok_or_else(|| failed("its inputs are no matrices".to_owned()))?;
        let graph = float8_product_model(shapes.0, shapes.1);
        return Ok(OperatorGraph { graph, scales: vec![operator.scale] });
    }
    // The numbers in the text of an operator are f32, so that the graph is made in f32.
    let drawn_as = if dtype.is_float() { DType::F32 } else { dtype };
    let spec = |(name, shape, elements): &(&str, &str, super::operators::Elements)| {
        let dtype = if *elements == super::operators::Elements::Classes { DType::I64 } else { drawn_as };
        ((*name).to_owned(), TensorSpec::new(sizes.shape(shape), dtype))
    };
    let inputs: IndexMap<String, TensorSpec> = operator.inputs.iter().map(spec).collect();
    let mut definition = VendorOperator::new(DOMAIN, operator.name, vec![dtype]);
    let names: Vec<&str> = inputs.keys().map(String::as_str).collect();
    let node = format!("{OUTPUT} = {DOMAIN}.{}({})", operator.name, names.join(", "));
    definition.add_form(&node, operator.computes, &[]).map_err(failed)?;
    let node = definition.node_graph(&inputs, &IndexMap::new()).map_err(failed)?;
    let graph = expand_operators(&node).map_err(|error| failed(error.to_string()))?;
    let mut graph = Graph { operators: Vec::new(), domains: IndexMap::new(), ..graph };
    if drawn_as != dtype {
        change_type(&mut graph, dtype).map_err(|reason| failed(reason.to_owned()))?;
    }
    match gradient {
        None => Ok(OperatorGraph { graph, scales: vec![operator.scale] }),
        Some(by) => with_gradient(operator, graph, by),
    }
}

/// Gives the f32 inputs and constants of a graph another type, and all that follows from them.
fn change_type(graph: &mut Graph, dtype: DType) -> Result<(), &'static str> {
    let is_changed = |spec: &TensorSpec| spec.dtype == DType::F32;
    graph.inputs.iter_mut().filter(|input| is_changed(&input.spec)).for_each(|input| input.spec.dtype = dtype);
    for weight in graph.weights.values_mut().filter(|weight| is_changed(&weight.spec)) {
        weight.spec.dtype = dtype;
        if let WeightSource::Value(tensor) = &mut weight.source {
            *tensor = tensor.cast(dtype);
        }
    }
    graph.values.clear();
    infer_shapes(graph);
    let specs = graph.specs();
    for output in &mut graph.outputs {
        output.spec = specs.get(&output.name).cloned().ok_or("the type of its output is not known")?;
    }
    Ok(())
}

/// Replaces the output of a graph by the sum of its elements and the gradient of the sum.
fn with_gradient(operator: &Operator, mut graph: Graph, by: GradientBy) -> Result<OperatorGraph, GraphFailure> {
    let failed = |reason: &dyn std::fmt::Display| GraphFailure::new(operator.name, reason);
    let (input, output) = (graph.inputs[0].name.clone(), graph.outputs[0].spec.clone());
    let is_number = output.dims.is_empty();
    let loss = if is_number { OUTPUT } else { SUM };
    if !is_number {
        graph.nodes.push(node("ReduceSum", &[OUTPUT], SUM, [("keepdims", Attribute::Int(0))]));
        graph.values.insert(SUM.to_owned(), TensorSpec { dims: Vec::new(), ..output });
    }
    let differentiated = match by {
        GradientBy::StandardOperators => differentiate(&graph, loss, &[&input]).map_err(|error| failed(&error))?,
        GradientBy::Engine => gradient_operator(&graph, loss, &[&input]),
    };
    let gradient =
        differentiated.gradients.get(&input).ok_or_else(|| failed(&"the output does not depend on its input"))?;
    let inputs: Vec<String> = graph.inputs.iter().map(|input| input.name.clone()).collect();
    let outputs = [loss.to_owned(), gradient.clone()];
    let mut graph = extract(&differentiated.graph, &inputs, &outputs).map_err(|error| failed(&error))?;
    remove_unused(&mut graph);
    let scales = if is_number { vec![Scale::Same, operator.scale] } else { vec![Scale::Tiles, Scale::Same] };
    Ok(OperatorGraph { graph, scales })
}

/// Returns the graph that repeats tensors along their dimensions until they have the shapes of `whole`, multiples of their own.
pub(crate) fn tile_graph(tiles: &[ValueInfo], whole: &[ValueInfo]) -> Graph {
    let mut graph = Graph { name: "tiles".to_owned(), opset: OPSET, ..Graph::default() };
    for (tile, whole) in tiles.iter().zip(whole) {
        let sizes = |info: &ValueInfo| info.spec.fixed_shape().unwrap_or_default();
        let repeats: Vec<i64> = sizes(whole).iter().zip(sizes(tile)).map(|(all, one)| (all / one) as i64).collect();
        let (repeated, input) = (format!("{}.repeats", tile.name), format!("{}.tile", tile.name));
        graph.weights.insert(repeated.clone(), list(repeats));
        graph.inputs.push(ValueInfo { name: input.clone(), spec: tile.spec.clone() });
        graph.outputs.push(whole.clone());
        graph.nodes.push(node("Tile", &[&input, &repeated], &whole.name, []));
    }
    graph
}

/// Returns the graph that takes the first row of each tensor, so that little has to be copied to know that it was computed.
pub(crate) fn first_row_graph(tensors: &[ValueInfo]) -> Graph {
    let mut graph = Graph { name: "first_row".to_owned(), opset: OPSET, ..Graph::default() };
    graph.weights.insert("first".to_owned(), list(vec![0]));
    for tensor in tensors {
        let output = format!("{}.first_row", tensor.name);
        let mut spec = tensor.spec.clone();
        match spec.dims.first_mut() {
            Some(rows) => *rows = 1.into(),
            None => spec.dims = Vec::new(),
        }
        let gather = [("axis", Attribute::Int(0))];
        graph.nodes.push(match tensor.spec.dims.is_empty() {
            false => node("Gather", &[&tensor.name, "first"], &output, gather),
            true => node("Identity", &[&tensor.name], &output, []),
        });
        graph.inputs.push(tensor.clone());
        graph.outputs.push(ValueInfo { name: output, spec });
    }
    graph
}

/// Returns a constant list of integers.
fn list(integers: Vec<i64>) -> Weight {
    let tensor = Tensor::from_vec([integers.len()], integers).expect("the shape is the length of the list");
    Weight { spec: tensor.spec(), role: WeightRole::Constant, source: WeightSource::Value(tensor) }
}

fn node<const N: usize>(op: &str, inputs: &[&str], output: &str, attributes: [(&str, Attribute); N]) -> Node {
    Node {
        name: output.to_owned(),
        op: op.to_owned(),
        inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
        outputs: vec![output.to_owned()],
        attributes: attributes.map(|(name, attribute)| (name.to_owned(), attribute)).into_iter().collect(),
        ..Node::default()
    }
}
