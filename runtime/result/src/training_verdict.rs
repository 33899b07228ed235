//! What the verdict on a training says that the verdict on inference does not.

use serde_json::Value;

use super::audit::{PROBABILITY_MIN, SHARE_MAX};
use super::{Record, TrainingRecord, TrainingRound};
use flagperf_core::measure::TrainingReplay;
use flagperf_core::step::Step;

/// Ratio of the core time of a sample in the first repetition to that in a later one above which results may be kept.
const REPETITION_RATIO_MAX: f64 = 1.5;

/// Returns why a training is not official.
pub(super) fn training_reasons(record: &Record) -> Vec<String> {
    let Some(training) = record.training() else { return Vec::new() };
    let reasons = [
        fixed_seed(record),
        unchecked_training(record),
        partial_evaluation(training),
        missed_share(training),
        resumed_training(training),
        faster_repetition(training),
        other_training_data(record, training),
    ];
    reasons.into_iter().flatten().collect()
}

fn setting<'r>(record: &'r Record, key: &str) -> Option<&'r Value> {
    record.settings.get(key).map(|setting| &setting.value).filter(|value| !value.is_null())
}

/// Returns that the samples and the first parameters were known before the run: an engine may have kept a training.
fn fixed_seed(record: &Record) -> Option<String> {
    let seed = setting(record, "seed")?;
    Some(format!("the seed of the training is fixed (`seed: {seed}`; official: drawn for each repetition)"))
}

/// Returns that no other engine computed steps of the training and outputs of its last evaluation again: the host evaluates
/// the parameters, but cannot know how they were computed.
fn unchecked_training(record: &Record) -> Option<String> {
    if record.is_reported_by_program() {
        return Some("reported by the program: the host neither computed nor checked the training".to_owned());
    }
    record.measurement(Step::Training)?;
    let replay = record.training().and_then(|training| training.replay.as_ref());
    match replay {
        None => Some("no step of the training was computed again by another engine".to_owned()),
        Some(replay) if replay.not_computed.is_empty() => None,
        Some(TrainingReplay { engine, not_computed, .. }) => {
            Some(format!("not all was computed again by `{engine}`: {}", not_computed.join("; ")))
        }
    }
}

/// Returns that another engine computed only some samples of the last evaluation again.
fn partial_evaluation(training: &TrainingRecord) -> Option<String> {
    let replay = training.replay.as_ref()?;
    let again = replay.evaluation.as_ref()?.samples;
    let samples = training.rounds.last()?.evaluations.last()?.samples;
    let engine = &replay.engine;
    (again < samples).then(|| {
        format!("`{engine}` computed the outputs of {again} of {samples} samples of the last evaluation again")
    })
}

/// Returns that the steps that were computed again would have missed an engine that computes a fifth of them wrongly.
fn missed_share(training: &TrainingRecord) -> Option<String> {
    let replay = training.replay.as_ref().filter(|replay| !replay.steps.is_empty())?;
    let drawn = replay.steps.iter().filter(|step| step.drawn).count() as u64;
    let (computed, all) = (replay.steps.len() as u64, training.rounds.iter().map(|round| round.steps).sum::<u64>());
    if computed == all {
        return None;
    }
    let steps = all.saturating_sub(computed - drawn);
    let found = match smallest_share(drawn, steps) {
        Some(share) if share <= SHARE_MAX => return None,
        Some(share) => format!("only an engine that computes {:.0} % of the steps or more wrongly", 100.0 * share),
        None => "no engine that computes most steps wrongly".to_owned(),
    };
    let limit = 100.0 * SHARE_MAX;
    Some(format!(
        "the steps that were computed again could reveal {found} (official: {limit:.0} %): use `--audit full`, and train longer if that is not enough"
    ))
}

/// Returns the smallest share of wrong steps of which steps drawn among them contain one with a probability of at least 90 %.
fn smallest_share(drawn: u64, steps: u64) -> Option<f64> {
    if steps == 0 {
        return Some(0.0);
    }
    // The probability that all drawn steps are right.
    let missed = |wrong: u64| -> f64 {
        let right = |index: u64| (steps - index).saturating_sub(wrong) as f64 / (steps - index) as f64;
        (0..drawn.min(steps)).map(right).product()
    };
    let is_found = |wrong: u64| missed(wrong) <= 1.0 - PROBABILITY_MIN;
    let (mut low, mut high) = (0, steps);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if is_found(middle) { &mut high } else { &mut low }) = middle;
    }
    is_found(high).then(|| high as f64 / steps as f64)
}

