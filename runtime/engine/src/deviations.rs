//! What engines compute in another way than the standard of ONNX, and how the host reacts: it refuses the model, replaces the
//! node by others, or warns in the record.
//!
//! [`ROWS`] is the table. In the subgraphs of `If`, `Loop` and `Scan`, nodes are not replaced: the model is refused.

mod conditions;
#[cfg(test)]
mod fragment;
mod nan;
mod ranges;
mod replacements;
mod rows;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use flagperf_onnx::{Decomposition, Graph, Node, Subgraph, Tensor, TensorSpec, infer_values, replace_nodes};

use super::EngineError;
use ranges::Ranges;
use rows::ROWS;

/// The operator of a row that applies to nodes of any operator.
const ANY_OPERATOR: &str = "*";

/// One deviation: a row of the table.
pub(super) struct Deviation {
    /// The engines that deviate.
    engines: &'static [&'static str],
    /// The operator, with its domain unless that is the standard one.
    op: &'static str,
    /// Whether a node is concerned.
    applies: fn(&NodeUse<'_>) -> bool,
    /// What the engine does differently, after "operator `X`".
    reason: &'static str,
    reaction: Reaction,
}

/// What the host does about a deviation.
#[derive(Clone, Copy)]
enum Reaction {
    /// The model is refused by operator, node and reason.
    Refuse,
    /// The node is replaced by others that compute the same rightly.
    Replace(Decomposition),
    /// The model runs, with a warning in the record.
    Warn,
}

/// What is known about the values of a graph.
struct KnownValues<'a> {
    graph: &'a Graph,
    specs: HashMap<String, TensorSpec>,
    /// The `Constant` that defines a value.
    constants: HashMap<&'a str, &'a Node>,
    ranges: OnceCell<Ranges>,
    nan_values: OnceCell<HashSet<String>>,
}

impl KnownValues<'_> {
    /// Returns the bounds of the values.
    fn ranges(&self) -> &Ranges {
        self.ranges.get_or_init(|| Ranges::of(self))
    }

    /// Returns the names of the values that can be NaN although every input is finite.
    fn nan_values(&self) -> &HashSet<String> {
        self.nan_values.get_or_init(|| nan::nan_values(self))
    }
}

/// The rows that apply to each node, by the node's [`key`].
type Found = HashMap<String, Vec<&'static Deviation>>;

/// A node of a graph.
struct NodeUse<'a> {
    node: &'a Node,
    known: &'a KnownValues<'a>,
}

impl<'a> NodeUse<'a> {
    /// Returns the name of an input; `None` if it is omitted.
    fn input(&self, index: usize) -> Option<&'a str> {
        self.node.inputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Returns the specification of an input, if it is known.
    fn spec(&self, index: usize) -> Option<&'a TensorSpec> {
        self.known.specs.get(self.input(index)?)
    }

    /// Returns the value of an input, if it is a constant of the file.
    fn constant(&self, index: usize) -> Option<Tensor> {
        let name = self.input(index)?;
        if let Some(weight) = self.known.graph.weights.get(name) {
            return weight.tensor().cloned();
        }
        self.known.constants.get(name)?.constant()
    }
}

/// Applies the table to a graph for an engine. Returns the graph that the engine loads, and the warnings.
///
/// # Errors
/// [`EngineError::Operator`] for an operator that the engine computes wrongly, and when a node cannot be replaced.
pub(super) fn apply(engine: &'static str, graph: Graph) -> Result<(Graph, Vec<String>), EngineError> {
    let nested = nested_warnings(engine, &graph)?;
    let found = find_deviations(engine, &graph);
    if found.is_empty() {
        return Ok((graph, nested));
    }
    refuse(engine, &graph, &found, |reaction| matches!(reaction, Reaction::Refuse))?;
    let mut warnings = warnings(engine, &graph, &found);
    warnings.extend(nested);
    let replacement = |node: &Node| {
        found.get(&key(node))?.iter().find_map(|row| match row.reaction {
            Reaction::Replace(decomposition) => Some(decomposition),
            _ => None,
        })
    };
    if !graph.nodes.iter().any(|node| replacement(node).is_some()) {
        return Ok((graph, warnings));
    }
    let replaced = replace_nodes(&graph, replacement);
    let failed = |error| EngineError::Failed(format!("engine `{engine}`: {error}"));
    replaced.map(|graph| (graph, warnings)).map_err(failed)
}

