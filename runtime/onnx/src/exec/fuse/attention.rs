//! Merges a product, its softmax and the product of that into one attention.
//!
//! Matches what exporters write: the scale on the scores or on either factor, as a constant or computed from a shape.

use super::super::attention::last_two_swapped;
use super::super::load::{Plan, Slot, Step};
use super::super::op::Op;
use super::super::ops::Binary;
use crate::Dim;

/// The steps around one that may be an attention's last.
struct Search<'a> {
    plan: &'a Plan,
    last: usize,
    uses: &'a [usize],
    /// Whether each value is on the host while the graph runs.
    on_host: Vec<bool>,
}

/// The scores of an attention, traced back to what they are computed from.
struct Scores {
    q: Slot,
    k: Slot,
    key_order: Vec<usize>,
    traced: Traced,
}

/// What lies between the operands of an attention and its result.
#[derive(Default)]
struct Traced {
    scaling: Vec<(Binary, Slot)>,
    merged: Vec<usize>,
}

impl Plan {
    /// softmax(q · kᵀ · scale + mask) · v becomes one step.
    pub(super) fn attention(&mut self, i: usize, uses: &[usize]) -> Vec<usize> {
        let (Op::MatMul, &[Some(weights), Some(v)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return Vec::new();
        };
        let found = self.softmax_before(i, weights, uses).and_then(|softmax| {
            let search = Search { plan: self, last: i, uses, on_host: self.on_host() };
            search.rank(v).filter(|rank| *rank >= 2)?;
            let (mut scores, mask) = search.masked_scores(self.steps[softmax].inputs[0]?)?;
            scores.traced.merged.push(softmax);
            Some((scores, mask))
        });
        let Some((Scores { q, k, key_order, traced }, mask)) = found else { return Vec::new() };
        let (scaling, factors): (Vec<Binary>, Vec<Slot>) = traced.scaling.into_iter().unzip();
        let step = &mut self.steps[i];
        step.op = Op::Attention { key_order, scaling };
        step.inputs = [Some(q), Some(k), Some(v), mask].into_iter().chain(factors.into_iter().map(Some)).collect();
        traced.merged
    }

    /// The softmax over the last axis that makes `slot` for step `i` alone.
    fn softmax_before(&self, i: usize, slot: Slot, uses: &[usize]) -> Option<usize> {
        let at = self.sole_producer(i, slot, uses)?;
        let Op::Softmax { axis, log: false, .. } = self.steps[at].op else { return None };
        let rank = || self.specs[slot].as_ref().map(|spec| spec.dims.len() as i64);
        (axis == -1 || rank() == Some(axis + 1)).then_some(at)
    }
}

impl<'a> Search<'a> {
    /// The scores behind `slot`, and the mask that was added to them.
    fn masked_scores(&self, slot: Slot) -> Option<(Scores, Option<Slot>)> {
        let (at, step) = self.sole(slot)?;
        let (Op::Binary(Binary::Add), &[Some(a), Some(b)]) = (&step.op, &step.inputs[..]) else {
            return Some((self.scores(slot)?, None));
        };
        let (mut scores, mask) = [(a, b), (b, a)].into_iter().find_map(|(x, mask)| Some((self.scores(x)?, mask)))?;
        scores.traced.merged.push(at);
        Some((scores, Some(mask)))
    }

    /// The product behind `slot`.
    fn scores(&self, slot: Slot) -> Option<Scores> {
        let mut traced = Traced::default();
        let product = self.unscaled(slot, &mut traced);
        let (at, step) = self.sole(product)?;
        let (Op::MatMul, &[Some(q), Some(transposed)]) = (&step.op, &step.inputs[..]) else { return None };
        traced.merged.push(at);
        let q = self.unscaled(q, &mut traced);
        self.rank(q).filter(|rank| *rank >= 2)?;
        let (k, key_order) = self.keys(transposed, &mut traced)?;
        Some(Scores { q, k, key_order, traced })
    }

    /// What `slot` is the transpose of, and the order of dimensions that makes keys of it.
    fn keys(&self, slot: Slot, traced: &mut Traced) -> Option<(Slot, Vec<usize>)> {
        let slot = self.unscaled(slot, traced);
        let Some((at, x, order)) = self.transpose(slot) else {
            return Some((slot, last_two_swapped((0..self.rank(slot)?).collect())?));
        };
        if self.uses[slot] != 1 {
            return Some((x, last_two_swapped(order)?));
        }
        traced.merged.push(at);
        Some((self.unscaled(x, traced), last_two_swapped(order)?))
    }

    /// The Transpose that makes `slot`, what it reads and its order.
    fn transpose(&self, slot: Slot) -> Option<(usize, Slot, Vec<usize>)> {
        let at = self.plan.steps[..self.last].iter().position(|step| step.outputs == [slot])?;
        let (Op::Transpose { order: Some(order) }, &[Some(x)]) =
            (&self.plan.steps[at].op, &self.plan.steps[at].inputs[..])
        else {
            return None;
        };
        let order: Vec<usize> = order.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<_>>()?;
        Some((at, x, order))
    }

    /// What `slot` is before it is multiplied or divided by numbers.
    fn unscaled(&self, slot: Slot, traced: &mut Traced) -> Slot {
        let Some((at, step)) = self.sole(slot) else { return slot };
        let (&Op::Binary(kind), &[Some(a), Some(b)]) = (&step.op, &step.inputs[..]) else { return slot };
        let (x, factor) = match kind {
            Binary::Mul | Binary::Div if self.is_number(b) => (a, b),
            Binary::Mul if self.is_number(a) => (b, a),
            _ => return slot,
        };
        traced.scaling.push((kind, factor));
        traced.merged.push(at);
        self.unscaled(x, traced)
    }

    /// The step that makes `slot` for one reader alone.
    fn sole(&self, slot: Slot) -> Option<(usize, &'a Step)> {
        let at = self.plan.sole_producer(self.last, slot, self.uses)?;
        Some((at, &self.plan.steps[at]))
    }

    /// Whether a value is one number that broadcasting leaves no trace of, at hand without waiting for a device.
    fn is_number(&self, slot: Slot) -> bool {
        let one = |dims: &[Dim]| dims.len() <= 2 && dims.iter().all(|dim| *dim == Dim::Fixed(1));
        self.on_host[slot] && self.plan.specs[slot].as_ref().is_some_and(|spec| one(&spec.dims))
    }

    fn rank(&self, slot: Slot) -> Option<usize> {
        self.plan.specs[slot].as_ref().map(|spec| spec.dims.len())
    }
}
