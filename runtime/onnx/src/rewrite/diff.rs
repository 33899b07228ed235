//! The difference between two graphs: what was removed, added and changed, in groups of nodes that belong together.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::numbering::{Contents, Numbered, Numbering, constant_of, weight_contents};
use crate::{Graph, Node, TensorSpec, WeightError};

/// The difference between two graphs.
#[derive(Clone, Debug, Default)]
pub struct GraphDiff {
    /// Nodes that both graphs have.
    pub unchanged: usize,
    /// Of these, the nodes that state defaults or list the operands of a commutative operator in another way.
    pub respelled: usize,
    /// Nodes that differ, in groups that are connected with each other.
    pub regions: Vec<DiffRegion>,
    /// Inputs, outputs and the operator set, as far as they differ: what, before, after.
    pub interface: Vec<[String; 3]>,
    /// Number of weights and constants before and after.
    pub weights: [usize; 2],
    /// The weights of the first graph in whose place the second one has others of the same name, shape and type.
    pub changed_weights: Vec<String>,
}

/// Nodes that are connected with each other and differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffRegion {
    /// The nodes of the first graph, by their numbers.
    pub before: Vec<usize>,
    /// The nodes of the second graph.
    pub after: Vec<usize>,
}

/// Compares two graphs. The outputs of the same node on the same values are the same, whatever they are called; so are
/// constants with the same elements, and other values with the same name.
///
/// # Errors
/// When a weight cannot be read.
pub fn diff(before: &Graph, after: &Graph) -> Result<GraphDiff, WeightError> {
    let [old_contents, mut new_contents] = [weight_contents(before, true)?, weight_contents(after, true)?];
    let changed_weights = keep_names((before, &old_contents), (after, &mut new_contents));
    let mut numbering = Numbering::default();
    let old = numbering.add_graph(before, &old_contents);
    let mut known: HashMap<usize, Vec<usize>> = HashMap::new();
    old.nodes.iter().enumerate().for_each(|(node, number)| known.entry(*number).or_default().push(node));
    let mut constants: HashSet<usize> = before.weights.keys().map(|name| old.values[name.as_str()]).collect();
    let mut matched = vec![false; before.nodes.len()];
    let (mut different, mut respelled) = (Vec::new(), 0);
    let mut new = numbering.start(after, &new_contents);
    constants.extend(after.weights.keys().map(|name| new.values[name.as_str()]));
    for (place, node) in after.nodes.iter().enumerate() {
        numbering.add_node(after, node, &mut new);
        let number = new.nodes[place];
        let same = known.get(&number).into_iter().flatten().find(|node| !matched[**node]);
        match same {
            Some(same) => {
                matched[*same] = true;
                let spelling = |node: &Node, values: &Numbered<'_>| {
                    let inputs: Vec<_> = node.inputs.iter().map(|name| values.values.get(name.as_str())).collect();
                    format!("{} {inputs:?}", super::describe_call(node))
                };
                respelled += usize::from(spelling(node, &new) != spelling(&before.nodes[*same], &old));
            }
            // The other graph has the constant as a weight.
            None if constant_of(node).is_some() && constants.contains(&number) => {}
            None => {
                different.push(place);
                for output in &node.outputs {
                    if let Some(number) = old.values.get(output.as_str()) {
                        new.values.insert(output, *number);
                    }
                }
            }
        }
    }
    let mut is_removed = |(place, node): &(usize, &Node)| {
        let is_stored = || constant_of(node).is_some() && constants.contains(&old.nodes[*place]);
        !matched[*place] && !is_stored()
    };
    let removed: Vec<usize> = before.nodes.iter().enumerate().filter(&mut is_removed).map(|(place, _)| place).collect();
    let stored = |graph: &Graph| graph.nodes.iter().filter(|node| constant_of(node).is_some()).count();
    Ok(GraphDiff {
        unchanged: before.nodes.len() - removed.len(),
        respelled,
        regions: regions((before, &removed, &old), (after, &different, &new)),
        interface: interface(before, after),
        weights: [before, after].map(|graph| graph.weights.len() + stored(graph)),
        changed_weights,
    })
}

