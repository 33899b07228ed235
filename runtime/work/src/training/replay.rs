//! Computes drawn steps of a training again on another engine, and compares.
//!
//! Two correct engines differ by rounding, and how far rounding errors spread depends on the model, the optimizer and the
//! step. The step is therefore computed a third time, with errors in the parameters and in all results: the differences that
//! these cause are the scale of the limits.

use flagperf_core::event::Failure;
use flagperf_core::measure::{ReplayedValue, StepReplay};
use flagperf_core::precision::Precision;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_engine::Value;
use flagperf_onnx::{Optimizer, State};
use flagperf_plan::{EngineChoice, Job};
use flagperf_script::Sessions;

use super::super::outputs::SAMPLES_DRAWN;
use super::super::phase::failure;
use super::drawn_steps::DrawnStep;
use super::{RESULTS, TrainingModel};

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
    (Job { engine, settings, ..job.clone() }, role)
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
    /// The step, and the step with errors.
    sessions: [Sessions; 2],
    /// Number of steps for which there are enough operations.
    pub steps_max: usize,
}

/// What a step computes.
struct Computed {
    results: Vec<f64>,
    states: Vec<Tensor>,
}

impl<'m> StepReplayer<'m> {
    /// Loads the training step of a job into another engine.
    ///
    /// # Errors
    /// When that engine refuses the step.
    pub fn new(model: &'m TrainingModel, job: &Job) -> Result<Self, Failure> {
        // Forward, gradient of the inputs and gradient of the weights: two operations for a multiply-add of each.
        let operations = 3.0 * operations_per_sample(model).unwrap_or_default() * f64::from(job.settings.batch_size);
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
        Ok(StepReplayer { states, optimizer, sessions: model.load_standard_steps(&other, role)?, steps_max })
    }

