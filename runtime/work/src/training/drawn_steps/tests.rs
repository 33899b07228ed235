//! Tests of which steps are kept, and of how often their states are read.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flagperf_core::tensor::{DType, TensorSpec};
use flagperf_engine::{DeviceTensor, EngineError};

use super::*;

fn computed(step: u64, loss: f64) -> ComputedStep {
    let numbers = StepScalars::NAMES.map(|_| Value::Host(Tensor::scalar(0f32))).to_vec();
    ComputedStep::new(step, BatchPlace::default(), numbers, &[loss, 1.0], 0)
}

fn with_memory(seed: u8, scope: AuditScope, pairs_max: usize) -> DrawnSteps {
    DrawnSteps::new([seed; 32].into(), scope, OptimizerKind::Sgd { momentum: 0.9, nesterov: false }, pairs_max, true)
}

fn of_seed(seed: u8, scope: AuditScope) -> DrawnSteps {
    with_memory(seed, scope, usize::MAX)
}

/// Trains with a constant loss and constant norms.
fn train(drawn: &mut DrawnSteps, round: u32, steps: u64) {
    drawn.start(round, None);
    for step in 1..=steps {
        let is_last = step % 20 == 0;
        drawn.add(computed(step, 1.0), &[], is_last, &StateReader::default()).unwrap();
        if is_last {
            drawn.keep_last(&[], &StateReader::default()).unwrap();
        }
    }
}

#[test]
fn any_step_may_be_kept_and_each_drawn_one_with_the_step_before_it() {
    let mut halves = [0; 2];
    for seed in 0..100 {
        let mut drawn = of_seed(seed, AuditScope::Standard);
        train(&mut drawn, 0, 400);
        assert_eq!(drawn.drawn.len(), 5);
        for pair in &drawn.drawn {
            let steps: Vec<u64> = pair.iter().map(|step| step.step).collect();
            assert!(matches!(steps[..], [1]) || steps[1] == steps[0] + 1, "{steps:?}");
            assert!(pair.last().is_some_and(|step| step.is_drawn));
            halves[usize::from(pair[0].step > 200)] += 1;
        }
    }
    assert!(halves.iter().all(|half| (200..300).contains(half)), "{halves:?}");
}

/// A tensor on a device that counts how often it is read.
#[derive(Debug, Default)]
struct Counted(AtomicU32);

impl DeviceTensor for Counted {
    fn spec(&self) -> TensorSpec {
        TensorSpec::new([1], DType::F32)
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Tensor::from_vec([1], vec![0f32]).expect("one number"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn states_of_drawn_steps_in_a_row_are_read_once() {
    let mut drawn = of_seed(3, AuditScope::Standard);
    drawn.start(0, None);
    let states: Vec<Arc<Counted>> = (0..6).map(|_| Arc::default()).collect();
    let value = |step: usize| Value::Device(states[step].clone());
    for step in 1..6 {
        let numbers = StepScalars::NAMES.map(|_| Value::Host(Tensor::scalar(0f32)));
        let inputs = numbers.into_iter().chain([value(step - 1)]).collect();
        let computed = ComputedStep::new(step as u64, BatchPlace::default(), inputs, &[1.0, 1.0], 1);
        drawn.add(computed, &[value(step)], false, &StateReader::default()).unwrap();
    }
    assert_eq!(drawn.drawn.len(), 5);
    assert_eq!(states.iter().map(|state| state.0.load(Ordering::Relaxed)).collect::<Vec<_>>(), [1; 6]);
}

#[test]
fn a_drawn_step_counts_as_drawn_also_before_another_drawn_one() {
    for seed in 0..20 {
        let mut drawn = of_seed(seed, AuditScope::Full);
        train(&mut drawn, 0, 20);
        let always = [1, 2, 3, 19, 20];
        let expected = drawn.drawn.iter().filter(|pair| pair.last().is_some_and(|step| !always.contains(&step.step)));
        assert_eq!(drawn.kept().iter().filter(|step| step.is_drawn).count(), expected.count(), "seed {seed}");
    }
}

#[test]
fn the_first_and_the_last_two_steps_of_each_training_are_kept() {
    let mut drawn = of_seed(3, AuditScope::Standard);
    (0..2).for_each(|round| train(&mut drawn, round, 60));
    let kept = drawn.kept();
    let has = |round, step| kept.iter().filter(|kept| (kept.round, kept.step) == (round, step)).count();
    for round in 0..2 {
        assert_eq!([1, 2, 59, 60].map(|step| has(round, step)), [1; 4], "training {round}");
    }
    assert!((8..=18).contains(&kept.len()), "{}", kept.len());
}

#[test]
fn the_step_whose_result_made_the_loss_fall_most_is_kept() {
    let mut drawn = of_seed(3, AuditScope::Standard);
    drawn.start(0, None);
    for step in 1..=500 {
        // Earlier losses fell by more, but not relative to them.
        let loss = 100.0 * 0.97f64.powf(step as f64) * if step < 300 { 1.0 } else { 0.2 };
        drawn.add(computed(step, loss), &[], false, &StateReader::default()).unwrap();
    }
    let kept: Vec<u64> = drawn.kept().iter().map(|kept| kept.step).collect();
    assert!(kept.contains(&299) && kept.contains(&300), "{kept:?}");
}

#[test]
fn a_step_that_claims_the_largest_gradients_is_kept_and_what_can_be_remembered_is_known() {
    let mut drawn = of_seed(3, AuditScope::Standard);
    drawn.start(0, Some(RememberedNorms::default()));
    for step in 1..=500 {
        let mut computed = computed(step, 1.0);
        computed.results[1] = if step == 333 { 40.0 } else { 100.0f64.powf(1.0 / step as f64) };
        drawn.add(computed, &[], false, &StateReader::default()).unwrap();
    }
    let kept = drawn.kept();
    let step = kept.iter().find(|kept| kept.step == 333).expect("its gradients are the largest after the first two");
    assert!(step.remembered.is_some_and(|remembered| remembered != RememberedNorms::default()));
}

#[test]
fn with_little_memory_the_most_important_steps_are_kept_and_the_others_named() {
    for pairs_max in 0..=8 {
        let mut drawn = with_memory(3, AuditScope::Standard, pairs_max);
        for round in 0..2 {
            drawn.start(round, None);
            for step in 1..=60 {
                let mut computed = computed(step, 1.0 / step as f64);
                computed.results[1] = step as f64;
                drawn.add(computed, &[], step == 60, &StateReader::default()).unwrap();
            }
            drawn.keep_last(&[], &StateReader::default()).unwrap();
        }
        let lists = [&drawn.last, &drawn.drawn, &drawn.first, &drawn.steepest, &drawn.largest];
        let lengths = lists.map(Vec::len);
        assert!(lengths.iter().sum::<usize>() <= pairs_max, "{pairs_max}: {lengths:?}");
        assert!(lengths[..pairs_max.min(KINDS.len())].iter().all(|length| *length > 0), "{pairs_max}: {lengths:?}");
        let named = drawn.not_kept();
        assert_eq!(
            named.iter().filter(|name| KINDS.contains(&&***name)).count(),
            KINDS.len().saturating_sub(pairs_max)
        );
        let last = drawn.last.last().map_or(0, |pair| pair[1].step);
        assert_eq!(last, if pairs_max > 0 { 60 } else { 0 });
    }
}
