//! Decomposition of Attention: masks, causality, shared heads, and keys and values of earlier calls.

use super::node_list::{NodeList, float, input, int, output, required};
use crate::{Attribute, DType, Node, Tensor};

/// Queries, keys or values with their heads in a dimension of their own.
struct Heads {
    name: String,
    count: i64,
    width: i64,
}

/// Attention without the output of the scores.
pub(crate) fn attention(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    const KNOWN: [&str; 7] =
        ["is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"];
    if let Some(name) = node.attributes.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("unknown attribute `{name}`"));
    }
    if output(node, 3).is_some() || input(node, 6).is_some() {
        return Err("the output `qk_matmul_output` or the input `nonpad_kv_seqlen` is used".to_owned());
    }
    let dtype = nodes.spec(required(node, 0)?)?.dtype;
    let q = split_heads(nodes, node, 0, "q_num_heads")?;
    let k = split_heads(nodes, node, 1, "kv_num_heads")?;
    let v = split_heads(nodes, node, 2, "kv_num_heads")?;
    let [k, v] = [append(nodes, node, k, 4, 1), append(nodes, node, v, 5, 2)];
    let scale = float(node, "scale", (q.width as f64).sqrt().recip());
    let scaled = nodes.scale(&q.name, scale, dtype);
    let [keys, values] = [repeat(nodes, &k, q.count)?, repeat(nodes, &v, q.count)?];
    let transposed = nodes.transpose(&keys, &[0, 1, 3, 2]);
    let mut scores = nodes.add("MatMul", &[&scaled, &transposed]);
    let softcap = float(node, "softcap", 0.0);
    if softcap > 0.0 {
        let ratio = nodes.scale(&scores, softcap.recip(), dtype);
        let bounded = nodes.add("Tanh", &[&ratio]);
        scores = nodes.scale(&bounded, softcap, dtype);
    }
    let mask = bias(nodes, node, &q, &keys, dtype)?;
    if let Some(mask) = &mask {
        scores = nodes.add("Add", &[&scores, mask]);
    }
    let mut weights = nodes.add_with("Softmax", &[&scores], [("axis", Attribute::Int(-1))]);
    if let Some(mask) = mask.filter(|_| input(node, 3).is_some()) {
        weights = zero_hidden_rows(nodes, &weights, &mask, dtype);
    }
    let product = nodes.add("MatMul", &[&weights, &values]);
    if nodes.spec(required(node, 0)?)?.dims.len() == 4 {
        nodes.define("Identity", &[&product], &node.outputs[0]);
        return Ok(());
    }
    let rows = nodes.transpose(&product, &[0, 2, 1, 3]);
    let joined = nodes.reshape(&rows, &[0, 0, q.count * v.width]);
    nodes.define("Identity", &[&joined], &node.outputs[0]);
    Ok(())
}

fn split_heads(nodes: &mut NodeList<'_>, node: &Node, i: usize, attribute: &str) -> Result<Heads, String> {
    let x = required(node, i)?;
    if nodes.spec(x)?.dims.len() == 4 {
        return Ok(Heads { name: x.to_owned(), count: nodes.size(x, 1)? as i64, width: nodes.size(x, 3)? as i64 });
    }
    let count = int(node, attribute).filter(|count| *count > 0).ok_or_else(|| format!("`{attribute}` is missing"))?;
    let width = nodes.size(x, 2)? as i64 / count;
    let split = nodes.reshape(x, &[0, 0, count, width]);
    Ok(Heads { name: nodes.transpose(&split, &[0, 2, 1, 3]), count, width })
}

/// Adds the rows of earlier calls before the new ones, and defines the output of both.
fn append(nodes: &mut NodeList<'_>, node: &Node, heads: Heads, past: usize, present: usize) -> Heads {
    let mut name = heads.name;
    if let Some(past) = input(node, past) {
        name = nodes.add_with("Concat", &[past, &name], [("axis", Attribute::Int(2))]);
    }
    if let Some(present) = output(node, present) {
        nodes.define("Identity", &[&name], present);
    }
    Heads { name, ..heads }
}

/// Repeats each head of keys or values for the heads of the queries that share it.
fn repeat(nodes: &mut NodeList<'_>, heads: &Heads, count: i64) -> Result<String, String> {
    if heads.count == count {
        return Ok(heads.name.clone());
    }
    if heads.count == 0 || count % heads.count != 0 {
        return Err(format!("{count} heads cannot share {} heads", heads.count));
    }
    let grouped = nodes.unsqueeze(&heads.name, &[2]);
    let shape = nodes.ints(&[1, 1, count / heads.count, 1, 1]);
    let repeated = nodes.add("Expand", &[&grouped, &shape]);
    Ok(nodes.reshape(&repeated, &[0, count, -1, heads.width]))
}

/// Adds what is added to the scores: the mask and the causal mask.
fn bias(nodes: &mut NodeList<'_>, node: &Node, q: &Heads, keys: &str, dtype: DType) -> Result<Option<String>, String> {
    let mut mask = match input(node, 3) {
        Some(mask) if nodes.spec(mask)?.dtype == DType::Bool => Some(choose(nodes, mask, dtype)),
        mask => mask.map(str::to_owned),
    };
    if int(node, "is_causal").unwrap_or(0) != 0 {
        let past = input(node, 4);
        let visible = visible_positions(nodes, &q.name, keys, past);
        let causal = choose(nodes, &visible, dtype);
        mask = Some(match mask {
            Some(mask) => nodes.add("Add", &[&mask, &causal]),
            None => causal,
        });
    }
    Ok(mask)
}

/// Adds a mask of 0 where a bool is true and negative infinity elsewhere.
fn choose(nodes: &mut NodeList<'_>, visible: &str, dtype: DType) -> String {
    let [zero, hidden] = [0.0, f64::NEG_INFINITY].map(|number| nodes.number(number, dtype));
    nodes.add("Where", &[visible, &zero, &hidden])
}

/// Adds the bools that tell which columns each row may see: those up to its own index, counted from the first new row.
fn visible_positions(nodes: &mut NodeList<'_>, q: &str, keys: &str, past: Option<&str>) -> String {
    let columns = positions(nodes, keys);
    let mut rows = positions(nodes, q);
    if let Some(past) = past {
        let count = length(nodes, past);
        rows = nodes.add("Add", &[&rows, &count]);
    }
    let rows = nodes.unsqueeze(&rows, &[1]);
    nodes.add("LessOrEqual", &[&columns, &rows])
}

/// Adds the number of rows of each head, as a scalar.
fn length(nodes: &mut NodeList<'_>, x: &str) -> String {
    let shape = nodes.add("Shape", &[x]);
    let axis = nodes.constant(Tensor::scalar(2i64));
    nodes.add("Gather", &[&shape, &axis])
}

/// Adds the list of the indices of rows.
fn positions(nodes: &mut NodeList<'_>, x: &str) -> String {
    let length = length(nodes, x);
    let [zero, one] = [0i64, 1].map(|number| nodes.constant(Tensor::scalar(number)));
    nodes.add("Range", &[&zero, &length, &one])
}

/// Adds zeros for the weights of rows in which the mask hides every column.
fn zero_hidden_rows(nodes: &mut NodeList<'_>, weights: &str, mask: &str, dtype: DType) -> String {
    let largest = nodes.reduce("ReduceMax", mask, &[-1]);
    let [zero, hidden] = [0.0, f64::NEG_INFINITY].map(|number| nodes.number(number, dtype));
    let is_hidden = nodes.add("Equal", &[&largest, &hidden]);
    nodes.add("Where", &[&is_hidden, &zero, weights])
}
