//! Two graphs as one, in which what both have is computed once.
//!
//! The second graph continues behind a value that has the same name, shape and type in both with the value of the first one, and
//! both values are compared. So a change costs the nodes that it changes, and none behind them; if every such pair agrees, so
//! does what is computed from them.

use std::collections::{HashMap, HashSet};

use super::draw::elements;
use super::reached::values_from_inputs;
use flagperf_onnx::rewrite::{Contents, Numbered, Numbering, remove_unused, weight_contents};
use flagperf_onnx::{DType, Graph, Node, TensorSpec, ValueInfo, Weight, WeightReader, WeightSource, captured_names};

/// The most bytes of the values, in f64, at which the second graph continues with the first one's.
const JOINED_BYTES_MAX: usize = 512 << 20;

/// A value of both graphs that is compared.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// Its name in both graphs.
    pub name: String,
    /// Its name in the merged graph as the first one computes it, and as the second one does.
    pub values: [String; 2],
    /// The node of the second graph that computes it.
    pub node: Option<String>,
    /// Whether it is an output of both.
    pub is_output: bool,
    /// Whether the second graph has it as a weight, so that each element by itself has to be the same.
    pub is_weight: bool,
    /// Whether other inputs have to change it.
    pub depends_on_inputs: bool,
}

/// Two graphs as one.
pub(super) struct Merged {
    /// The outputs are the values of the pairs.
    pub graph: Graph,
    pub pairs: Vec<Pair>,
    /// How many outputs both graphs compute in the same way, or from values that are compared.
    pub same_outputs: usize,
}

/// Where the second graph may continue with values of the first one.
pub(super) enum Joins<'a> {
    /// Everywhere but at these values.
    Except(&'a HashSet<String>),
    /// Only at what is the same without a comparison.
    Nowhere,
}

struct Merger<'g> {
    before: &'g Graph,
    after: &'g Graph,
    specs: HashMap<String, TensorSpec>,
    /// For each number, the value of the merged graph.
    names: HashMap<usize, String>,
    old: Numbered<'g>,
    new: Numbered<'g>,
    graph: Graph,
    taken: HashSet<String>,
    pairs: Vec<Pair>,
    bytes_left: usize,
    depending: HashSet<&'g str>,
}

/// Merges two graphs of the same version of the operator set.
///
/// # Errors
/// When a weight cannot be read, or a subgraph reads a value that the two graphs compute in different ways.
pub(super) fn merge(
    before: &Graph,
    after: &Graph,
    sizes: &[(String, usize)],
    joins: &Joins<'_>,
) -> Result<Merged, String> {
    let reads = reads_files(before, after);
    let contents = |graph: &Graph| weight_contents(graph, reads).map_err(|error| error.to_string());
    let [old_contents, new_contents] = [contents(before)?, contents(after)?];
    let mut numbering = Numbering::default();
    let mut merger = Merger::new(before, after, &mut numbering, [&old_contents, &new_contents]);
    merger.add_weights(joins)?;
    let known: HashSet<usize> = merger.old.nodes.iter().copied().collect();
    for node in &after.nodes {
        numbering.add_node(after, node, &mut merger.new);
        let number = merger.new.nodes.last().copied().unwrap_or_default();
        let outputs = node.outputs.iter().filter(|output| !output.is_empty());
        let is_known = outputs.clone().all(|output| merger.names.contains_key(&merger.new.values[output.as_str()]));
        if !(known.contains(&number) && is_known) {
            merger.add_node(node)?;
            outputs.for_each(|output| merger.join(output, Some(node), sizes, joins));
        }
    }
    Ok(merger.finish())
}

/// Returns whether the elements of weights in ONNX files have to be read, because the files of the graphs differ.
fn reads_files(before: &Graph, after: &Graph) -> bool {
    let paths = |graph: &Graph| -> HashSet<std::path::PathBuf> {
        let sources = graph.weights.values().map(|weight| &weight.source);
        sources
            .filter(|source| matches!(source, WeightSource::External { .. }))
            .filter_map(WeightSource::path)
            .map(Into::into)
            .collect()
    };
    !paths(after).is_subset(&paths(before))
}

impl<'g> Merger<'g> {
    fn new(before: &'g Graph, after: &'g Graph, numbering: &mut Numbering, contents: [&Contents; 2]) -> Self {
        let old = numbering.add_graph(before, contents[0]);
        let new = numbering.start(after, contents[1]);
        let values = before.inputs.iter().map(|input| &input.name).chain(before.weights.keys());
        let values = values.chain(before.nodes.iter().flat_map(|node| &node.outputs)).filter(|name| !name.is_empty());
        let mut names = HashMap::new();
        for name in values.clone() {
            names.entry(old.values[name.as_str()]).or_insert_with(|| name.clone());
        }
        Merger {
            before,
            after,
            specs: before.specs(),
            names,
            taken: values.cloned().collect(),
            graph: before.clone(),
            depending: values_from_inputs(before, before.inputs.iter().map(|input| input.name.as_str())),
            pairs: Vec::new(),
            bytes_left: JOINED_BYTES_MAX,
            old,
            new,
        }
    }

