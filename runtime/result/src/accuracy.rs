//! The verdict on accuracy: the metrics of the timed run compared with the target of the case.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{PhaseRecord, Record, TrainingRound};
use flagperf_core::metric;
use flagperf_core::step::{Phase, Step};

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There was nothing to compare; `unknown` contains the reason.
    #[default]
    Unknown,
    /// Accuracy is known, but the case sets no target.
    NoTarget,
    /// Every target is reached, or no limit is exceeded.
    Met,
    /// A target is missed, a limit is exceeded, outputs are NaN or infinite, or nothing was evaluated. The case fails.
    Missed,
}

/// Accuracy of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Accuracy {
    pub verdict: Verdict,
    /// Smallest acceptable value of each metric, or the largest of one that is a cost such as `perplexity`, from
    /// `target_accuracy` in parameters.yaml.
    pub target: IndexMap<String, f64>,
    /// Metrics of validation; empty when there are none or they are meaningless.
    pub validation: IndexMap<String, f64>,
    /// Metrics of inference; empty when there are none or they are meaningless.
    pub inference: IndexMap<String, f64>,
    /// Metrics of the last evaluation of a training.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub training: IndexMap<String, f64>,
    /// Why accuracy is unknown; `None` when it is known.
    pub unknown: Option<String>,
    /// Descriptions of the missed targets, one fragment each.
    pub missed: Vec<String>,
}

