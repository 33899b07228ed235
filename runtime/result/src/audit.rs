//! The verdict of the audit: whether inference computes what it returns, for inputs that it cannot know, and takes the same
//! time for them.

mod power;

pub(crate) use power::{PROBABILITY_MIN, SHARE_MAX};

use serde::{Deserialize, Serialize};

use super::agreement::limits_of_fresh_inputs;
use super::paired_times::{DIFFERENCE_MIN, PAIRS_ENOUGH, PAIRS_MIN, PairedTimes};
use super::{Accuracy, PhaseRecord, Verdict};
use flagperf_config::InputCost;
use flagperf_core::measure::{AuditReport, ChangedModelReport};
use flagperf_core::metric::{self, AgreementLimits, OutputAgreement, PassDifference};
use flagperf_core::units::Seconds;

/// Ratio of the time of fresh inputs to that of the same batch in the pass before them above which the case fails. Between
/// them lies more time than between two steps of the audit, so the machine may have changed.
const LATER_RATIO_MAX: f64 = 1.5;
/// Probability of such a difference by chance below which it is a doubt: an engine that also computes in some measured steps
/// is found, too. The case fails only below [`SIGNIFICANCE`].
const LATER_SIGNIFICANCE: f64 = 0.01;
/// Probability of a difference by chance below which it is not believed to be chance.
const SIGNIFICANCE: f64 = 1e-3;
/// The same for a difference in time by more than [`LARGE_RATIO`] and beyond a tick of the scheduler: an engine that gains only in
/// some of a few long steps is found, too.
const LARGE_SIGNIFICANCE: f64 = 0.01;
/// Ratio of times above which a difference is large.
const LARGE_RATIO: f64 = 1.5;
/// Ratio of times up to which a busy machine explains a difference: between fewer than [`PAIRS_ENOUGH`] pairs, because delays last
/// for whole steps, so that three of three pairs are slower by chance once in 64 runs and not normally distributed; and between two
/// passes at different times, however many steps they have.
const BUSY_RATIO: f64 = 8.0;
/// Probability of a smaller difference by chance below which it is a doubt.
const DOUBT_SIGNIFICANCE: f64 = 0.05;
/// Factor by which fresh inputs must change an output beyond the limit of agreement, so that the audit proves something.
const CHANGE_MIN: f64 = 3.0;

/// The verdict of the audit of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct AuditCheck {
    pub verdict: AuditVerdict,
    /// Why the audit failed, one fragment each.
    pub failures: Vec<String>,
    /// Differences in time that may be chance; a result with one is unofficial.
    #[serde(default)]
    pub doubts: Vec<String>,
    /// What was not judged, and observations that are no failure, one fragment each.
    pub notes: Vec<String>,
}

/// The outcome of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditVerdict {
    /// Every check succeeded, and repeated runs returned the same bits.
    Exact,
    /// Every check succeeded, and repeated runs differed within the limits.
    WithinTolerance,
    /// A check failed.
    Failed,
    /// There was no audit: inference was not measured, or its engine computes nothing.
    #[default]
    NotAudited,
}

