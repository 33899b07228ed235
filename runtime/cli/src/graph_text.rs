//! Graphs and their differences as text.

use std::collections::BTreeMap;

use flagperf_onnx::rewrite::{DiffRegion, FUSIONS, Fusion, GraphDiff};
use flagperf_onnx::{Attribute, Graph, Node, count};
use flagperf_onnx_exec::{FOLDED_BYTES_MAX, fold_constants};
use indexmap::IndexMap;

use flagperf_core::text::one_line;
use flagperf_report::{name_value_table, plain_table, wrap};

/// The most near misses that are listed for one operator.
const NEAR_MISSES_LISTED: usize = 5;

/// Describes a graph.
pub(super) fn graph_text(graph: &Graph, lists_nodes: bool, columns: u16) -> String {
    let mut rows = vec![("graph".to_owned(), format!("{}, operator set {}", name(graph), graph.opset))];
    let mut add = |name: &str, value: String| rows.push((name.to_owned(), value));
    add("nodes", graph.nodes.len().to_string());
    let counts = count(graph);
    add("parameters", counts.parameters.to_string());
    match counts.multiply_adds_per_sample {
        Some(0) => add("multiply-adds", "0".to_owned()),
        Some(work) => add("multiply-adds", format!("{:.3e} per sample", work as f64)),
        None => add("multiply-adds", "not known".to_owned()),
    }
    for (kind, values) in [("input", &graph.inputs), ("output", &graph.outputs)] {
        values.iter().for_each(|value| add(kind, format!("{}  {}", one_line(&value.name), value.spec)));
    }
    add("operators", operators(graph));
    if !graph.functions.is_empty() {
        add("functions", "written for another version of the operator set, so their calls stay".to_owned());
    }
    let mut text = name_value_table(rows, columns);
    text += &composites(graph, columns);
    if lists_nodes {
        text += "\n";
        text += &plain_table(graph.nodes.iter().map(|node| node_row(graph, node)), columns);
    }
    text
}

fn name(graph: &Graph) -> String {
    if graph.name.is_empty() { "(without a name)".to_owned() } else { one_line(&graph.name).into_owned() }
}