impl Accuracy {
    /// Judges the phases of a case. Accuracy is meaningless with random weights or synthetic data.
    pub fn judge(phases: &[PhaseRecord], target: IndexMap<String, f64>) -> Self {
        let unknown = |phases: &[PhaseRecord]| {
            let reported = phases.iter().flat_map(|phase| &phase.measured).find_map(|m| m.accuracy_unknown.clone());
            meaningless_reason(phases).or(reported)
        };
        // Each phase is judged by itself, because inference may run a different model than validation.
        let metrics = |step| {
            let measured = |phase: &&PhaseRecord| phase.measured.iter().any(|measured| measured.step == step);
            let phase = phases.iter().find(measured).filter(|phase| unknown(std::slice::from_ref(phase)).is_none());
            let measured = phase.into_iter().flat_map(|phase| &phase.measured).find(|measured| measured.step == step);
            measured.map(|measured| measured.accuracy.clone())
        };
        // `None` for a step that was not measured or whose metrics are meaningless.
        let (validation, inference) = (metrics(Step::Validation), metrics(Step::Inference));
        // Those of an earlier evaluation do not count.
        let training = if unknown(phases).is_some() { Vec::new() } else { trainings(phases) };
        let missed: Vec<String> = [("validation", &validation), ("inference", &inference)]
            .into_iter()
            .filter_map(|(step, metrics)| Some((step, metrics.as_ref()?)))
            .chain(training.iter().map(|(step, metrics)| (step.as_str(), *metrics)))
            .flat_map(|(step, metrics)| undefined_metrics(step, metrics).chain(missed_targets(step, metrics, &target)))
            .collect();
        let mut accuracy = Accuracy {
            target,
            validation: validation.unwrap_or_default(),
            inference: inference.unwrap_or_default(),
            training: training.last().map(|(_, metrics)| (*metrics).clone()).unwrap_or_default(),
            unknown: unknown(phases),
            ..Accuracy::default()
        };
        accuracy.missed = missed
            .into_iter()
            .chain(non_finite_outputs(phases))
            .chain(unevaluated_loops(phases))
            .chain(miscounted_metrics(phases))
            .collect();
        let has_any = [&accuracy.validation, &accuracy.inference, &accuracy.training].iter().any(|m| !m.is_empty());
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

/// Returns the metrics of the last evaluation of each training, which has its number if there are several.
fn trainings(phases: &[PhaseRecord]) -> Vec<(String, &IndexMap<String, f64>)> {
    let rounds = phases.iter().filter_map(|phase| phase.training.as_ref()).flat_map(|training| &training.rounds);
    let rounds: Vec<&TrainingRound> = rounds.collect();
    let name = |index: usize| match rounds.len() {
        1 => "training".to_owned(),
        _ => format!("training, repetition {}", index + 1),
    };
    let metrics = rounds.iter().map(|round| round.final_metrics()).enumerate();
    metrics.filter_map(|(index, metrics)| Some((name(index), metrics?))).collect()
}

/// Returns why metrics are meaningless regardless of the evaluator; `None` when they are meaningful.
fn meaningless_reason(phases: &[PhaseRecord]) -> Option<String> {
    // A training may begin with random weights.
    let random = phases
        .iter()
        .filter(|p| p.phase != Phase::Train)
        .any(|p| p.model.as_ref().is_some_and(|model| model.weights_are_random));
    let synthetic = phases.iter().any(|p| p.dataset.as_ref().is_some_and(|dataset| dataset.synthetic));
    if phases.iter().any(|p| p.engine.as_ref().is_some_and(|engine| engine.name == "null")) {
        return Some("the null engine computes nothing".to_owned());
    }
    match (random, synthetic) {
        (true, true) => Some("random weights, synthetic data".to_owned()),
        (true, false) => Some("random weights".to_owned()),
        (false, true) => Some("synthetic data".to_owned()),
        (false, false) => None,
    }
}

/// Describes the loops whose outputs contain NaN or infinity, which fail the case with any weights and without a
/// target.
fn non_finite_outputs(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    let measured = phases.iter().flat_map(|phase| &phase.measured).filter(|measured| measured.non_finite_outputs > 0);
    measured.map(|m| match m.non_finite_outputs {
        1 => format!("{}: 1 output element is NaN or infinite", m.step.name()),
        count => format!("{}: {count} output elements are NaN or infinite", m.step.name()),
    })
}

/// Describes the loops without samples or observations, which fail the case with any weights and without a target.
fn unevaluated_loops(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    // The samples of a training are not those of its evaluations.
    let measured = phases.iter().flat_map(|phase| &phase.measured).filter(|m| m.step != Step::Training);
    measured.filter_map(|m| match (m.samples, m.observations) {
        (0, _) => Some(format!("{}: no sample could be read ({} failed)", m.step.name(), m.failed_samples)),
        (samples, 0) => Some(format!("{}: the evaluator counted none of {samples} samples", m.step.name())),
        _ => None,
    })
}

/// Describes the metrics that should count every sample once and did not, which fail the case with any weights and
/// without a target.
fn miscounted_metrics(phases: &[PhaseRecord]) -> impl Iterator<Item = String> {
    let counts_samples = |name: &str| metric::find(name).is_some_and(|metric| metric.counts_samples);
    phases.iter().flat_map(|phase| &phase.measured).filter(|m| m.samples > 0 && m.observations > 0).flat_map(move |m| {
        let counted = m.counted.iter().filter(move |(name, count)| counts_samples(name) && **count != m.samples);
        counted.map(|(name, count)| {
            let (step, samples) = (m.step.name(), m.samples);
            format!("{step}: the evaluator counted {count} samples in `{name}`, but {samples} were run")
        })
    })
}

/// Describes the metrics that are NaN, which fail the case without a target, too.
fn undefined_metrics(step: &str, metrics: &IndexMap<String, f64>) -> impl Iterator<Item = String> {
    metrics.iter().filter(|(_, value)| value.is_nan()).map(move |(name, _)| format!("{step}: `{name}` is NaN"))
}

/// Describes the missed targets of metrics that are not NaN. A metric that was not measured misses its target.
fn missed_targets(step: &str, metrics: &IndexMap<String, f64>, target: &IndexMap<String, f64>) -> Vec<String> {
    let is_missed = |(name, target): &(&String, &f64)| match metrics.get(*name) {
        Some(value) => !value.is_nan() && !metric::is_reached(name, *value, **target),
        None => true,
    };
    target
        .iter()
        .filter(is_missed)
        .map(|(name, target)| match metrics.get(name) {
            Some(value) if !metric::range(name).contains(value) => {
                format!("{step}: `{name}` is {value:.4}, outside its range: does the evaluator count correctly?")
            }
            Some(value) if metric::find(name).is_some_and(|metric| metric.is_cost) => {
                format!("{step}: `{name}` is {value:.4}, but the target is at most {target}")
            }
            Some(value) => format!("{step}: `{name}` is {value:.4}, but the target is {target}"),
            None => format!("{step}: `{name}` has a target of {target}, but was not measured"),
        })
        .collect()
}

/// Returns the key with which the case sets its target: `target` of a training, `target_accuracy` of inference.
pub(super) fn target_key(record: &Record) -> &'static str {
    if record.training_key.is_some() { "target" } else { "target_accuracy" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TrainingRecord, testing};
    use flagperf_core::event::{DatasetFacts, ModelFacts};
    use flagperf_core::measure::Evaluation;

    fn judged(random: bool, top1: f64, target: &[(&str, f64)]) -> Accuracy {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts { weights_are_random: random, ..ModelFacts::default() });
        phase.dataset = Some(DatasetFacts::default());
        phase.measured = vec![testing::measurement(Step::Validation)];
        phase.measured[0].accuracy = IndexMap::from([("top1".to_owned(), top1)]);
        Accuracy::judge(&[phase], target.iter().map(|(name, target)| ((*name).to_owned(), *target)).collect())
    }

