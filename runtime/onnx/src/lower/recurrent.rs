//! Decompositions of the recurrent operators into the steps of a sequence whose length is known.

use super::node_list::{NodeList, input, int, output, required};
use crate::{Attribute, Node};

/// The equations of one step.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Rnn,
    /// The reset gate is applied to the product if `late`, else to the state.
    Gru {
        late: bool,
    },
    Lstm,
}

pub(crate) fn rnn(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    recurrent(nodes, node, Cell::Rnn)
}

pub(crate) fn gru(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let late = int(node, "linear_before_reset").unwrap_or(0) != 0;
    recurrent(nodes, node, Cell::Gru { late })
}

pub(crate) fn lstm(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    recurrent(nodes, node, Cell::Lstm)
}

/// One direction of a layer.
struct Layer {
    cell: Cell,
    hidden: i64,
    /// The products of the inputs with their weights, with the bias: `steps,batch,gates·hidden`.
    inputs: String,
    /// The recurrent weights: `hidden,gates·hidden`.
    weights: String,
    /// The bias of the recurrent product, if a gate is applied to it.
    late_bias: Option<String>,
}

fn recurrent(nodes: &mut NodeList<'_>, node: &Node, cell: Cell) -> Result<(), String> {
    for name in ["layout", "input_forget"] {
        if int(node, name).unwrap_or(0) != 0 {
            return Err(format!("`{name}` is set"));
        }
    }
    for name in ["activations", "activation_alpha", "activation_beta", "clip"] {
        if node.attributes.contains_key(name) {
            return Err(format!("`{name}` is set"));
        }
    }
    for (i, name) in [(4, "sequence_lens"), (7, "P")] {
        if input(node, i).is_some() {
            return Err(format!("the input `{name}` is used"));
        }
    }
    let (x, r) = (required(node, 0)?, required(node, 2)?);
    let (steps, batch, directions, hidden) =
        (nodes.size(x, 0)?, nodes.size(x, 1)?, nodes.size(r, 0)?, nodes.size(r, 2)? as i64);
    let is_reverse = matches!(node.attributes.get("direction"), Some(Attribute::String(text)) if text == "reverse");
    let (mut all, mut last, mut last_cells) = (vec![], vec![], vec![]);
    for d in 0..directions as i64 {
        let layer = Layer::new(nodes, node, cell, d, hidden)?;
        let first = |nodes: &mut NodeList<'_>, i: usize| -> Result<String, String> {
            match input(node, i) {
                Some(state) => Ok(of_direction(nodes, state, d)),
                None => {
                    let zero = nodes.number(0.0, nodes.spec(x)?.dtype);
                    let shape = nodes.ints(&[batch as i64, hidden]);
                    Ok(nodes.add("Expand", &[&zero, &shape]))
                }
            }
        };
        let mut state = first(nodes, 5)?;
        let mut cells = if cell == Cell::Lstm { first(nodes, 6)? } else { String::new() };
        let mut outputs = vec![];
        for step in 0..steps as i64 {
            let step = if is_reverse || d == 1 { steps as i64 - 1 - step } else { step };
            let row = nodes.slice(&layer.inputs, 0, [step, step + 1, 1]);
            let row = nodes.reshape(&row, &[batch as i64, -1]);
            (state, cells) = layer.step(nodes, &row, &state, &cells);
            outputs.push(nodes.unsqueeze(&state, &[0, 1]));
        }
        if is_reverse || d == 1 {
            outputs.reverse();
        }
        all.push(concat(nodes, &outputs, 0));
        last.push(nodes.unsqueeze(&state, &[0]));
        last_cells.extend((cell == Cell::Lstm).then(|| nodes.unsqueeze(&cells, &[0])));
    }
    for (i, (parts, axis)) in [(all, 1), (last, 0), (last_cells, 0)].into_iter().enumerate() {
        if let (Some(name), false) = (output(node, i), parts.is_empty()) {
            let joined = concat(nodes, &parts, axis);
            nodes.define("Identity", &[&joined], name);
        }
    }
    Ok(())
}

