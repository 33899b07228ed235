//! Fragments of models as text, for tests.

use std::collections::HashMap;

use flagperf_onnx::{Attribute, Graph, Node, Tensor, TensorSpec, ValueInfo, infer_values};

/// Reads a fragment: `what it is: x N,4,f32; a = ReduceSum<keepdims=0>(x, [1]); y = Add(a, 2.5)`. Inputs come first, numbers
/// are constants, and the values that no node reads are the outputs.
pub(super) fn parse(text: &str) -> Graph {
    let (name, statements) = text.split_once(':').unwrap();
    let mut graph = Graph { name: name.to_owned(), opset: 18, ..Graph::default() };
    for statement in statements.split(';').map(str::trim) {
        match statement.split_once(" = ") {
            Some((outputs, call)) => add_node(&mut graph, outputs, call),
            None => {
                let (name, spec) = statement.split_once(' ').unwrap();
                graph.inputs.push(ValueInfo { name: name.to_owned(), spec: spec.parse().unwrap() });
            }
        }
    }
    let specs: HashMap<String, TensorSpec> = infer_values(&graph).0.into_iter().collect();
    let made = graph.nodes.iter().filter(|node| node.op != "Constant").flat_map(|node| &node.outputs);
    let unread = made.filter(|output| !graph.nodes.iter().any(|node| node.inputs.contains(output)));
    let info = |name: &String| ValueInfo { name: name.clone(), spec: specs[name].clone() };
    graph.outputs = unread.map(info).collect();
    graph
}

/// Adds the node of `Operator<attribute=value>(a, b)`, and its constants.
fn add_node(graph: &mut Graph, outputs: &str, call: &str) {
    let (head, arguments) = call.strip_suffix(')').unwrap().split_once('(').unwrap();
    let (op, attributes) = head.strip_suffix('>').and_then(|head| head.split_once('<')).unwrap_or((head, ""));
    let attribute = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        let text = Attribute::String(value.to_owned());
        (name.to_owned(), value.parse().map_or(text, Attribute::Int))
    };
    let attributes = attributes.split(',').filter(|text| !text.is_empty()).map(attribute).collect();
    let inputs = split_arguments(arguments).into_iter().map(|argument| match constant(&argument) {
        Some(value) => {
            let attributes = [("value".to_owned(), Attribute::Tensor(value))].into_iter().collect();
            let (op, outputs) = ("Constant".to_owned(), vec![format!("constant {}", graph.nodes.len())]);
            graph.nodes.push(Node { op, outputs: outputs.clone(), attributes, ..Node::default() });
            outputs[0].clone()
        }
        None => argument,
    });
    let inputs = inputs.collect();
    let outputs: Vec<String> = outputs.split(", ").map(str::to_owned).collect();
    let name = format!("node of {}", outputs[0]);
    graph.nodes.push(Node { name, op: op.to_owned(), inputs, outputs, attributes, ..Node::default() });
}

/// Splits at the commas outside lists.
fn split_arguments(text: &str) -> Vec<String> {
    let mut depth = 0;
    let parts = text.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).collect()
}

/// Returns the tensor of a number (`2`, `2.5`) or of a list of integers (`[0, 1]`).
fn constant(text: &str) -> Option<Tensor> {
    if let Some(list) = text.strip_prefix('[') {
        let numbers: Vec<i64> = list.trim_end_matches(']').split(',').map(|x| x.trim().parse().unwrap()).collect();
        return Tensor::from_vec([numbers.len()], numbers).ok();
    }
    let float = || text.parse::<f32>().ok().filter(|_| text.contains('.')).map(Tensor::scalar);
    text.parse::<i64>().ok().map(Tensor::scalar).or_else(float)
}
