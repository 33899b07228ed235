//! The verdict on agreement: whether inference computed the same outputs as validation. It requires neither a target
//! nor real weights, so that cases with unknown accuracy are checked too.

use serde::{Deserialize, Serialize};

use super::{PhaseRecord, Verdict};
use flagperf_config::InputCost;
use flagperf_core::metric::{Agreement, AgreementLimits};
use flagperf_core::step::Phase;

/// Share of whole numbers that may differ for fresh inputs if the cost of an input depends on its content: after a tie
/// between two tokens, the rest of an answer differs.
const CHOICE_MISMATCHES_MAX: f64 = 0.5;

/// The verdict on the agreement of inference with validation. The figures are in the record of the inference phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct AgreementCheck {
    /// The verdict; never [`Verdict::NoTarget`].
    pub verdict: Verdict,
    /// The limits that apply to every output.
    pub limits: Option<AgreementLimits>,
    /// Descriptions of exceeded limits and of outputs that could not be compared, one fragment each.
    pub missed: Vec<String>,
    /// Reasons why a figure of an output was not judged, one fragment each.
    #[serde(default)]
    pub not_judged: Vec<String>,
    /// Why there is no verdict; `None` when there is one.
    pub unknown: Option<String>,
}

impl AgreementCheck {
    /// Judges the phases of a case, the time of whose inputs may depend on their content.
    pub fn judge(phases: &[PhaseRecord], limits: AgreementLimits, cost: InputCost) -> Self {
        if let Some(training) = phases.iter().find_map(|phase| phase.training.as_ref()) {
            let evaluation = training.replay.as_ref().and_then(|replay| replay.evaluation.as_ref());
            return evaluation.map_or_else(
                || AgreementCheck::unknown("no output of the last evaluation was computed by another engine"),
                |agreement| AgreementCheck::of_evaluation(agreement, limits),
            );
        }
        let (validation, inference) =
            match (finished_phase(phases, Phase::Validate), finished_phase(phases, Phase::Infer)) {
                (Some(validation), Some(inference)) => (validation, inference),
                _ => return AgreementCheck::unknown("validation and inference did not both run to their end"),
            };
        if let Some(reason) = idle_engines(validation, inference) {
            return AgreementCheck::unknown(reason);
        }
        let mut missed = match &inference.agreement {
            None => vec!["the outputs of inference were not compared with those of validation".to_owned()],
            Some(agreement) => {
                let passes = agreement.passes;
                let between_passes = agreement.between_passes.iter().filter_map(|(name, difference)| {
                    Some(format!("output `{name}`: {}", limits.pass_violation(difference, passes)?))
                });
                agreement
                    .not_compared
                    .iter()
                    .cloned()
                    .chain(violations(agreement, limits))
                    .chain(between_passes)
                    .collect()
            }
        };
        let unseen = inference.audit.as_ref().and_then(|audit| audit.unseen.as_ref());
        let computed_again = [
            ("validation", validation.agreement.as_ref()),
            ("inference, for inputs that validation did not compute", unseen),
        ];
        missed.extend(
            computed_again.into_iter().flat_map(|(of, agreement)| reference_violations(of, agreement, limits, cost)),
        );
        let outputs = inference.agreement.iter().flat_map(|agreement| &agreement.outputs);
        let not_judged =
            outputs.filter_map(|(name, figures)| Some(format!("output `{name}`: {}", limits.not_judged(figures)?)));
        let verdict = if missed.is_empty() { Verdict::Met } else { Verdict::Missed };
        AgreementCheck { verdict, limits: Some(limits), missed, not_judged: not_judged.collect(), unknown: None }
    }

    /// Judges the outputs of the last evaluation of a training.
    fn of_evaluation(agreement: &Agreement, limits: AgreementLimits) -> Self {
        let missed: Vec<String> = agreement.not_compared.iter().cloned().chain(violations(agreement, limits)).collect();
        let verdict = if missed.is_empty() { Verdict::Met } else { Verdict::Missed };
        AgreementCheck { verdict, limits: Some(limits), missed, ..AgreementCheck::default() }
    }

    fn unknown(reason: &str) -> Self {
        AgreementCheck { unknown: Some(reason.to_owned()), ..AgreementCheck::default() }
    }
}

/// Returns the limits that the outputs exceed.
fn violations(agreement: &Agreement, limits: AgreementLimits) -> impl Iterator<Item = String> {
    agreement.outputs.iter().flat_map(move |(name, figures)| {
        limits.violations(figures).into_iter().map(move |reason| format!("output `{name}`: {reason}"))
    })
}

/// Returns the limits that outputs exceed, compared with those of flagperf's interpreter.
fn reference_violations(
    of: &str,
    agreement: Option<&Agreement>,
    limits: AgreementLimits,
    cost: InputCost,
) -> Vec<String> {
    let limits = limits_of_fresh_inputs(limits, cost);
    let outputs = agreement.iter().flat_map(|agreement| &agreement.outputs);
    let violations = outputs
        .flat_map(|(name, figures)| limits.violations(figures).into_iter().map(move |reason| (name.clone(), reason)));
    violations
        .map(|(name, reason)| format!("output `{name}` of {of}, compared with flagperf's interpreter: {reason}"))
        .collect()
}

/// Returns the limits for fresh inputs of the audit.
pub(super) fn limits_of_fresh_inputs(limits: AgreementLimits, cost: InputCost) -> AgreementLimits {
    match cost {
        InputCost::Fixed => limits,
        InputCost::Variable => AgreementLimits { mismatches: CHOICE_MISMATCHES_MAX, ..limits },
    }
}

