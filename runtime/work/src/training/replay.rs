//! Computes drawn steps of a training again on another engine, and compares.
//!
//! Two correct engines differ by rounding, and how far rounding errors spread depends on the model, the optimizer and the
//! step. The gradients are therefore computed a third time, with errors in the parameters and in all results: the differences that
//! these cause are the scale of the limits.
//!
//! An optimizer that divides a gradient by its size passes on little more than its sign, so that a gradient close to 0 changes a
//! parameter as much as any other one. Where rounding may change the sign follows from a further update, whose gradients are closer to 0
//! by as much as correct engines may differ: such elements are only compared with the largest change that they can have.

use flagperf_core::event::Failure;
use flagperf_core::measure::{ReplayedValue, StepReplay};
use flagperf_core::precision::Precision;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_onnx::{Optimizer, OptimizerKind, State, StateKind};
use flagperf_plan::{EngineChoice, Job};

use super::super::outputs::SAMPLES_DRAWN;
use super::super::phase::failure;
use super::TrainingModel;
use super::drawn_steps::DrawnStep;
use super::step_parts::{Distances, StepParts, Updates, closer_to_zero, norm};

/// Differences up to this many times those that the errors cause are rounding. In fp32, correct engines stay well below it, and
/// the products of TF32 or bf16 exceed it.
const LIMIT_FACTOR: f64 = 32.0;
/// Rounding of the values themselves, relative to them.
const ROUNDING: f64 = 1.0 / (1 << 22) as f64;
/// The same of a loss and a norm, which are sums.
const SUM_ROUNDING: f64 = 1.0 / (1 << 16) as f64;
/// A difference of this share of the update is wrong in any precision. A smaller one can arise where an activation is so close to
/// 0 that engines disagree about its sign: then few steps are affected.
const WRONG_SHARE: f64 = 0.02;
/// Where the limit exceeds this share of the update, a larger difference is wrong all the same: an engine that leaves a layer out
/// differs by the whole update.
const WRONG_SHARE_MAX: f64 = 0.5;
/// Unless the errors alone change the update so much: differences up to this many times those that they cause are then rounding.
const WRONG_FACTOR: f64 = 4.0;

/// The name of the norm of the gradients among the values that are compared.
const NORM_NAME: &str = "gradient_norm";

/// Most operations of a step. On a processor with a few cores, they take some minutes.
const OPERATIONS_MAX: f64 = 2e13;
/// Most operations of all steps.
const ALL_OPERATIONS_MAX: f64 = 1e14;
/// Most operations of an evaluation.
const EVALUATION_OPERATIONS_MAX: f64 = 2e13;
/// Samples of an evaluation of a model whose operations are not known.
const SAMPLES_OF_UNKNOWN: usize = 1000;

/// The engine that computes steps again for an engine.
pub fn replay_engine(engine: &str) -> (&'static str, EngineRole) {
    match engine {
        "interpreter" => ("rten", EngineRole::Compiler),
        _ => ("interpreter", EngineRole::Framework),
    }
}

/// Returns the job in which another engine computes the same as that of `job`, with batches of this size.
pub fn replay_job(job: &Job, batch_size: u32) -> (Job, EngineRole) {
    let (name, role) = replay_engine(&job.engine.engine);
    let engine = EngineChoice { name: name.to_owned(), engine: name.to_owned(), ..EngineChoice::default() };
    let mut settings = job.settings.clone();
    settings.batch_size = batch_size;
    settings.precision = Precision::Fp32;
    // It computes alone, when the others have ended.
    (Job { engine, settings, process_group: None, ..job.clone() }, role)
}

fn operations_per_sample(model: &TrainingModel) -> Option<f64> {
    Some(2.0 * flagperf_onnx::count(&model.evaluated).multiply_adds_per_sample? as f64)
}