impl AuditCheck {
    /// Judges the audit of the phases of a case, whose accuracy was judged before.
    pub fn judge(phases: &[PhaseRecord], limits: &AgreementLimits, cost: InputCost, accuracy: &Accuracy) -> Self {
        let is_idle = |phase: &PhaseRecord| phase.engine.as_ref().is_some_and(|engine| engine.name == "null");
        let audited = phases.iter().find(|phase| phase.phase.facts().is_audited);
        let Some(phase) = audited.filter(|phase| !is_idle(phase)) else { return AuditCheck::default() };
        let step = phase.phase.measured_step();
        let Some(measured) = phase.measured.iter().find(|measured| measured.step == step) else {
            return AuditCheck::default();
        };
        // The audit of a phase that was cut off may be missing.
        if phase.audit.is_none() && phase.memory_bytes_max.is_none() {
            return AuditCheck::default();
        }
        let Some(audit) = &phase.audit else {
            let failures = vec![format!("{} was measured, but its audit is missing", step.name())];
            return AuditCheck { verdict: AuditVerdict::Failed, failures, ..AuditCheck::default() };
        };
        let mut judged = AuditCheck::default();
        let reference = phases.iter().find(|other| phase.phase.facts().compared_with == Some(other.phase));
        match reference.is_some_and(is_idle) {
            false => judged.judge_outputs(audit, limits, cost),
            true => {
                let note = "outputs are not judged: the framework computes nothing (engine `null`)";
                judged.notes.push(note.to_owned());
            }
        }
        match cost {
            InputCost::Fixed => {
                let is_judged = judged.judge_times(audit);
                let is_found =
                    judged.judge_later_times("fresh inputs", &audit.fresh_s, ("batches", &audit.pass_s), audit);
                if is_judged && !is_found {
                    judged.doubts.extend(power::missed_in_fixed(audit, measured));
                }
            }
            InputCost::Variable => {
                judged.judge_kept_answers(audit);
                let note = "times of other inputs are not judged: `input_cost` is `variable`";
                judged.notes.push(note.to_owned());
                let same = ("same batches", audit.measured_s.as_slice());
                if !judged.judge_later_times("repeated inputs", &audit.repeated_s, same, audit) {
                    judged.doubts.extend(power::missed_in_variable(audit));
                }
            }
        }
        if let Some(changed) = &audit.changed_model {
            judged.judge_changed_model(changed, cost, accuracy);
        }
        let is_exact = audit.permuted.values().all(|difference| difference.judged() == 0.0)
            && phase.agreement.iter().flat_map(|a| a.between_passes.values()).all(|d| d.judged() == 0.0);
        judged.verdict = match (judged.failures.is_empty(), is_exact) {
            (false, _) => AuditVerdict::Failed,
            (true, true) => AuditVerdict::Exact,
            (true, false) => AuditVerdict::WithinTolerance,
        };
        judged
    }

    /// Judges the outputs of fresh inputs and of permuted samples.
    fn judge_outputs(&mut self, audit: &AuditReport, limits: &AgreementLimits, cost: InputCost) {
        match &audit.fresh {
            None => self.notes.push("outputs of fresh inputs are not compared: validation did not run".to_owned()),
            Some(fresh) => {
                self.failures.extend(fresh.not_compared.iter().map(|reason| format!("fresh inputs: {reason}")));
                let limits = limits_of_fresh_inputs(*limits, cost);
                for (name, figures) in &fresh.outputs {
                    let violations = limits.violations(figures).into_iter();
                    self.failures.extend(
                        violations
                            .map(|reason| format!("output `{name}` of inputs that exist in no other run: {reason}")),
                    );
                }
            }
        }
        self.judge_changes(audit, limits);
        self.judge_nearest(audit, limits);
        for (name, difference) in &audit.permuted {
            let violation = permutation_violation(name, difference, limits);
            // A loop that draws tokens at random draws others in another row.
            match cost == InputCost::Variable && difference.mismatches.is_some() {
                true => self.notes.extend(violation),
                false => self.failures.extend(violation),
            }
        }
    }

    /// Judges whether the outputs of fresh inputs can show that the engine computed them: an engine that returns the outputs of
    /// the unchanged inputs must exceed the limits.
    fn judge_changes(&mut self, audit: &AuditReport, limits: &AgreementLimits) {
        let is_compared = audit.fresh.as_ref().is_some_and(|fresh| !fresh.outputs.is_empty());
        let changes = &audit.changes;
        if !changes.is_empty() && changes.values().all(|change| change.judged() == 0.0) {
            let text = "no output changed with the inputs";
            match is_compared {
                true => self.doubts.push(format!("{text}, as in validation: the audit proves nothing")),
                false => self.failures.push(text.to_owned()),
            }
            return;
        }
        let limit = |change: &PassDifference| match change.mismatches {
            Some(_) => limits.mismatches,
            None => limits.relative_l2,
        };
        let proves =
            |change: &PassDifference| change.judged().is_nan() || change.judged() >= CHANGE_MIN * limit(change);
        let varies = |figures: &OutputAgreement| figures.variation.is_some_and(|v| v >= CHANGE_MIN * limits.variation);
        let is_proof =
            changes.values().any(proves) || audit.fresh.iter().flat_map(|fresh| fresh.outputs.values()).any(varies);
        if let Some((name, change)) = changes.first().filter(|_| is_compared && !is_proof) {
            self.doubts.push(format!(
                "the audit proves nothing: fresh inputs changed output `{name}` by {:.2e}, and the limit is {:.2e}",
                change.judged(),
                limit(change)
            ));
        }
    }

