//! Appends the nodes of a decomposition to a graph.

use std::collections::HashMap;

use indexmap::IndexMap;

use crate::operator_set::unused_name;
use crate::{Attribute, DType, Graph, Node, Tensor, TensorSpec, Weight};

/// The nodes that replace one node, or are added for one. Their names begin with its name.
pub struct NodeList<'a> {
    graph: &'a mut Graph,
    specs: &'a HashMap<String, TensorSpec>,
    prefix: String,
    count: usize,
}

impl<'a> NodeList<'a> {
    /// Continues a list with the same prefix, which added `count` names.
    pub(super) fn new(
        graph: &'a mut Graph,
        specs: &'a HashMap<String, TensorSpec>,
        prefix: &str,
        count: usize,
    ) -> Self {
        NodeList { graph, specs, prefix: prefix.to_owned(), count }
    }

    /// Returns how many names the lists with this prefix have added.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the version of the operator set for which the replaced node was written.
    pub fn opset(&self) -> i64 {
        self.graph.opset
    }

    /// Returns the specification of an input of the replaced node.
    pub fn spec(&self, value: &str) -> Result<&'a TensorSpec, String> {
        self.specs.get(value).ok_or_else(|| format!("the shape of `{value}` is not known"))
    }

    /// Returns a size of an input of the replaced node, counted from the front.
    pub fn size(&self, value: &str, axis: usize) -> Result<usize, String> {
        let size = self.spec(value)?.dims.get(axis).and_then(crate::Dim::fixed);
        size.ok_or_else(|| format!("dimension {axis} of `{value}` is not known"))
    }

    /// Returns the values of a constant; `None` if the value is computed or read from a file.
    pub fn known(&self, value: &str) -> Option<&Tensor> {
        self.graph.weights.get(value)?.tensor()
    }

    /// Returns a name that no value has. The count makes it different from all names that this list returned before.
    pub fn name(&mut self, op: &str) -> String {
        self.count += 1;
        unused_name(self.graph, &format!("{}.{}_{}", self.prefix, op.to_lowercase(), self.count))
    }

    /// Adds a constant and returns its name.
    pub fn constant(&mut self, tensor: Tensor) -> String {
        let name = self.name("constant");
        self.graph.weights.insert(name.clone(), Weight::constant(tensor));
        name
    }

    /// Adds a number of an element type.
    pub fn number(&mut self, number: f64, dtype: DType) -> String {
        self.constant(Tensor::scalar(number).cast(dtype))
    }

    /// Adds a list of integers.
    pub fn ints(&mut self, values: &[i64]) -> String {
        self.constant(Tensor::from_vec([values.len()], values.to_vec()).expect("the shape is the length of the list"))
    }

    /// Adds a node and returns the name of its output.
    pub fn add(&mut self, op: &str, inputs: &[&str]) -> String {
        self.add_with(op, inputs, [])
    }

    /// Adds a node with attributes and returns the name of its output.
    pub fn add_with<const N: usize>(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: [(&str, Attribute); N],
    ) -> String {
        let name = self.name(op);
        self.push(op, inputs, &name, attributes.map(|(key, value)| (key.to_owned(), value)).into_iter().collect());
        name
    }

    /// Adds a node that defines an output of the replaced node.
    pub fn define(&mut self, op: &str, inputs: &[&str], output: &str) {
        self.push(op, inputs, output, IndexMap::new());
    }

    /// Adds a node with the attributes of another and returns the name of its output.
    pub fn add_from(&mut self, op: &str, inputs: &[&str], attributes: IndexMap<String, Attribute>) -> String {
        let name = self.name(op);
        self.push(op, inputs, &name, attributes);
        name
    }

    /// Adds a node with attributes that defines an output of the replaced node.
    pub fn define_with<const N: usize>(
        &mut self,
        op: &str,
        inputs: &[&str],
        output: &str,
        attributes: [(&str, Attribute); N],
    ) {
        self.push(op, inputs, output, attributes.map(|(key, value)| (key.to_owned(), value)).into_iter().collect());
    }

    /// Adds a conversion to another element type that defines an output of the replaced node.
    pub fn define_cast(&mut self, x: &str, dtype: DType, output: &str) {
        let code = i64::from(crate::file::onnx_code(dtype));
        self.define_with("Cast", &[x], output, [("to", Attribute::Int(code))]);
    }

    /// Defines an output of the replaced node by a value in the type that [`NodeList::widen`] gives to `dtype`.
    pub fn define_as(&mut self, x: &str, dtype: DType, output: &str) {
        match dtype {
            DType::F16 | DType::BF16 => self.define_cast(x, dtype, output),
            _ => self.define("Identity", &[x], output),
        }
    }

    /// Adds a list of numbers of an element type.
    pub fn numbers(&mut self, numbers: &[f64], dtype: DType) -> String {
        let list = Tensor::from_vec([numbers.len()], numbers.to_vec());
        self.constant(list.expect("the shape is the length of the list").cast(dtype))
    }

    /// Returns the name of an output of a node of the graph, which is added if the node does not have it yet.
    pub fn output_of(&mut self, node: &Node, i: usize) -> String {
        if let Some(name) = output(node, i) {
            return name.to_owned();
        }
        let first = &node.outputs[0];
        let mut nodes = self.graph.nodes.iter_mut();
        let own = nodes.find(|own| own.outputs.first() == Some(first)).expect("the node is part of the graph");
        own.outputs.resize(own.outputs.len().max(i + 1), String::new());
        if own.outputs[i].is_empty() {
            own.outputs[i] = format!("{first}:{i}");
        }
        own.outputs[i].clone()
    }

    /// Adds a node as it is.
    pub fn keep(&mut self, node: Node) {
        self.graph.nodes.push(node);
    }

    fn push(&mut self, op: &str, inputs: &[&str], output: &str, attributes: IndexMap<String, Attribute>) {
        self.graph.nodes.push(Node {
            name: output.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(|name| (*name).to_owned()).collect(),
            outputs: vec![output.to_owned()],
            attributes,
            ..Node::default()
        });
    }

    /// Adds a conversion to another element type.
    pub fn cast(&mut self, x: &str, dtype: DType) -> String {
        self.add_with("Cast", &[x], [("to", Attribute::Int(i64::from(crate::file::onnx_code(dtype))))])
    }

    /// Adds a conversion of 16-bit floats to f32; other types stay.
    pub fn widen(&mut self, x: &str, dtype: DType) -> String {
        if matches!(dtype, DType::F16 | DType::BF16) { self.cast(x, DType::F32) } else { x.to_owned() }
    }

    /// Adds a reduction of the given axes, which remain with size 1.
    pub fn reduce(&mut self, op: &str, x: &str, axes: &[i64]) -> String {
        self.add_with(op, &[x], [("axes", Attribute::Ints(axes.to_vec()))])
    }

    /// Adds a permutation of the dimensions.
    pub fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.add_with("Transpose", &[x], [("perm", Attribute::Ints(order.to_vec()))])
    }

    /// Adds a Reshape: 0 keeps a size, -1 is the size that remains.
    pub fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.ints(shape);
        self.add("Reshape", &[x, &shape])
    }

    /// Adds new dimensions of size 1.
    pub fn unsqueeze(&mut self, x: &str, axes: &[i64]) -> String {
        let axes = self.ints(axes);
        self.add("Unsqueeze", &[x, &axes])
    }

    /// Adds a slice along an axis.
    pub fn slice(&mut self, x: &str, axis: i64, [start, end, step]: [i64; 3]) -> String {
        let [start, end, axis, step] = [start, end, axis, step].map(|value| self.ints(&[value]));
        self.add("Slice", &[x, &start, &end, &axis, &step])
    }

    /// Adds a product with a number.
    pub fn scale(&mut self, x: &str, factor: f64, dtype: DType) -> String {
        let factor = self.number(factor, dtype);
        self.add("Mul", &[x, &factor])
    }
}

/// Reads the attributes of the replaced node.
pub(crate) fn int(node: &Node, name: &str) -> Option<i64> {
    match node.attributes.get(name) {
        Some(Attribute::Int(value)) => Some(*value),
        _ => None,
    }
}

/// Reads a number.
pub(crate) fn float(node: &Node, name: &str, default: f64) -> f64 {
    match node.attributes.get(name) {
        Some(Attribute::Float(value)) => f64::from(*value),
        _ => default,
    }
}

/// Returns the name of an input; `None` if it is omitted.
pub(super) fn input(node: &Node, i: usize) -> Option<&str> {
    node.inputs.get(i).map(String::as_str).filter(|name| !name.is_empty())
}

/// Returns the name of an input.
pub(crate) fn required(node: &Node, i: usize) -> Result<&str, String> {
    input(node, i).ok_or_else(|| format!("input {i} is missing"))
}

/// Returns the name of an output; `None` if it is not read.
pub(super) fn output(node: &Node, i: usize) -> Option<&str> {
    node.outputs.get(i).map(String::as_str).filter(|name| !name.is_empty())
}
