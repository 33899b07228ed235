//! Runs the steps of the audit between passes.
//!
//! Decides nothing about what they show.

use super::super::audit::{self, Audit, AuditOptions};
use super::super::step::{output_bytes, output_count, sample_rows, select_samples};
use super::MeasuredLoop;
use flagperf_config::InputCost;
use flagperf_core::event::Failure;
use flagperf_core::measure::StepTimes;
use flagperf_core::units::Seconds;
use flagperf_evaluation::name_outputs;
use tracing::debug;

impl MeasuredLoop<'_> {
    /// Runs the steps of the audit after a pass, whose steps had these times. A phase that is not audited runs only the
    /// fresh inputs, for comparison.
    pub(super) fn run_audit(&mut self, audit: &mut Audit, steps: &[StepTimes]) -> Result<(), Failure> {
        let pass = steps.first().map_or(0, |step| step.pass);
        if !audit.is_due(pass, &self.batches.order) {
            return Ok(());
        }
        let order = self.batches.order_of_pass(pass);
        let measured = |batch: usize| {
            let position = order.iter().position(|number| *number == batch);
            position.and_then(|position| steps.get(position)).map(|step| step.core_s).unwrap_or_default()
        };
        let requests = audit.start(pass, &self.batches.order, &self.batches.loader, measured, mean_core(steps));
        debug!(steps = requests.len(), pass, "auditing");
        self.batches.start_requests(requests)?;
        while let Some(batch) = self.batches.next()? {
            let (core, copy, output) = self.model.run_unmeasured(&batch, self.progress.clock)?;
            // As in a measured step: an engine could otherwise compute fresh inputs only while their outputs are copied.
            let deferred = self.totals.link.deferred(copy, output_count(&output), output_bytes(&output));
            let rows = sample_rows(&batch);
            let (samples, output) = select_samples(&batch, rows.as_deref(), output)?;
            if let Some(fresh) = audit.add(core + deferred, name_outputs(&output)) {
                self.evidence.kept.keep_fresh(fresh, samples);
            }
            drop(output);
            self.batches.recycle(batch)?;
        }
        self.model.forget_unmeasured();
        Ok(())
    }

    /// Plans the audit after the first pass, whose steps had these times.
    pub(super) fn plan_audit(&self, first_pass: &[StepTimes]) -> Audit {
        let (passes, is_audited) = (self.schedule.passes, self.job.phase().facts().is_audited);
        let compared = audit::compared_batches(self.batches.count() as usize);
        let core: Seconds = first_pass.iter().map(|step| step.core_s).sum();
        let groups = match is_audited {
            true => audit::group_count(core, first_pass.len(), passes, compared),
            false => compared,
        };
        Audit::new(AuditOptions {
            passes,
            groups,
            compared,
            fresh_only: !is_audited,
            has_fixed_cost: self.job.parameters.input_cost == InputCost::Fixed,
        })
    }
}

/// Returns the mean core time of the full batches among steps.
fn mean_core(steps: &[StepTimes]) -> Seconds {
    let most = steps.iter().map(|step| step.samples).max();
    let full = || steps.iter().filter(|step| Some(step.samples) == most);
    Seconds(full().map(|step| step.core_s.0).sum::<f64>() / full().count().max(1) as f64)
}
