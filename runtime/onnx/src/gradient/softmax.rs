//! Derivatives of Softmax, LogSoftmax and BatchNormalization with fixed statistics.

use super::Backward;
use super::backward::sum;
use crate::Node;
use crate::lower::{float, int, required};

/// `(dy - Σ dy·y) · y` along the axis.
pub(crate) fn softmax(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis, y) = (b.first()?, int(node, "axis").unwrap_or(-1), node.outputs[0].as_str());
    let product = b.nodes.add("Mul", &[&g, y]);
    let total = sum(b.nodes, &product, &[axis], true);
    let centred = b.nodes.add("Sub", &[&g, &total]);
    let gradient = b.nodes.add("Mul", &[&centred, y]);
    b.set(0, gradient);
    Ok(())
}

/// `dy - exp(y) · Σ dy` along the axis.
pub(crate) fn log_softmax(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, axis) = (b.first()?, int(node, "axis").unwrap_or(-1));
    let total = sum(b.nodes, &g, &[axis], true);
    let probabilities = b.nodes.add("Exp", &[&node.outputs[0]]);
    let share = b.nodes.add("Mul", &[&probabilities, &total]);
    let gradient = b.nodes.add("Sub", &[&g, &share]);
    b.set(0, gradient);
    Ok(())
}

/// With the running statistics, which are no function of the batch. In training a step computes the statistics of the batch.
pub(crate) fn batch_normalization(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    if int(node, "training_mode").unwrap_or(0) != 0 {
        return Err("`training_mode` is set; a training step computes the statistics of the batch itself".to_owned());
    }
    if b.needs(3) || b.needs(4) {
        return Err("the running statistics depend on what is learned".to_owned());
    }
    let (g, rank) = (b.first()?, b.spec(node, 0)?.dims.len() as i64);
    let dtype = b.spec(node, 4)?.dtype;
    let channel: Vec<i64> = (0..rank).map(|axis| if axis == 1 { -1 } else { 1 }).collect();
    let epsilon = b.nodes.number(float(node, "epsilon", 1e-5), dtype);
    let shifted = b.nodes.add("Add", &[required(node, 4)?, &epsilon]);
    let root = b.nodes.add("Sqrt", &[&shifted]);
    if b.needs(0) {
        let factor = b.nodes.add("Div", &[required(node, 1)?, &root]);
        let factor = b.nodes.reshape(&factor, &channel);
        let gradient = b.nodes.add("Mul", &[&g, &factor]);
        b.set(0, gradient);
    }
    if b.needs(1) {
        let [mean, root] = [required(node, 3)?, &root].map(|list| b.nodes.reshape(list, &channel));
        let centred = b.nodes.add("Sub", &[required(node, 0)?, &mean]);
        let normal = b.nodes.add("Div", &[&centred, &root]);
        let product = b.nodes.add("Mul", &[&g, &normal]);
        let gradient = sum_per_channel(b, &product, rank);
        b.set(1, gradient);
    }
    if b.needs(2) {
        let gradient = sum_per_channel(b, &g, rank);
        b.set(2, gradient);
    }
    Ok(())
}

/// Adds the sum of each channel over all other dimensions.
pub(super) fn sum_per_channel(b: &mut Backward<'_, '_>, x: &str, rank: i64) -> String {
    let axes: Vec<i64> = (0..rank).filter(|axis| *axis != 1).collect();
    sum(b.nodes, x, &axes, false)
}
