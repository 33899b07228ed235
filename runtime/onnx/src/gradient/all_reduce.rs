//! The derivative of the means over the processes that train one model together.

use super::Backward;
use crate::training::all_reduce_node;
use crate::{ALL_REDUCE, Node};

/// Adds the derivative of [`ALL_REDUCE`]: the means of the gradients over the processes.
///
/// The gradients of a process are those of the sum of the losses of all processes. That of a mean of `n` values reaches each of them by
/// `1 / n` from every process.
pub(super) fn all_reduce(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let gradients = (0..node.outputs.len()).filter(|place| b.needs(*place));
    let gradients: Vec<(usize, String)> = gradients.filter_map(|place| Some((place, b.output(place)?))).collect();
    if gradients.is_empty() {
        return Ok(());
    }
    let means: Vec<String> = gradients.iter().map(|_| b.nodes.name(ALL_REDUCE)).collect();
    let inputs = gradients.iter().map(|(_, gradient)| gradient.clone()).collect();
    b.nodes.keep(all_reduce_node(inputs, means.clone()));
    gradients.into_iter().zip(means).for_each(|((place, _), mean)| b.set(place, mean));
    Ok(())
}
