//! Decomposition of RotaryEmbedding.

use super::node_list::{NodeList, input, int, required};
use crate::{Attribute, Node};

/// RotaryEmbedding of `batch,heads,rows,width` or, with the number of heads, of `batch,rows,heads*width`.
pub(crate) fn rotary_embedding(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    let rank = nodes.spec(x)?.dims.len();
    let (rows, size) = if rank == 4 {
        (nodes.transpose(x, &[0, 2, 1, 3]), nodes.size(x, 3)? as i64)
    } else {
        let heads = int(node, "num_heads").filter(|heads| *heads > 0).ok_or("`num_heads` is missing")?;
        let size = nodes.size(x, 2)? as i64 / heads;
        (nodes.reshape(x, &[0, 0, heads, size]), size)
    };
    let width = int(node, "rotary_embedding_dim").filter(|width| *width > 0).unwrap_or(size);
    let [cos, sin] = [angles(nodes, node, 1)?, angles(nodes, node, 2)?];
    let interleaved = int(node, "interleaved").unwrap_or(0) != 0;
    let half = width / 2;
    let [first, second] = if interleaved {
        [[0, width, 2], [1, width, 2]].map(|range| nodes.slice(&rows, 3, range))
    } else {
        [[0, half, 1], [half, width, 1]].map(|range| nodes.slice(&rows, 3, range))
    };
    let mut product = |a: &str, b: &str| nodes.add("Mul", &[a, b]);
    let (a, b) = (product(&first, &cos), product(&second, &sin));
    let (c, d) = (product(&first, &sin), product(&second, &cos));
    let mut parts = [nodes.add("Sub", &[&a, &b]), nodes.add("Add", &[&c, &d])];
    let mut rotated = if interleaved {
        parts = parts.map(|part| nodes.unsqueeze(&part, &[-1]));
        let pairs = nodes.add_with("Concat", &[&parts[0], &parts[1]], [("axis", Attribute::Int(-1))]);
        nodes.reshape(&pairs, &[0, 0, 0, width])
    } else {
        nodes.add_with("Concat", &[&parts[0], &parts[1]], [("axis", Attribute::Int(-1))])
    };
    if width < size {
        let rest = nodes.slice(&rows, 3, [width, size, 1]);
        rotated = nodes.add_with("Concat", &[&rotated, &rest], [("axis", Attribute::Int(-1))]);
    }
    let whole = if rank == 4 { nodes.transpose(&rotated, &[0, 2, 1, 3]) } else { nodes.reshape(&rotated, &[0, 0, -1]) };
    nodes.define("Identity", &[&whole], &node.outputs[0]);
    Ok(())
}

/// Adds the cosines or sines of each row: `batch,rows,1,pairs`.
fn angles(nodes: &mut NodeList<'_>, node: &Node, i: usize) -> Result<String, String> {
    let mut table = required(node, i)?.to_owned();
    if let Some(positions) = input(node, 3) {
        table = nodes.add("Gather", &[&table, positions]);
    }
    Ok(nodes.unsqueeze(&table, &[2]))
}