/// Returns that a part of the training is not part of the measurement.
fn resumed_training(training: &TrainingRecord) -> Option<String> {
    let resumed = training.resumed?;
    Some(format!(
        "resumed after step {} of a training that was cut off: only the steps since then were measured",
        resumed.steps
    ))
}

/// Returns that a later repetition was much faster than the first one.
fn faster_repetition(training: &TrainingRecord) -> Option<String> {
    let time = |round: &TrainingRound| round.core_s.0 / round.samples as f64;
    let (first, later) = training.rounds.split_first()?;
    let factor = time(first) / later.iter().map(time).reduce(f64::min)?;
    (factor > REPETITION_RATIO_MAX).then(|| {
        format!("the core time of a sample was {factor:.1}x as long in the first repetition as in a later one: does the engine keep results?")
    })
}

/// Returns that the case was not trained on the data that it names.
fn other_training_data(record: &Record, training: &TrainingRecord) -> Option<String> {
    let dataset = training.dataset.as_ref()?;
    let (expected, found) =
        (setting(record, "train_samples").and_then(Value::as_u64).unwrap_or_default(), dataset.samples);
    let index = setting(record, "train_index").and_then(Value::as_str).filter(|index| *index != dataset.index_sha256);
    match expected {
        0 => Some("the case does not say which dataset it is trained on (`train_samples`)".to_owned()),
        _ if expected != found => {
            Some(format!("trained on {found} samples, and the case has {expected} (`train_samples`)"))
        }
        _ => index.map(|index| {
            format!("trained on other data: their index is {}, and `train_index` is {index}", dataset.index_sha256)
        }),
    }
}

