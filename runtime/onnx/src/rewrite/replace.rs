//! Replaces the places that a pattern describes, and returns each place before and after for a proof.

use std::collections::{BTreeSet, HashMap, HashSet};

use indexmap::IndexMap;

use super::find::{Found, NearMiss, Search, find_with};
use super::index::{GraphIndex, Value, prepare};
use super::instance::{Added, instantiate};
use super::matched::Match;
use super::pattern::{Pattern, PatternError};
use super::place::{Place, without_overlaps};
use crate::operator_set::{changes_form, set_version, unused_name};
use crate::{Attribute, DType, Graph, LowerError, Node, Subgraph, Tensor, TensorSpec, ValueInfo, check, find_operator};

/// What takes the place of a match: the text of nodes, in which names and unknown attributes of the pattern stand for what
/// they matched. `$epsilon` in an attribute may also be a number of the pattern. The last line defines the output that stays.
#[derive(Clone, Debug)]
pub struct Replacement {
    pub(super) template: Pattern,
    /// Further constants by name.
    pub(super) constants: Vec<(String, Tensor)>,
    /// Further attributes of the last node.
    pub(super) attributes: IndexMap<String, Attribute>,
}

impl Replacement {
    /// Reads a replacement.
    ///
    /// # Errors
    /// When the text is not a list of nodes.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(Replacement { template: Pattern::parse(text)?, constants: Vec::new(), attributes: IndexMap::new() })
    }

    /// Returns the values of a match that the replacement reads.
    fn values_read(&self, found: &Match<'_, '_>) -> HashSet<Value> {
        let names = self.template.names.iter().filter(|name| name.definition.is_none());
        names.filter_map(|name| found.bound(&name.text)).collect()
    }

    /// Adds a constant that the text names.
    #[must_use]
    pub fn with_constant(mut self, name: &str, tensor: Tensor) -> Self {
        self.constants.push((name.to_owned(), tensor));
        self
    }

    /// Adds attributes to the last node.
    #[must_use]
    pub fn with_attributes(mut self, attributes: IndexMap<String, Attribute>) -> Self {
        self.attributes = attributes;
        self
    }
}

/// A graph in which matches were replaced.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pub graph: Graph,
    /// The places that were replaced, in order.
    pub replaced: Vec<Replaced>,
    pub near_misses: Vec<NearMiss>,
}

impl Rewrite {
    /// Returns a graph in which nothing was replaced.
    pub(super) fn of(graph: Graph) -> Self {
        Rewrite { graph, replaced: Vec::new(), near_misses: Vec::new() }
    }

    /// Replaces further places, as [`replace`] does. One whose replacement is not possible is a near miss.
    pub(super) fn replace(&mut self, pattern: &Pattern, build: &mut Build<'_>) -> Result<(), RewriteError> {
        let mut refused: HashMap<String, String> = HashMap::new();
        let Rewrite { graph, replaced, near_misses } = loop {
            let mut build_possible = |found: &Match<'_, '_>| match refused.get(&found.node().name) {
                Some(reason) => Err(reason.clone()),
                None => build(found),
            };
            match replace(&self.graph, pattern, &mut build_possible) {
                Err(RewriteError::Replacement { node, reason }) if !refused.contains_key(&node) => {
                    refused.insert(node, reason);
                }
                replaced => break replaced?,
            }
        };
        self.graph = graph;
        self.replaced.extend(replaced);
        self.near_misses.extend(near_misses);
        Ok(())
    }

    /// Removes the near misses of one pattern that another one replaced, or that are a part of a near miss with more nodes.
    pub(super) fn without_replaced_misses(mut self) -> Self {
        let left: HashSet<&str> = self.graph.nodes.iter().map(|node| node.name.as_str()).collect();
        let replaced: HashSet<&str> = self.replaced.iter().map(|place| place.node.as_str()).collect();
        let mut nearest: HashMap<&str, usize> = HashMap::new();
        for (place, miss) in self.near_misses.iter().enumerate() {
            for name in miss.names.iter().chain([&miss.node]) {
                let best = nearest.entry(name).or_insert(place);
                if miss.nodes > self.near_misses[*best].nodes {
                    *best = place;
                }
            }
        }
        let kept = |(place, miss): (usize, &NearMiss)| {
            let node = miss.node.as_str();
            (left.contains(node) && !replaced.contains(node) && nearest[node] == place).then(|| miss.clone())
        };
        self.near_misses = self.near_misses.iter().enumerate().filter_map(kept).collect();
        self
    }
}