    /// Judges whether an engine that returns the outputs of the nearest sample of an earlier run would exceed the limits.
    fn judge_nearest(&mut self, audit: &AuditReport, limits: &AgreementLimits) {
        let agrees = |figures: &OutputAgreement| limits.violations(figures).is_empty();
        if let Some((name, figures)) = audit.nearest.first().filter(|_| audit.nearest.values().all(agrees)) {
            self.doubts.push(format!(
                "the audit proves nothing: stored outputs of the nearest other samples would differ from output `{name}` of fresh inputs \
                 by {:.2e}, and the limit is {:.2e}",
                figures.relative_l2, limits.relative_l2
            ));
        }
    }

    /// Judges the times of batches that the engine had seen, of fresh ones, and of uniform ones. Returns whether there were
    /// enough and long enough ones.
    fn judge_times(&mut self, audit: &AuditReport) -> bool {
        let fresh = PairedTimes::of(&audit.fresh_s, &audit.repeated_s);
        let uniform = PairedTimes::of(&audit.repeated_s, &audit.uniform_s);
        let pairs = audit.fresh_s.len().min(audit.repeated_s.len());
        match fresh {
            None => {
                let note = format!("times of fresh inputs are not judged: {pairs} of at least {PAIRS_MIN} pairs");
                self.notes.push(note);
            }
            Some(times) => self.judge_pairs(times, &|times| {
                format!(
                    "inputs that the engine had not seen took {:.2}x as long as inputs that it had run before ({} of {} \
                     pairs): does it keep results, or was the machine busy?",
                    times.ratio, times.slower, times.pairs
                )
            }),
        }
        if pairs < PAIRS_ENOUGH {
            self.doubts.push(format!(
                "the times of only {pairs} pairs of steps were compared (official: at least {PAIRS_ENOUGH}): increase `repeat`"
            ));
        }
        let too_short = fresh.and_then(|times| times.too_short());
        if let Some(step) = too_short {
            self.doubts.push(format!(
                "the times of fresh inputs are not judged: a step takes {:.3} ms, and differences of less than {:.1} ms may be due \
                 to scheduling",
                step.0 * 1e3,
                DIFFERENCE_MIN.0 * 1e3
            ));
        }
        if let Some(times) = uniform {
            self.judge_pairs(times, &|times| {
                format!(
                    "different samples took {:.2}x as long as one sample in every row ({} of {} pairs): does the engine \
                     skip samples? If their cost depends on their content, the case sets `input_cost: variable`",
                    times.ratio, times.slower, times.pairs
                )
            });
        }
        pairs >= PAIRS_ENOUGH && too_short.is_none()
    }

    /// Judges the pass with changed weights: outputs and accuracy must have changed, and a step must not take longer.
    fn judge_changed_model(&mut self, changed: &ChangedModelReport, cost: InputCost, accuracy: &Accuracy) {
        if changed.unchanged_steps > 0 {
            self.failures.push(format!(
                "{} of {} steps returned the same outputs with changed weights: does the engine compute with the weights of \
                 its model?",
                changed.unchanged_steps, changed.steps
            ));
        }
        let compared = accuracy
            .target
            .keys()
            .filter_map(|name| Some((name, *accuracy.inference.get(name)?, *changed.accuracy.get(name)?)));
        for (name, before, after) in compared {
            let is_cost = metric::find(name).is_some_and(|metric| metric.is_cost);
            let has_fallen = if is_cost { after > before } else { after < before };
            if !has_fallen && !after.is_nan() && accuracy.verdict == Verdict::Met {
                self.failures.push(format!(
                    "with changed weights, `{name}` is {after:.4} (otherwise {before:.4}): does the engine know the answers?"
                ));
            }
        }
        let times = PairedTimes::of(&changed.core_s, &changed.measured_s);
        if let (InputCost::Fixed, Some(times)) = (cost, times.filter(|times| times.is_slower(LATER_SIGNIFICANCE))) {
            let text = format!(
                "with changed weights, a step took {:.2}x as long ({} of {} pairs): is the engine made for these weights?",
                times.ratio, times.slower, times.pairs
            );
            let is_failure = times.ratio > BUSY_RATIO && is_later_failure(&times);
            let found = if is_failure { &mut self.failures } else { &mut self.doubts };
            found.push(text);
        }
    }

