//! What a measured loop keeps of its outputs, so that others can check what the engine computed.

use super::super::outputs::KeptOutputs;
use super::super::pass_comparison::PassComparison;
use super::super::phase::failure;
use super::super::step::EvaluatedStep;
use flagperf_core::event::Failure;
use flagperf_core::tensor::Tensor;
use flagperf_data::Batch;
use flagperf_evaluation::StoredPass;

/// The outputs that are kept, and what they are compared by.
pub struct Evidence {
    /// The outputs of one pass.
    pub kept: KeptOutputs,
    /// What the evaluator received in that pass.
    pub stored: StoredPass,
    /// How the passes differ from each other; empty unless they are compared.
    pub comparison: PassComparison,
    compares_passes: bool,
}

impl Evidence {
    /// Creates empty evidence of a loop of so many passes. The first pass is kept, unless the phase is compared with
    /// another one: then it is a random pass, and the passes are compared with each other. `ranks` has the rank of each
    /// batch: those of the lowest ranks are kept if not all fit.
    pub(super) fn new(passes: u32, is_compared: bool, ranks: Vec<usize>) -> Self {
        let kept = KeptOutputs::of_random_pass(if is_compared { passes } else { 1 }).with_ranks(ranks);
        Evidence {
            stored: StoredPass::new(kept.pass),
            kept,
            comparison: PassComparison::default(),
            compares_passes: is_compared && passes > 1,
        }
    }

    /// Creates empty evidence of one pass of a loop that is compared with no other.
    pub fn of_pass(pass: u32, ranks: Vec<usize>) -> Self {
        let kept = KeptOutputs::of_pass(pass).with_ranks(ranks);
        Evidence { stored: StoredPass::new(pass), kept, comparison: PassComparison::default(), compares_passes: false }
    }

    /// Keeps of a step of a pass what is needed of it; `outputs` are those of the step by name.
    pub fn add_step(
        &mut self,
        pass: u32,
        batch: &Batch,
        step: &EvaluatedStep,
        outputs: Vec<(String, Tensor)>,
    ) -> Result<(), Failure> {
        if self.compares_passes {
            self.comparison.add_step(batch.index, &outputs);
        }
        if pass != self.kept.pass {
            return Ok(());
        }
        let rank = self.kept.rank_of(batch);
        self.kept.keep(batch, step.samples, outputs);
        self.stored.add(&step.stored, rank, &step.observed).map_err(|e| failure(&e, ""))
    }

    /// Ends a pass.
    pub(super) fn end_pass(&mut self) {
        self.comparison.end_pass();
    }
}