    /// Adds the weights that only the second graph has. One that was a value of the first graph is compared with it.
    fn add_weights(&mut self, joins: &Joins<'_>) -> Result<(), String> {
        let mut reader = WeightReader::new(self.after);
        for name in self.after.weights.keys() {
            if self.names.contains_key(&self.new.values[name.as_str()]) {
                continue;
            }
            let tensor = reader.tensor(name).map_err(|error| error.to_string())?;
            let own = self.unused_name(name);
            self.specs.insert(own.clone(), tensor.spec());
            self.graph.weights.insert(own.clone(), Weight::constant(tensor));
            self.names.insert(self.new.values[name.as_str()], own);
            self.join(name, None, &[], joins);
        }
        Ok(())
    }

    /// Adds a node of the second graph, which reads values of the merged one.
    fn add_node(&mut self, node: &'g Node) -> Result<(), String> {
        for name in captured_names(node, self.after.opset) {
            let value = self.new.values.get(name.as_str()).and_then(|number| self.names.get(number));
            if value.is_some_and(|value| *value != name) {
                let reason =
                    format!("a subgraph of node `{}` reads `{name}`, which is computed in another way", node.name);
                return Err(reason);
            }
        }
        let read = |name: &String| match self.new.values.get(name.as_str()) {
            Some(number) => self.names[number].clone(),
            None => name.clone(),
        };
        let inputs = node.inputs.iter().map(read).collect();
        let mut outputs = Vec::new();
        for output in &node.outputs {
            if output.is_empty() {
                outputs.push(String::new());
                continue;
            }
            let own = self.unused_name(output);
            if let Some(spec) = self.after.values.get(output) {
                self.graph.values.insert(own.clone(), spec.clone());
            }
            self.names.insert(self.new.values[output.as_str()], own.clone());
            outputs.push(own);
        }
        self.graph.nodes.push(Node { inputs, outputs, ..node.clone() });
        Ok(())
    }

    /// Lets what follows read the first graph's value of a name, if it has the same shape and type, and compares the two.
    fn join(&mut self, name: &'g str, node: Option<&Node>, sizes: &[(String, usize)], joins: &Joins<'_>) {
        let own = self.names[&self.new.values[name]].clone();
        let spec = self.after.values.get(name).or_else(|| self.specs.get(&own));
        let (Some(old), Some(old_spec)) = (self.old.values.get(name).copied(), self.specs.get(name)) else { return };
        let may_join = match joins {
            Joins::Except(names) => !names.contains(name),
            Joins::Nowhere => false,
        };
        let is_same = spec == Some(old_spec) && (node.is_none() || old_spec.dtype.is_float());
        let bytes = elements(old_spec, sizes).map_or(0, |count| count.saturating_mul(DType::F64.size()));
        if !may_join || !is_same || bytes > self.bytes_left {
            return;
        }
        let node = node.map(|node| format!("{} ({})", node.name, node.op));
        let depends_on_inputs = old_spec.dtype.is_float() && self.depending.contains(name);
        let values = [self.names[&old].clone(), own];
        let is_weight = node.is_none();
        self.pairs.push(Pair { name: name.to_owned(), values, node, is_output: false, is_weight, depends_on_inputs });
        self.bytes_left -= bytes;
        self.new.values.insert(name, old);
    }

    fn unused_name(&mut self, name: &str) -> String {
        let mut own = name.to_owned();
        while !self.taken.insert(own.clone()) {
            own.push('\'');
        }
        own
    }

    /// Compares the outputs of both graphs unless they are the same; returns how many are.
    fn compare_outputs(&mut self) -> usize {
        let mut same = 0;
        for ValueInfo { name, .. } in &self.after.outputs {
            let numbers = [&self.old, &self.new].map(|numbered| numbered.values.get(name.as_str()).copied());
            let [Some(old), Some(new)] = numbers else { continue };
            if !self.before.outputs.iter().any(|output| output.name == *name) {
                continue;
            }
            match self.pairs.iter_mut().find(|pair| pair.name == *name) {
                Some(pair) => pair.is_output = true,
                None if old == new => same += 1,
                None => {
                    let values = [old, new].map(|number| self.names[&number].clone());
                    let node = self.after.nodes.iter().find(|node| node.outputs.contains(name));
                    let node = node.map(|node| format!("{} ({})", node.name, node.op));
                    let depends_on_inputs = self.depending.contains(name.as_str());
                    let name = name.clone();
                    self.pairs.push(Pair { name, values, node, is_output: true, is_weight: false, depends_on_inputs });
                }
            }
        }
        same
    }

    fn finish(mut self) -> Merged {
        let same_outputs = self.compare_outputs();
        let (mut outputs, mut listed): (Vec<ValueInfo>, HashSet<String>) = Default::default();
        for pair in &self.pairs {
            let spec = self.specs.get(&pair.name);
            for name in &pair.values {
                let own = self.graph.values.get(name).or_else(|| self.specs.get(name)).or(spec);
                if let Some(spec) = own.filter(|_| listed.insert(name.clone())) {
                    outputs.push(ValueInfo { name: name.clone(), spec: spec.clone() });
                }
            }
        }
        self.graph.outputs = outputs;
        remove_unused(&mut self.graph);
        let nodes = &self.graph.nodes;
        let captured = nodes.iter().flat_map(|node| captured_names(node, self.graph.opset));
        let read: HashSet<String> = nodes.iter().flat_map(|node| node.inputs.iter().cloned()).chain(captured).collect();
        let is_read = |input: &ValueInfo| {
            read.contains(&input.name) || self.graph.outputs.iter().any(|output| output.name == input.name)
        };
        let inputs = self.graph.inputs.iter().filter(|input| is_read(input)).cloned().collect();
        let graph = Graph { inputs, ..self.graph };
        Merged { graph, pairs: self.pairs, same_outputs }
    }
}