    #[test]
    fn a_metric_that_misses_its_target_is_named() {
        let accuracy = judged(false, 0.7, &[("top1", 0.89)]);
        assert_eq!(accuracy.verdict, Verdict::Missed);
        assert_eq!(accuracy.missed, ["validation: `top1` is 0.7000, but the target is 0.89"]);
        assert_eq!(judged(false, 0.89, &[("top1", 0.89)]).verdict, Verdict::Met);
        let out_of_range = judged(false, 100.0, &[("top1", 0.89)]);
        assert_eq!(out_of_range.verdict, Verdict::Missed);
        assert!(
            out_of_range.missed[0].starts_with("validation: `top1` is 100.0000, outside its range"),
            "{:?}",
            out_of_range.missed
        );
        assert_eq!(judged(false, f64::NAN, &[("top1", 0.0)]).verdict, Verdict::Missed);
        assert_eq!(judged(false, 1.0, &[("top3", 0.5)]).verdict, Verdict::Missed);
    }

    #[test]
    fn a_metric_that_is_nan_fails_the_case_even_without_a_target() {
        for target in [&[][..], &[("top1", 0.5)]] {
            let accuracy = judged(false, f64::NAN, target);
            assert_eq!(
                (accuracy.verdict, &accuracy.missed[..]),
                (Verdict::Missed, &["validation: `top1` is NaN".to_owned()][..])
            );
        }
        assert_eq!(judged(true, f64::NAN, &[]).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_target_is_missed_when_no_metric_has_a_value() {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts::default());
        phase.dataset = Some(DatasetFacts::default());
        phase.measured = vec![testing::measurement(Step::Inference)];
        phase.measured[0].accuracy = IndexMap::new();
        let accuracy = Accuracy::judge(&[phase], IndexMap::from([("map".to_owned(), 0.05)]));
        assert_eq!(accuracy.verdict, Verdict::Missed);
        assert_eq!(accuracy.missed, ["inference: `map` has a target of 0.05, but was not measured"]);
    }

    #[test]
    fn a_missed_target_has_the_number_of_its_repetition() {
        let judged = |rounds: &[f64]| {
            let round = |top1: &f64| TrainingRound {
                evaluations: vec![Evaluation { metrics: [("top1".to_owned(), *top1)].into(), ..Evaluation::default() }],
                ..TrainingRound::default()
            };
            let rounds = rounds.iter().map(round).collect();
            let training = Some(TrainingRecord { rounds, ..TrainingRecord::default() });
            let phase = PhaseRecord { training, ..PhaseRecord::new(Phase::Train) };
            Accuracy::judge(&[phase], IndexMap::from([("top1".to_owned(), 0.9)])).missed
        };
        assert_eq!(judged(&[0.5]), ["training: `top1` is 0.5000, but the target is 0.9"]);
        assert_eq!(judged(&[0.95, 0.5]), ["training, repetition 2: `top1` is 0.5000, but the target is 0.9"]);
    }

    #[test]
    fn the_target_of_perplexity_is_a_maximum() {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts::default());
        phase.dataset = Some(DatasetFacts::default());
        phase.measured = vec![testing::measurement(Step::Validation)];
        phase.measured[0].accuracy = IndexMap::from([("perplexity".to_owned(), 12.5)]);
        let judged = |target| Accuracy::judge(&[phase.clone()], IndexMap::from([("perplexity".to_owned(), target)]));
        assert_eq!(judged(13.0).verdict, Verdict::Met);
        assert_eq!(judged(10.0).missed, ["validation: `perplexity` is 12.5000, but the target is at most 10"]);
    }

