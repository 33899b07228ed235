//! The verdict of the audit: whether inference computes what it returns, for inputs that it cannot know, and takes the same
//! time for them.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::{Accuracy, PhaseRecord, Verdict};
use crate::config::InputCost;
use crate::measure::{AuditReport, ChangedModelReport};
use crate::metric::{self, AgreementLimits, PassDifference};
use crate::step::{Phase, Step};
use crate::units::Seconds;

/// Difference in time between inputs above which it is judged, as in MLPerf's TEST04.
const TIME_RATIO: f64 = 1.1;
/// Ratio of the time of fresh inputs to that of the same batch in the pass before them above which the case fails. Between
/// them lies more time than between two steps of the audit, so the machine may have changed.
const LATER_RATIO_MAX: f64 = 1.5;
/// The probability of such a difference by chance below which it is not believed to be chance: an engine that also
/// computes in some measured steps is found, too.
const LATER_SIGNIFICANCE: f64 = 0.01;
/// Number of passes after which the audit must have run for this to be judged.
const LATER_PASSES_MIN: usize = 3;
/// Probability of a difference by chance below which it is not believed to be chance.
const SIGNIFICANCE: f64 = 1e-3;
/// The same for a difference in time by more than [`LARGE_RATIO`]: an engine that gains only in some steps is found, too.
const LARGE_SIGNIFICANCE: f64 = 0.01;
/// Ratio of times above which a difference is large.
const LARGE_RATIO: f64 = 1.5;
/// Probability of a smaller difference by chance below which it is a doubt.
const DOUBT_SIGNIFICANCE: f64 = 0.05;
/// Number of pairs from which such a probability is possible.
const PAIRS_MIN: usize = 10;
/// Differences of less than this cannot be judged, because scheduling causes them.
const TIME_DIFFERENCE_MIN: Seconds = Seconds(2e-5);
/// Share of whole numbers that may differ for fresh inputs if the cost of an input depends on its content: after a tie
/// between two tokens, the rest of an answer differs.
const CHOICE_MISMATCHES_MAX: f64 = 0.5;
/// Factor between the limits of agreement with validation and those between two runs of inference.
const LIMIT_FACTOR: f64 = 2.0;

/// The verdict of the audit of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditCheck {
    /// The verdict.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        let find = |kind: Phase| phases.iter().find(|phase| phase.phase == kind);
        let Some(phase) = find(Phase::Infer).filter(|phase| !is_idle(phase)) else { return AuditCheck::default() };
        if !phase.measured.iter().any(|measured| measured.step == Step::Inference) {
            return AuditCheck::default();
        }
        let Some(audit) = &phase.audit else {
            let failures = vec!["inference was measured, but its audit is missing".to_owned()];
            return AuditCheck { verdict: AuditVerdict::Failed, failures, ..AuditCheck::default() };
        };
        let mut judged = AuditCheck::default();
        match find(Phase::Validate).is_some_and(is_idle) {
            false => judged.judge_outputs(audit, limits, cost),
            true => {
                let note = "outputs are not judged: the framework computes nothing (engine `null`)";
                judged.notes.push(note.to_owned());
            }
        }
        match cost {
            InputCost::Fixed => {
                judged.judge_times(audit);
                judged.judge_later_times("fresh inputs", &audit.fresh_s, audit);
            }
            InputCost::Variable => {
                let note = "times of other inputs are not judged: `input_cost` is `variable`";
                judged.notes.push(note.to_owned());
                judged.judge_later_times("repeated inputs", &audit.repeated_s, audit);
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
                let limits = match cost {
                    InputCost::Fixed => *limits,
                    InputCost::Variable => AgreementLimits { mismatches: CHOICE_MISMATCHES_MAX, ..*limits },
                };
                for (name, figures) in &fresh.outputs {
                    let violations = limits.violations(figures).into_iter();
                    self.failures.extend(
                        violations
                            .map(|reason| format!("output `{name}` of inputs that exist in no other run: {reason}")),
                    );
                }
            }
        }
        if !audit.changed.is_empty() && audit.changed.values().all(|share| *share == 0.0) {
            self.failures.push("no output changed when the inputs changed slightly".to_owned());
        }
        for (name, difference) in &audit.permuted {
            let violation = permutation_violation(name, difference, limits);
            // A loop that draws tokens at random draws others in another row.
            match cost == InputCost::Variable && difference.mismatches.is_some() {
                true => self.notes.extend(violation),
                false => self.failures.extend(violation),
            }
        }
    }

    /// Judges the times of batches that the engine had seen, of fresh ones, and of uniform ones.
    fn judge_times(&mut self, audit: &AuditReport) {
        let fresh = PairedTimes::of(&audit.fresh_s, &audit.repeated_s);
        let uniform = PairedTimes::of(&audit.repeated_s, &audit.uniform_s);
        match fresh {
            None => self.notes.push(format!(
                "times of fresh inputs are not judged: {} of at least {PAIRS_MIN} pairs",
                audit.fresh_s.len().min(audit.repeated_s.len())
            )),
            Some(times) => self.judge_pairs(times, &|times| {
                format!(
                    "inputs that the engine had not seen took {:.2}x as long as inputs that it had run before ({} of {} \
                     pairs): does it keep results?",
                    times.ratio, times.slower, times.pairs
                )
            }),
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
            let found = if times.ratio > LATER_RATIO_MAX { &mut self.failures } else { &mut self.doubts };
            found.push(text);
        }
    }

    /// Adds a failure or a doubt if the first times of the pairs are longer.
    fn judge_pairs(&mut self, times: PairedTimes, text: &dyn Fn(PairedTimes) -> String) {
        let significance = if times.ratio > LARGE_RATIO { LARGE_SIGNIFICANCE } else { SIGNIFICANCE };
        if times.is_slower(significance) {
            self.failures.push(text(times));
        } else if times.is_slower(DOUBT_SIGNIFICANCE) {
            self.doubts.push(text(times));
        }
    }

    /// Judges whether steps of the audit took longer than the same batches in the pass before them. An engine that computes
    /// a batch before its step begins is found, too: it can see no batch of the audit before its step.
    fn judge_later_times(&mut self, inputs: &str, times: &[Seconds], audit: &AuditReport) {
        let times = PairedTimes::of(times, &audit.measured_s);
        let Some(times) = times.filter(|times| times.is_slower(LATER_SIGNIFICANCE)) else { return };
        let mut passes = audit.after_pass.clone();
        passes.sort_unstable();
        passes.dedup();
        let text = format!(
            "{inputs} took {:.2}x as long in the audit as the same batches in the passes ({} of {} pairs)",
            times.ratio, times.slower, times.pairs
        );
        if times.ratio > LATER_RATIO_MAX && passes.len() >= LATER_PASSES_MIN {
            self.failures
                .push(format!("{text}: does the engine compute less, or before the step begins, when it is measured?"));
        } else {
            self.doubts.push(text);
        }
    }
}