/// Returns what replaces a match, or the reason why it stays.
pub(super) type Build<'b> = dyn FnMut(&Match<'_, '_>) -> Result<Replacement, String> + 'b;

/// A place that was replaced.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The node whose output stays.
    pub node: String,
    /// How many nodes the place had.
    pub nodes: usize,
    pub region: Region,
}

/// A place before and after, each as a graph with the same inputs and outputs.
#[derive(Clone, Debug)]
pub struct Region {
    pub before: Graph,
    pub after: Graph,
}

/// Why a graph cannot be rewritten.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RewriteError {
    /// A node of an older operator set has no newer form.
    #[error(transparent)]
    Version(#[from] LowerError),
    /// A replacement is not possible at a place.
    #[error("the replacement at node `{node}`: {reason}")]
    Replacement { node: String, reason: String },
    /// The graph cannot have the version of the operator set that a replacement needs.
    #[error("{0}")]
    OperatorSet(String),
}

/// Replaces every place that `pattern` describes by what `build` returns for it. `build` returns the reason for a place that
/// it leaves as it is, which is a near miss unless the reason is empty. Of two places that share nodes, the one that ends later is replaced.
///
/// # Errors
/// When a replacement names a value that the pattern does not have, or its output has another shape or type.
pub fn replace(
    graph: &Graph,
    pattern: &Pattern,
    build: &mut dyn FnMut(&Match<'_, '_>) -> Result<Replacement, String>,
) -> Result<Rewrite, RewriteError> {
    let prepared = prepare(graph)?;
    let index = GraphIndex::new(&prepared);
    let search = Search { index: &index, pattern };
    let mut replacements: HashMap<usize, (Replacement, HashSet<Value>)> = HashMap::new();
    let mut accept = |found: &Found| {
        let found_as = Match { index: &index, pattern, found };
        let replacement = build(&found_as)?;
        let read = replacement.values_read(&found_as);
        replacements.insert(found.root, (replacement, read));
        Ok(())
    };
    let (found, mut near_misses) = find_with(&search, &mut accept);
    let found = found.into_iter().map(|found| {
        let (replacement, read) = replacements.remove(&found.root).expect("each place was accepted");
        Place::new(found, replacement, &read, &index)
    });
    let places = without_overlaps(found.collect(), &index, &mut near_misses);
    if places.is_empty() {
        return Ok(Rewrite { graph: graph.clone(), replaced: Vec::new(), near_misses });
    }
    let mut writer = Writer::new(&index, pattern);
    for place in &places {
        writer.add(place)?;
    }
    let (graph, replaced) = writer.finish(&places)?;
    Ok(Rewrite { graph, replaced, near_misses })
}

/// Calls `visit` with each place that `pattern` describes, in order.
///
/// # Errors
/// When a node of an older operator set has no newer form.
pub fn find(graph: &Graph, pattern: &Pattern, visit: &mut dyn FnMut(&Match<'_, '_>)) -> Result<(), LowerError> {
    let prepared = prepare(graph)?;
    let index = GraphIndex::new(&prepared);
    let (places, _) = find_with(&Search { index: &index, pattern }, &mut |_| Ok(()));
    places.iter().for_each(|found| visit(&Match { index: &index, pattern, found }));
    Ok(())
}

/// The most nodes that compute a size which a place reads.
const SIZE_NODES_MAX: usize = 64;

/// Writes the graph with the replacements.
struct Writer<'a, 'g> {
    index: &'a GraphIndex<'g>,
    pattern: &'a Pattern,
    /// What replaces a place, by its last node.
    added: HashMap<usize, Added>,
    taken_names: HashSet<String>,
}

impl<'a, 'g> Writer<'a, 'g> {
    fn new(index: &'a GraphIndex<'g>, pattern: &'a Pattern) -> Self {
        Writer { index, pattern, added: HashMap::new(), taken_names: HashSet::new() }
    }

    /// Returns a name that no value has.
    fn unused_name(&mut self, name: &str) -> String {
        let numbered = (0..).map(|number| if number == 0 { name.to_owned() } else { format!("{name}_{number}") });
        let mut unused =
            numbered.filter(|name| unused_name(self.index.graph, name) == *name && !self.taken_names.contains(name));
        let unused = unused.next().expect("a finite graph cannot use every name of an endless list");
        self.taken_names.insert(unused.clone());
        unused
    }