    #[test]
    fn accuracy_is_unknown_with_random_weights_whatever_the_evaluator_reports() {
        let accuracy = judged(true, 0.001, &[("top1", 0.89)]);
        assert_eq!((accuracy.verdict, accuracy.unknown.as_deref()), (Verdict::Unknown, Some("random weights")));
        assert!(accuracy.validation.is_empty());
    }

    #[test]
    fn non_finite_outputs_fail_the_case_even_without_a_target() {
        let mut phase = testing::phase();
        phase.measured = vec![testing::measurement(Step::Inference)];
        phase.measured[0].non_finite_outputs = 7;
        let accuracy = Accuracy::judge(&[phase], IndexMap::new());
        assert_eq!(accuracy.verdict, Verdict::Missed);
        assert_eq!(accuracy.missed, ["inference: 7 output elements are NaN or infinite"]);
    }

    #[test]
    fn a_loop_without_samples_or_observations_fails_the_case_even_without_a_target() {
        let mut phase = testing::phase();
        phase.model = Some(ModelFacts { weights_are_random: true, ..ModelFacts::default() });
        phase.measured = vec![testing::measurement(Step::Validation), testing::measurement(Step::Inference)];
        phase.measured[0].observations = 0;
        (phase.measured[1].samples, phase.measured[1].failed_samples) = (0, 16);
        let accuracy = Accuracy::judge(&[phase], IndexMap::new());
        assert_eq!(accuracy.verdict, Verdict::Missed);
        let missed =
            ["validation: the evaluator counted none of 16 samples", "inference: no sample could be read (16 failed)"];
        assert_eq!(accuracy.missed, missed);
    }

    #[test]
    fn a_metric_that_does_not_count_every_sample_once_fails_the_case_even_without_a_target() {
        let counted = |name: &str, count: u64| {
            let mut phase = testing::phase();
            phase.model = Some(ModelFacts { weights_are_random: true, ..ModelFacts::default() });
            phase.measured = vec![testing::measurement(Step::Validation)];
            phase.measured[0].counted = IndexMap::from([("words".to_owned(), 400), (name.to_owned(), count)]);
            Accuracy::judge(&[phase], IndexMap::new())
        };
        let part = counted("top1", 4);
        assert_eq!(part.verdict, Verdict::Missed);
        assert_eq!(part.missed, ["validation: the evaluator counted 4 samples in `top1`, but 16 were run"]);
        assert_eq!(counted("top5", 32).verdict, Verdict::Missed, "more observations than samples");
        assert_eq!(counted("top1", 16).verdict, Verdict::Unknown);
        assert_eq!(counted("letters", 4).verdict, Verdict::Unknown, "a metric of a script may count anything");
    }

    #[test]
    fn without_a_target_the_verdict_is_no_target() {
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
        assert_eq!(judged.verdict, Verdict::Unknown, "one phase alone does not meet the target");
        assert_eq!(Accuracy::judge(&inferred(0.1), target()).verdict, Verdict::Missed);
        let random = [phase(Step::Validation, false, 0.9), phase(Step::Inference, true, 0.0)];
        let judged = Accuracy::judge(&random, target());
        assert_eq!((judged.verdict, judged.inference.len()), (Verdict::Unknown, 0));
    }
}
