//! Fuses the product of queries and keys, its softmax and the product with the values into one attention step.
//!
//! Matches the forms that exporters write: the scale is applied to the scores or to either factor, and is a constant or
//! computed from a shape.

use super::super::attention::swap_last_two;
use super::super::execution_plan::{ExecutionPlan, Slot, Step};
use super::super::op::Op;
use super::super::ops::Binary;
use flagperf_onnx::Dim;

/// The search for an attention that ends with a given step.
struct AttentionSearch<'a> {
    plan: &'a ExecutionPlan,
    last: usize,
    uses: &'a [usize],
    /// Whether each value is on the host while the graph runs.
    on_host: Vec<bool>,
}

/// The scores of an attention, traced back to the values from which they are computed.
struct Scores {
    q: Slot,
    k: Slot,
    key_order: Vec<usize>,
    trace: Trace,
}

/// The scale factors and the steps found between the operands of an attention and its result.
#[derive(Default)]
struct Trace {
    scaling: Vec<(Binary, Slot)>,
    merged: Vec<usize>,
}

impl ExecutionPlan {
    /// Fuses softmax(q · kᵀ · scale + mask) · v into one step.
    pub(super) fn fuse_attention(&mut self, i: usize, uses: &[usize]) -> Vec<usize> {
        let (Op::MatMul, &[Some(weights), Some(v)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return Vec::new();
        };
        let found = self.sole_softmax_producer(i, weights, uses).and_then(|softmax| {
            let search = AttentionSearch { plan: self, last: i, uses, on_host: self.values_on_host() };
            search.rank(v).filter(|rank| *rank >= 2)?;
            let (mut scores, mask) = search.find_masked_scores(self.steps[softmax].inputs[0]?)?;
            scores.trace.merged.push(softmax);
            Some((scores, mask))
        });
        let Some((Scores { q, k, key_order, trace }, mask)) = found else { return Vec::new() };
        let (scaling, factors): (Vec<Binary>, Vec<Slot>) = trace.scaling.into_iter().unzip();
        let step = &mut self.steps[i];
        step.op = Op::FusedAttention { key_order, scaling };
        step.inputs = [Some(q), Some(k), Some(v), mask].into_iter().chain(factors.into_iter().map(Some)).collect();
        trace.merged
    }

    /// Returns the softmax over the last axis that writes `slot`, if only step `i` reads it.
    fn sole_softmax_producer(&self, i: usize, slot: Slot, uses: &[usize]) -> Option<usize> {
        let at = self.sole_producer(i, slot, uses)?;
        let Op::Softmax { axis, log: false } = self.steps[at].op else { return None };
        let rank = || self.specs[slot].as_ref().map(|spec| spec.dims.len() as i64);
        (axis == -1 || rank() == Some(axis + 1)).then_some(at)
    }
}

impl<'a> AttentionSearch<'a> {
    /// Returns the scores from which `slot` is computed, and the mask added to them, if any.
    fn find_masked_scores(&self, slot: Slot) -> Option<(Scores, Option<Slot>)> {
        let (at, step) = self.sole_producer(slot)?;
        let (Op::Binary(Binary::Add), &[Some(a), Some(b)]) = (&step.op, &step.inputs[..]) else {
            return Some((self.find_scores(slot)?, None));
        };
        let (mut scores, mask) =
            [(a, b), (b, a)].into_iter().find_map(|(x, mask)| Some((self.find_scores(x)?, mask)))?;
        scores.trace.merged.push(at);
        Some((scores, Some(mask)))
    }

    /// Returns the product from which `slot` is computed.
    fn find_scores(&self, slot: Slot) -> Option<Scores> {
        let mut trace = Trace::default();
        let product = self.strip_scaling(slot, &mut trace);
        let (at, step) = self.sole_producer(product)?;
        let (Op::MatMul, &[Some(q), Some(transposed)]) = (&step.op, &step.inputs[..]) else { return None };
        trace.merged.push(at);
        let q = self.strip_scaling(q, &mut trace);
        self.rank(q).filter(|rank| *rank >= 2)?;
        let (k, key_order) = self.find_keys(transposed, &mut trace)?;
        Some(Scores { q, k, key_order, trace })
    }

    /// Returns the value of which `slot` is the transpose, and the order of dimensions that converts it to keys.
    fn find_keys(&self, slot: Slot, trace: &mut Trace) -> Option<(Slot, Vec<usize>)> {
        let slot = self.strip_scaling(slot, trace);
        let Some((at, x, order)) = self.find_transpose(slot) else {
            return Some((slot, swap_last_two((0..self.rank(slot)?).collect())?));
        };
        if self.uses[slot] != 1 {
            return Some((x, swap_last_two(order)?));
        }
        trace.merged.push(at);
        Some((self.strip_scaling(x, trace), swap_last_two(order)?))
    }

    /// Returns the Transpose that writes `slot`, its input and its order.
    fn find_transpose(&self, slot: Slot) -> Option<(usize, Slot, Vec<usize>)> {
        let at = self.plan.steps[..self.last].iter().position(|step| step.outputs == [slot])?;
        let (Op::Transpose { order: Some(order) }, &[Some(x)]) =
            (&self.plan.steps[at].op, &self.plan.steps[at].inputs[..])
        else {
            return None;
        };
        let order: Vec<usize> = order.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<_>>()?;
        Some((at, x, order))
    }

    /// Returns the value from which `slot` results by multiplications and divisions by numbers.
    fn strip_scaling(&self, slot: Slot, trace: &mut Trace) -> Slot {
        let Some((at, step)) = self.sole_producer(slot) else { return slot };
        let (&Op::Binary(kind), &[Some(a), Some(b)]) = (&step.op, &step.inputs[..]) else { return slot };
        let (x, factor) = match kind {
            Binary::Mul | Binary::Div if self.is_number(b) => (a, b),
            Binary::Mul if self.is_number(a) => (b, a),
            _ => return slot,
        };
        trace.scaling.push((kind, factor));
        trace.merged.push(at);
        self.strip_scaling(x, trace)
    }

    /// Returns the step that writes `slot`, if `slot` has only one reader.
    fn sole_producer(&self, slot: Slot) -> Option<(usize, &'a Step)> {
        let at = self.plan.sole_producer(self.last, slot, self.uses)?;
        Some((at, &self.plan.steps[at]))
    }

    /// Returns whether a value is a single number that does not change the shape when broadcast, and that is available
    /// on the host without waiting for a device.
    fn is_number(&self, slot: Slot) -> bool {
        let one = |dims: &[Dim]| dims.len() <= 2 && dims.iter().all(|dim| *dim == Dim::Fixed(1));
        self.on_host[slot] && self.plan.specs[slot].as_ref().is_some_and(|spec| one(&spec.dims))
    }

    fn rank(&self, slot: Slot) -> Option<usize> {
        self.plan.specs[slot].as_ref().map(|spec| spec.dims.len())
    }
}
