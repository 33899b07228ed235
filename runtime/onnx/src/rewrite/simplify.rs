//! Removes nodes that change nothing, and computes the same thing only once.

use std::collections::{HashMap, HashSet};

use super::call::{describe_call, has_subgraph, is_random};
use super::edit::remove_unused;
use super::fold::{known_integers, replace_by_constants};
use super::index::prepare;
use crate::{Attribute, Dim, Graph, LowerError, Node, Tensor, TensorSpec, Weight, captured_names, check};

/// How many nodes of each kind were removed or replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simplified {
    /// Nodes before and after.
    pub nodes: [usize; 2],
    /// Values that are known from shapes alone.
    pub shapes: usize,
    /// Nodes that return their input.
    pub identities: usize,
    /// Nodes that compute what another one computes.
    pub duplicates: usize,
}

/// Simplifies a graph until nothing changes: sizes that are known from shapes become constants; nodes that return their
/// input, and those that repeat another one, are removed with what nobody reads. Constants that need arithmetic are not
/// computed.
///
/// # Errors
/// When a node of an older operator set has no newer form.
pub fn simplify(graph: &Graph) -> Result<(Graph, Simplified), LowerError> {
    let mut simplified = prepare(graph)?;
    let mut facts = Simplified { nodes: [graph.nodes.len(), 0], ..Simplified::default() };
    loop {
        let known = known_integers(&simplified);
        let shapes = known.len();
        replace_by_constants(&mut simplified, known);
        set_reshapes(&mut simplified);
        set_types(&mut simplified);
        let aliases = identities(&simplified);
        let identities = redirect(&mut simplified, &aliases);
        let aliases = duplicates(&simplified);
        let duplicates = redirect(&mut simplified, &aliases);
        remove_unused(&mut simplified);
        facts.shapes += shapes;
        facts.identities += identities;
        facts.duplicates += duplicates;
        if shapes + identities + duplicates == 0 {
            break;
        }
        check::infer_shapes(&mut simplified);
    }
    check::infer_shapes(&mut simplified);
    facts.nodes[1] = simplified.nodes.len();
    Ok((simplified, facts))
}

/// A value, and the one that has the same elements.
type Aliases = HashMap<String, String>;

/// Lets everything that reads a value read its alias. Outputs of the graph and what subgraphs read keep their names.
/// Returns the number of values that nobody reads any more.
fn redirect(graph: &mut Graph, aliases: &Aliases) -> usize {
    if aliases.is_empty() {
        return 0;
    }
    let resolve = |name: &String| {
        let mut last = name;
        while let Some(next) = aliases.get(last) {
            last = next;
        }
        last.clone()
    };
    for input in graph.nodes.iter_mut().flat_map(|node| &mut node.inputs).filter(|input| aliases.contains_key(*input)) {
        *input = resolve(input);
    }
    graph.nodes.retain(|node| !node.outputs.iter().all(|output| aliases.contains_key(output)));
    aliases.len()
}

/// Returns the values that may not get another name.
fn fixed_names(graph: &Graph) -> HashSet<String> {
    let captured = graph.nodes.iter().flat_map(|node| captured_names(node, graph.opset));
    graph.outputs.iter().map(|output| output.name.clone()).chain(captured).collect()
}

fn identities(graph: &Graph) -> Aliases {
    let (fixed, specs) = (fixed_names(graph), graph.specs());
    let mut aliases = Aliases::new();
    for node in graph.nodes.iter().filter(|node| node.domain.is_empty() && node.outputs.len() == 1) {
        let [output] = &node.outputs[..] else { continue };
        let Some(input) = node.inputs.first().filter(|input| !input.is_empty() && !fixed.contains(output)) else {
            continue;
        };
        if returns_its_input(graph, node, specs.get(input), specs.get(output)) {
            // A chain of them has one source.
            let source = aliases.get(input).unwrap_or(input).clone();
            aliases.insert(output.clone(), source);
        }
    }
    aliases
}

