//! The verdict on accuracy: what the timed run itself computed, against the case's target.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::PhaseRecord;
use crate::metric;
use crate::step::Step;

/// What came of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing to compare: see `unknown`.
    #[default]
    Unknown,
    /// There is accuracy, and the case states no target.
    NoTarget,
    /// Every metric reaches its target.
    Met,
    /// A figure is beyond its target or limit, outputs are no numbers, or nothing was evaluated: the case has failed.
    Missed,
}

/// Accuracy of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// What came of it.
    pub verdict: Verdict,
    /// The least value of each metric, from `target_accuracy` in parameters.yaml.
    pub target: IndexMap<String, f64>,
    /// Metrics of validation; empty when there are none or they mean nothing.
    pub validation: IndexMap<String, f64>,
    /// Metrics of inference; empty when there are none or they mean nothing.
    pub inference: IndexMap<String, f64>,
    /// Why there is no accuracy.
    pub unknown: Option<String>,
    /// What missed its target, one fragment each.
    pub missed: Vec<String>,
}

impl Accuracy {
    /// Judges the phases of a case. With random weights or drawn data no accuracy means anything.
    pub fn judge(phases: &[PhaseRecord], target: IndexMap<String, f64>) -> Self {
        let unknown = |phases: &[PhaseRecord]| {
            let given = phases.iter().flat_map(|phase| &phase.measured).find_map(|m| m.accuracy_unknown.clone());
            meaningless(phases).or(given)
        };
        // Inference may run another model than validation: what is meaningless of one is not of the other.
        let metrics = |step| {
            let measured = |phase: &&PhaseRecord| phase.measured.iter().any(|measured| measured.step == step);
            let phase = phases.iter().find(measured).filter(|phase| unknown(std::slice::from_ref(phase)).is_none());
            let measured = phase.into_iter().flat_map(|phase| &phase.measured).find(|measured| measured.step == step);
            measured.map(|measured| measured.accuracy.clone()).unwrap_or_default()
        };
        let unknown = unknown(phases);
        let (validation, inference) = (metrics(Step::Validation), metrics(Step::Inference));
        let mut accuracy = Accuracy { target, validation, inference, unknown, ..Accuracy::default() };
        accuracy.missed = [("validation", &accuracy.validation), ("inference", &accuracy.inference)]
            .into_iter()
            .filter(|(_, metrics)| !metrics.is_empty())
            .flat_map(|(step, metrics)| missed(step, metrics, &accuracy.target))
            .chain(no_numbers(phases))
            .chain(no_samples(phases))
            .chain(other_samples(phases))
            .collect();
        let has_any = !(accuracy.validation.is_empty() && accuracy.inference.is_empty());
        let known = has_any && accuracy.unknown.is_none();
        accuracy.verdict = match (known, accuracy.target.is_empty(), accuracy.missed.is_empty()) {
            (_, _, false) => Verdict::Missed,
            (false, ..) => Verdict::Unknown,
            (true, true, true) => Verdict::NoTarget,
            (true, false, true) => Verdict::Met,
        };
        if !has_any && accuracy.unknown.is_none() {
            accuracy.unknown = Some("nothing was evaluated".to_owned());
        }
        accuracy
    }
}

/// Why no metric means anything, whatever an evaluator says.
fn meaningless(phases: &[PhaseRecord]) -> Option<String> {
    let random = phases.iter().any(|p| p.model.as_ref().is_some_and(|model| model.weights_are_random));
    let drawn = phases.iter().any(|p| p.dataset.as_ref().is_some_and(|dataset| dataset.synthetic));
    if phases.iter().any(|p| p.engine.as_ref().is_some_and(|engine| engine.name == "null")) {
        return Some("the null engine computes nothing".to_owned());
    }
    match (random, drawn) {
        (true, true) => Some("random weights, generated data".to_owned()),
        (true, false) => Some("random weights".to_owned()),
        (false, true) => Some("generated data".to_owned()),
        (false, false) => None,
    }
}