/// Returns the operators with the number of their nodes, the most frequent first.
fn operators(graph: &Graph) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in &graph.nodes {
        *counts.entry(operator(node)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn operator(node: &Node) -> String {
    let domain = if node.domain.is_empty() { String::new() } else { format!("{}.", node.domain) };
    one_line(&format!("{domain}{}", node.op)).into_owned()
}

/// Describes the composite operators that a graph has as several nodes.
fn composites(graph: &Graph, columns: u16) -> String {
    let folded = match fold_constants(graph, FOLDED_BYTES_MAX) {
        Ok((folded, _)) => folded,
        Err(error) => return format!("composite operators: {}\n", one_line(&error.to_string())),
    };
    let mut text =
        format!("\ncomposite operators as several nodes, of {} after folding constants\n", folded.nodes.len());
    let mut is_empty = true;
    for fusion in FUSIONS {
        let lines = composite(fusion, &folded);
        is_empty &= lines.is_empty();
        lines.iter().for_each(|line| text += &format!("{}\n", wrap(line, columns.into())));
    }
    if is_empty { text + "  none\n" } else { text }
}

fn composite(fusion: &Fusion, graph: &Graph) -> Vec<String> {
    let rewrite = match fusion.apply(graph) {
        Ok(rewrite) => rewrite,
        Err(error) => return vec![format!("  {}: {}", fusion.name, one_line(&error.to_string()))],
    };
    let (places, misses) = (rewrite.replaced.len(), rewrite.near_misses.len());
    if places + misses == 0 {
        return Vec::new();
    }
    let nodes: usize = rewrite.replaced.iter().map(|place| place.nodes).sum();
    let nodes = if places == 0 { String::new() } else { format!(" ({nodes} nodes)") };
    let mut lines = vec![format!("  {}: {places}{nodes}", fusion.name)];
    for miss in rewrite.near_misses.iter().take(NEAR_MISSES_LISTED) {
        lines.push(format!("    not at node `{}`: {}", one_line(&miss.node), one_line(&miss.reason)));
    }
    if misses > NEAR_MISSES_LISTED {
        lines.push(format!("    and not at {} more", misses - NEAR_MISSES_LISTED));
    }
    lines
}

fn node_row(graph: &Graph, node: &Node) -> [String; 3] {
    let list = |names: &[String]| names.iter().map(|name| value(graph, name)).collect::<Vec<_>>().join("; ");
    [operator(node), format!("{}{}", list(&node.inputs), attributes(node)), list(&node.outputs)]
}

/// Returns the name of a value with its shape and type.
fn value(graph: &Graph, name: &str) -> String {
    let declared = graph.inputs.iter().find(|input| input.name == name).map(|input| &input.spec);
    let spec = graph.values.get(name).or(declared).or(graph.weights.get(name).map(|weight| &weight.spec));
    let name = one_line(name);
    spec.map_or_else(|| name.clone().into_owned(), |spec| format!("{name} {spec}"))
}

fn attributes(node: &Node) -> String {
    let text = |value: &Attribute| match value {
        Attribute::Int(number) => number.to_string(),
        Attribute::Float(number) => number.to_string(),
        Attribute::String(text) => format!("\"{}\"", one_line(text)),
        Attribute::Ints(numbers) => format!("{numbers:?}"),
        Attribute::Floats(numbers) => format!("{numbers:?}"),
        Attribute::Strings(_) => "texts".to_owned(),
        Attribute::Tensor(tensor) => tensor.spec().to_string(),
        Attribute::Encoded(_) => "a graph".to_owned(),
    };
    let all: Vec<String> =
        node.attributes.iter().map(|(name, value)| format!("{}={}", one_line(name), text(value))).collect();
    if all.is_empty() { String::new() } else { format!(" <{}>", all.join(", ")) }
}

/// Describes the difference between two graphs. Regions with the same operators and shapes are described once.
pub(super) fn diff_text(diff: &GraphDiff, before: &Graph, after: &Graph, columns: u16) -> String {
    let [old, new] = [before.nodes.len(), after.nodes.len()];
    let mut text = format!("{old} nodes before, {new} after, {} in both\n", diff.unchanged);
    if diff.respelled > 0 {
        text += &format!(
            "of these, {} state defaults or list operands in another order, which changes nothing\n",
            diff.respelled
        );
    }
    for [what, old, new] in &diff.interface {
        text += &format!("{}\n", wrap(&format!("{}: {old} before, {new} after", one_line(what)), columns.into()));
    }
    if diff.weights[0] != diff.weights[1] {
        text += &format!("weights and constants: {} before, {} after\n", diff.weights[0], diff.weights[1]);
    }
    if let Some(first) = diff.changed_weights.first() {
        let count = diff.changed_weights.len();
        text += &format!("weights of the same name with other elements: {count}, the first is `{}`\n", one_line(first));
    }
    for (description, places) in grouped(diff, before, after) {
        let count = if places == 1 { "one region".to_owned() } else { format!("{places} regions") };
        text += &format!("\n{count}\n");
        text += &plain_table(description, columns);
    }
    text
}

/// A node in a region: its sign, operator and shapes.
pub(super) type RegionRow = [String; 3];

/// Returns the regions that differ from each other by more than names, each with the number of its occurrences.
pub(super) fn grouped(diff: &GraphDiff, before: &Graph, after: &Graph) -> IndexMap<Vec<RegionRow>, usize> {
    let mut groups: IndexMap<Vec<RegionRow>, usize> = IndexMap::new();
    for region in &diff.regions {
        *groups.entry(region_rows(region, before, after)).or_default() += 1;
    }
    groups
}

fn region_rows(region: &DiffRegion, before: &Graph, after: &Graph) -> Vec<RegionRow> {
    let row = |sign: &str, graph: &Graph, node: &Node| {
        let shapes = |names: &[String]| {
            let spec = |name: &String| {
                let declared = graph.inputs.iter().find(|input| input.name == *name).map(|input| &input.spec);
                let weight = graph.weights.get(name).map(|weight| &weight.spec);
                graph.values.get(name).or(declared).or(weight).map_or_else(|| "?".to_owned(), ToString::to_string)
            };
            names.iter().map(spec).collect::<Vec<_>>().join("; ")
        };
        let io = format!("{} -> {}{}", shapes(&node.inputs), shapes(&node.outputs), attributes(node));
        [format!("  {sign}"), operator(node), io]
    };
    let old = region.before.iter().map(|number| row("-", before, &before.nodes[*number]));
    old.chain(region.after.iter().map(|number| row("+", after, &after.nodes[*number]))).collect()
}
