//! Tests of the comparison of steps, with engines that compute and ones that lie.

use std::sync::{Arc, Mutex};

use flagperf_engine::{Artifact, LoadOptions};
use flagperf_onnx::{
    DType, Graph, GraphBuilder, LossScale, Model, Moments, OptimizerKind, TrainingOptions, TrainingStep, Var, layers,
    training_step,
};
use flagperf_script::Sessions;

use super::super::super::export::write_model;
use super::super::RESULTS;
use super::super::drawn_steps::BatchPlace;
use super::super::remembered::RememberedNorms;
use super::super::step_parts::compute;
use super::*;

const ROWS: usize = 64;

fn sgd() -> Optimizer {
    let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
    Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None }
}

fn adam() -> Optimizer {
    let kind = OptimizerKind::Adam(Moments::default());
    Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None }
}

fn step() -> TrainingStep {
    step_with(&TrainingOptions::new(sgd()))
}

fn step_with(training: &TrainingOptions) -> TrainingStep {
    let mut g = GraphBuilder::new("network");
    let x = g.input("x", "64,20,f32".parse().unwrap()).unwrap();
    let labels = g.input("labels", "64,i64".parse().unwrap()).unwrap();
    let y = layers::linear(&mut g, "first", &x, layers::Linear::new(20, 30)).unwrap();
    let y = layers::tanh(&mut g, "tanh", &y).unwrap();
    let y = layers::linear(&mut g, "second", &y, layers::Linear::new(30, 5)).unwrap();
    let options = layers::CrossEntropy { label_smoothing: 0.0, ignore_index: None };
    let loss = layers::cross_entropy(&mut g, "loss", &y, &labels, options).unwrap();
    g.output("loss", &loss).unwrap();
    training_step(&g.finish().unwrap(), "loss", training).unwrap()
}

fn replayer(step: &TrainingStep, optimizer: Optimizer) -> StepReplayer<'_> {
    let parts = StepParts {
        gradients: sessions(&step.gradients),
        perturbed: sessions(&step.perturbed),
        update: sessions(&step.update),
        joins_processes: step.joins_processes,
    };
    StepReplayer { states: &step.states, optimizer, parts, steps_max: 1 }
}

