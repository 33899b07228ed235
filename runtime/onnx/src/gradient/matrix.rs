//! Derivatives of matrix products.

use super::Backward;
use super::backward::sum_to;
use crate::lower::{float, int, required};
use crate::{Attribute, Dim, Node};

/// `dA = dY · Bᵀ` and `dB = Aᵀ · dY`, summed over the dimensions that were broadcast.
pub(crate) fn matmul(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let (left, right) = (required(node, 0)?, required(node, 1)?);
    let (left_dims, right_dims) = (b.spec(node, 0)?.dims.clone(), b.spec(node, 1)?.dims.clone());
    if left_dims.len() < 2 || right_dims.len() < 2 {
        return Err("a factor has one dimension; reshape it to a matrix".to_owned());
    }
    let batch = &b.output_dims(node)?[..b.output_dims(node)?.len() - 2];
    let of_batch = |matrix: &[Dim]| [batch, &matrix[matrix.len() - 2..]].concat();
    if b.needs(0) {
        let transposed = swap_last(b, right, right_dims.len());
        let product = b.nodes.add("MatMul", &[&g, &transposed]);
        let sum = sum_to(b.nodes, &product, &of_batch(&left_dims), &left_dims)?;
        b.set(0, sum);
    }
    if b.needs(1) {
        let gradient = match right_dims.len() {
            // One product of flat matrices is cheaper than a sum of products.
            2 if left_dims.len() > 2 => {
                let flat = [(left, &left_dims[left_dims.len() - 1]), (&g, &right_dims[1])].map(|(x, width)| {
                    let width = width.fixed().ok_or("the width of a matrix is not known".to_owned())?;
                    Ok::<_, String>(b.nodes.reshape(x, &[-1, width as i64]))
                });
                let [left, g] = flat;
                let transposed = swap_last(b, &left?, 2);
                b.nodes.add("MatMul", &[&transposed, &g?])
            }
            _ => {
                let transposed = swap_last(b, left, left_dims.len());
                let product = b.nodes.add("MatMul", &[&transposed, &g]);
                sum_to(b.nodes, &product, &of_batch(&right_dims), &right_dims)?
            }
        };
        b.set(1, gradient);
    }
    Ok(())
}

/// Adds a transposition of the last two dimensions.
fn swap_last(b: &mut Backward<'_, '_>, x: &str, rank: usize) -> String {
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.swap(rank - 1, rank - 2);
    b.nodes.transpose(x, &order)
}

/// `Y = α A' B' + β C`, where `'` is the transposition that an attribute requests.
pub(crate) fn gemm(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let (left, right) = (required(node, 0)?, required(node, 1)?);
    let [left_flipped, right_flipped] = ["transA", "transB"].map(|name| int(node, name).unwrap_or(0) != 0);
    let (alpha, beta) = (float(node, "alpha", 1.0), float(node, "beta", 1.0));
    let product = |b: &mut Backward<'_, '_>, factors: [&str; 2], flipped: [bool; 2]| {
        let [flip_a, flip_b] = flipped.map(|flip| Attribute::Int(i64::from(flip)));
        let alpha = Attribute::Float(alpha as f32);
        b.nodes.add_with("Gemm", &factors, [("alpha", alpha), ("transA", flip_a), ("transB", flip_b)])
    };
    if b.needs(0) {
        let gradient = match left_flipped {
            true => product(b, [right, &g], [right_flipped, true]),
            false => product(b, [&g, right], [false, !right_flipped]),
        };
        b.set(0, gradient);
    }
    if b.needs(1) {
        let gradient = match right_flipped {
            true => product(b, [&g, left], [true, left_flipped]),
            false => product(b, [left, &g], [!left_flipped, false]),
        };
        b.set(1, gradient);
    }
    if b.needs(2) {
        let dtype = b.dtype(node)?;
        let scaled = if beta == 1.0 { g } else { b.nodes.scale(&g, beta, dtype) };
        b.set_broadcast(node, 2, &scaled, b.output_dims(node)?)?;
    }
    Ok(())
}

/// The gradient of an operand is an Einsum of the gradient and the other operands, if each of its indices is in one of them.
pub(crate) fn einsum(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let g = b.first()?;
    let Some(Attribute::String(equation)) = node.attributes.get("equation") else {
        return Err("`equation` is missing".to_owned());
    };
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = equation.split_once("->").ok_or("the equation does not name the output's indices")?;
    let inputs: Vec<&str> = inputs.split(',').collect();
    let repeats = |term: &str| term.chars().enumerate().any(|(i, c)| term[..i].contains(c));
    if equation.contains('.') || inputs.iter().any(|term| repeats(term)) {
        return Err(format!("`{equation}` has an ellipsis or a repeated index"));
    }
    for i in (0..inputs.len()).filter(|i| b.needs(*i)).collect::<Vec<_>>() {
        let others = |list: &[&str]| -> Vec<String> {
            list.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, text)| (*text).to_owned()).collect()
        };
        let terms = [vec![output.to_owned()], others(&inputs)].concat();
        if let Some(index) = inputs[i].chars().find(|index| !terms.iter().any(|term| term.contains(*index))) {
            return Err(format!("index `{index}` of `{equation}` is only in one operand"));
        }
        let names: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
        let factors = [vec![g.clone()], others(&names)].concat();
        let factors: Vec<&str> = factors.iter().map(String::as_str).collect();
        let equation = Attribute::String(format!("{}->{}", terms.join(","), inputs[i]));
        let gradient = b.nodes.add_with("Einsum", &factors, [("equation", equation)]);
        b.set(i, gradient);
    }
    Ok(())
}
