//! A page that draws two graphs beside each other and marks what differs. It needs neither scripts nor the network.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use flagperf_onnx::rewrite::GraphDiff;
use flagperf_onnx::{Graph, Node};

use super::graph_text::grouped;
use flagperf_core::text::escape_lines;

/// The most nodes of a graph that is drawn whole; of a larger one, only what differs and its neighbours.
const DRAWN_MAX: usize = 4_000;
/// The size of a node, and the distance between nodes, in pixels.
const WIDTH: usize = 150;
const HEIGHT: usize = 22;
const GAP: usize = 14;

const STYLE: &str = "body{font:14px sans-serif;margin:1em}table{border-collapse:collapse}td{padding:.1em .8em .1em 0;vertical-align:top}\
.graphs{display:flex;gap:1em}.graph{flex:1;min-width:0;overflow:auto;height:80vh;border:1px solid #999}\
rect{fill:#eef;stroke:#88a}.removed rect{fill:#fcc;stroke:#a00}.added rect{fill:#cfc;stroke:#080}text{font:11px monospace}\
path{fill:none;stroke:#999}.minus{color:#a00}.plus{color:#080}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}";

/// Returns the page.
pub(super) fn graph_page(diff: &GraphDiff, [before, after]: [&Graph; 2], titles: &[String; 2]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{} and {}</title><style>{STYLE}</style>\n",
        escape(&titles[0]),
        escape(&titles[1])
    );
    let summary = format!(
        "<p>{} nodes before, {} after, {} in both.</p>\n",
        before.nodes.len(),
        after.nodes.len(),
        diff.unchanged
    );
    page += &summary;
    for (rows, places) in grouped(diff, before, after) {
        write!(page, "<details><summary>{places} &times; {} nodes</summary><table>", rows.len()).expect(ACCEPTS);
        for [sign, operator, shapes] in rows {
            let class = if sign.trim() == "-" { "minus" } else { "plus" };
            let cells = [sign, operator, shapes].map(|cell| format!("<td>{}</td>", escape(&cell))).concat();
            write!(page, "<tr class=\"{class}\">{cells}</tr>").expect(ACCEPTS);
        }
        page += "</table></details>\n";
    }
    page += "<div class=\"graphs\">\n";
    let removed: HashSet<usize> = diff.regions.iter().flat_map(|region| region.before.iter().copied()).collect();
    let added: HashSet<usize> = diff.regions.iter().flat_map(|region| region.after.iter().copied()).collect();
    for (graph, marked, class, title) in
        [(before, &removed, "removed", &titles[0]), (after, &added, "added", &titles[1])]
    {
        writeln!(page, "<div class=\"graph\"><h3>{}</h3>{}</div>", escape(title), drawing(graph, marked, class))
            .expect(ACCEPTS);
    }
    page + "</div></html>\n"
}

const ACCEPTS: &str = "a text accepts everything";

pub(super) fn escape(text: &str) -> String {
    let shown = escape_lines(text);
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Draws a graph from top to bottom: each node is below those that it reads.
fn drawing(graph: &Graph, marked: &HashSet<usize>, class: &str) -> String {
    let producers: HashMap<&str, usize> = (graph.nodes.iter().enumerate())
        .flat_map(|(number, node)| node.outputs.iter().map(move |output| (output.as_str(), number)))
        .collect();
    let sources = |node: &Node| -> Vec<usize> {
        node.inputs.iter().filter_map(|input| producers.get(input.as_str()).copied()).collect()
    };
    let drawn = drawn_nodes(graph, marked, &sources);
    let mut places: HashMap<usize, (usize, usize)> = HashMap::new();
    let mut rows: Vec<usize> = Vec::new();
    for number in &drawn {
        let above = sources(&graph.nodes[*number]).into_iter().filter_map(|source| places.get(&source));
        let row = above.map(|(row, _)| row + 1).max().unwrap_or(0);
        rows.resize(rows.len().max(row + 1), 0);
        places.insert(*number, (row, rows[row]));
        rows[row] += 1;
    }
    let columns = rows.iter().copied().max().unwrap_or(0);
    let (width, height) = (columns * (WIDTH + GAP) + GAP, rows.len() * (HEIGHT + GAP) + GAP);
    let at = |(row, column): (usize, usize)| (GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP));
    let mut svg = format!("<svg width=\"{width}\" height=\"{height}\">");
    for number in &drawn {
        let (x, y) = at(places[number]);
        for source in sources(&graph.nodes[*number]) {
            if let Some((from_x, from_y)) = places.get(&source).map(|place| at(*place)) {
                let (from_x, from_y, x) = (from_x + WIDTH / 2, from_y + HEIGHT, x + WIDTH / 2);
                let middle = (from_y + y) / 2;
                write!(svg, "<path d=\"M{from_x} {from_y}C{from_x} {middle} {x} {middle} {x} {y}\"/>").expect(ACCEPTS);
            }
        }
    }
    for number in &drawn {
        let (x, y) = at(places[number]);
        svg += &node_box(graph, *number, (x, y), if marked.contains(number) { class } else { "" });
    }
    if drawn.len() < graph.nodes.len() {
        write!(svg, "</svg><p>{} of {} nodes are drawn.</p>", drawn.len(), graph.nodes.len()).expect(ACCEPTS);
        return svg;
    }
    svg + "</svg>"
}

/// Returns the nodes that are drawn: all, or those that differ with what they read and what reads them.
fn drawn_nodes(graph: &Graph, marked: &HashSet<usize>, sources: &dyn Fn(&Node) -> Vec<usize>) -> Vec<usize> {
    if graph.nodes.len() <= DRAWN_MAX {
        return (0..graph.nodes.len()).collect();
    }
    let mut near: HashSet<usize> = marked.clone();
    for (number, node) in graph.nodes.iter().enumerate() {
        let sources = sources(node);
        if marked.contains(&number) {
            near.extend(&sources);
        } else if sources.iter().any(|source| marked.contains(source)) {
            near.insert(number);
        }
    }
    let mut near: Vec<usize> = near.into_iter().collect();
    near.sort_unstable();
    near.truncate(DRAWN_MAX);
    near
}

fn node_box(graph: &Graph, number: usize, (x, y): (usize, usize), class: &str) -> String {
    let node = &graph.nodes[number];
    let spec = |name: &String| graph.values.get(name).map_or_else(|| "?".to_owned(), ToString::to_string);
    let shapes = node.outputs.iter().map(spec).collect::<Vec<_>>().join("; ");
    let title = escape(&format!("{} {}\n{} -> {shapes}", node.op, node.name, node.inputs.join(", ")));
    let (text_x, text_y) = (x + 4, y + 15);
    let label: String = format!("{} {shapes}", node.op).chars().take(23).collect();
    format!(
        "<g class=\"{class}\"><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\
         <text x=\"{text_x}\" y=\"{text_y}\">{}</text></g>",
        escape(&label)
    )
}