    fn add(&mut self, place: &Place) -> Result<(), RewriteError> {
        let root = place.found.root;
        let node = self.index.node(root);
        let found = Match { index: self.index, pattern: self.pattern, found: &place.found };
        let added = instantiate(found, &place.replacement, &mut |name| self.unused_name(name));
        let failed = |reason: String| RewriteError::Replacement { node: node.name.clone(), reason };
        self.added.insert(root, added.map_err(failed)?);
        Ok(())
    }

    fn finish(self, places: &[Place]) -> Result<(Graph, Vec<Replaced>), RewriteError> {
        let old = self.index.graph;
        let removed: HashSet<usize> = places.iter().flat_map(|place| place.removed.iter().copied()).collect();
        let mut graph = Graph { nodes: Vec::with_capacity(old.nodes.len()), ..old.clone() };
        for (number, node) in old.nodes.iter().enumerate() {
            if let Some(Added { nodes, constants }) = self.added.get(&number) {
                constants.iter().for_each(|(name, tensor)| super::fold::add_constant(&mut graph, name, tensor.clone()));
                graph.nodes.extend_from_slice(nodes);
            } else if !removed.contains(&number) {
                graph.nodes.push(node.clone());
            }
        }
        raise_version(&mut graph).map_err(RewriteError::OperatorSet)?;
        super::edit::remove_unused(&mut graph);
        check::infer_shapes(&mut graph);
        let replaced = places.iter().map(|place| self.replaced(&place.found, &graph, &removed));
        let replaced = replaced.collect::<Result<_, _>>()?;
        Ok((graph, replaced))
    }

    /// Returns a place before and after.
    fn replaced(&self, place: &Found, new: &Graph, removed: &HashSet<usize>) -> Result<Replaced, RewriteError> {
        let root = self.index.node(place.root);
        let output = &root.outputs[0];
        let old = self.index.graph;
        let (before, after) = (old.values.get(output), new.values.get(output));
        if let (Some(before), Some(after)) = (before, after)
            && !check::are_compatible(before, after)
        {
            let reason = format!("its output is `{after}` instead of `{before}`");
            return Err(RewriteError::Replacement { node: root.name.clone(), reason });
        }
        let mut numbers = place.nodes.clone();
        numbers.sort_unstable();
        let nodes: Vec<Node> = numbers.iter().map(|number| old.nodes[*number].clone()).collect();
        let Added { nodes: added, constants } = &self.added[&place.root];
        // What others read, too, is still computed.
        let kept = numbers.iter().filter(|number| **number != place.root && !removed.contains(number));
        let kept: Vec<Node> = kept.map(|number| old.nodes[*number].clone()).chain(added.iter().cloned()).collect();
        let region = Region { before: self.region(nodes, &[], output), after: self.region(kept, constants, output) };
        let inputs = inputs_of_both(&region);
        let [mut before, mut after] = [region.before, region.after];
        for graph in [&mut before, &mut after] {
            graph.inputs.clone_from(&inputs);
            raise_version(graph).map_err(RewriteError::OperatorSet)?;
            check::infer_shapes(graph);
        }
        Ok(Replaced { node: root.name.clone(), nodes: place.nodes.len(), region: Region { before, after } })
    }

    /// Returns the nodes that compute sizes which `nodes` read, as far as nothing in `nodes` is needed for that: drawn integers
    /// are no sizes.
    fn size_nodes(&self, nodes: &[Node]) -> Vec<Node> {
        let index = self.index;
        let own: HashSet<&String> = nodes.iter().flat_map(|node| &node.outputs).collect();
        let mut sizes: BTreeSet<usize> = BTreeSet::new();
        for name in nodes.iter().flat_map(|node| &node.inputs).filter(|name| !own.contains(name)) {
            let (mut found, mut left) = (BTreeSet::new(), vec![name]);
            let mut is_independent = true;
            while let Some(name) = left.pop() {
                let value = index.value(name);
                let is_integer = value
                    .and_then(|value| index.dtype(value))
                    .is_some_and(|dtype| !dtype.is_float() && dtype != DType::Bool);
                let producer = value.filter(|_| is_integer).and_then(|value| index.producer(value));
                if let Some((number, _)) = producer.filter(|_| found.len() < SIZE_NODES_MAX)
                    && found.insert(number)
                {
                    left.extend(index.node(number).inputs.iter().filter(|input| !input.is_empty()));
                }
                is_independent &= !own.contains(name);
            }
            if is_independent {
                sizes.extend(found);
            }
        }
        sizes.into_iter().map(|number| index.node(number).clone()).collect()
    }

