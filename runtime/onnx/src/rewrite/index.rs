//! A graph with the node that defines each value, and the nodes that read it.

use std::collections::HashMap;

use super::defaults::default_attribute;
use crate::{Attribute, DType, Graph, Node, Tensor, TensorSpec, captured_names, check, find_operator};

/// The number of a value in a [`GraphIndex`].
pub(super) type Value = usize;

/// A graph with its values numbered.
pub(super) struct GraphIndex<'g> {
    pub graph: &'g Graph,
    names: Vec<&'g str>,
    numbers: HashMap<&'g str, Value>,
    /// For each value, the node that defines it and which of its outputs it is.
    producers: Vec<Option<(usize, usize)>>,
    /// For each value, the nodes that read it, among them those whose subgraphs do.
    readers: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    specs: HashMap<String, TensorSpec>,
}

impl<'g> GraphIndex<'g> {
    pub fn new(graph: &'g Graph) -> Self {
        let mut index = GraphIndex {
            graph,
            names: Vec::new(),
            numbers: HashMap::new(),
            producers: Vec::new(),
            readers: Vec::new(),
            is_output: Vec::new(),
            specs: graph.specs(),
        };
        for name in graph.inputs.iter().map(|input| &input.name).chain(graph.weights.keys()) {
            index.add(name);
        }
        for (number, node) in graph.nodes.iter().enumerate() {
            for (place, output) in node.outputs.iter().enumerate().filter(|(_, output)| !output.is_empty()) {
                let value = index.add(output);
                index.producers[value] = Some((number, place));
            }
        }
        for (number, node) in graph.nodes.iter().enumerate() {
            for input in node.inputs.iter().filter(|input| !input.is_empty()) {
                let value = index.add(input);
                if index.readers[value].last() != Some(&number) {
                    index.readers[value].push(number);
                }
            }
            for name in captured_names(node, graph.opset) {
                if let Some(value) = index.value(&name) {
                    index.readers[value].push(number);
                }
            }
        }
        for output in &graph.outputs {
            let value = index.add(&output.name);
            index.is_output[value] = true;
        }
        index
    }

    fn add(&mut self, name: &'g str) -> Value {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        self.names.push(name);
        self.producers.push(None);
        self.readers.push(Vec::new());
        self.is_output.push(false);
        self.numbers.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }

    /// Returns the number of a value.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, value: Value) -> &'g str {
        self.names[value]
    }

    /// Returns the node that defines a value, and which of its outputs the value is.
    pub fn producer(&self, value: Value) -> Option<(usize, usize)> {
        self.producers[value]
    }

    /// Returns the nodes that read a value.
    pub fn readers(&self, value: Value) -> &[usize] {
        &self.readers[value]
    }

    pub fn is_output(&self, value: Value) -> bool {
        self.is_output[value]
    }

    pub fn node(&self, number: usize) -> &'g Node {
        &self.graph.nodes[number]
    }

    /// Returns the shape and type of a value, if they are known.
    pub fn spec(&self, value: Value) -> Option<&TensorSpec> {
        self.specs.get(self.names[value])
    }

    pub fn dtype(&self, value: Value) -> Option<DType> {
        self.spec(value).map(|spec| spec.dtype)
    }

    /// Returns whether a value is a weight or a constant.
    pub fn is_constant(&self, value: Value) -> bool {
        self.graph.weights.contains_key(self.names[value])
    }

    /// Returns a constant that is part of the graph itself.
    pub fn constant(&self, value: Value) -> Option<&'g Tensor> {
        self.graph.weights.get(self.names[value])?.tensor()
    }

    /// Returns the number that every element of a constant has.
    pub fn number(&self, value: Value) -> Option<f64> {
        let tensor = self.constant(value).filter(|tensor| (1..=NUMBER_ELEMENTS_MAX).contains(&tensor.len()))?;
        let values = tensor.to_f64();
        values.iter().all(|value| value == &values[0]).then(|| values[0])
    }

    /// Returns whether two constants have the same shape and type, and the same number in every element.
    pub fn is_same_number(&self, a: Value, b: Value) -> bool {
        let number = self.number(a);
        number.is_some() && number == self.number(b) && self.spec(a) == self.spec(b)
    }

    /// Returns an attribute of a node: as it is, as the default of the standard, or the axes that newer operators read as
    /// input 1.
    pub fn attribute(&self, node: &Node, name: &str) -> Option<Attribute> {
        let own = node.attributes.get(name).cloned();
        own.or_else(|| self.axes(node, name)).or_else(|| default_attribute(&node.op, name, self.graph.opset))
    }

    fn axes(&self, node: &Node, name: &str) -> Option<Attribute> {
        let axes = node.inputs.get(1).filter(|_| name == "axes" && has_axes_input(node))?;
        let values = self.constant(self.value(axes)?)?.to_f64();
        Some(Attribute::Ints(values.into_iter().map(|axis| axis as i64).collect()))
    }
}

/// The most elements of a constant that stands for a number.
const NUMBER_ELEMENTS_MAX: usize = 1 << 16;

/// Returns whether input 1 of a node is the axes that older operators have as an attribute.
pub(super) fn has_axes_input(node: &Node) -> bool {
    node.domain.is_empty() && find_operator(&node.op).is_some_and(|operator| operator.axes_input_since.is_some())
}

/// Returns the graph in the form in which patterns are matched: of an operator set in which bounds are inputs, with the
/// constants of `Constant` nodes as weights, and with the shape and type of every value that can be inferred.
///
/// # Errors
/// When a node of an older operator set has no newer form.
pub fn prepare(graph: &Graph) -> Result<Graph, crate::LowerError> {
    let mut graph = crate::upgrade(graph)?;
    let nodes = std::mem::take(&mut graph.nodes);
    let outputs: std::collections::HashSet<String> = graph.outputs.iter().map(|output| output.name.clone()).collect();
    for node in nodes {
        let constant = (node.op == "Constant" && node.domain.is_empty()).then(|| node.constant()).flatten();
        match (constant, node.outputs.first()) {
            (Some(tensor), Some(name)) if !outputs.contains(name) => {
                super::fold::add_constant(&mut graph, name, tensor)
            }
            _ => graph.nodes.push(node),
        }
    }
    check::infer_shapes(&mut graph);
    Ok(graph)
}
