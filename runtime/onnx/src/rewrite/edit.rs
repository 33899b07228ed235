//! Single changes of a graph: removes what nobody reads, renames and inserts, and takes out a part.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::replace::raise_version;
use crate::{Attribute, Graph, Node, ValueInfo, captured_names, check};

/// Why a graph cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The graph cannot have the version of the operator set that the node needs.
    #[error("{0}")]
    OperatorSet(String),
    /// The graph has no value of a name.
    #[error("graph `{graph}` has no value `{name}`{suggestion}")]
    UnknownValue {
        name: String,
        graph: String,
        /// The nearest name, if there is one.
        suggestion: String,
    },
    /// A value has the name already.
    #[error("a value of graph `{graph}` already has the name `{name}`")]
    NameTaken { name: String, graph: String },
    /// A subgraph reads the value, and its bytes keep the name.
    #[error("the value `{name}` cannot be renamed: a subgraph of node `{node}` reads it")]
    Captured { name: String, node: String },
    /// Nodes depend on each other.
    #[error("node `{node}` would depend on itself (through `{value}`)")]
    Cycle { node: String, value: String },
    /// What lies between inputs and outputs also depends on another input of the graph.
    #[error(
        "the part before `{output}` also needs the input `{input}` of graph `{graph}`, which is not among its inputs"
    )]
    MissingInput { output: String, input: String, graph: String },
    /// The shape or type of a value is not known.
    #[error("the shape of `{0}` is not known, so it cannot be an input or output")]
    UnknownShape(String),
}