    /// Computes a step again and compares, also how far the parameters moved since an earlier one.
    ///
    /// # Errors
    /// When the other engine fails.
    pub fn replay(&self, drawn: &DrawnStep, earlier: Option<&DrawnStep>) -> Result<StepReplay, Failure> {
        let [again, changed] = self.sessions.each_ref().map(|sessions| compute(sessions, drawn.inputs.clone()));
        let (again, changed) = (again?, changed?);
        let first_state = drawn.inputs.len() - drawn.states.len();
        let mut comparison = Comparison::default();
        for (index, name) in ["loss", "gradient_norm"].into_iter().enumerate() {
            let (found, expected) = (drawn.results[index], again.results[index]);
            let sensitivity = (changed.results[index] - expected).abs();
            let rounding = SUM_ROUNDING * expected.abs() + 1e-6;
            // Mixed precision skips a step whose gradients overflow: it must do so on both engines.
            let is_skipped = !found.is_finite() && !expected.is_finite();
            let difference = if is_skipped { 0.0 } else { (found - expected).abs() };
            comparison.add(name, difference, [sensitivity, rounding], expected.abs());
        }
        for (index, state) in self.states.iter().enumerate() {
            let before = &drawn.inputs[first_state + index];
            let [found, expected, changed] = [&drawn.states[index], &again.states[index], &changed.states[index]];
            let scale = [distance(changed, expected), ROUNDING * norm(expected)];
            comparison.add(&state.name, distance(found, expected), scale, distance(expected, before));
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

fn compute(sessions: &Sessions, inputs: Vec<Tensor>) -> Result<Computed, Failure> {
    let inputs: Vec<Value> = inputs.into_iter().map(Value::Host).collect();
    let session = sessions.values().next().expect("a training step is one graph");
    let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
    let outputs = session.submit(&inputs).map_err(|e| failure(&e, ""))?;
    session.sync().map_err(|e| failure(&e, ""))?;
    let mut outputs = outputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>().map_err(|e| failure(&e, ""))?;
    let states = outputs.split_off(RESULTS);
    Ok(Computed { results: outputs.iter().map(|result| result.to_f64()[0]).collect(), states })
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
        // A difference that is NaN exceeds every limit.
        let exceeds = |limit: f64| difference.is_nan() || difference > limit;
        replay.values += 1;
        replay.imprecise += u32::from(exceeds(limit));
        replay.wrong += u32::from(exceeds(limit.min(most).max(WRONG_SHARE * update)));
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

fn l2(differences: impl Iterator<Item = f64>) -> f64 {
    differences.map(|difference| difference * difference).sum::<f64>().sqrt()
}

fn norm(tensor: &Tensor) -> f64 {
    l2(tensor.to_f64().into_iter())
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    if a.shape() != b.shape() {
        return f64::NAN;
    }
    l2(a.to_f64().into_iter().zip(b.to_f64()).map(|(a, b)| a - b))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use flagperf_engine::{Artifact, LoadOptions};
    use flagperf_onnx::{
        DType, Graph, GraphBuilder, Model, Moments, OptimizerKind, TrainingOptions, TrainingStep, Var, layers,
        training_step,
    };

    use super::super::super::export::write_model;
    use super::super::drawn_steps::BatchPlace;
    use super::super::remembered::RememberedNorms;
    use super::*;

    const ROWS: usize = 64;

    fn sgd() -> Optimizer {
        let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
        Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None }
    }

    fn step() -> TrainingStep {
        let mut g = GraphBuilder::new("network");
        let x = g.input("x", "64,20,f32".parse().unwrap()).unwrap();
        let labels = g.input("labels", "64,i64".parse().unwrap()).unwrap();
        let y = layers::linear(&mut g, "first", &x, layers::Linear::new(20, 30)).unwrap();
        let y = layers::tanh(&mut g, "tanh", &y).unwrap();
        let y = layers::linear(&mut g, "second", &y, layers::Linear::new(30, 5)).unwrap();
        let options = layers::CrossEntropy { label_smoothing: 0.0, ignore_index: None };
        let loss = layers::cross_entropy(&mut g, "loss", &y, &labels, options).unwrap();
        g.output("loss", &loss).unwrap();
        let options = TrainingOptions::new(sgd());
        training_step(&g.finish().unwrap(), "loss", &options).unwrap()
    }

    fn sessions(graph: &Graph) -> Sessions {
        let engine = flagperf_engine::find("interpreter").unwrap();
        let options = LoadOptions { batch_size: ROWS, ..LoadOptions::default() };
        let session = engine.load(Artifact::Graph(graph), &options).unwrap();
        [("step".to_owned(), Arc::new(Mutex::new(session)))].into()
    }

    fn wave(shape: &[usize], seed: f32) -> Tensor {
        let values = (0..shape.iter().product()).map(|i: usize| (i as f32 * 0.7 + seed).sin() * 0.3);
        Tensor::from_vec(shape, values.collect()).unwrap()
    }

    /// Returns the inputs of a step: a batch, the learning rate and the bias corrections, and states.
    fn inputs(step: &TrainingStep) -> Vec<Tensor> {
        let first_state = step.graph.inputs.len() - step.states.len();
        let input = |(index, input): (usize, &flagperf_onnx::ValueInfo)| {
            let shape = input.spec.fixed_shape().unwrap();
            match (input.spec.dtype, shape.is_empty() && index < first_state) {
                (DType::I64, _) => Tensor::from_vec([ROWS], (0..ROWS as i64).map(|row| row % 5).collect()).unwrap(),
                (_, true) => Tensor::scalar(0.01f32),
                _ => wave(&shape, index as f32),
            }
        };
        step.graph.inputs.iter().enumerate().map(input).collect()
    }

    /// Returns the first step of a training, with what it read and what an engine computed.
    fn drawn_step(inputs: Vec<Tensor>, Computed { results, states }: Computed) -> DrawnStep {
        DrawnStep {
            round: 0,
            step: 1,
            is_drawn: true,
            place: BatchPlace::default(),
            inputs,
            results,
            states,
            remembered: None,
            remembered_after: None,
        }
    }

    /// Returns the comparison with an engine that `cheat` turns into one that computes from other inputs.
    fn compared(cheat: impl Fn(&[Tensor]) -> Vec<Tensor>, forge: impl Fn(&mut DrawnStep)) -> StepReplay {
        let step = step();
        let sessions = [&step.graph, &step.perturbed].map(sessions);
        let replayer = StepReplayer { states: &step.states, optimizer: sgd(), sessions, steps_max: 1 };
        let inputs = inputs(&step);
        let computed = compute(&replayer.sessions[0], cheat(&inputs)).unwrap();
        let mut drawn = drawn_step(inputs, computed);
        forge(&mut drawn);
        replayer.replay(&drawn, None).unwrap()
    }

    /// Rounds f32 to so many bits of the mantissa.
    fn rounded(tensor: &Tensor, bits: u32) -> Tensor {
        let Ok(values) = tensor.as_slice::<f32>() else { return tensor.clone() };
        let (half, mask) = (1u32 << (22 - bits), !((1u32 << (23 - bits)) - 1));
        let round = |value: &f32| f32::from_bits((value.to_bits() + half) & mask);
        Tensor::from_vec(tensor.shape(), values.iter().map(round).collect()).unwrap()
    }

    #[test]
    fn steps_that_are_rounded_frozen_or_skipped_are_found() {
        let honest = compared(<[Tensor]>::to_vec, |_| {});
        assert_eq!((honest.imprecise, honest.wrong), (0, 0), "{honest:?}");
        // One rounding error in the inputs is less than what correct engines differ by.
        let reordered = |inputs: &[Tensor]| inputs.iter().map(|input| rounded(input, 22)).collect();
        assert_eq!(compared(reordered, |_| {}).wrong, 0);
        for bits in [7, 10] {
            let coarse = compared(|inputs| inputs.iter().map(|input| rounded(input, bits)).collect(), |_| {});
            assert!(coarse.imprecise > 0, "{bits} bits: {coarse:?}");
        }
        let frozen = compared(<[Tensor]>::to_vec, |drawn| {
            let first_state = drawn.inputs.len() - drawn.states.len();
            drawn.states[0] = drawn.inputs[first_state].clone();
        });
        assert!(frozen.wrong == 1, "{frozen:?}");
        let skipped = compared(<[Tensor]>::to_vec, |drawn| {
            let first_state = drawn.inputs.len() - drawn.states.len();
            drawn.states = drawn.inputs[first_state..].to_vec();
        });
        assert!(skipped.wrong >= 8, "{skipped:?}");
    }

    #[test]
    fn a_momentum_that_no_gradients_explain_is_wrong() {
        let remembered = RememberedNorms::default().after(&sgd().kind, 0.1, 0.5);
        let found = compared(<[Tensor]>::to_vec, |drawn| drawn.remembered = Some(remembered));
        assert_eq!((found.wrong, found.worst.name.as_str()), (1, "memory of the optimizer"), "{found:?}");
        let enough = RememberedNorms::default().after(&sgd().kind, 0.1, 50.0);
        assert_eq!(compared(<[Tensor]>::to_vec, |drawn| drawn.remembered = Some(enough)).wrong, 0);
    }

    #[test]
    fn parameters_that_moved_farther_than_updates_can_are_wrong() {
        let step = step();
        let sessions = [&step.graph, &step.perturbed].map(sessions);
        let replayer = StepReplayer { states: &step.states, optimizer: sgd(), sessions, steps_max: 1 };
        let inputs = inputs(&step);
        let computed = compute(&replayer.sessions[0], inputs.clone()).unwrap();
        let before = inputs[inputs.len() - computed.states.len()..].to_vec();
        let remembered = RememberedNorms::default().after(&sgd().kind, 0.1, 50.0);
        let drawn = DrawnStep { step: 9, remembered: Some(remembered), ..drawn_step(inputs, computed) };
        let far = |value: &Tensor| {
            Tensor::from_vec(value.shape(), value.to_f64().into_iter().map(|x| x as f32 + 100.0).collect()).unwrap()
        };
        let earlier = |states: Vec<Tensor>| {
            let remembered_after = Some(RememberedNorms::default());
            DrawnStep { step: 7, states, remembered_after, ..drawn.clone() }
        };
        assert_eq!(replayer.replay(&drawn, Some(&earlier(before.clone()))).unwrap().wrong, 0);
        let found = replayer.replay(&drawn, Some(&earlier(before.iter().map(far).collect()))).unwrap();
        assert_eq!(
            (found.wrong, found.worst.name.as_str()),
            (1, "distance of the parameters from step 7"),
            "{found:?}"
        );
    }

    /// Returns the comparison of a step of rten with the same step of the interpreter; `set` changes inputs by name.
    fn compared_with_rten(step: &TrainingStep, set: impl Fn(&str, &Tensor) -> Option<Tensor>) -> StepReplay {
        let mut inputs = inputs(step);
        for (input, value) in step.graph.inputs.iter().zip(&mut inputs) {
            let is_memory = step.states.iter().find(|state| state.name == input.name).and_then(State::first_value);
            *value = is_memory.or_else(|| set(&input.name, value)).unwrap_or_else(|| value.clone());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step.onnx");
        write_model(&Model::single(step.graph.clone()), &path).unwrap();
        let options = LoadOptions { batch_size: ROWS, ..LoadOptions::default() };
        let session = flagperf_engine::find("rten").unwrap().load(Artifact::Onnx(&path), &options).unwrap();
        let rten = [("step".to_owned(), Arc::new(Mutex::new(session)))].into();
        let computed = compute(&rten, inputs.clone()).unwrap();
        let sessions = [&step.graph, &step.perturbed].map(sessions);
        let replayer = StepReplayer { states: &step.states, optimizer: sgd(), sessions, steps_max: 1 };
        replayer.replay(&drawn_step(inputs, computed), None).unwrap()
    }

    /// Makes a step that trains a classifier with the optimizer Adam; `layer` follows the first linear layer.
    fn adam_step(layer: impl Fn(&mut GraphBuilder, &Var) -> Var) -> TrainingStep {
        let mut g = GraphBuilder::new("network");
        let x = g.input("x", "64,20,f32".parse().unwrap()).unwrap();
        let labels = g.input("labels", "64,i64".parse().unwrap()).unwrap();
        let y = layers::linear(&mut g, "first", &x, layers::Linear::new(20, 30)).unwrap();
        let y = layer(&mut g, &y);
        let y = layers::linear(&mut g, "second", &y, layers::Linear::new(30, 5)).unwrap();
        let options = layers::CrossEntropy { label_smoothing: 0.0, ignore_index: None };
        let loss = layers::cross_entropy(&mut g, "loss", &y, &labels, options).unwrap();
        g.output("loss", &loss).unwrap();
        let kind = OptimizerKind::Adam(Moments::default());
        let optimizer = Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None };
        training_step(&g.finish().unwrap(), "loss", &TrainingOptions::new(optimizer)).unwrap()
    }

    #[test]
    fn correct_engines_agree_about_a_loss_of_zero_and_about_norms_of_nearly_equal_values() {
        let learned = adam_step(|g, y| layers::tanh(g, "tanh", y).unwrap());
        // The probability of the label is 1 but for a few rounding errors.
        let replay = compared_with_rten(&learned, |name, _| match name {
            "labels" => Some(Tensor::from_vec([ROWS], vec![0i64; ROWS]).unwrap()),
            "second.bias" => Some(Tensor::from_vec([5], vec![17.0f32, 0.0, 0.0, 0.0, 0.0]).unwrap()),
            _ => None,
        });
        assert_eq!((replay.imprecise, replay.wrong), (0, 0), "{replay:?}");
        let normalized = adam_step(|g, y| {
            let y = layers::batch_norm(g, "norm", y, layers::BatchNorm::default()).unwrap();
            layers::relu(g, "relu", &y).unwrap()
        });
        let replay = compared_with_rten(&normalized, |name, value| {
            let near =
                |values: &[f32]| values.iter().enumerate().map(|(at, value)| (at % 20) as f32 + 1e-5 * value).collect();
            (name == "x").then(|| Tensor::from_vec(value.shape(), near(value.as_slice::<f32>().unwrap())).unwrap())
        });
        assert_eq!((replay.imprecise, replay.wrong), (0, 0), "{replay:?}");
    }
}
