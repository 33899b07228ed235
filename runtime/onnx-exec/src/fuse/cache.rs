//! Lets steps overwrite caches, and finds masks that hide no row of an attention completely.

use super::super::execution_plan::{ExecutionPlan, Slot};
use super::super::op::Op;

impl ExecutionPlan {
    /// Lets a TensorScatter overwrite an input of the graph that nothing else reads.
    pub(super) fn overwrite_cache(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let Op::TensorScatter(_) = self.steps[i].op else { return None };
        let mut slot = (*self.steps[i].inputs.first()?)?;
        while let Some(at) = self.sole_producer(i, slot, uses) {
            if !matches!(self.steps[at].op, Op::Pad { mode: None } | Op::Reshape { .. } | Op::Identity) {
                return None;
            }
            slot = (*self.steps[at].inputs.first()?)?;
        }
        let input = self.inputs.iter().position(|input| *input == slot)?;
        // The length of the cache is also read, from its shape.
        let is_other_reader = |at: &usize| {
            let step = &self.steps[*at];
            !matches!(step.op, Op::Shape { .. } | Op::Size) && step.inputs.contains(&Some(slot))
        };
        let readers = (0..self.steps.len()).filter(is_other_reader).count();
        if readers == 1 && !self.outputs.contains(&slot) {
            self.overwritten.push(input);
            if let Op::TensorScatter(scatter) = &mut self.steps[i].op {
                scatter.in_place = true;
            }
        }
        None
    }

    /// Marks an attention whose mask is selected from finite constants.
    pub(super) fn find_finite_mask(&mut self, i: usize, _: &[usize]) -> Option<usize> {
        let Op::MultiHeadAttention(_) = self.steps[i].op else { return None };
        let is_finite = self.is_finite((*self.steps[i].inputs.get(3)?)?);
        if let Op::MultiHeadAttention(attention) = &mut self.steps[i].op {
            attention.has_finite_mask = is_finite;
        }
        None
    }

    /// Returns whether a value is known to be finite: a constant, one that is selected from two, or one with the same elements.
    fn is_finite(&self, slot: Slot) -> bool {
        if let Some(constant) = self.constants.get(&slot) {
            // False in a mask of bools stands for minus infinity.
            return constant.dtype().is_float() && constant.to_f64().iter().all(|value| value.is_finite());
        }
        let Some(step) = self.steps.iter().find(|step| step.outputs == [slot]) else { return false };
        let input = |i: usize| step.inputs.get(i).copied().flatten().is_some_and(|slot| self.is_finite(slot));
        match step.op {
            Op::Select => input(1) && input(2),
            Op::Unsqueeze | Op::Squeeze | Op::Reshape { .. } | Op::Expand | Op::Identity => input(0),
            _ => false,
        }
    }
}
