//! Numbers for the values of several graphs: values with the same number are the same, because the same operators compute them
//! from the same values.

use std::collections::HashMap;

use super::call::{describe_attributes, is_random};
use super::defaults::is_default;
use super::index::has_axes_input;
use crate::{Attribute, Graph, Node, Tensor, Weight, WeightError, WeightReader, WeightSource, captured_names};
use flagperf_core::hash::hash_bytes;

/// The numbers of everything that was seen so far, in any graph.
#[derive(Default)]
pub struct Numbering {
    numbers: HashMap<String, usize>,
}

/// The values of a graph with their numbers, and its nodes: nodes with the same number compute the same.
#[derive(Default)]
pub struct Numbered<'g> {
    pub values: HashMap<&'g str, usize>,
    pub nodes: Vec<usize>,
}

/// What the weights of a graph contain, by their names: equal texts mean equal elements, shapes and types.
pub type Contents = HashMap<String, String>;

impl Numbering {
    /// Returns the number of what a text describes.
    fn number(&mut self, text: String) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(text).or_insert(next)
    }

    /// Returns the number of a weight or a constant.
    pub fn of_contents(&mut self, contents: &str) -> usize {
        self.number(format!("weight {contents}"))
    }

    /// Starts the numbers of a graph with its inputs and weights. Inputs with the same name are the same.
    pub fn start<'g>(&mut self, graph: &'g Graph, contents: &Contents) -> Numbered<'g> {
        let mut numbered = Numbered { values: HashMap::new(), nodes: Vec::with_capacity(graph.nodes.len()) };
        for name in graph.weights.keys() {
            let number = match contents.get(name) {
                Some(contents) => self.of_contents(contents),
                None => self.number(format!("weight {name}")),
            };
            numbered.values.insert(name, number);
        }
        for input in &graph.inputs {
            numbered.values.insert(&input.name, self.number(format!("input {}", input.name)));
        }
        numbered
    }

    /// Numbers the next node of a graph and its outputs.
    pub fn add_node<'g>(&mut self, graph: &'g Graph, node: &'g Node, numbered: &mut Numbered<'g>) {
        if let Some(tensor) = constant_of(node) {
            let number = self.of_contents(&tensor_contents(&tensor));
            numbered.nodes.push(number);
            numbered.values.insert(&node.outputs[0], number);
            return;
        }
        let text = self.describe(graph, node, &numbered.values);
        let number = self.number(text);
        numbered.nodes.push(number);
        for (place, output) in node.outputs.iter().enumerate().filter(|(_, output)| !output.is_empty()) {
            numbered.values.insert(output, self.number(format!("output {place} of {number}")));
        }
    }

    /// Numbers all nodes of a graph.
    pub fn add_graph<'g>(&mut self, graph: &'g Graph, contents: &Contents) -> Numbered<'g> {
        let mut numbered = self.start(graph, contents);
        graph.nodes.iter().for_each(|node| self.add_node(graph, node, &mut numbered));
        numbered
    }

    /// Describes what a node computes. Attributes that state a default, the order of the operands of commutative operators
    /// and omitted inputs at the end do not count.
    fn describe(&mut self, graph: &Graph, node: &Node, values: &HashMap<&str, usize>) -> String {
        let mut number = |name: &str| match values.get(name) {
            Some(number) => *number,
            None => self.number(format!("undefined {name}")),
        };
        let (mut axes, mut names) = (None, &node.inputs[..]);
        if let (true, [data, input]) = (has_axes_input(node), names)
            && let Some(tensor) = graph.weights.get(input).and_then(Weight::tensor)
        {
            axes = Some(Attribute::Ints(tensor.to_f64().into_iter().map(|axis| axis as i64).collect()));
            names = std::slice::from_ref(data);
        }
        while let [rest @ .., last] = names
            && last.is_empty()
        {
            names = rest;
        }
        let mut inputs: Vec<Option<usize>> =
            names.iter().map(|name| (!name.is_empty()).then(|| number(name))).collect();
        if is_commutative(node) {
            inputs.sort_unstable();
        }
        let is_stated =
            |name: &str, value: &Attribute| !(node.domain.is_empty() && is_default(&node.op, name, value, graph.opset));
        let stated = node.attributes.iter().map(|(name, value)| (name.as_str(), value));
        let stated = stated.chain(axes.iter().map(|value| ("axes", value)));
        let attributes = describe_attributes(stated.filter(|(name, value)| is_stated(name, value)));
        let mut captured: Vec<(String, usize)> =
            captured_names(node, graph.opset).into_iter().map(|name| (name.clone(), number(&name))).collect();
        captured.sort_unstable();
        // The sizes of equal parts depend on their number.
        let parts = if node.op == "Split" { node.outputs.len() } else { 0 };
        // Two nodes that draw numbers draw different ones.
        let drawn = if node.domain.is_empty() && is_random(node) { &node.outputs[..] } else { &[] };
        format!("{}.{} {attributes:?} {inputs:?} {captured:?} {parts} {drawn:?}", node.domain, node.op)
    }
}

/// Returns whether the order of a node's operands has no meaning.
fn is_commutative(node: &Node) -> bool {
    let op = node.op.as_str();
    node.domain.is_empty() && (super::find::is_commutative(op) || matches!(op, "Sum" | "Mean"))
}

/// Returns the tensor of a node that is a constant of the graph.
pub fn constant_of(node: &Node) -> Option<Tensor> {
    (node.op == "Constant" && node.domain.is_empty() && node.outputs.len() == 1).then(|| node.constant()).flatten()
}

/// Describes what the weights of a graph contain. Those in files are read only with `reads`; otherwise their places in the
/// files count.
///
/// # Errors
/// When a weight cannot be read.
pub fn weight_contents(graph: &Graph, reads: bool) -> Result<Contents, WeightError> {
    let mut reader = WeightReader::new(graph);
    let mut contents = Contents::with_capacity(graph.weights.len());
    for (name, weight) in &graph.weights {
        let text = match &weight.source {
            WeightSource::Value(tensor) => tensor_contents(tensor),
            _ if reads => tensor_contents(&reader.tensor(name)?),
            _ => format!("{} {}", weight.spec, source_contents(name, &weight.source)),
        };
        contents.insert(name.clone(), text);
    }
    Ok(contents)
}

fn tensor_contents(tensor: &Tensor) -> String {
    format!("{} {}", tensor.spec(), hash_bytes(tensor.bytes()))
}

fn source_contents(name: &str, source: &WeightSource) -> String {
    match source {
        WeightSource::Value(tensor) => tensor_contents(tensor),
        // Random values depend on the name.
        WeightSource::Seed { .. } => format!("{name} {source:?}"),
        WeightSource::File { .. } | WeightSource::External { .. } => format!("{source:?}"),
        WeightSource::Int8 { name, of, part } => {
            format!("{part:?} of {} {}", of.spec, source_contents(name, &of.source))
        }
    }
}
