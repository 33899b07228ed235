//! Warm-up before the measurement, and the check of inputs after it.
//!
//! Nothing here is part of a figure.

use super::super::input_check::InputHashes;
use super::super::phase::failure;
use super::MeasuredLoop;
use flagperf_core::event::Failure;
use flagperf_core::measure::Warmup;
use flagperf_core::units::Seconds;
use flagperf_data::Batch;
use flagperf_script::ForwardFn;

/// Largest number of warm-up steps.
const WARMUP_STEPS_MAX: usize = 20;
/// Warm-up ends after this time even if steps are not steady.
const WARMUP_TIME_MAX: Seconds = Seconds(10.0);

impl MeasuredLoop<'_> {
    /// Repeats the first batch until step times are steady. One batch suffices when all have the same shape: the last is
    /// padded. Otherwise the rest of a pass follows, in which the first batch of each further shape runs once. Returns also
    /// the hashes of preloaded inputs.
    pub(super) fn warm_up(&mut self, forward: &mut ForwardFn) -> Result<(Warmup, InputHashes), Failure> {
        let mut warmup = Warmup::new(WARMUP_STEPS_MAX, WARMUP_TIME_MAX);
        self.report_progress(true, 0, 0);
        self.start_pass()?;
        let batch = self.next_batch()?.ok_or_else(|| failure(&"the dataset is empty", ""))?;
        let inputs = if self.job.parameters.preloaded { InputHashes::of(&batch) } else { InputHashes::default() };
        while !warmup.is_done() {
            let (core, _) = self.run_unmeasured(forward, &batch)?;
            warmup.push(core);
            self.report_progress(true, 0, u64::from(warmup.steps()));
        }
        let warm = input_shapes(&batch);
        self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        self.warm_up_further_shapes(forward, vec![warm])?;
        forward.take_spans();
        forward.take_runs();
        // Discards the vendor time of warm-up.
        self.take_vendor_time();
        Ok((warmup, inputs))
    }

    /// Runs the first batch of each shape in the rest of the pass that is not `warm`.
    fn warm_up_further_shapes(
        &mut self,
        forward: &mut ForwardFn,
        mut warm: Vec<Vec<Vec<usize>>>,
    ) -> Result<(), Failure> {
        while self.loader.has_open_length()
            && let Some(batch) = self.next_batch()?
        {
            let shapes = input_shapes(&batch);
            if !warm.contains(&shapes) {
                self.run_unmeasured(forward, &batch)?;
                warm.push(shapes);
            }
            self.loader.recycle(batch).map_err(|e| failure(&e, ""))?;
        }
        Ok(())
    }

    /// Checks after the last pass, outside the measurement, that no engine writes to its inputs: that preloaded inputs are
    /// still those of warm-up, and that sidecars, which share memory with the host, do not write to them in a late run.
    pub(super) fn check_inputs(&mut self, forward: &mut ForwardFn, at_first: &InputHashes) -> Result<(), Failure> {
        let has_sidecar =
            self.sessions.values().any(|session| session.lock().is_ok_and(|s| s.facts().sidecar.is_some()));
        if !has_sidecar && !self.job.parameters.preloaded {
            return Ok(());
        }
        self.start_pass()?;
        let batch = self.next_batch()?.ok_or_else(|| failure(&"the dataset is empty", ""))?;
        at_first.check(&batch)?;
        if has_sidecar {
            self.sessions
                .values()
                .filter_map(|session| session.lock().ok())
                .for_each(|mut s| s.check_inputs_of_next_run());
            drop(forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?);
            self.sync()?;
        }
        self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))
    }
}

/// Returns the shape of every input of a batch.
fn input_shapes(batch: &Batch) -> Vec<Vec<usize>> {
    batch.inputs.values().map(|tensor| tensor.shape().to_vec()).collect()
}
