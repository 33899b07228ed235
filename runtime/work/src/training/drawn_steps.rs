//! Draws steps of a training that another engine computes again, and keeps what it needs.

use std::collections::VecDeque;

use flagperf_core::event::Failure;
use flagperf_core::hash::Seed;
use flagperf_core::tensor::{Tensor, TensorError};
use flagperf_engine::Value;
use flagperf_plan::AuditScope;

use super::super::order::SampleOrder;
use super::super::phase::failure;

/// A step of a training with what it read and what it computed.
pub struct DrawnStep {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The number of the step, from 1.
    pub step: u64,
    /// The batch, the numbers of the step and the states before it.
    pub inputs: Vec<Tensor>,
    /// The loss and the norm of the gradients.
    pub results: Vec<f64>,
    /// The states after it.
    pub states: Vec<Tensor>,
}

/// Draws one step of each block of a training; each block is twice as long as the one before it. The last drawn steps are
/// kept, which lie in the later half of the training if it ends anywhere in a block.
///
/// The draw follows from the seed of the run, and the states are read only after the step was computed: until then, no
/// engine can know that the step is drawn.
pub struct DrawnSteps {
    order: SampleOrder,
    round: u32,
    /// The steps before the first one.
    before: u64,
    /// The number of the next drawn step.
    next: u64,
    kept: VecDeque<DrawnStep>,
    kept_max: usize,
}

impl DrawnSteps {
    /// Draws from the seed of a run.
    pub fn new(seed: Seed, scope: AuditScope) -> Self {
        let kept_max = match scope {
            AuditScope::Standard => 3,
            AuditScope::Full => 5,
        };
        DrawnSteps { order: SampleOrder::new(seed, 0), round: 0, before: 0, next: 1, kept: VecDeque::new(), kept_max }
    }

    /// Starts a training after so many steps. Drawn steps of the training before it are forgotten.
    pub fn start(&mut self, round: u32, before: u64) {
        self.kept.clear();
        (self.round, self.before, self.next) = (round, before, before + 1);
    }

    /// Returns whether the step with this number is drawn.
    pub fn includes(&self, step: u64) -> bool {
        step == self.next
    }

    /// Keeps a drawn step, and draws the next one.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub fn keep(&mut self, step: u64, inputs: &[Value], results: &[f64], states: &[Value]) -> Result<(), Failure> {
        // The loader writes another batch to the same memory.
        let copy = |tensor: Tensor| Tensor::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes());
        let read = |value: &Value| value.to_host().map_err(|e| failure(&e, ""));
        let copied = |value: &Value| copy(read(value)?).map_err(|e: TensorError| failure(&e, ""));
        let inputs = inputs.iter().map(copied).collect::<Result<_, _>>()?;
        let states = states.iter().map(read).collect::<Result<_, _>>()?;
        if self.kept.len() == self.kept_max {
            self.kept.pop_front();
        }
        self.kept.push_back(DrawnStep { round: self.round, step, inputs, results: results.to_vec(), states });
        // Block number `b` has the steps 2^b to 2^(b + 1) - 1.
        let block = (step - self.before).ilog2() + 1;
        let length = 1usize.checked_shl(block).unwrap_or(usize::MAX);
        let place = self.order.choose("training step", u64::from(self.round) << 32 | u64::from(block), length);
        self.next = self.before + length as u64 + place as u64;
        Ok(())
    }

    /// Returns the steps that were kept.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = &DrawnStep> {
        self.kept.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_of_each_block_is_drawn_and_the_last_ones_are_kept() {
        let mut drawn = DrawnSteps::new([3; 32].into(), AuditScope::Standard);
        let mut all = Vec::new();
        for step in 1..200 {
            if drawn.includes(step) {
                drawn.keep(step, &[], &[], &[]).unwrap();
                all.push(step);
            }
        }
        assert_eq!(all.iter().map(|step| step.ilog2()).collect::<Vec<_>>(), (0..all.len() as u32).collect::<Vec<_>>());
        assert_eq!(drawn.kept().map(|kept| kept.step).collect::<Vec<_>>(), all[all.len() - 3..]);
        drawn.start(1, 90);
        assert!(drawn.includes(91) && drawn.kept().len() == 0);
    }
}
