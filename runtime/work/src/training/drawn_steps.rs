//! Chooses the steps of a training that another engine computes again, and keeps what it needs.

use std::collections::VecDeque;

use flagperf_core::event::Failure;
use flagperf_core::hash::Seed;
use flagperf_core::tensor::Tensor;
use flagperf_engine::Value;
use flagperf_onnx::{OptimizerKind, StepScalars};
use flagperf_plan::AuditScope;

use super::super::order::SampleOrder;
use super::super::step::read_value;
use super::remembered::RememberedNorms;
use super::state_reader::StateReader;

/// What is kept of each training, in the order of its importance: with memory for `n` pairs, the first `n` of these, and with memory for
/// more, more drawn steps.
const KINDS: [&str; 5] = [
    "the last step before each evaluation",
    "a drawn step",
    "the first two steps",
    "the step whose loss fell most",
    "the step with the largest gradients",
];

/// Steps that the full audit draws.
const DRAWN_MAX_FULL: usize = 12;

/// Which batch a step trained on, so that it can be read again: an engine may write to the memory of the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchPlace {
    /// The seed of the sampler.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch of the epoch, from 0.
    pub batch: usize,
}

/// A step of a training with what it read and what it computed.
#[derive(Clone)]
pub struct DrawnStep {
    /// Which training of the case, from 0.
    pub round: u32,
    /// The number of the step, from 1.
    pub step: u64,
    /// Whether it was drawn at random.
    pub is_drawn: bool,
    pub place: BatchPlace,
    /// The numbers of the step and the states before it.
    pub inputs: Vec<Tensor>,
    /// The fields and numbers of the other processes that train together.
    pub others: Vec<Vec<Tensor>>,
    /// The loss and the norm of the gradients.
    pub results: Vec<f64>,
    /// The states after it.
    pub states: Vec<Tensor>,
    /// What the optimizer can remember before it; `None` if that is unknown.
    pub remembered: Option<RememberedNorms>,
    /// The same after it.
    pub remembered_after: Option<RememberedNorms>,
}

impl DrawnStep {
    /// Returns whether its batch was the last one of an update.
    pub fn is_update(&self) -> bool {
        let numbers = self.inputs.len() - self.states.len() - StepScalars::NAMES.len();
        let place = StepScalars::NAMES.iter().position(|name| *name == "update");
        place.is_some_and(|place| self.inputs[numbers + place].to_f64()[0] > 0.5)
    }
}

/// A step and the one before it, if there was one.
type Pair = Vec<DrawnStep>;

/// Returns how far a loss fell: relative to it, because losses change less and less.
fn fall_of_loss(before: f64, after: f64) -> f64 {
    if after > 0.0 { (before / after).ln() } else { before - after }
}

/// Keeps a pair in place of another one of its training.
fn keep_one(pairs: &mut Vec<Pair>, pair: Pair) {
    pairs.retain(|other| other[0].round != pair[0].round);
    pairs.push(pair);
}

/// A step that was computed and whose states are still in the engine.
pub struct ComputedStep {
    step: u64,
    place: BatchPlace,
    numbers: Vec<Value>,
    before: Vec<Value>,
    /// The states before it, once they were read.
    before_read: Option<Vec<Tensor>>,
    results: Vec<f64>,
    remembered: Option<RememberedNorms>,
    remembered_after: Option<RememberedNorms>,
}

impl ComputedStep {
    /// Takes the inputs of a step: fields of the batch, the numbers of the step, and as many states as `states`.
    pub fn new(step: u64, place: BatchPlace, mut inputs: Vec<Value>, results: &[f64], states: usize) -> Self {
        let before = inputs.split_off(inputs.len() - states);
        let numbers = inputs.split_off(inputs.len() - StepScalars::NAMES.len());
        let results = results.to_vec();
        ComputedStep {
            step,
            place,
            numbers,
            before,
            before_read: None,
            results,
            remembered: None,
            remembered_after: None,
        }
    }

    /// Returns the step of a training with the states before and after it.
    fn with_states(&self, round: u32, before: &[Tensor], states: Vec<Tensor>) -> Result<DrawnStep, Failure> {
        let numbers = self.numbers.iter().map(read_value).collect::<Result<Vec<_>, _>>()?;
        let inputs = numbers.into_iter().chain(before.iter().cloned()).collect();
        let ComputedStep { step, place, remembered, remembered_after, .. } = *self;
        let results = self.results.clone();
        let (is_drawn, others) = (false, Vec::new());
        Ok(DrawnStep { round, step, is_drawn, place, inputs, others, results, states, remembered, remembered_after })
    }
}