/// Returns why outputs are not compared when an engine computes nothing; `None` when both compute.
fn idle_engines(validation: &PhaseRecord, inference: &PhaseRecord) -> Option<&'static str> {
    let is_idle = |phase: &PhaseRecord| phase.engine.as_ref().is_some_and(|engine| engine.name == "null");
    match (is_idle(validation), is_idle(inference)) {
        (false, false) => None,
        (true, false) => Some("the framework computes nothing (engine `null`)"),
        (false, true) => Some("the compiler computes nothing (engine `null`)"),
        (true, true) => Some("framework and compiler compute nothing (engine `null`)"),
    }
}

/// Returns the record of a phase if it succeeded. A phase that did not has its own failure.
fn finished_phase(phases: &[PhaseRecord], phase: Phase) -> Option<&PhaseRecord> {
    phases.iter().find(|record| record.phase == phase && record.memory_bytes_max.is_some())
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use flagperf_core::event::EngineFacts;
    use flagperf_core::metric::{OutputAgreement, PassDifference};
    use flagperf_core::precision::Precision;
    use flagperf_core::units::Bytes;

    fn judged(engine: &str, agreement: Option<Agreement>) -> AgreementCheck {
        judged_with_reference(engine, agreement, None)
    }

    fn judged_with_reference(
        engine: &str,
        agreement: Option<Agreement>,
        reference: Option<Agreement>,
    ) -> AgreementCheck {
        let phase = |phase, agreement| PhaseRecord {
            engine: Some(EngineFacts { name: engine.to_owned(), ..EngineFacts::default() }),
            memory_bytes_max: Some(Bytes(1)),
            agreement,
            ..PhaseRecord::new(phase)
        };
        let phases = [phase(Phase::Validate, reference), phase(Phase::Infer, agreement)];
        AgreementCheck::judge(&phases, AgreementLimits::default_for(Precision::Fp32), InputCost::Fixed)
    }

    fn agreement(relative_l2: f64) -> Agreement {
        let figures = OutputAgreement { relative_l2, cosine: Some(1.0), elements: 4, ..OutputAgreement::default() };
        Agreement { samples: 2, outputs: IndexMap::from([("output".to_owned(), figures)]), ..Agreement::default() }
    }

    #[test]
    fn validation_that_disagrees_with_the_interpreter_fails_although_inference_agrees_with_it() {
        let check = |reference| judged_with_reference("mine", Some(agreement(1e-6)), Some(agreement(reference)));
        assert_eq!(check(1e-6).verdict, Verdict::Met);
        assert_eq!(
            check(0.06).missed,
            [
                "output `output` of validation, compared with flagperf's interpreter: `relative_l2` is 6.00e-2, the limit is \
              1.00e-3"
            ]
        );
    }

    #[test]
    fn an_output_that_exceeds_a_limit_is_named_with_the_figure_and_the_limit() {
        assert_eq!(judged("rten", Some(agreement(1e-6))).verdict, Verdict::Met);
        let check = judged("rten", Some(agreement(0.5)));
        assert_eq!(check.verdict, Verdict::Missed);
        assert_eq!(check.missed, ["output `output`: `relative_l2` is 5.00e-1, the limit is 1.00e-3"]);
        assert_eq!(judged("rten", Some(agreement(f64::NAN))).verdict, Verdict::Missed);
    }

    #[test]
    fn a_pass_that_differs_from_the_first_one_does_not_agree() {
        let zeros = PassDifference { pass: 4, elements: 8, relative_l2: 1.0, mismatches: None };
        let between_passes = IndexMap::from([("output".to_owned(), zeros)]);
        let check = judged("rten", Some(Agreement { passes: 6, between_passes, ..agreement(1e-6) }));
        assert_eq!(check.verdict, Verdict::Missed);
        assert!(check.missed[0].starts_with("output `output`: pass 5 of 6 differs from pass 1 by 1.00e0"), "{check:?}");
    }

    #[test]
    fn a_figure_that_was_not_judged_is_named() {
        let check = judged("rten", Some(agreement(1e-6)));
        assert_eq!(
            check.not_judged,
            ["output `output`: `correlation` is not judged: this requires two samples of the same shape"]
        );
        let mut varied = agreement(1e-6);
        varied.outputs[0] =
            OutputAgreement { variation: Some(0.5), correlation: Some(0.0), ..varied.outputs[0].clone() };
        let check = judged("rten", Some(varied));
        assert_eq!((check.verdict, check.missed.len(), check.not_judged.len()), (Verdict::Missed, 1, 0));
    }

    #[test]
    fn outputs_that_were_not_compared_do_not_agree() {
        assert_eq!(judged("rten", None).verdict, Verdict::Missed);
        let other = Agreement { not_compared: vec!["other shapes".to_owned()], ..agreement(0.0) };
        assert_eq!(judged("rten", Some(other)).missed, ["other shapes"]);
    }

    #[test]
    fn the_null_engine_and_a_single_phase_have_no_verdict() {
        let idle = "framework and compiler compute nothing (engine `null`)";
        assert_eq!(judged("null", None).unknown.as_deref(), Some(idle));
        let alone = AgreementCheck::judge(&[], AgreementLimits::default_for(Precision::Fp16), InputCost::Fixed);
        assert_eq!((alone.verdict, alone.unknown.is_some()), (Verdict::Unknown, true));
    }
}