/// Returns the error for the first node whose reaction is refused.
fn refuse(
    engine: &'static str,
    graph: &Graph,
    found: &Found,
    is_refused: fn(&Reaction) -> bool,
) -> Result<(), EngineError> {
    let refusal = |node: &Node| {
        let row = found.get(&key(node))?.iter().find(|row| is_refused(&row.reaction))?;
        let op = format!("{} ({})", full_name(node), row.reason);
        Some(EngineError::Operator { engine, op, node: node.name.clone() })
    };
    graph.nodes.iter().find_map(refusal).map_or(Ok(()), Err)
}

/// Returns the warnings for the subgraphs of a graph.
///
/// # Errors
/// When a subgraph contains a node that would have to be replaced, or is refused.
fn nested_warnings(engine: &'static str, graph: &Graph) -> Result<Vec<String>, EngineError> {
    let mut all = Vec::new();
    for attribute in graph.nodes.iter().flat_map(|node| node.attributes.values()) {
        // The engine itself reports a subgraph that is malformed.
        let Ok(Some(Subgraph { graph: inner, .. })) = Subgraph::decode(attribute, graph.opset) else { continue };
        let found = find_deviations(engine, &inner);
        refuse(engine, &inner, &found, |reaction| matches!(reaction, Reaction::Refuse | Reaction::Replace(_)))?;
        all.extend(warnings(engine, &inner, &found));
        all.extend(nested_warnings(engine, &inner)?);
    }
    Ok(all)
}

/// Returns the rows that apply to each node with a deviation: every warning, and the first of the others.
fn find_deviations(engine: &str, graph: &Graph) -> Found {
    let rows: Vec<&Deviation> = ROWS.iter().filter(|row| row.engines.contains(&engine)).collect();
    let is_concerned = |node: &Node| {
        let name = full_name(node);
        rows.iter().any(|row| row.op == name || row.op == ANY_OPERATOR)
    };
    if !graph.nodes.iter().any(is_concerned) {
        return HashMap::new();
    }
    let known = known_values(graph);
    let deviations = |node: &Node| {
        let (name, usage) = (full_name(node), NodeUse { node, known: &known });
        let applies = |row: &&&'static Deviation| (row.op == name || row.op == ANY_OPERATOR) && (row.applies)(&usage);
        let is_warning = |row: &&'static Deviation| matches!(row.reaction, Reaction::Warn);
        let (mut applied, others): (Vec<_>, Vec<_>) = rows.iter().filter(applies).copied().partition(is_warning);
        applied.extend(others.first());
        (!applied.is_empty()).then(|| (key(node), applied))
    };
    graph.nodes.iter().filter_map(deviations).collect()
}

/// Returns one warning for each row that applies to a node, with the name of the first one.
fn warnings(engine: &str, graph: &Graph, found: &Found) -> Vec<String> {
    let warned = ROWS.iter().filter(|row| matches!(row.reaction, Reaction::Warn));
    let warning = |row: &'static Deviation| {
        let is_row = |applied: &&Deviation| std::ptr::eq(*applied, row);
        let concerned = |node: &&Node| found.get(&key(node)).is_some_and(|rows| rows.iter().any(is_row));
        let first = graph.nodes.iter().find(concerned)?;
        let others = graph.nodes.iter().filter(concerned).count() - 1;
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        let (op, node, reason) = (full_name(first), &first.name, row.reason);
        Some(format!("engine `{engine}` deviates from ONNX in operator `{op}` (node `{node}`{others}): {reason}"))
    };
    warned.filter_map(warning).collect()
}

/// Returns what identifies a node: its outputs, because names of nodes may repeat in a file.
fn key(node: &Node) -> String {
    node.outputs.join("\n")
}