    /// Adds a failure if the first times of the pairs are longer, or a doubt if that may be due to chance or to delays.
    fn judge_pairs(&mut self, times: PairedTimes, text: &dyn Fn(PairedTimes) -> String) {
        let is_large = times.ratio > LARGE_RATIO && times.is_beyond_ticks();
        let significance = if is_large { LARGE_SIGNIFICANCE } else { SIGNIFICANCE };
        let is_enough = times.pairs >= PAIRS_ENOUGH || times.ratio > BUSY_RATIO;
        if is_enough && times.is_slower(significance) && times.is_lasting() {
            self.failures.push(text(times));
        } else if times.is_slower(DOUBT_SIGNIFICANCE) {
            self.doubts.push(text(times));
        }
    }

    /// Judges whether inputs that the engine had not seen took so much longer that their cost does not explain it.
    fn judge_kept_answers(&mut self, audit: &AuditReport) {
        let fresh = PairedTimes::of(&audit.fresh_s, &audit.repeated_s);
        let is_beyond =
            |times: &PairedTimes| times.ratio > BUSY_RATIO && times.is_slower(LARGE_SIGNIFICANCE) && times.is_lasting();
        let Some(times) = fresh.filter(is_beyond) else { return };
        self.failures.push(format!(
            "inputs that the engine had not seen took {:.2}x as long as inputs that it had run before ({} of {} pairs), which no \
             difference of their cost explains: does it keep results?",
            times.ratio, times.slower, times.pairs
        ));
    }

    /// Judges whether steps of the audit took longer than batches in the passes before them: than all of them, whose mean
    /// shows also an engine that keeps the outputs of some. An engine that computes a batch before its step begins is found,
    /// too: it can see no batch of the audit before its step, and none is read during one. Returns whether they did.
    fn judge_later_times(
        &mut self,
        inputs: &str,
        times: &[Seconds],
        (batches, measured): (&str, &[Seconds]),
        audit: &AuditReport,
    ) -> bool {
        let by_pass = PairedTimes::by_pass(&audit.after_pass, times, measured);
        // After one or two passes, the machine may have been slower by chance.
        let (compared, unit) = match by_pass {
            Some(compared) => (Some(compared), "passes"),
            None => (PairedTimes::of(times, measured), "pairs"),
        };
        let Some(times) = compared.filter(|times| times.is_slower(LATER_SIGNIFICANCE)) else { return false };
        let text = format!(
            "{inputs} took {:.2}x as long in the audit as the {batches} in the passes ({} of {} {unit})",
            times.ratio, times.slower, times.pairs
        );
        if by_pass.is_some() && is_later_failure(&times) {
            self.failures
                .push(format!("{text}: does the engine compute less, or before the step begins, when it is measured?"));
        } else {
            self.doubts.push(text);
        }
        true
    }
}

/// Returns whether times are so much longer than those of another part of the run that the case fails.
fn is_later_failure(times: &PairedTimes) -> bool {
    times.ratio > LATER_RATIO_MAX && times.is_slower(SIGNIFICANCE) && times.is_lasting()
}

/// Returns why the outputs of permuted samples are not those of the same samples in another order.
fn permutation_violation(name: &str, difference: &PassDifference, limits: &AgreementLimits) -> Option<String> {
    let (_, limit) = limits.between_runs(difference);
    let figure = difference.judged();
    (figure.is_nan() || figure > limit).then(|| {
        format!(
            "output `{name}` differs by {figure:.2e} (limit: {limit:.2e}) when the samples of a batch are in another order: does \
             it depend on the position?"
        )
    })
}

#[cfg(test)]
mod tests;