/// NaN and infinity are no answer, with any weights and without a target.
fn no_numbers(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    let measured = phases.iter().flat_map(|phase| &phase.measured).filter(|measured| measured.non_finite_outputs > 0);
    measured.map(|m| format!("{}: {} outputs are NaN or infinite", m.step.name(), m.non_finite_outputs))
}

/// No sample is no answer either, with any weights and without a target.
fn no_samples(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    phases.iter().flat_map(|phase| &phase.measured).filter_map(|m| match (m.samples, m.observations) {
        (0, _) => Some(format!("{}: not one sample could be read ({} failed)", m.step.name(), m.failed_samples)),
        (samples, 0) => Some(format!("{}: the evaluator counted none of {samples} samples", m.step.name())),
        _ => None,
    })
}

/// A metric that counts samples is over all of them, with any weights and without a target.
fn other_samples(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    let counts_samples = |name: &str| metric::find(name).is_some_and(|metric| metric.counts_samples);
    phases.iter().flat_map(|phase| &phase.measured).filter(|m| m.samples > 0 && m.observations > 0).flat_map(move |m| {
        let counted = m.counted.iter().filter(move |(name, count)| counts_samples(name) && **count != m.samples);
        counted.map(|(name, count)| {
            let (step, samples) = (m.step.name(), m.samples);
            format!("{step}: the evaluator counted {count} samples in `{name}`, and {samples} were run")
        })
    })
}