/// Returns the name of a node's operator, with its domain unless that is the standard one.
fn full_name(node: &Node) -> String {
    match node.domain.as_str() {
        "" | "ai.onnx" => node.op.clone(),
        domain => format!("{domain}.{}", node.op),
    }
}

/// Returns what is known about the values of a graph.
fn known_values(graph: &Graph) -> KnownValues<'_> {
    let inferred = infer_values(graph).0;
    let stored = graph.values.iter().map(|(name, spec)| (name.clone(), spec.clone()));
    let weights = graph.weights.iter().map(|(name, weight)| (name.clone(), weight.spec.clone()));
    let inputs = graph.inputs.iter().map(|info| (info.name.clone(), info.spec.clone()));
    let constants = graph.nodes.iter().filter(|node| node.op == "Constant");
    let constants = constants.filter_map(|node| Some((node.outputs.first()?.as_str(), node))).collect();
    let specs = stored.chain(inferred).chain(weights).chain(inputs).collect();
    KnownValues { graph, specs, constants, ranges: OnceCell::new(), nan_values: OnceCell::new() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use flagperf_onnx::{Attribute, GraphBuilder, find_operator};
    use indexmap::IndexMap;

    use super::*;
    use crate::TABLE;

    fn one_node(op: &str, attributes: &[(&str, i64)]) -> Graph {
        let mut builder = GraphBuilder::new("g");
        let x = builder.input("x", "N,4,f32".parse().unwrap()).unwrap();
        let attributes: IndexMap<_, _> =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), Attribute::Int(*value))).collect();
        let outputs = builder.node("first", op, &[Some(&x)], attributes, 1).unwrap();
        builder.output("y", &outputs[0]).unwrap();
        builder.finish().unwrap()
    }

    #[test]
    fn every_row_names_engines_of_the_table_an_operator_and_a_reason() {
        let engines: HashSet<&str> = TABLE.iter().map(|engine| engine.name()).collect();
        for row in ROWS {
            assert!(row.engines.iter().all(|engine| engines.contains(engine)), "{}", row.op);
            let is_known = row.op == ANY_OPERATOR || row.op.contains('.') || find_operator(row.op).is_some();
            assert!(is_known && !row.reason.is_empty() && !row.reason.ends_with('.'), "{}", row.op);
        }
    }

    #[test]
    fn a_node_is_replaced_only_for_the_engine_that_deviates() {
        let graph = one_node("Sign", &[]);
        let operators = |engine| {
            let (graph, warnings) = apply(engine, graph.clone()).unwrap();
            assert!(warnings.is_empty());
            assert_eq!(graph.outputs[0].name, "y");
            graph.nodes.iter().map(|node| node.op.clone()).collect::<Vec<_>>()
        };
        assert_eq!(operators("openvino"), ["Sign"]);
        assert_eq!(operators("rten"), ["Greater", "Less", "Cast", "Cast", "Sub"]);
    }

    #[test]
    fn a_node_that_is_computed_rightly_is_kept() {
        let mut graph = one_node("Softmax", &[("axis", 1)]);
        graph.opset = 11;
        assert_eq!(apply("rten", graph.clone()).unwrap().0.nodes, graph.nodes);
        graph.nodes[0].attributes.clear();
        assert_ne!(apply("rten", graph.clone()).unwrap().0.nodes, graph.nodes, "rten's default is another");
    }

    #[test]
    fn a_warning_and_a_refusal_name_the_operator_the_node_and_the_reason() {
        let graph = one_node("ReduceMax", &[]);
        let (_, warnings) = apply("openvino", graph).unwrap();
        let expected = "engine `openvino` deviates from ONNX in operator `ReduceMax` (node `first`): \
                        of elements that are all -inf, the largest is a finite number";
        assert_eq!(warnings, [expected]);
        let mut graph = one_node("Abs", &[]);
        graph.nodes[0].op = "BitShift".to_owned();
        graph.inputs[0].spec.dtype = flagperf_onnx::DType::I32;
        let error = apply("openvino", graph).unwrap_err().to_string();
        let expected = "engine `openvino` does not support operator \
                        `BitShift (signed integers are shifted in another way)` (node `first`)";
        assert_eq!(error, expected);
    }
}