/// Returns the number of samples of an evaluation that another engine computes again at most.
pub fn samples_max(model: &TrainingModel) -> usize {
    operations_per_sample(model)
        .map_or(SAMPLES_OF_UNKNOWN, |operations| (EVALUATION_OPERATIONS_MAX / operations.max(1.0)) as usize)
        .max(SAMPLES_DRAWN)
}

/// Another engine with the training step.
pub struct StepReplayer<'m> {
    states: &'m [State],
    optimizer: Optimizer,
    parts: StepParts,
    /// Number of steps for which there are enough operations.
    pub steps_max: usize,
}

impl<'m> StepReplayer<'m> {
    /// Loads the training step of a job into another engine.
    ///
    /// # Errors
    /// When that engine refuses the step.
    pub fn new(model: &'m TrainingModel, job: &Job) -> Result<Self, Failure> {
        // Forward, gradient of the inputs and gradient of the weights: two operations for a multiply-add of each.
        let samples = job.settings.batch_size * job.process_group.as_ref().map_or(1, |group| group.size);
        let operations = 3.0 * operations_per_sample(model).unwrap_or_default() * f64::from(samples);
        if operations > OPERATIONS_MAX {
            let reason = format!("a step takes {operations:.1e} operations (at most {OPERATIONS_MAX:.0e})");
            return Err(failure(&reason, ""));
        }
        let (other, role) = replay_job(job, job.settings.batch_size);
        let (engine, precision) = (flagperf_engine::find(&other.engine.engine), job.settings.precision);
        if engine.is_ok_and(|engine| !engine.precisions().contains(&precision.dtype())) {
            return Err(failure(&format!("it does not compute in {precision}"), ""));
        }
        let steps_max = (ALL_OPERATIONS_MAX / operations) as usize;
        let (states, optimizer) = (&model.step.states, model.optimizer.clone());
        Ok(StepReplayer { states, optimizer, parts: model.load_parts(&other, role)?, steps_max })
    }

    /// Computes a step again and compares, also how far the parameters moved since an earlier one.
    ///
    /// # Errors
    /// When the other engine fails.
    pub fn replay(&self, drawn: &DrawnStep, earlier: Option<&DrawnStep>) -> Result<StepReplay, Failure> {
        let first_state = drawn.inputs.len() - drawn.states.len();
        let [computed, with_errors] =
            [&self.parts.gradients, &self.parts.perturbed].map(|part| self.parts.compute_batch(part, drawn));
        let ((loss, results), (changed_loss, changed)) = (computed?, with_errors?);
        let gradients = self.states.iter().filter(|state| state.kind == StateKind::Parameter).count();
        let closer = results.iter().zip(&changed).enumerate().map(|(index, (result, changed))| {
            // Statistics follow the gradients.
            if index < gradients { closer_to_zero(result, changed, LIMIT_FACTOR) } else { result.clone() }
        });
        let closer: Vec<Tensor> = closer.collect();
        let again = self.parts.update(results, drawn)?;
        let (changed, closer) = (self.parts.update(changed, drawn)?, self.parts.update(closer, drawn)?);
        let mut comparison = Comparison::default();
        let scalars = [("loss", loss, changed_loss), (NORM_NAME, again.norm, changed.norm)];
        for ((name, expected, changed), found) in scalars.into_iter().zip(&drawn.results) {
            // Before an update, the processes have sums of their own, and the norm of a step is the mean of the norms of these.
            if name == NORM_NAME && !drawn.others.is_empty() && !drawn.is_update() {
                continue;
            }
            let sensitivity = (changed - expected).abs();
            let rounding = SUM_ROUNDING * expected.abs() + 1e-6;
            // Mixed precision skips a step whose gradients overflow: it must do so on both engines.
            if !found.is_finite() && !expected.is_finite() {
                comparison.0.values += 1;
                continue;
            }
            comparison.add(name, (found - expected).abs(), [sensitivity, rounding], expected.abs());
        }
        for (index, state) in self.states.iter().enumerate() {
            let before = &drawn.inputs[first_state + index];
            let again = &again.states[index];
            // So are sums of gradients that overflow, until the end of the update.
            let overflows = |tensor: &Tensor| !norm(tensor).is_finite();
            if state.kind == StateKind::Memory && overflows(again) && overflows(&drawn.states[index]) {
                comparison.0.values += 1;
                continue;
            }
            let updates = Updates { before, again, changed: &changed.states[index], closer: &closer.states[index] };
            let is_divided = match self.optimizer.kind {
                OptimizerKind::Sgd { .. } => false,
                OptimizerKind::RmsProp { .. } => true,
                _ => state.kind == StateKind::Parameter,
            };
            let Distances { difference, sensitivity, shift, update } =
                updates.distances(&drawn.states[index], is_divided);
            // Few elements may be changed little by chance; closer to 0, all gradients of a row are by the same amount.
            let sensitivity = sensitivity.max(shift / LIMIT_FACTOR);
            comparison.add(&state.name, difference, [sensitivity, ROUNDING * norm(again)], update);
        }
        let before = &drawn.inputs[first_state..];
        let exceeded = drawn.remembered.and_then(|norms| norms.exceeded(&self.optimizer, self.states, before));
        if let Some([norm, most]) = exceeded {
            comparison.add_impossible("memory of the optimizer", norm, most);
        }
        if let Some(earlier) = earlier
            && let (Some(reach), Some(norms)) = (earlier.remembered_after, drawn.remembered)
            && let Some([moved, most]) =
                norms.reach.exceeded(&self.optimizer, self.states, (reach.reach, &earlier.states), before)
        {
            comparison.add_impossible(&format!("distance of the parameters from step {}", earlier.step), moved, most);
        }
        let DrawnStep { round, step, is_drawn, .. } = *drawn;
        Ok(StepReplay { round, step, drawn: is_drawn, ..comparison.0 })
    }
}