/// A metric that was not measured misses its target, and so does NaN.
fn missed(step: &str, metrics: &IndexMap<String, f64>, target: &IndexMap<String, f64>) -> Vec<String> {
    let reaches = |name: &str, value: f64, least: f64| value >= least && metric::range(name).contains(&value);
    let below =
        target.iter().filter(|(name, least)| !metrics.get(*name).is_some_and(|value| reaches(name, *value, **least)));
    below
        .map(|(name, least)| match metrics.get(name) {
            Some(value) if !metric::range(name).contains(value) => {
                format!("{step}: `{name}` is {value:.4}, which it cannot be: does the evaluator count as it should?")
            }
            Some(value) => format!("{step}: `{name}` is {value:.4}, the target is {least}"),
            None => format!("{step}: `{name}` has a target of {least}, but was not measured"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DatasetFacts, ModelFacts};
    use crate::result::testing;

    fn judged(random: bool, top1: f64, target: &[(&str, f64)]) -> Accuracy {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts { weights_are_random: random, ..ModelFacts::default() });
        phase.dataset = Some(DatasetFacts::default());
        phase.measured = vec![testing::measurement(Step::Validation)];
        phase.measured[0].accuracy = IndexMap::from([("top1".to_owned(), top1)]);
        Accuracy::judge(&[phase], target.iter().map(|(name, least)| ((*name).to_owned(), *least)).collect())
    }

    #[test]
    fn a_metric_below_its_target_is_missed_and_named() {
        let accuracy = judged(false, 0.7, &[("top1", 0.89)]);
        assert_eq!(accuracy.verdict, Verdict::Missed);
        assert_eq!(accuracy.missed, ["validation: `top1` is 0.7000, the target is 0.89"]);
        assert_eq!(judged(false, 0.89, &[("top1", 0.89)]).verdict, Verdict::Met);
        let beyond = judged(false, 100.0, &[("top1", 0.89)]);
        assert_eq!(beyond.verdict, Verdict::Missed);
        assert!(
            beyond.missed[0].starts_with("validation: `top1` is 100.0000, which it cannot be"),
            "{:?}",
            beyond.missed
        );
        assert_eq!(judged(false, f64::NAN, &[("top1", 0.0)]).verdict, Verdict::Missed);
        assert_eq!(judged(false, 1.0, &[("top3", 0.5)]).verdict, Verdict::Missed);
    }

    #[test]
    fn random_weights_have_no_accuracy_whatever_the_evaluator_says() {
        let accuracy = judged(true, 0.001, &[("top1", 0.89)]);
        assert_eq!((accuracy.verdict, accuracy.unknown.as_deref()), (Verdict::Unknown, Some("random weights")));
        assert!(accuracy.validation.is_empty());
    }

    #[test]
    fn outputs_that_are_no_numbers_miss_any_target_and_none() {
        let mut phase = testing::phase();
        phase.measured = vec![testing::measurement(Step::Inference)];
        phase.measured[0].non_finite_outputs = 7;
        let accuracy = Accuracy::judge(&[phase], IndexMap::new());
        assert_eq!(accuracy.verdict, Verdict::Missed);
        assert_eq!(accuracy.missed, ["inference: 7 outputs are NaN or infinite"]);
    }

    #[test]
    fn no_sample_and_no_observation_miss_any_target_and_none() {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts { weights_are_random: true, ..ModelFacts::default() });
        phase.measured = vec![testing::measurement(Step::Validation), testing::measurement(Step::Inference)];
        phase.measured[0].observations = 0;
        (phase.measured[1].samples, phase.measured[1].failed_samples) = (0, 16);
        let accuracy = Accuracy::judge(&[phase], IndexMap::new());
        assert_eq!(accuracy.verdict, Verdict::Missed);
        let missed = [
            "validation: the evaluator counted none of 16 samples",
            "inference: not one sample could be read (16 failed)",
        ];
        assert_eq!(accuracy.missed, missed);
    }

    #[test]
    fn a_metric_over_a_part_of_the_samples_misses_any_target_and_none() {
        let counted = |name: &str, count: u64| {
            let mut phase = testing::phase();
            phase.model = Some(ModelFacts { weights_are_random: true, ..ModelFacts::default() });
            phase.measured = vec![testing::measurement(Step::Validation)];
            phase.measured[0].counted = IndexMap::from([("words".to_owned(), 400), (name.to_owned(), count)]);
            Accuracy::judge(&[phase], IndexMap::new())
        };
        let part = counted("top1", 4);
        assert_eq!(part.verdict, Verdict::Missed);
        assert_eq!(part.missed, ["validation: the evaluator counted 4 samples in `top1`, and 16 were run"]);
        assert_eq!(counted("top5", 32).verdict, Verdict::Missed, "more than there are is no better");
        assert_eq!(counted("top1", 16).verdict, Verdict::Unknown);
        assert_eq!(counted("letters", 4).verdict, Verdict::Unknown, "what a script's own metric counts is its own");
    }

    #[test]
    fn without_a_target_there_is_no_verdict() {
        assert_eq!(judged(false, 0.7, &[]).verdict, Verdict::NoTarget);
    }

    #[test]
    fn the_accuracy_of_a_model_file_does_not_depend_on_the_weights_of_validation() {
        let phase = |step, random, top1| {
            let mut phase = testing::phase();
            phase.model = Some(ModelFacts { weights_are_random: random, ..ModelFacts::default() });
            phase.measured = vec![testing::measurement(step)];
            phase.measured[0].accuracy = IndexMap::from([("top1".to_owned(), top1)]);
            phase
        };
        let target = || IndexMap::from([("top1".to_owned(), 0.8)]);
        let inferred = |top1| [phase(Step::Validation, true, 0.0), phase(Step::Inference, false, top1)];
        let judged = Accuracy::judge(&inferred(0.9), target());
        assert_eq!((judged.validation.len(), judged.inference["top1"]), (0, 0.9));
        assert_eq!(judged.verdict, Verdict::Unknown, "one side alone is not the target met");
        assert_eq!(Accuracy::judge(&inferred(0.1), target()).verdict, Verdict::Missed);
        let random = [phase(Step::Validation, false, 0.9), phase(Step::Inference, true, 0.0)];
        let judged = Accuracy::judge(&random, target());
        assert_eq!((judged.verdict, judged.inference.len()), (Verdict::Unknown, 0));
    }
}