    /// Returns nodes as a graph of their own.
    fn region(&self, nodes: Vec<Node>, constants: &[(String, Tensor)], output: &str) -> Graph {
        let old = self.index.graph;
        let mut nodes = nodes;
        nodes.splice(0..0, self.size_nodes(&nodes));
        let mut graph = Graph {
            name: old.name.clone(),
            opset: old.opset,
            domains: old.domains.clone(),
            functions: old.functions.clone(),
            operators: old.operators.clone(),
            ..Graph::default()
        };
        constants.iter().for_each(|(name, tensor)| super::fold::add_constant(&mut graph, name, tensor.clone()));
        let defined: HashSet<&String> = nodes.iter().flat_map(|node| &node.outputs).collect();
        let mut inputs: IndexMap<&String, TensorSpec> = IndexMap::new();
        for input in
            nodes.iter().flat_map(|node| &node.inputs).filter(|input| !input.is_empty() && !defined.contains(input))
        {
            if let Some(weight) = old.weights.get(input) {
                graph.weights.insert(input.clone(), weight.clone());
            } else if !graph.weights.contains_key(input)
                && let Some(spec) = self.index.value(input).and_then(|value| self.index.spec(value))
            {
                inputs.insert(input, spec.clone());
            }
        }
        graph.inputs = inputs.into_iter().map(|(name, spec)| ValueInfo { name: name.clone(), spec }).collect();
        let spec = self.index.value(output).and_then(|value| self.index.spec(value));
        let spec = spec.cloned().unwrap_or(TensorSpec { dims: Vec::new(), dtype: DType::F32 });
        graph.outputs = vec![ValueInfo { name: output.to_owned(), spec }];
        graph.nodes = nodes;
        graph
    }
}

/// Returns the inputs of both graphs of a region.
fn inputs_of_both(region: &Region) -> Vec<ValueInfo> {
    let mut inputs = region.before.inputs.clone();
    for input in &region.after.inputs {
        if !inputs.iter().any(|known| known.name == input.name) {
            inputs.push(input.clone());
        }
    }
    inputs
}

/// Raises the version of the operator set to what the nodes need.
///
/// # Errors
/// When functions of the file are called, or a node in a subgraph has another form in that version.
pub(super) fn raise_version(graph: &mut Graph) -> Result<(), String> {
    let standard = graph.nodes.iter().filter(|node| node.domain.is_empty());
    let needed =
        standard.filter_map(|node| Some((find_operator(&node.op)?.since, node))).max_by_key(|(since, _)| *since);
    if let Some((needed, node)) = needed.filter(|(needed, _)| *needed > graph.opset) {
        let op = node.op.clone();
        convert(graph, needed).map_err(|why| {
            format!("`{op}` needs version {needed} of the operator set, and {why} version {}", graph.opset)
        })?;
    }
    for node in graph.nodes.iter().filter(|node| !node.domain.is_empty()) {
        graph.domains.entry(node.domain.clone()).or_insert(1);
    }
    Ok(())
}

/// Returns a graph in the form of a newer version of the operator set.
///
/// # Errors
/// As [`raise_version`].
pub fn with_version(mut graph: Graph, version: i64) -> Result<Graph, String> {
    convert(&mut graph, version).map_err(|why| format!("{why} version {}", graph.opset))?;
    Ok(graph)
}

/// Converts a graph to a newer version; the error ends before that of the graph.
fn convert(graph: &mut Graph, version: i64) -> Result<(), String> {
    if version <= graph.opset {
        return Ok(());
    }
    if !graph.functions.is_empty() {
        return Err("functions of the file are written for a graph of".to_owned());
    }
    if let Some(inner) = graph.nodes.iter().find_map(|node| old_form(node, graph.opset, version, 0)) {
        return Err(format!("node `{inner}` in a subgraph has the form of"));
    }
    set_version(graph, version);
    Ok(())
}

/// Returns a node in the subgraphs of a node whose form differs between two versions.
fn old_form(node: &Node, old: i64, new: i64, depth: usize) -> Option<String> {
    let subgraphs = node.attributes.values().filter_map(|attribute| Subgraph::decode(attribute, old).ok().flatten());
    subgraphs.filter(|_| depth <= crate::limits::NESTING_MAX).find_map(|inner| {
        inner.graph.nodes.iter().find_map(|node| {
            let changed = node.domain.is_empty() && changes_form(&node.op, old, new);
            if changed { Some(node.name.clone()) } else { old_form(node, old, new, depth + 1) }
        })
    })
}