fn concat(nodes: &mut NodeList<'_>, parts: &[String], axis: i64) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    nodes.add_with("Concat", &parts, [("axis", Attribute::Int(axis))])
}

/// Adds the entry of a direction, without its dimension.
fn of_direction(nodes: &mut NodeList<'_>, x: &str, d: i64) -> String {
    let part = nodes.slice(x, 0, [d, d + 1, 1]);
    let axis = nodes.ints(&[0]);
    nodes.add("Squeeze", &[&part, &axis])
}

impl Layer {
    fn new(nodes: &mut NodeList<'_>, node: &Node, cell: Cell, d: i64, hidden: i64) -> Result<Self, String> {
        let [w, r] = [1, 2].map(|i| required(node, i).map(|weights| of_direction(nodes, weights, d)));
        let [w, weights] = [w?, r?].map(|weights| nodes.transpose(&weights, &[1, 0]));
        let mut inputs = nodes.add("MatMul", &[required(node, 0)?, &w]);
        let mut late_bias = None;
        if let Some(bias) = input(node, 3) {
            let width = nodes.size(bias, 1)? as i64 / 2;
            let both = of_direction(nodes, bias, d);
            let [first, second] = [0, width].map(|start| nodes.slice(&both, 0, [start, start + width, 1]));
            inputs = nodes.add("Add", &[&inputs, &first]);
            match cell {
                Cell::Gru { late: true } => late_bias = Some(second),
                _ => inputs = nodes.add("Add", &[&inputs, &second]),
            }
        }
        Ok(Layer { cell, hidden, inputs, weights, late_bias })
    }

    /// Adds one step, and returns the next state and the next cells.
    fn step(&self, n: &mut NodeList<'_>, x: &str, state: &str, cells: &str) -> (String, String) {
        let mut product = n.add("MatMul", &[state, &self.weights]);
        if let Some(bias) = &self.late_bias {
            product = n.add("Add", &[&product, bias]);
        }
        let part = |n: &mut NodeList<'_>, x: &str, i: i64| n.slice(x, 1, [i * self.hidden, (i + 1) * self.hidden, 1]);
        match self.cell {
            Cell::Rnn => {
                let sum = n.add("Add", &[x, &product]);
                (n.add("Tanh", &[&sum]), String::new())
            }
            Cell::Gru { late } => {
                let gate = |n: &mut NodeList<'_>, i: i64| {
                    let [x, product] = [x, &product].map(|sums| part(n, sums, i));
                    let sum = n.add("Add", &[&x, &product]);
                    n.add("Sigmoid", &[&sum])
                };
                let (update, reset) = (gate(n, 0), gate(n, 1));
                let recurrent = if late {
                    let last = part(n, &product, 2);
                    n.add("Mul", &[&reset, &last])
                } else {
                    let (kept, weights) = (n.add("Mul", &[&reset, state]), part(n, &self.weights, 2));
                    n.add("MatMul", &[&kept, &weights])
                };
                let x = part(n, x, 2);
                let sum = n.add("Add", &[&x, &recurrent]);
                let candidate = n.add("Tanh", &[&sum]);
                // (1 - update)·candidate + update·state
                let change = n.add("Sub", &[state, &candidate]);
                let kept = n.add("Mul", &[&update, &change]);
                (n.add("Add", &[&candidate, &kept]), String::new())
            }
            Cell::Lstm => {
                let sums = n.add("Add", &[x, &product]);
                let gate = |n: &mut NodeList<'_>, i: i64, activation: &str| {
                    let sum = part(n, &sums, i);
                    n.add(activation, &[&sum])
                };
                let [enter, leave, keep] = [0, 1, 2].map(|i| gate(n, i, "Sigmoid"));
                let candidate = gate(n, 3, "Tanh");
                let (kept, entered) = (n.add("Mul", &[&keep, cells]), n.add("Mul", &[&enter, &candidate]));
                let cells = n.add("Add", &[&kept, &entered]);
                let curve = n.add("Tanh", &[&cells]);
                (n.add("Mul", &[&leave, &curve]), cells)
            }
        }
    }
}