/// Returns why the outputs of permuted samples are not those of the same samples in another order.
fn permutation_violation(name: &str, difference: &PassDifference, limits: &AgreementLimits) -> Option<String> {
    let limit = LIMIT_FACTOR * difference.mismatches.map_or(limits.relative_l2, |_| limits.mismatches);
    let figure = difference.judged();
    (figure.is_nan() || figure > limit).then(|| {
        format!(
            "output `{name}` differs by {figure:.2e} (limit: {limit:.2e}) when the samples of a batch are in another order: does \
             it depend on the position?"
        )
    })
}

/// A comparison of two series of times, pair by pair.
#[derive(Clone, Copy, Debug)]
struct PairedTimes {
    pairs: usize,
    /// Pairs in which the first time exceeds the second one by the ratio that is judged.
    slower: usize,
    /// Ratio of the medians.
    ratio: f64,
    difference_s: f64,
}

impl PairedTimes {
    /// Compares times with others; `None` with too few pairs.
    fn of(times: &[Seconds], others: &[Seconds]) -> Option<Self> {
        let pairs = times.len().min(others.len());
        let slower = times.iter().zip(others).filter(|(time, other)| time.0 > TIME_RATIO * other.0).count();
        let (median, other) = (median(&times[..pairs]), median(&others[..pairs]));
        let found = PairedTimes { pairs, slower, ratio: median / other, difference_s: median - other };
        (pairs >= PAIRS_MIN).then_some(found)
    }

    /// Whether the first times are longer, and not by chance: if both were equally likely to be the longer one of a pair,
    /// so many would be longer with a probability below `significance` (the sign test).
    fn is_slower(&self, significance: f64) -> bool {
        let chance = Binomial::new(0.5, self.pairs as u64).expect("0.5 is a probability");
        let at_least = self.slower.checked_sub(1).map_or(1.0, |fewer| chance.sf(fewer as u64));
        self.ratio > TIME_RATIO && self.difference_s > TIME_DIFFERENCE_MIN.0 && at_least < significance
    }
}