/// Returns the results and the next states of a step.
fn whole_step(sessions: &Sessions, inputs: &[Tensor]) -> (Vec<f64>, Vec<Tensor>) {
    let mut outputs = compute(sessions, inputs.to_vec()).unwrap();
    let states = outputs.split_off(RESULTS);
    (outputs.iter().map(|result| result.to_f64()[0]).collect(), states)
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
fn drawn_step(inputs: Vec<Tensor>, (results, states): (Vec<f64>, Vec<Tensor>)) -> DrawnStep {
    DrawnStep {
        others: Vec::new(),
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
    let replayer = replayer(&step, sgd());
    let inputs = inputs(&step);
    let computed = whole_step(&sessions(&step.graph), &cheat(&inputs));
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
fn sums_of_gradients_that_overflow_agree_and_a_claim_that_they_do_is_wrong() {
    let options = TrainingOptions {
        accumulated_batches: 2,
        loss_scale: Some(LossScale::default()),
        ..TrainingOptions::new(sgd())
    };
    let step = step_with(&options);
    let accumulation = step.accumulation.as_ref().unwrap();
    let computed = |inputs: &[Tensor]| {
        let (own, before) = inputs.split_at(inputs.len() - step.states.len());
        let read = accumulation.inputs.iter().map(|index| &before[*index]);
        let given: Vec<Tensor> = own.iter().chain(read).cloned().collect();
        let (results, changed) = whole_step(&sessions(&accumulation.graph), &given);
        let mut states = before.to_vec();
        accumulation.outputs.iter().zip(changed).for_each(|(index, value)| states[*index] = value);
        (results, states)
    };
    let finite = inputs(&step);
    let mut infinite = finite.clone();
    infinite[0] = Tensor::from_vec(finite[0].shape(), vec![f32::INFINITY; finite[0].len()]).unwrap();
    let replayer = replayer(&step, sgd());
    for honest in [&finite, &infinite] {
        let replay = replayer.replay(&drawn_step(honest.clone(), computed(honest)), None).unwrap();
        assert_eq!((replay.imprecise, replay.wrong), (0, 0), "{replay:?}");
    }
    let claimed = replayer.replay(&drawn_step(finite, computed(&infinite)), None).unwrap();
    assert!(claimed.wrong > 0, "{claimed:?}");
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
    let replayer = replayer(&step, sgd());
    let inputs = inputs(&step);
    let computed = whole_step(&sessions(&step.graph), &inputs);
    let before = inputs[inputs.len() - step.states.len()..].to_vec();
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
    assert_eq!((found.wrong, found.worst.name.as_str()), (1, "distance of the parameters from step 7"), "{found:?}");
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
    let computed = whole_step(&rten, &inputs);
    replayer(step, adam()).replay(&drawn_step(inputs, computed), None).unwrap()
}

/// Makes a step that trains a classifier with the optimizer Adam; `layer` follows the first linear layer.
fn adam_step(layer: impl Fn(&mut GraphBuilder, &Var) -> Var) -> TrainingStep {
    let mut g = GraphBuilder::new("network");
    let x = g.input("x", "64,20,f32".parse().unwrap()).unwrap();
    let labels = g.input("labels", "64,i64".parse().unwrap()).unwrap();
    let y = layers::linear(&mut g, "first", &x, layers::Linear::new(20, 30)).unwrap();
    let y = layer(&mut g, &y);
    let width = y.spec().fixed_shape().unwrap()[1];
    let y = layers::linear(&mut g, "second", &y, layers::Linear::new(width, 5)).unwrap();
    let options = layers::CrossEntropy { label_smoothing: 0.0, ignore_index: None };
    let loss = layers::cross_entropy(&mut g, "loss", &y, &labels, options).unwrap();
    g.output("loss", &loss).unwrap();
    training_step(&g.finish().unwrap(), "loss", &TrainingOptions::new(adam())).unwrap()
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

#[test]
fn signs_of_gradients_close_to_zero_may_differ_and_others_may_not() {
    let step = adam_step(|g, y| {
        let y = layers::tanh(g, "tanh", y).unwrap();
        layers::linear(g, "wide", &y, layers::Linear::new(30, 2000)).unwrap()
    });
    let replayer = replayer(&step, adam());
    let mut inputs = inputs(&step);
    let first_state = inputs.len() - step.states.len();
    for (state, value) in step.states.iter().zip(&mut inputs[first_state..]) {
        *value = state.first_value().unwrap_or_else(|| value.clone());
    }
    let (results, states) = whole_step(&sessions(&step.graph), &inputs);
    let wide = step.states.iter().position(|state| state.name == "wide.weight").unwrap();
    let gradients = states[wide + 1].to_f64();
    let mut order: Vec<usize> = (0..gradients.len()).collect();
    order.sort_by(|a, b| gradients[*a].abs().total_cmp(&gradients[*b].abs()));
    // The first update is the learning rate times the sign of the gradient.
    let compared = |reversed: &[usize]| {
        let (before, mut states) = (inputs[first_state + wide].to_f64(), states.clone());
        let mut after = states[wide].to_f64();
        reversed.iter().for_each(|index| after[*index] = 2.0 * before[*index] - after[*index]);
        let after = after.into_iter().map(|value| value as f32).collect();
        states[wide] = Tensor::from_vec(states[wide].shape(), after).unwrap();
        replayer.replay(&drawn_step(inputs.clone(), (results.clone(), states)), None).unwrap()
    };
    let least = compared(&order[..1]);
    assert_eq!((least.imprecise, least.wrong), (0, 0), "{least:?}");
    let largest = compared(&order[order.len() - 100..]);
    assert_eq!((largest.imprecise, largest.wrong), (1, 1), "{largest:?}");
    let frozen = {
        let mut states = states.clone();
        states[wide] = inputs[first_state + wide].clone();
        replayer.replay(&drawn_step(inputs.clone(), (results.clone(), states)), None).unwrap()
    };
    assert_eq!((frozen.imprecise, frozen.wrong), (1, 1), "{frozen:?}");
    let coarse: Vec<Tensor> = inputs.iter().map(|input| rounded(input, 10)).collect();
    let coarse = whole_step(&sessions(&step.graph), &coarse);
    let coarse = replayer.replay(&drawn_step(inputs.clone(), coarse), None).unwrap();
    assert!(2 * coarse.imprecise >= coarse.values, "{coarse:?}");
}
