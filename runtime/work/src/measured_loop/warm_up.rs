//! Warm-up before the measurement, and the check of inputs after it.
//!
//! Nothing here is part of a figure.

use super::super::input_check::InputHashes;
use super::super::phase::failure;
use super::{MeasuredLoop, Schedule};
use flagperf_core::event::Failure;
use flagperf_core::measure::Warmup;
use flagperf_data::Batch;

impl MeasuredLoop<'_> {
    /// Repeats the first batch until step times are steady. One batch suffices when all have the same shape: the last is
    /// padded. Otherwise the rest of a pass follows, in which the first batch of each further shape runs once. Returns also
    /// the hashes of preloaded inputs.
    pub(super) fn warm_up(&mut self) -> Result<(Warmup, InputHashes), Failure> {
        let mut warmup = Schedule::warm_up();
        self.progress.report(true, 0, 0, 0);
        let batch = self.batches.start_with_first()?;
        let inputs = if self.job.parameters.preloaded { InputHashes::of(&batch) } else { InputHashes::default() };
        while !warmup.is_done() {
            let (core, _, _) = self.model.run_unmeasured(&batch, self.progress.clock)?;
            warmup.push(core);
            self.progress.report(true, 0, u64::from(warmup.steps()), 0);
        }
        self.totals.link = self.model.measure_output_link(&batch, self.progress.clock)?;
        let warm = input_shapes(&batch);
        self.batches.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        self.warm_up_further_shapes(vec![warm])?;
        self.model.forget_unmeasured();
        Ok((warmup, inputs))
    }

    /// Runs the first batch of each shape in the rest of the pass that is not `warm`.
    fn warm_up_further_shapes(&mut self, mut warm: Vec<Vec<Vec<usize>>>) -> Result<(), Failure> {
        while self.batches.loader.has_open_length()
            && let Some(batch) = self.batches.next()?
        {
            let shapes = input_shapes(&batch);
            if !warm.contains(&shapes) {
                self.model.run_unmeasured(&batch, self.progress.clock)?;
                warm.push(shapes);
            }
            self.batches.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        }
        Ok(())
    }

    /// Checks after the last pass, outside the measurement, that no engine writes to its inputs: that preloaded inputs are
    /// still those of warm-up, and that sidecars, which share memory with the host, do not write to them in a late run.
    pub(super) fn check_inputs(&mut self, at_first: &InputHashes) -> Result<(), Failure> {
        let has_sidecar = self.model.has_sidecar();
        if !has_sidecar && !self.job.parameters.preloaded {
            return Ok(());
        }
        let batch = self.batches.start_with_first()?;
        at_first.check(&batch)?;
        if has_sidecar {
            self.model.run_with_checked_inputs(&batch)?;
        }
        self.batches.recycle(batch)
    }
}

/// Returns the shape of every input of a batch.
fn input_shapes(batch: &Batch) -> Vec<Vec<usize>> {
    batch.inputs.values().map(|tensor| tensor.shape().to_vec()).collect()
}