/// Draws steps of all trainings of a case, each of which is among the kept ones with the same probability in the end (Vitter,
/// "Random sampling with a reservoir", 1985, algorithm R): step `n` is drawn with the probability `max / n` and takes the place
/// of an earlier one. Also keeps the first two steps of each training, the last before its last evaluation, the one whose loss
/// fell most, relative to it, and the one with the largest gradients after those: an engine that goes on from other states than it
/// computed cannot hide that they are better, nor claim gradients that explain them.
///
/// Each is kept with the step before it, and all states are read once both were computed: when an engine gets the states that it
/// computed last as inputs, it cannot know that they will not be read.
pub struct DrawnSteps {
    order: SampleOrder,
    round: u32,
    /// Steps so far.
    steps: u64,
    /// The last steps of the training: one while a step is computed, two before an evaluation.
    recent: VecDeque<ComputedStep>,
    /// The states after the last step, if they were read.
    after: Option<Vec<Tensor>>,
    drawn: Vec<Pair>,
    drawn_max: usize,
    first: Vec<Pair>,
    /// Whether the training has begun with two steps.
    has_first: bool,
    last: Vec<Pair>,
    steepest: Vec<Pair>,
    /// The largest fall between two losses in a row.
    fall: f64,
    largest: Vec<Pair>,
    /// The largest norm of gradients after the first two steps.
    norm: f64,
    optimizer: OptimizerKind,
    /// What the optimizer can remember now.
    remembered: Option<RememberedNorms>,
    /// Number of pairs for which there is memory.
    pairs_max: usize,
    /// Whether values are kept. Otherwise it only follows which pairs another process keeps.
    keeps: bool,
    /// Number of pairs of earlier trainings that are no longer kept.
    forgotten: u64,
}

impl DrawnSteps {
    /// Most pairs of one training.
    pub const PAIRS_MAX: usize = KINDS.len() + DRAWN_MAX_FULL;

    /// Draws from the seed of a run. The full audit of an official result finds an engine that computes a fifth of the steps wrongly. There
    /// is memory for `pairs_max` pairs. Of several processes, one `keeps` values; the others follow which.
    pub fn new(seed: Seed, scope: AuditScope, optimizer: OptimizerKind, pairs_max: usize, keeps: bool) -> Self {
        let drawn_max = match scope {
            AuditScope::Standard => 5,
            AuditScope::Full => DRAWN_MAX_FULL,
        };
        let more_drawn = pairs_max.saturating_sub(KINDS.len());
        let drawn_max = drawn_max.min(more_drawn + usize::from(pairs_max > 1));
        DrawnSteps {
            order: SampleOrder::new(seed, 0),
            round: 0,
            steps: 0,
            recent: VecDeque::new(),
            after: None,
            drawn: Vec::new(),
            drawn_max,
            first: Vec::new(),
            has_first: false,
            last: Vec::new(),
            steepest: Vec::new(),
            fall: 0.0,
            largest: Vec::new(),
            norm: 0.0,
            optimizer,
            remembered: None,
            pairs_max,
            keeps,
            forgotten: 0,
        }
    }

    /// Starts a training. `remembered` is what its optimizer can remember, if that is known.
    pub fn start(&mut self, round: u32, remembered: Option<RememberedNorms>) {
        self.round = round;
        self.forget_recent();
        (self.fall, self.norm, self.has_first) = (0.0, 0.0, false);
        self.remembered = remembered;
    }

    /// Forgets the last steps, whose states are in the engine.
    pub fn forget_recent(&mut self) {
        self.recent.clear();
        self.after = None;
    }