/// Gives a weight of the second graph that the first one does not have the contents of the first graph's weight of the same
/// name, shape and type. Returns the names of these weights.
fn keep_names((before, old): (&Graph, &Contents), (after, new): (&Graph, &mut Contents)) -> Vec<String> {
    let known: HashSet<&String> = old.values().collect();
    let mut changed = Vec::new();
    for (name, weight) in &after.weights {
        let same = before.weights.get(name).filter(|other| other.spec == weight.spec);
        if let (Some(_), Some(own)) = (same, new.get_mut(name))
            && !known.contains(own)
        {
            own.clone_from(&old[name]);
            changed.push(name.clone());
        }
    }
    changed
}

/// Returns the groups of different nodes: those that are connected by a value that one of them defines.
fn regions(
    (before, removed, old): (&Graph, &[usize], &Numbered<'_>),
    (after, added, new): (&Graph, &[usize], &Numbered<'_>),
) -> Vec<DiffRegion> {
    let nodes: Vec<[Vec<usize>; 2]> = (removed.iter().map(|place| values(&before.nodes[*place], old)))
        .chain(added.iter().map(|place| values(&after.nodes[*place], new)))
        .collect();
    let inner: HashSet<usize> = nodes.iter().flat_map(|[outputs, _]| outputs.iter().copied()).collect();
    let mut parents: Vec<usize> = (0..nodes.len()).collect();
    let mut owners: HashMap<usize, usize> = HashMap::new();
    for (place, [outputs, inputs]) in nodes.iter().enumerate() {
        for value in outputs.iter().chain(inputs).filter(|value| inner.contains(value)) {
            match owners.get(value) {
                Some(owner) => join(&mut parents, *owner, place),
                None => drop(owners.insert(*value, place)),
            }
        }
    }
    let mut groups: IndexMap<usize, DiffRegion> = IndexMap::new();
    for place in 0..nodes.len() {
        let region = groups.entry(find(&mut parents, place)).or_default();
        match place.checked_sub(removed.len()) {
            None => region.before.push(removed[place]),
            Some(place) => region.after.push(added[place]),
        }
    }
    groups.into_values().collect()
}

/// Returns the numbers of the outputs and of the inputs of a node.
fn values(node: &Node, numbered: &Numbered<'_>) -> [Vec<usize>; 2] {
    [&node.outputs, &node.inputs]
        .map(|names| names.iter().filter_map(|name| numbered.values.get(name.as_str()).copied()).collect())
}

fn find(parents: &mut [usize], place: usize) -> usize {
    let mut root = place;
    while parents[root] != root {
        root = parents[root];
    }
    let mut next = place;
    while parents[next] != root {
        next = std::mem::replace(&mut parents[next], root);
    }
    root
}

fn join(parents: &mut [usize], a: usize, b: usize) {
    let [a, b] = [a, b].map(|place| find(parents, place));
    parents[a.max(b)] = a.min(b);
}

fn interface(before: &Graph, after: &Graph) -> Vec<[String; 3]> {
    let mut differences = Vec::new();
    let mut add = |what: String, before: String, after: String| {
        if before != after {
            differences.push([what, before, after]);
        }
    };
    add("operator set".to_owned(), before.opset.to_string(), after.opset.to_string());
    for (kind, old, new) in [("input", &before.inputs, &after.inputs), ("output", &before.outputs, &after.outputs)] {
        let spec = |values: &[crate::ValueInfo], name: &str| {
            values.iter().find(|value| value.name == name).map(|value: &crate::ValueInfo| value.spec.clone())
        };
        let text = |spec: Option<TensorSpec>| spec.map_or_else(|| "none".to_owned(), |spec| spec.to_string());
        let mut names: Vec<&String> = old.iter().chain(new).map(|value| &value.name).collect();
        names.dedup();
        for name in names {
            add(format!("{kind} {name}"), text(spec(old, name)), text(spec(new, name)));
        }
    }
    differences.dedup();
    differences
}