/// The comparison of a step, without its number.
#[derive(Default)]
struct Comparison(StepReplay);

impl Comparison {
    /// Adds a value by what the errors change in it and by the rounding of the value itself; `update` is the size of its change by
    /// the step, or of the value itself.
    fn add(&mut self, name: &str, difference: f64, [sensitivity, rounding]: [f64; 2], update: f64) {
        let replay = &mut self.0;
        // The step with errors may overflow, which says nothing about this value.
        let sensitivity = if sensitivity.is_finite() { sensitivity } else { 0.0 };
        let limit = LIMIT_FACTOR * sensitivity + rounding;
        let most = (WRONG_FACTOR * sensitivity + rounding).max(WRONG_SHARE_MAX * update);
        let wrong_limit = limit.min(most).max(WRONG_SHARE * update);
        // A difference that is NaN exceeds every limit.
        let exceeds = |limit: f64| difference.is_nan() || difference > limit;
        let is_wrong = exceeds(wrong_limit);
        replay.values += 1;
        replay.imprecise += u32::from(exceeds(limit) || is_wrong);
        replay.wrong += u32::from(is_wrong);
        let limit = if is_wrong { limit.min(wrong_limit) } else { limit };
        let ratio = |difference: f64, limit: f64| if difference.is_nan() { f64::INFINITY } else { difference / limit };
        let worst = &replay.worst;
        if worst.name.is_empty() || ratio(difference, limit) > ratio(worst.difference, worst.limit) {
            replay.worst = ReplayedValue { name: name.to_owned(), difference, limit };
        }
    }

    /// Adds a value that exceeds the largest possible one.
    fn add_impossible(&mut self, name: &str, value: f64, most: f64) {
        let replay = &mut self.0;
        replay.values += 1;
        replay.imprecise += 1;
        replay.wrong += 1;
        replay.worst = ReplayedValue { name: name.to_owned(), difference: value, limit: most };
    }
}

#[cfg(test)]
mod tests;