/// Returns what is not known about a training: which steps and evaluations were not computed again, and whether its data are
/// those of the case.
pub(super) fn unknown_of_training(record: &Record) -> Vec<String> {
    let Some(training) = record.training() else { return Vec::new() };
    let undrawn = training.replay.as_ref().and_then(|replay| {
        let again = replay.steps.len() as u64;
        let steps: u64 = training.rounds.iter().map(|round| round.steps).sum();
        (again < steps).then(|| format!("{} of {steps} training steps were not computed again", steps - again))
    });
    let evaluations = training.rounds.iter().map(|round| round.evaluations.len() as u64).sum::<u64>();
    let again = u64::from(training.replay.as_ref().is_some_and(|replay| replay.evaluation.is_some()));
    let unchecked = evaluations.saturating_sub(again);
    let earlier = (training.replay.is_some() && unchecked > 0)
        .then(|| format!("{unchecked} of {evaluations} evaluations were not computed again: only the last one is"));
    let is_counted = training.dataset.is_some() && other_training_data(record, training).is_none();
    let data = (is_counted && setting(record, "train_index").is_none())
        .then(|| "whether the samples of the training are those of the case: only their number is compared".to_owned());
    undrawn.into_iter().chain(earlier).chain(data).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::{PhaseRecord, Setting};
    use flagperf_core::event::DatasetFacts;
    use flagperf_core::measure::{Evaluation, StepReplay, TrainingProgress};
    use flagperf_core::metric::Agreement;
    use flagperf_core::step::Phase;
    use flagperf_core::units::Seconds;

    /// Returns the record of a training of 1000 steps, 12 of which were drawn and computed again, that `change` has changed.
    fn record(change: impl FnOnce(&mut Record, &mut TrainingRecord)) -> Record {
        let evaluation = Evaluation { samples: 40, ..Evaluation::default() };
        let round = TrainingRound {
            steps: 1000,
            samples: 8000,
            core_s: Seconds(8.0),
            evaluations: vec![evaluation],
            ..TrainingRound::default()
        };
        let step = |step| StepReplay { step, drawn: step > 2, ..StepReplay::default() };
        let mut training = TrainingRecord {
            dataset: Some(DatasetFacts { samples: 320, index_sha256: "ab".to_owned(), ..DatasetFacts::default() }),
            rounds: vec![round],
            communication: None,
            replay: Some(TrainingReplay {
                engine: "rten".to_owned(),
                steps: (1..=14).map(step).collect(),
                evaluation: Some(Agreement { samples: 40, ..Agreement::default() }),
                not_computed: Vec::new(),
            }),
            resumed: None,
            trained_by: Vec::new(),
        };
        let mut record = Record { settings: Default::default(), ..testing::record() };
        for (key, value) in [("train_samples", 320.into()), ("train_index", "ab".into()), ("seed", Value::Null)] {
            record.settings.insert(key.to_owned(), Setting { value, origin: String::new() });
        }
        change(&mut record, &mut training);
        let measured = vec![testing::measurement(Step::Training)];
        record.phases = vec![PhaseRecord { training: Some(training), measured, ..PhaseRecord::new(Phase::Train) }];
        record
    }

    fn reasons(change: impl FnOnce(&mut Record, &mut TrainingRecord)) -> Vec<String> {
        training_reasons(&record(change))
    }

    fn set(record: &mut Record, key: &str, value: impl Into<Value>) {
        record.settings[key].value = value.into();
    }

    #[test]
    fn a_training_that_was_checked_has_no_reason_and_each_gap_is_one() {
        assert_eq!(reasons(|_, _| {}), [""; 0]);
        let of = |change: fn(&mut Record, &mut TrainingRecord)| reasons(change).join("; ");
        let fixed = of(|record, _| set(record, "seed", 3));
        assert!(fixed.starts_with("the seed of the training is fixed (`seed: 3`"), "{fixed}");
        let partial = of(|_, training| training.replay.as_mut().unwrap().evaluation.as_mut().unwrap().samples = 2);
        assert_eq!(partial, "`rten` computed the outputs of 2 of 40 samples of the last evaluation again");
        let few = of(|_, training| training.replay.as_mut().unwrap().steps.truncate(7));
        assert!(few.contains("computes 37 % of the steps or more wrongly (official: 20 %)"), "{few}");
        let all = of(|_, training| {
            training.rounds[0].steps = 6;
            training.replay.as_mut().unwrap().steps.truncate(6);
        });
        assert_eq!(all, "", "no step was left out, although four drawn ones alone would reveal a quarter only");
        let resumed = of(|_, training| training.resumed = Some(TrainingProgress { steps: 30, ..Default::default() }));
        assert!(resumed.starts_with("resumed after step 30"), "{resumed}");
        let faster = of(|_, training| {
            let round = TrainingRound { core_s: Seconds(2.0), ..training.rounds[0].clone() };
            training.rounds.push(round);
        });
        assert!(faster.contains("was 4.0x as long in the first repetition"), "{faster}");
    }

    #[test]
    fn evaluations_that_were_not_computed_again_are_unknown() {
        let unknown = |evaluations: usize| {
            let all = vec![Evaluation::default(); evaluations];
            unknown_of_training(&record(|_, training| training.rounds[0].evaluations = all))
        };
        assert!(!unknown(1).iter().any(|text| text.contains("evaluations")), "{:?}", unknown(1));
        let expected = "2 of 3 evaluations were not computed again: only the last one is".to_owned();
        assert!(unknown(3).contains(&expected), "{:?}", unknown(3));
    }

    #[test]
    fn other_training_data_are_named() {
        let of = |change: fn(&mut Record, &mut TrainingRecord)| reasons(change).join("; ");
        let other = of(|record, _| set(record, "train_index", "cd"));
        assert_eq!(other, "trained on other data: their index is ab, and `train_index` is cd");
        let fewer = of(|_, training| training.dataset.as_mut().unwrap().samples = 300);
        assert_eq!(fewer, "trained on 300 samples, and the case has 320 (`train_samples`)");
        let unknown = of(|record, _| set(record, "train_samples", 0));
        assert_eq!(unknown, "the case does not say which dataset it is trained on (`train_samples`)");
    }

    #[test]
    fn the_share_that_drawn_steps_reveal_falls_with_their_number() {
        let share = |drawn, steps| smallest_share(drawn, steps).map(|share| (100.0 * share).round());
        assert_eq!((share(5, 100_000), share(12, 100_000)), (Some(37.0), Some(17.0)));
        assert_eq!((share(0, 100), share(10, 10)), (None, Some(10.0)));
    }
}
