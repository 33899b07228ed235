//! The difference between two graphs: what was removed, added and changed, in groups of nodes that belong together.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::call::describe_call;
use crate::{Graph, Node, TensorSpec};

/// The difference between two graphs.
#[derive(Clone, Debug, Default)]
pub struct GraphDiff {
    /// Nodes that both graphs have.
    pub unchanged: usize,
    /// Nodes that differ, in groups that are connected with each other.
    pub regions: Vec<DiffRegion>,
    /// Inputs, outputs and the operator set, as far as they differ: what, before, after.
    pub interface: Vec<[String; 3]>,
    /// Number of weights and constants before and after.
    pub weights: [usize; 2],
}

/// Nodes that are connected with each other and differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffRegion {
    /// The nodes of the first graph, by their numbers.
    pub before: Vec<usize>,
    /// The nodes of the second graph.
    pub after: Vec<usize>,
}

/// Compares two graphs. Values with the same name are the same; so are the outputs of the same node on the same values,
/// whatever they are called.
pub fn diff(before: &Graph, after: &Graph) -> GraphDiff {
    let known = known_nodes(before);
    // For each value of the second graph that has another name there, its name in the first.
    let mut aliases: HashMap<&str, &str> = HashMap::new();
    let mut matched = vec![false; before.nodes.len()];
    let mut different = Vec::new();
    for (number, node) in after.nodes.iter().enumerate() {
        let key = key(node, |name| aliases.get(name).copied().unwrap_or(name));
        let same = known.get(&key).into_iter().flatten().find(|number| !matched[**number]);
        match same {
            Some(same) => {
                matched[*same] = true;
                let outputs = node.outputs.iter().zip(&before.nodes[*same].outputs);
                aliases.extend(outputs.map(|(own, other)| (own.as_str(), other.as_str())));
            }
            None => different.push(number),
        }
    }
    let removed: Vec<usize> = (0..before.nodes.len()).filter(|number| !matched[*number]).collect();
    GraphDiff {
        unchanged: before.nodes.len() - removed.len(),
        regions: regions((before, &removed), (after, &different), &aliases),
        interface: interface(before, after),
        weights: [before.weights.len(), after.weights.len()],
    }
}

/// Describes a node by its operator, its attributes and what it reads.
fn key<'n>(node: &'n Node, name: impl Fn(&'n str) -> &'n str) -> String {
    let inputs: Vec<&str> = node.inputs.iter().map(|input| name(input)).collect();
    format!("{} {inputs:?}", describe_call(node))
}

fn known_nodes(graph: &Graph) -> HashMap<String, Vec<usize>> {
    let mut known: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        known.entry(key(node, |name| name)).or_default().push(number);
    }
    known
}

/// Returns the groups of different nodes: those that are connected by a value that one of them defines.
fn regions(
    (before, removed): (&Graph, &[usize]),
    (after, added): (&Graph, &[usize]),
    aliases: &HashMap<&str, &str>,
) -> Vec<DiffRegion> {
    let alias = |name: &'_ str| -> String { aliases.get(name).copied().unwrap_or(name).to_owned() };
    let own = |name: &str| name.to_owned();
    let old = removed.iter().map(|number| values(&before.nodes[*number], own));
    let nodes: Vec<[Vec<String>; 2]> =
        old.chain(added.iter().map(|number| values(&after.nodes[*number], alias))).collect();
    let inner: HashSet<&String> = nodes.iter().flat_map(|[outputs, _]| outputs).collect();
    let mut parents: Vec<usize> = (0..nodes.len()).collect();
    let mut owners: HashMap<&String, usize> = HashMap::new();
    for (place, [outputs, inputs]) in nodes.iter().enumerate() {
        for name in outputs.iter().chain(inputs).filter(|name| inner.contains(name)) {
            match owners.get(name) {
                Some(owner) => join(&mut parents, *owner, place),
                None => drop(owners.insert(name, place)),
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

/// Returns the names of the outputs and of the inputs of a node.
fn values(node: &Node, name: impl Fn(&str) -> String) -> [Vec<String>; 2] {
    [&node.outputs, &node.inputs].map(|names| names.iter().filter(|own| !own.is_empty()).map(|own| name(own)).collect())
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
