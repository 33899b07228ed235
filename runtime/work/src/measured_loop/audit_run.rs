//! Runs the steps of the audit between passes.
//!
//! Decides nothing about what they show.

use super::super::audit::{self, Audit, AuditOptions};
use super::super::phase::failure;
use super::super::step;
use super::{MeasuredLoop, select_samples};
use flagperf_config::InputCost;
use flagperf_core::event::Failure;
use flagperf_core::measure::StepTimes;
use flagperf_core::units::Seconds;
use flagperf_evaluation::name_outputs;
use flagperf_script::ForwardFn;
use tracing::debug;

impl MeasuredLoop<'_> {
    /// Runs the steps of the audit after a pass, whose steps had these times. A phase that is not audited runs only the
    /// fresh inputs, for comparison.
    pub(super) fn run_audit(
        &mut self,
        audit: &mut Audit,
        steps: &[StepTimes],
        forward: &mut ForwardFn,
    ) -> Result<(), Failure> {
        let pass = steps.first().map_or(0, |step| step.pass);
        if !audit.is_due(pass, &self.order) {
            return Ok(());
        }
        let order = self.order.of_pass(self.job.phase(), pass);
        let measured = |batch: usize| {
            let position = order.iter().position(|number| *number == batch);
            position.and_then(|position| steps.get(position)).map(|step| step.core_s).unwrap_or_default()
        };
        let requests = audit.start(pass, &self.order, &self.loader, measured);
        debug!(steps = requests.len(), pass, "auditing");
        self.loader.start_requests(requests).map_err(|e| failure(&e, e.hint()))?;
        while let Some(batch) = self.next_batch()? {
            let (core, output) = self.run_unmeasured(forward, &batch)?;
            let rows = step::sample_rows(&batch);
            let (samples, output) = select_samples(&batch, rows.as_deref(), output)?;
            if let Some(compared) = audit.add(core, name_outputs(&output)) {
                self.totals.kept.keep_fresh(&batch, samples, compared);
            }
            drop(output);
            self.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
        }
        // None of this is part of the figures.
        forward.take_spans();
        forward.take_runs();
        self.take_vendor_time();
        Ok(())
    }

    /// Plans the audit after the first pass, whose steps had these times.
    pub(super) fn plan_audit(&self, first_pass: &[StepTimes]) -> Audit {
        let compared = audit::compared_batches(self.batches as usize);
        let core: Seconds = first_pass.iter().map(|step| step.core_s).sum();
        let groups = match self.phase.is_audited {
            true => audit::group_count(core, first_pass.len(), self.job.settings.repeat, compared),
            false => compared,
        };
        Audit::new(AuditOptions {
            passes: self.job.settings.repeat,
            groups,
            compared,
            fresh_only: !self.phase.is_audited,
            has_fixed_cost: self.job.parameters.input_cost == InputCost::Fixed,
        })
    }
}
