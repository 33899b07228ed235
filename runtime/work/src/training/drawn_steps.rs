//! Chooses the steps of a training that another engine computes again, and keeps what it needs.

use flagperf_core::event::Failure;
use flagperf_core::hash::Seed;
use flagperf_core::tensor::{Tensor, TensorError};
use flagperf_engine::Value;
use flagperf_plan::AuditScope;

use super::super::order::SampleOrder;
use super::super::phase::failure;

/// Bytes of the steps that are kept; of steps with large states, fewer are kept.
const KEPT_BYTES: usize = 8 << 30;
/// Number of drawn steps that are kept however large they are.
const DRAWN_MIN: usize = 3;

/// A step of a training with what it read and what it computed.
#[derive(Clone)]
pub struct DrawnStep {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The number of the step, from 1.
    pub step: u64,
    /// Whether it was drawn at random.
    pub is_drawn: bool,
    /// The batch, the numbers of the step and the states before it.
    pub inputs: Vec<Tensor>,
    /// The loss and the norm of the gradients.
    pub results: Vec<f64>,
    /// The states after it.
    pub states: Vec<Tensor>,
}

impl DrawnStep {
    fn bytes(&self) -> usize {
        self.inputs.iter().chain(&self.states).map(|tensor| tensor.bytes().len()).sum()
    }
}

/// A step that was computed and whose states are still in the engine.
pub struct ComputedStep {
    step: u64,
    fields: Vec<Tensor>,
    before: Vec<Value>,
    results: Vec<f64>,
}

impl ComputedStep {
    /// Takes the inputs of a step, the last `states` of which are the states before it.
    ///
    /// # Errors
    /// When there is no memory for a copy of the batch.
    pub fn new(step: u64, mut inputs: Vec<Value>, results: &[f64], states: usize) -> Result<Self, Failure> {
        let before = inputs.split_off(inputs.len() - states);
        // The loader writes another batch to the same memory.
        let copy = |tensor: Tensor| Tensor::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes());
        let copied = |value: &Value| {
            let tensor = value.to_host().map_err(|e| failure(&e, ""))?;
            copy(tensor).map_err(|e: TensorError| failure(&e, ""))
        };
        let fields = inputs.iter().map(copied).collect::<Result<_, _>>()?;
        Ok(ComputedStep { step, fields, before, results: results.to_vec() })
    }

    /// Reads the states before the step from the engine, which has computed it; `states` are those after it.
    fn read(&self, states: &[Tensor]) -> Result<DrawnStep, Failure> {
        let before = self.before.iter().map(|value| value.to_host().map_err(|e| failure(&e, "")));
        let inputs = self.fields.iter().cloned().map(Ok).chain(before).collect::<Result<_, _>>()?;
        let (step, results) = (self.step, self.results.clone());
        Ok(DrawnStep { round: 0, step, is_drawn: false, inputs, results, states: states.to_vec() })
    }
}

/// Draws steps of all trainings of a case, each of which is among the kept ones with the same probability in the end (Vitter,
/// "Random sampling with a reservoir", 1985, algorithm R): step `n` is drawn with the probability `max / n` and takes the place
/// of an earlier one. Also keeps the first step of each training and the one before its last evaluation.
///
/// The draw follows from the seed of the run and does not depend on the steps drawn before, and states are read only after
/// the step was computed: until then, no engine can know that the step is drawn.
pub struct DrawnSteps {
    order: SampleOrder,
    round: u32,
    /// Steps so far.
    steps: u64,
    drawn: Vec<DrawnStep>,
    drawn_max: usize,
    first: Vec<DrawnStep>,
    last: Vec<DrawnStep>,
    /// Number of first and last steps that were too large to keep.
    pub forgotten: u64,
}

impl DrawnSteps {
    /// Draws from the seed of a run. The full audit of an official result finds an engine that computes a fifth of the steps wrongly.
    pub fn new(seed: Seed, scope: AuditScope) -> Self {
        let drawn_max = match scope {
            AuditScope::Standard => 5,
            AuditScope::Full => 12,
        };
        let order = SampleOrder::new(seed, 0);
        DrawnSteps { order, round: 0, steps: 0, drawn: vec![], drawn_max, first: vec![], last: vec![], forgotten: 0 }
    }

    /// Starts a training.
    pub fn start(&mut self, round: u32) {
        self.round = round;
    }

    /// Draws whether the next step is kept; returns its place.
    pub fn draw(&mut self) -> Option<usize> {
        self.steps += 1;
        let place = self.order.choose("training step", self.steps, usize::try_from(self.steps).unwrap_or(usize::MAX));
        let place = if self.drawn.len() < self.drawn_max { self.drawn.len() } else { place };
        (place < self.drawn_max).then_some(place)
    }

    /// Returns whether no step of the training was kept yet, so that the next one is the first.
    pub fn is_first(&self) -> bool {
        self.first.last().is_none_or(|first| first.round != self.round)
    }