fn returns_its_input(graph: &Graph, node: &Node, input: Option<&TensorSpec>, output: Option<&TensorSpec>) -> bool {
    let same = |known: fn(&Dim) -> bool| {
        input.zip(output).is_some_and(|(input, output)| input == output && input.dims.iter().all(known))
    };
    let is_fixed = |dim: &Dim| dim.fixed().is_some();
    match node.op.as_str() {
        "Identity" => true,
        "Dropout" => node.inputs.get(2).is_none_or(String::is_empty),
        "Cast" => input.zip(output).is_some_and(|(input, output)| input.dtype == output.dtype),
        // Sizes of the same name are the same.
        "Reshape" | "Expand" | "Flatten" | "Squeeze" | "Unsqueeze" | "Tile" => same(|dim| *dim != Dim::Unknown),
        "Slice" | "Pad" => same(is_fixed) && !reverses(graph, node),
        "Transpose" => {
            let order = node.attributes.get("perm");
            matches!(order, Some(Attribute::Ints(order)) if order.iter().copied().eq(0..order.len() as i64))
        }
        "Concat" | "Sum" | "Max" | "Min" | "Mean" => node.inputs.len() == 1,
        _ => false,
    }
}

/// Returns whether a slice or a padding may move elements although its output has the size of its input.
fn reverses(graph: &Graph, node: &Node) -> bool {
    let place = if node.op == "Slice" { 4 } else { 1 };
    let Some(name) = node.inputs.get(place).filter(|name| !name.is_empty()) else { return node.op == "Pad" };
    let harmless = |value: f64| if node.op == "Slice" { value == 1.0 } else { value == 0.0 };
    let values = graph.weights.get(name).and_then(Weight::tensor);
    values.is_none_or(|values| !values.to_f64().into_iter().all(harmless))
}

/// Returns the nodes that compute what an earlier one computes.
fn duplicates(graph: &Graph) -> Aliases {
    let fixed = fixed_names(graph);
    let mut known: HashMap<String, &Node> = HashMap::new();
    let mut aliases = Aliases::new();
    for node in graph.nodes.iter().filter(|node| can_be_shared(node)) {
        let inputs: Vec<&String> = node.inputs.iter().map(|name| aliases.get(name).unwrap_or(name)).collect();
        let key = format!("{} {inputs:?} {}", describe_call(node), node.outputs.len());
        match known.get(key.as_str()) {
            Some(first) if node.outputs.iter().all(|output| !fixed.contains(output)) => {
                let pairs =
                    node.outputs.iter().zip(&first.outputs).filter(|(own, first)| !own.is_empty() && !first.is_empty());
                aliases.extend(pairs.map(|(own, first)| (own.clone(), first.clone())));
            }
            Some(_) => {}
            None => drop(known.insert(key, node)),
        }
    }
    aliases
}

fn can_be_shared(node: &Node) -> bool {
    node.domain.is_empty() && !is_random(node) && !has_subgraph(node)
}

/// Gives reshapes constant sizes where all but one are known: the one is -1.
fn set_reshapes(graph: &mut Graph) {
    let specs = graph.specs();
    let mut constants = Vec::new();
    for node in &graph.nodes {
        let is_computed =
            node.op == "Reshape" && node.inputs.get(1).is_some_and(|name| !graph.weights.contains_key(name));
        let Some(spec) = specs.get(&node.outputs[0]).filter(|_| is_computed && node.domain.is_empty()) else {
            continue;
        };
        let unknown = spec.dims.iter().filter(|dim| dim.fixed().is_none()).count();
        let is_empty = spec.dims.iter().any(|dim| dim.fixed() == Some(0));
        if unknown == 1 && !is_empty {
            let sizes: Vec<i64> = spec.dims.iter().map(|dim| dim.fixed().map_or(-1, |size| size as i64)).collect();
            constants.push((node.outputs[0].clone(), sizes));
        }
    }
    for (output, sizes) in constants {
        let name = crate::operator_set::unused_name(graph, &format!("{output}.sizes"));
        let tensor = Tensor::from_vec([sizes.len()], sizes).expect("the shape is the length of the list");
        super::fold::add_constant(graph, &name, tensor);
        let node = graph.nodes.iter_mut().find(|node| node.outputs.first() == Some(&output));
        if let Some(node) = node {
            node.inputs[1] = name;
        }
    }
}

/// Gives conversions to the type of another value that type itself.
fn set_types(graph: &mut Graph) {
    let specs = graph.specs();
    for node in graph.nodes.iter_mut().filter(|node| node.op == "CastLike" && node.domain.is_empty()) {
        let Some(spec) = node.inputs.get(1).and_then(|name| specs.get(name)) else { continue };
        node.op = "Cast".to_owned();
        node.inputs.truncate(1);
        node.attributes.insert("to".to_owned(), Attribute::Int(i64::from(crate::file::onnx_code(spec.dtype))));
    }
}