/// Returns the upper median of times; NaN without any.
fn median(times: &[Seconds]) -> f64 {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::event::EngineFacts;
    use crate::metric::{Agreement, OutputAgreement};
    use crate::precision::Precision;
    use crate::result::testing;

    fn audit() -> AuditReport {
        let jitter = |scale: f64| (0..20).map(|i| Seconds(scale * (1.0 + 0.1 * f64::from(i % 5)))).collect::<Vec<_>>();
        let figures = OutputAgreement { cosine: Some(1.0), ..OutputAgreement::default() };
        AuditReport {
            after_pass: (0..20).map(|group| group % 5).collect(),
            measured_s: jitter(0.01),
            repeated_s: jitter(0.01),
            fresh_s: jitter(0.01),
            uniform_s: jitter(0.01),
            changed: IndexMap::from([("output".to_owned(), 1.0)]),
            permuted: IndexMap::from([("output".to_owned(), PassDifference::default())]),
            fresh: Some(Agreement {
                outputs: IndexMap::from([("output".to_owned(), figures)]),
                ..Agreement::default()
            }),
            changed_model: None,
        }
    }

    fn inference(audit: Option<AuditReport>) -> PhaseRecord {
        let measured = vec![testing::measurement(Step::Inference)];
        let engine = Some(EngineFacts { name: "chip".into(), ..EngineFacts::default() });
        PhaseRecord { audit, engine, measured, ..PhaseRecord::new(Phase::Infer) }
    }

    fn judge(audit: Option<AuditReport>, cost: InputCost) -> AuditCheck {
        AuditCheck::judge(
            &[inference(audit)],
            &AgreementLimits::default_for(Precision::Fp32),
            cost,
            &Accuracy::default(),
        )
    }

    fn failures(change: impl FnOnce(&mut AuditReport)) -> Vec<String> {
        let mut changed = audit();
        change(&mut changed);
        judge(Some(changed), InputCost::Fixed).failures
    }

    fn scaled(times: &mut [Seconds], factor: f64) {
        times.iter_mut().for_each(|time| time.0 *= factor);
    }

    #[test]
    fn an_engine_that_computes_is_exact_or_within_tolerance() {
        let judged = judge(Some(audit()), InputCost::Fixed);
        assert_eq!((judged.verdict, judged.failures, judged.notes), (AuditVerdict::Exact, vec![], vec![]));
        let mut rounding = audit();
        rounding.permuted[0].relative_l2 = 1e-6;
        assert_eq!(judge(Some(rounding), InputCost::Fixed).verdict, AuditVerdict::WithinTolerance);
        assert_eq!(judge(None, InputCost::Fixed).failures, ["inference was measured, but its audit is missing"]);
        assert_eq!(
            AuditCheck::judge(
                &[],
                &AgreementLimits::default_for(Precision::Fp32),
                InputCost::Fixed,
                &Accuracy::default()
            )
            .verdict,
            AuditVerdict::NotAudited
        );
        let idle = Some(EngineFacts { name: "null".into(), ..EngineFacts::default() });
        let validation = PhaseRecord { engine: idle, ..PhaseRecord::new(Phase::Validate) };
        let zeros = AuditReport { changed: IndexMap::from([("output".to_owned(), 0.0)]), ..audit() };
        let inference = inference(Some(zeros));
        let judged = AuditCheck::judge(
            &[validation, inference],
            &AgreementLimits::default_for(Precision::Fp32),
            InputCost::Fixed,
            &Accuracy::default(),
        );
        assert_eq!(judged.notes, ["outputs are not judged: the framework computes nothing (engine `null`)"]);
        assert!(judged.failures.is_empty());
    }

    #[test]
    fn fresh_inputs_that_take_longer_reveal_kept_results() {
        let found = failures(|audit| scaled(&mut audit.fresh_s, 1.8));
        let expected = "inputs that the engine had not seen took 1.80x as long as inputs that it had run before (20 of 20 \
                        pairs): does it keep results?";
        assert_eq!(found[0], expected);
        assert!(failures(|audit| scaled(&mut audit.fresh_s, 1.05)).is_empty(), "below the ratio");
        assert!(failures(|audit| scaled(&mut audit.fresh_s[..8], 1.8)).is_empty(), "8 of 20 pairs may be chance");
        let mut some = audit();
        scaled(&mut some.fresh_s[..16], 1.3);
        let judged = judge(Some(some), InputCost::Fixed);
        assert_eq!((judged.failures.len(), judged.doubts.len()), (0, 2), "16 of 20 pairs, a small difference");
        let mut slow = audit();
        scaled(&mut slow.fresh_s, 1.8);
        let judged = judge(Some(slow), InputCost::Variable);
        assert_eq!(
            (judged.notes, judged.failures),
            (vec!["times of other inputs are not judged: `input_cost` is `variable`".to_owned()], vec![])
        );
    }

    #[test]
    fn a_uniform_batch_that_is_faster_reveals_skipped_samples() {
        let found = failures(|audit| scaled(&mut audit.uniform_s, 0.5));
        assert!(
            found[0].starts_with("different samples took 2.00x as long as one sample in every row (20 of"),
            "{found:?}"
        );
    }

    #[test]
    fn answers_of_variable_length_may_depend_on_a_tie_and_on_their_row() {
        let judged = |mismatches: f64, permuted: f64| {
            let mut audit = audit();
            audit.fresh.as_mut().unwrap().outputs[0].mismatches = Some(mismatches);
            audit.permuted[0].mismatches = Some(permuted);
            (judge(Some(audit.clone()), InputCost::Variable), judge(Some(audit), InputCost::Fixed))
        };
        let (variable, fixed) = judged(0.4, 1.0);
        assert_eq!((variable.failures.len(), fixed.failures.len()), (0, 2));
        assert!(variable.notes.iter().any(|note| note.contains("in another order")), "{variable:?}");
        let (variable, _) = judged(0.9, 0.0);
        assert!(variable.failures[0].contains("`mismatches` is 9.00e-1, the limit is 5.00e-1"), "{variable:?}");
    }

    #[test]
    fn a_few_pairs_are_not_judged() {
        let mut few = audit();
        few.fresh_s.truncate(9);
        scaled(&mut few.fresh_s, 5.0);
        let judged = judge(Some(few), InputCost::Fixed);
        assert_eq!(judged.notes, ["times of fresh inputs are not judged: 9 of at least 10 pairs"]);
        assert!(judged.failures.is_empty());
    }

    #[test]
    fn an_engine_that_is_slower_in_the_audit_than_in_the_passes_fails() {
        let slower = |factor, passes| {
            let mut audit = audit();
            audit.after_pass.iter_mut().for_each(|pass| *pass %= passes);
            for times in [&mut audit.repeated_s, &mut audit.fresh_s, &mut audit.uniform_s] {
                scaled(times, factor);
            }
            judge(Some(audit), InputCost::Fixed)
        };
        assert!(slower(1.05, 5).doubts.is_empty());
        let text = |ratio: &str| {
            format!(
                "fresh inputs took {ratio}x as long in the audit as the same batches in the passes (20 of 20 pairs)"
            )
        };
        assert_eq!(slower(1.4, 5).doubts, [text("1.40")]);
        assert_eq!(slower(3.0, 2).doubts, [text("3.00")], "the machine may have been slower after two passes");
        let expected =
            format!("{}: does the engine compute less, or before the step begins, when it is measured?", text("3.00"));
        assert_eq!(slower(3.0, 5).failures, [expected]);
    }

    #[test]
    fn with_changed_weights_outputs_and_accuracy_must_change_and_the_time_must_not() {
        let judged = |change: &dyn Fn(&mut ChangedModelReport)| {
            let AuditReport { measured_s, .. } = audit();
            let metrics = |top1: f64| IndexMap::from([("top1".to_owned(), top1)]);
            let mut changed = ChangedModelReport {
                steps: 20,
                core_s: measured_s.clone(),
                measured_s,
                accuracy: metrics(0.1),
                ..ChangedModelReport::default()
            };
            change(&mut changed);
            let accuracy = Accuracy {
                verdict: Verdict::Met,
                target: metrics(0.7),
                inference: metrics(0.8),
                ..Accuracy::default()
            };
            let report = AuditReport { changed_model: Some(changed), ..audit() };
            let limits = AgreementLimits::default_for(Precision::Fp32);
            AuditCheck::judge(&[inference(Some(report))], &limits, InputCost::Fixed, &accuracy).failures.join("; ")
        };
        assert_eq!(judged(&|_| {}), "");
        assert!(judged(&|changed| changed.unchanged_steps = 3).starts_with("3 of 20 steps returned the same outputs"));
        let same = judged(&|changed| changed.accuracy[0] = 0.8);
        assert!(same.starts_with("with changed weights, `top1` is 0.8000 (otherwise 0.8000)"), "{same}");
        let slow = judged(&|changed| scaled(&mut changed.core_s, 2.0));
        assert!(slow.starts_with("with changed weights, a step took 2.00x as long (20 of 20 pairs)"), "{slow}");
    }

    #[test]
    fn wrong_outputs_of_fresh_inputs_fail() {
        let found = failures(|audit| audit.fresh.as_mut().unwrap().outputs[0].relative_l2 = 0.5);
        assert!(
            found[0].starts_with("output `output` of inputs that exist in no other run: `relative_l2` is"),
            "{found:?}"
        );
        let found = failures(|audit| audit.changed[0] = 0.0);
        assert_eq!(found, ["no output changed when the inputs changed slightly"]);
        let found = failures(|audit| audit.permuted[0].relative_l2 = f64::NAN);
        assert!(found[0].starts_with("output `output` differs by NaN (limit: 2.00e-3) when the samples"), "{found:?}");
    }
}