    /// Keeps a step at its place.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub fn keep(&mut self, place: Option<usize>, step: &ComputedStep, states: &[Value]) -> Result<(), Failure> {
        let states = states.iter().map(|value| value.to_host().map_err(|e| failure(&e, "")));
        let kept = DrawnStep { round: self.round, ..step.read(&states.collect::<Result<Vec<_>, _>>()?)? };
        if self.is_first() {
            let fitting = KEPT_BYTES / kept.bytes().max(1);
            self.drawn_max = self.drawn_max.min(fitting.max(DRAWN_MIN));
            self.first.push(kept.clone());
            self.forget();
        }
        let Some(place) = place else { return Ok(()) };
        let kept = DrawnStep { is_drawn: true, ..kept };
        match self.drawn.get_mut(place) {
            Some(earlier) => *earlier = kept,
            None => self.drawn.push(kept),
        }
        Ok(())
    }

    /// Keeps the step before an evaluation, whose states are evaluated, in place of the one before an earlier evaluation.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub fn keep_last(&mut self, step: &ComputedStep, states: &[Tensor]) -> Result<(), Failure> {
        self.last.retain(|kept| kept.round != self.round);
        self.last.push(DrawnStep { round: self.round, ..step.read(states)? });
        self.forget();
        Ok(())
    }

    /// Forgets first and last steps of earlier trainings if all together are too large.
    fn forget(&mut self) {
        let bytes = |kept: &[DrawnStep]| kept.iter().map(DrawnStep::bytes).sum::<usize>();
        while bytes(&self.first) + bytes(&self.last) > KEPT_BYTES {
            let larger = if self.first.len() > self.last.len() { &mut self.first } else { &mut self.last };
            if larger.len() < 2 {
                return;
            }
            larger.remove(0);
            self.forgotten += 1;
        }
    }

    /// Returns the steps that were kept, each once, and those that were drawn at the end.
    pub fn kept(&self) -> Vec<&DrawnStep> {
        let mut kept: Vec<&DrawnStep> = Vec::new();
        // A step may be drawn that is kept anyway; of its two readings, that of the evaluated states counts.
        for step in self.last.iter().chain(&self.first).chain(&self.drawn) {
            if !kept.iter().any(|other| (other.round, other.step) == (step.round, step.step)) {
                kept.push(step);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(step: u64) -> ComputedStep {
        ComputedStep::new(step, Vec::new(), &[], 0).unwrap()
    }

    /// Returns the steps that were drawn, and those that were kept in the end, with the seed of a run.
    fn drawn(seed: u8, steps: u64) -> (Vec<u64>, Vec<u64>) {
        let mut drawn = DrawnSteps::new([seed; 32].into(), AuditScope::Standard);
        let mut all = Vec::new();
        for step in 1..=steps {
            let place = drawn.draw();
            if place.is_some() || drawn.is_first() {
                drawn.keep(place, &computed(step), &[]).unwrap();
                all.push(step);
            }
        }
        let kept = drawn.drawn.iter().map(|kept| kept.step).collect();
        (all, kept)
    }

    #[test]
    fn after_a_drawn_step_the_next_one_may_be_drawn_at_once_and_any_step_may_be_kept() {
        let (mut neighbours, mut halves, mut count) = (0, [0; 2], 0);
        for seed in 0..100 {
            let (all, kept) = drawn(seed, 400);
            assert_eq!((&all[..5], kept.len()), (&[1, 2, 3, 4, 5][..], 5));
            neighbours += all.windows(2).filter(|pair| pair[0] > 50 && pair[1] == pair[0] + 1).count();
            kept.iter().for_each(|step| halves[usize::from(*step > 200)] += 1);
            count += all.len();
        }
        assert!(neighbours > 5, "{neighbours}");
        assert!(halves.iter().all(|half| (200..300).contains(half)), "{halves:?}");
        // 5 (1 + ln(400 / 5)) for each seed.
        assert!((2300..3100).contains(&count), "{count}");
    }

    #[test]
    fn the_first_step_and_the_one_before_the_last_evaluation_of_each_training_are_kept() {
        let mut drawn = DrawnSteps::new([3; 32].into(), AuditScope::Standard);
        for round in 0..2 {
            drawn.start(round);
            for step in 1..=60 {
                let place = drawn.draw();
                if place.is_some() || drawn.is_first() {
                    drawn.keep(place, &computed(step), &[]).unwrap();
                }
                if step % 20 == 0 {
                    drawn.keep_last(&computed(step), &[]).unwrap();
                }
            }
        }
        let kept = drawn.kept();
        let has = |round, step| kept.iter().filter(|kept| (kept.round, kept.step) == (round, step)).count();
        for round in 0..2 {
            assert_eq!((has(round, 1), has(round, 60)), (1, 1), "training {round}");
        }
        assert!((7..=9).contains(&kept.len()), "{}", kept.len());
    }
}