    /// Adds a step with the states after it. `is_last` states whether an evaluation follows. Returns whether a pair was kept, in which case
    /// all processes should wait for the one that read it.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub fn add(
        &mut self,
        mut step: ComputedStep,
        states: &[Value],
        is_last: bool,
        reader: &StateReader,
    ) -> Result<bool, Failure> {
        let place = self.draw();
        let norm = step.results[1];
        step.remembered = self.remembered;
        step.before_read = self.after.take();
        let learning_rate = read_value(&step.numbers[0])?.to_f64()[0];
        self.remembered = self.remembered.map(|remembered| remembered.after(&self.optimizer, learning_rate, norm));
        step.remembered_after = self.remembered;
        let previous = self.recent.back().map(|previous| previous.results[0]);
        let fall = previous.map_or(0.0, |previous| fall_of_loss(previous, step.results[0]));
        self.recent.push_back(step);
        // The numbers of pairs are places in `KINDS`.
        let is_first = previous.is_some() && !self.has_first && self.pairs_max > 2;
        let is_steepest = fall > self.fall && self.pairs_max > 3;
        // The norm of a step that mixed precision skips is infinite.
        let is_largest = self.has_first && norm > self.norm && norm.is_finite() && self.pairs_max > 4;
        self.has_first = previous.is_some();
        let is_kept = place.is_some() || is_first || is_steepest || is_largest;
        if is_kept {
            let after = self.read(states, reader)?;
            let pair = self.read_pair(after.clone(), reader)?;
            self.after = Some(after);
            if is_first {
                self.first.push(pair.clone());
            }
            if is_steepest {
                self.fall = fall;
                keep_one(&mut self.steepest, pair.clone());
            }
            if is_largest {
                self.norm = norm;
                keep_one(&mut self.largest, pair.clone());
            }
            if let Some(place) = place {
                self.keep_drawn(place, pair);
            }
            self.forget();
        }
        if !is_last && self.recent.len() > 1 {
            self.recent.pop_front();
        }
        Ok(is_kept)
    }

    /// Reads states that are kept. Those of which no process has all are read by all together.
    fn read(&self, states: &[Value], reader: &StateReader) -> Result<Vec<Tensor>, Failure> {
        let read = if self.keeps || reader.reads_together() { reader.read(states)? } else { Vec::new() };
        Ok(if self.keeps { read } else { Vec::new() })
    }

    /// Keeps the last step before an evaluation, with the states that are evaluated, in place of the one before an earlier
    /// evaluation.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub fn keep_last(&mut self, states: &[Tensor], reader: &StateReader) -> Result<(), Failure> {
        if self.pairs_max > 0 && !self.recent.is_empty() {
            let states = if self.keeps { states.to_vec() } else { Vec::new() };
            let pair = self.read_pair(states.clone(), reader)?;
            self.after = Some(states);
            keep_one(&mut self.last, pair);
            self.forget();
        }
        if self.recent.len() > 1 {
            self.recent.pop_front();
        }
        Ok(())
    }

    /// Returns the pairs' steps, each once. The last of a pair that was drawn counts as drawn.
    pub fn kept(&self) -> Vec<&DrawnStep> {
        let mut kept: Vec<&DrawnStep> = Vec::new();
        let always = self.last.iter().chain(&self.first).chain(&self.steepest).chain(&self.largest).flatten();
        let drawn = self.drawn.iter().filter_map(|pair| pair.last());
        // A step may be kept for several reasons; of two readings, that of the evaluated states counts. One that was drawn, and is also
        // the one before another, was drawn.
        for step in always.chain(drawn).chain(self.drawn.iter().flatten()) {
            if !kept.iter().any(|other| (other.round, other.step) == (step.round, step.step)) {
                kept.push(step);
            }
        }
        kept
    }

    /// Draws whether the next step is kept; returns its place.
    fn draw(&mut self) -> Option<usize> {
        self.steps += 1;
        let place = self.order.choose("training step", self.steps, usize::try_from(self.steps).unwrap_or(usize::MAX));
        let place = if self.drawn.len() < self.drawn_max { self.drawn.len() } else { place };
        (place < self.drawn_max).then_some(place)
    }

    fn keep_drawn(&mut self, place: usize, mut pair: Pair) {
        pair.iter_mut().rev().take(1).for_each(|step| step.is_drawn = true);
        match self.drawn.get_mut(place) {
            Some(earlier) => *earlier = pair,
            None => self.drawn.push(pair),
        }
    }

    /// Reads the states before the last two steps, unless they were read as those after an earlier one; `states` are those after them.
    fn read_pair(&mut self, states: Vec<Tensor>, reader: &StateReader) -> Result<Pair, Failure> {
        let mut after = states;
        let mut pair = Vec::new();
        for index in (0..self.recent.len()).rev() {
            let before = match self.recent[index].before_read.take() {
                Some(read) => read,
                None => self.read(&self.recent[index].before, reader)?,
            };
            let step = &mut self.recent[index];
            pair.insert(0, step.with_states(self.round, &before, after)?);
            step.before_read = Some(before.clone());
            after = before;
        }
        Ok(pair)
    }

    /// Forgets pairs of earlier trainings if all together are too large.
    fn forget(&mut self) {
        let max = self.pairs_max - self.drawn_max;
        let mut lists = [&mut self.first, &mut self.last, &mut self.steepest, &mut self.largest];
        while lists.iter().map(|pairs| pairs.len()).sum::<usize>() > max {
            let longest = lists.iter_mut().max_by_key(|pairs| pairs.len()).expect("there are four lists");
            longest.remove(0);
            self.forgotten += 1;
        }
    }

    /// Returns what is not kept because the states are too large.
    pub fn not_kept(&self) -> Vec<String> {
        let kinds = KINDS.iter().skip(self.pairs_max).map(|kind| (*kind).to_owned());
        let earlier = format!("{} pairs of steps of earlier trainings", self.forgotten);
        kinds.chain((self.forgotten > 0).then_some(earlier)).collect()
    }
}

#[cfg(test)]
mod tests;
