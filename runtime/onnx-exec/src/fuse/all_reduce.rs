//! Lets a gradient start the means over the processes while it still computes other gradients.

use super::super::execution_plan::{ExecutionPlan, Slot};
use super::super::op::Op;
use super::super::ops::ReducedOutputs;

impl ExecutionPlan {
    /// Merges each mean over the processes that only reads gradients of step `i` into this step.
    pub(super) fn fuse_all_reduce(&mut self, i: usize, uses: &[usize]) -> Vec<usize> {
        if !matches!(self.steps[i].op, Op::Gradient { .. }) {
            return Vec::new();
        }
        let (mut merged, mut lists) = (Vec::new(), Vec::new());
        for other in i + 1..self.steps.len() {
            let step = &self.steps[other];
            let place = |slot: &Option<Slot>| {
                let slot = slot.filter(|slot| uses[*slot] == 1)?;
                self.steps[i].outputs.iter().position(|output| *output == slot)
            };
            let Op::MeanOverProcesses { root } = step.op else { continue };
            let Some(places) = step.inputs.iter().map(place).collect() else { continue };
            let (places, means): (Vec<usize>, Vec<Slot>) = (places, step.outputs.clone());
            places.iter().zip(means).for_each(|(place, mean)| self.steps[i].outputs[*place] = mean);
            lists.push(ReducedOutputs { places, root });
            merged.push(other);
        }
        if let Op::Gradient { reduced } = &mut self.steps[i].op {
            reduced.append(&mut lists);
        }
        merged
    }
}