/// Removes the nodes and weights that no output depends on. Returns the number of removed nodes.
pub fn remove_unused(graph: &mut Graph) -> usize {
    let mut needed: HashSet<String> = graph.outputs.iter().map(|output| output.name.clone()).collect();
    let before = graph.nodes.len();
    let mut kept: Vec<Node> = Vec::with_capacity(before);
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        if node.outputs.iter().any(|output| needed.contains(output)) {
            needed.extend(node.inputs.iter().cloned());
            needed.extend(captured_names(&node, graph.opset));
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
    graph.weights.retain(|name, _| needed.contains(name));
    let defined: HashSet<&String> = graph.nodes.iter().flat_map(|node| &node.outputs).collect();
    graph.values.retain(|name, _| defined.contains(name));
    before - graph.nodes.len()
}

/// Gives a value another name.
///
/// # Errors
/// When there is no such value, the new name is in use, or a subgraph reads the value.
pub fn rename(graph: &mut Graph, old: &str, new: &str) -> Result<(), EditError> {
    check_known(graph, old)?;
    if is_known(graph, new) {
        return Err(EditError::NameTaken { name: new.to_owned(), graph: graph.name.clone() });
    }
    let reads = |node: &&Node| captured_names(node, graph.opset).contains(old);
    if let Some(node) = graph.nodes.iter().find(reads) {
        return Err(EditError::Captured { name: old.to_owned(), node: node.name.clone() });
    }
    let names = graph.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
    let declared = graph.inputs.iter_mut().chain(&mut graph.outputs).map(|value| &mut value.name);
    names.chain(declared).filter(|name| *name == old).for_each(|name| new.clone_into(name));
    if let Some(spec) = graph.values.shift_remove(old) {
        graph.values.insert(new.to_owned(), spec);
    }
    if let Some(place) = graph.weights.get_index_of(old) {
        let (_, weight) = graph.weights.shift_remove_index(place).expect("the place was just found");
        graph.weights.shift_insert(place, new.to_owned(), weight);
    }
    Ok(())
}

/// Inserts a node behind a value: whatever read the value, outputs of the graph excepted, reads the node's output instead.
/// `others` are the further inputs of the node. Returns the name of the output.
///
/// # Errors
/// When there is no such value, or one of the other inputs depends on the value.
pub fn insert(
    graph: &mut Graph,
    value: &str,
    op: &str,
    others: &[String],
    attributes: IndexMap<String, Attribute>,
) -> Result<String, EditError> {
    std::iter::once(value).chain(others.iter().map(String::as_str)).try_for_each(|name| check_known(graph, name))?;
    let output = crate::operator_set::unused_name(graph, &format!("{value}.{}", op.to_lowercase()));
    for input in graph.nodes.iter_mut().flat_map(|node| &mut node.inputs).filter(|input| *input == value) {
        input.clone_from(&output);
    }
    let (domain, op) = op.rsplit_once('.').unwrap_or(("", op));
    let node = Node {
        name: output.clone(),
        op: op.to_owned(),
        domain: domain.to_owned(),
        inputs: std::iter::once(value.to_owned()).chain(others.iter().cloned()).collect(),
        outputs: vec![output.clone()],
        attributes,
    };
    graph.nodes.push(node);
    sort(graph)?;
    raise_version(graph).map_err(EditError::OperatorSet)?;
    check::infer_shapes(graph);
    Ok(output)
}

/// Puts the nodes in an order in which each value is defined before it is read, and changes the order as little as possible.
///
/// # Errors
/// When nodes depend on each other.
pub(super) fn sort(graph: &mut Graph) -> Result<(), EditError> {
    let producers: HashMap<&str, usize> = (graph.nodes.iter().enumerate())
        .flat_map(|(number, node)| node.outputs.iter().map(move |output| (output.as_str(), number)))
        .filter(|(output, _)| !output.is_empty())
        .collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut missing = vec![0usize; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        let captured = captured_names(node, graph.opset);
        let read = node.inputs.iter().chain(&captured).filter_map(|name| producers.get(name.as_str()));
        for producer in read {
            readers[*producer].push(number);
            missing[number] += 1;
        }
    }
    let mut ready: std::collections::BTreeSet<usize> =
        missing.iter().enumerate().filter(|(_, count)| **count == 0).map(|(number, _)| number).collect();
    let mut order = Vec::with_capacity(graph.nodes.len());
    while let Some(number) = ready.pop_first() {
        order.push(number);
        for reader in &readers[number] {
            missing[*reader] -= 1;
            if missing[*reader] == 0 {
                ready.insert(*reader);
            }
        }
    }
    if let Some(number) = missing.iter().position(|count| *count > 0) {
        let node = &graph.nodes[number];
        let is_late = |name: &&String| producers.get(name.as_str()).is_some_and(|producer| missing[*producer] > 0);
        let value = node.inputs.iter().find(is_late).cloned().unwrap_or_default();
        return Err(EditError::Cycle { node: node.name.clone(), value });
    }
    let mut nodes: Vec<Option<Node>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
    graph.nodes = order.into_iter().filter_map(|number| nodes[number].take()).collect();
    Ok(())
}

/// Returns the part of a graph between named values: the nodes that compute `outputs` from `inputs`.
///
/// # Errors
/// When there is no such value, the shape of one is not known, or the part also depends on another input of the graph.
pub fn extract(graph: &Graph, inputs: &[String], outputs: &[String]) -> Result<Graph, EditError> {
    inputs.iter().chain(outputs).try_for_each(|name| check_known(graph, name))?;
    let specs = graph.specs();
    let info = |name: &String| {
        let spec = specs.get(name).cloned().ok_or_else(|| EditError::UnknownShape(name.clone()))?;
        Ok(ValueInfo { name: name.clone(), spec })
    };
    let mut part = Graph {
        inputs: inputs.iter().map(info).collect::<Result<_, _>>()?,
        outputs: outputs.iter().map(info).collect::<Result<_, _>>()?,
        ..graph.clone()
    };
    for node in &mut part.nodes {
        for output in node.outputs.iter_mut().filter(|output| inputs.contains(output)) {
            *output = String::new();
        }
    }
    part.nodes.retain(|node| node.outputs.iter().any(|output| !output.is_empty()));
    inputs.iter().for_each(|name| drop(part.weights.shift_remove(name)));
    remove_unused(&mut part);
    let missing = graph.inputs.iter().find(|input| {
        !inputs.contains(&input.name)
            && (outputs.contains(&input.name)
                || part.nodes.iter().any(|node| {
                    node.inputs.contains(&input.name) || captured_names(node, graph.opset).contains(&input.name)
                }))
    });
    match missing {
        Some(input) => Err(EditError::MissingInput {
            output: outputs.first().cloned().unwrap_or_default(),
            input: input.name.clone(),
            graph: graph.name.clone(),
        }),
        None => Ok(part),
    }
}

fn is_known(graph: &Graph, name: &str) -> bool {
    graph.weights.contains_key(name)
        || graph.inputs.iter().any(|input| input.name == name)
        || graph.nodes.iter().any(|node| node.outputs.iter().any(|output| output == name))
}

fn check_known(graph: &Graph, name: &str) -> Result<(), EditError> {
    if !name.is_empty() && is_known(graph, name) {
        return Ok(());
    }
    let outputs = graph.nodes.iter().flat_map(|node| &node.outputs).map(String::as_str);
    let names = outputs.chain(graph.weights.keys().map(String::as_str));
    let names = names.chain(graph.inputs.iter().map(|input| input.name.as_str())).filter(|name| !name.is_empty());
    let nearest = flagperf_core::suggestion::nearest(name, names);
    let suggestion = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
    Err(EditError::UnknownValue { name: name.to_owned(), graph: graph.name.clone(), suggestion })
}
