//! Compares 100 training steps with those of PyTorch: `training.json`, made by make_training.py.

use flagperf_onnx::{
    DType, Dim, Graph, GraphBuilder, Moments, Optimizer, OptimizerKind, State, StateKind, Tensor, TensorSpec,
    TrainingOptions, TrainingStep, Var, layers, training_step,
};
use indexmap::IndexMap;
use serde_json::Value as Json;

use crate::{CpuOps, Executor};

pub(super) const BATCH: usize = 8;

/// The network of make_training.py with its loss.
pub(super) fn network() -> Graph {
    let mut graph = GraphBuilder::new("network");
    let g = &mut graph;
    let spec = |sizes: &[usize], dtype| {
        let dims = std::iter::once(Dim::Named("N".to_owned())).chain(sizes.iter().map(|size| Dim::Fixed(*size)));
        TensorSpec::new(dims.collect::<Vec<_>>(), dtype)
    };
    let x = g.input("x", spec(&[1, 8, 8], DType::F32)).unwrap();
    let labels = g.input("labels", spec(&[], DType::I64)).unwrap();
    let padded = |input, output| layers::Conv2d {
        padding: layers::Padding::Explicit([1; 4]),
        ..layers::Conv2d::new(input, output, 3)
    };
    let conv = layers::Conv2d { bias: false, ..padded(1, 4) };
    let y = layers::conv2d(g, "conv", &x, conv).unwrap();
    let y = layers::batch_norm(g, "norm", &y, layers::BatchNorm::default()).unwrap();
    let y = layers::tanh(g, "tanh", &y).unwrap();
    let y = layers::avg_pool2d(g, "pool", &y, layers::Pool2d::new(2)).unwrap();
    let y = layers::conv2d(g, "deep", &y, layers::Conv2d { stride: [2; 2], ..padded(4, 6) }).unwrap();
    let y = layers::gelu(g, "gelu", &y).unwrap();
    let y = layers::mean(g, "mean", &y, &[2, 3], false).unwrap();
    let logits: Var = layers::linear(g, "head", &y, layers::Linear::new(6, 5)).unwrap();
    let smoothing = layers::CrossEntropy { label_smoothing: 0.1, ignore_index: None };
    let loss = layers::cross_entropy(g, "loss", &logits, &labels, smoothing).unwrap();
    g.output("loss", &loss).unwrap();
    graph.finish().unwrap()
}

/// The numbers with which make_training.py fills a tensor.
fn wave(shape: &[usize], seed: usize, scale: f64) -> Tensor {
    let count = shape.iter().product();
    let values = (0..count).map(|i: usize| (scale * (i as f64 * 0.7 + seed as f64).sin()) as f32);
    Tensor::from_vec(shape, values.collect()).unwrap()
}

pub(super) fn batch(step: usize) -> [Tensor; 2] {
    let labels: Vec<i64> = (0..BATCH).map(|i| ((3 * i + step) % 5) as i64).collect();
    let wave: Vec<f32> = wave(&[BATCH, 1, 8, 8], step, 1.0).to_f64().iter().map(|value| *value as f32).collect();
    let x = wave.iter().enumerate().map(|(i, value)| value + 0.2f32 * labels[i / 64] as f32).collect();
    [Tensor::from_vec([BATCH, 1, 8, 8], x).unwrap(), Tensor::from_vec([BATCH], labels).unwrap()]
}

pub(super) fn optimizer(name: &str) -> (Optimizer, f64) {
    let moments = Moments::default();
    let sgd = |momentum, nesterov| OptimizerKind::Sgd { momentum, nesterov };
    let (kind, weight_decay, norm_weight_decay, rate) = match name {
        "sgd" => (sgd(0.0, false), 0.0, None, 0.1),
        "sgd momentum" => (sgd(0.9, false), 1e-2, Some(0.0), 0.05),
        "sgd nesterov" => (sgd(0.9, true), 1e-2, None, 0.05),
        "adam" => (OptimizerKind::Adam(moments), 1e-2, None, 1e-2),
        "adamw" => (OptimizerKind::AdamW(moments), 0.1, Some(0.0), 1e-2),
        "lamb" => (OptimizerKind::Lamb(Moments { eps: 1e-6, ..moments }), 0.01, Some(0.0), 1e-2),
        "rmsprop" => (OptimizerKind::RmsProp { alpha: 0.99, eps: 1e-8, momentum: 0.9 }, 1e-2, None, 1e-3),
        other => panic!("{other}"),
    };
    (Optimizer { kind, weight_decay, norm_weight_decay, bias_weight_decay: None }, rate)
}

/// A training of [`network`] on the interpreter.
pub(super) struct Training {
    pub step: TrainingStep,
    pub states: Vec<Tensor>,
    executor: Executor<CpuOps>,
    optimizer: Optimizer,
    rate: f64,
}

impl Training {
    /// Begins with the parameters of make_training.py. `options` changes those of an optimizer of [`optimizer`].
    pub fn new(name: &str, options: impl FnOnce(TrainingOptions) -> TrainingOptions) -> Self {
        let (optimizer, rate) = optimizer(name);
        let sizes = IndexMap::from([("N".to_owned(), BATCH)]);
        let defaults = TrainingOptions { clip_norm: Some(0.1), sizes, ..TrainingOptions::new(optimizer.clone()) };
        let step = training_step(&network(), "loss", &options(defaults)).unwrap();
        let executor = Executor::load(&step.graph, CpuOps).unwrap();
        let parameters =
            ["conv.weight", "norm.weight", "norm.bias", "deep.weight", "deep.bias", "head.weight", "head.bias"];
        let first = |state: &State| {
            let shape = state.initial.spec.fixed_shape().unwrap();
            match parameters.iter().position(|name| *name == state.name) {
                Some(seed) => wave(&shape, seed, 0.4),
                None => state.first_value().unwrap_or_else(|| {
                    let value = if state.name.ends_with("running_var") { 1f32 } else { 0.0 };
                    Tensor::from_vec(shape.clone(), vec![value; shape.iter().product()]).unwrap()
                }),
            }
        };
        let states = step.states.iter().map(first).collect();
        Training { step, states, executor, optimizer, rate }
    }

    /// Trains one step, counted from 0, and returns its loss and the norm of its gradients.
    pub fn run(&mut self, number: usize) -> [f64; 2] {
        let scalars = self.optimizer.scalars(number as u64 + 1, self.rate).values().map(Tensor::scalar);
        let states = std::mem::take(&mut self.states);
        let inputs: Vec<Tensor> = batch(number).into_iter().chain(scalars).chain(states).collect();
        let mut outputs = self.executor.run_host(&inputs).unwrap();
        self.states = outputs.split_off(2);
        [0, 1].map(|i| outputs[i].to_f64()[0])
    }

    /// Returns the present value of a state.
    pub fn state(&self, name: &str) -> Vec<f64> {
        let index = self.step.states.iter().position(|state| state.name == name).unwrap();
        self.states[index].to_f64()
    }
}

/// The largest relative differences of losses, norms and sums of states.
fn train(name: &str, expected: &Json) -> [f64; 3] {
    let mut training = Training::new(name, |options| options);
    let relative = |actual: f64, expected: &Json| {
        let expected = expected.as_f64().unwrap();
        (actual - expected).abs() / expected.abs()
    };
    let mut largest = [0f64; 3];
    for number in 0..100 {
        for (i, (kind, result)) in ["losses", "norms"].into_iter().zip(training.run(number)).enumerate() {
            largest[i] = largest[i].max(relative(result, &expected[kind][number]));
        }
    }
    let states = training.step.states.iter().zip(&training.states);
    for (state, value) in states.filter(|(state, _)| state.kind != StateKind::Memory) {
        let sum: f64 = value.to_f64().iter().sum();
        largest[2] = largest[2].max(relative(sum, &expected["sums"][&state.name]));
    }
    largest
}

/// A convolution, a batch normalization and a loss of basic operators alone.
#[test]
fn parameters_before_a_batch_normalization_are_trained_without_composite_operators() {
    let mut g = GraphBuilder::new("basic");
    let x = g.input("x", TensorSpec::new([4usize, 1, 5, 5], DType::F32)).unwrap();
    let y = layers::conv2d(&mut g, "conv", &x, layers::Conv2d { bias: false, ..layers::Conv2d::new(1, 2, 3) }).unwrap();
    let y = layers::batch_norm(&mut g, "norm", &y, layers::BatchNorm::default()).unwrap();
    let y = layers::relu(&mut g, "relu", &y).unwrap();
    let loss = layers::mean(&mut g, "mean", &y, &[], false).unwrap();
    g.output("loss", &loss).unwrap();
    let options = TrainingOptions::new(optimizer("sgd").0);
    let step = training_step(&g.finish().unwrap(), "loss", &options).unwrap();
    let trained: Vec<&str> = step.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(trained[..3], ["conv.weight", "norm.weight", "norm.bias"]);
    assert_eq!(step.untrained, Vec::<String>::new());
}

#[test]
fn a_hundred_steps_of_every_optimizer_equal_those_of_pytorch() {
    let expected: IndexMap<String, Json> = serde_json::from_str(include_str!("training.json")).unwrap();
    for (name, expected) in &expected {
        let [losses, norms, sums] = train(name, expected);
        println!("{name:14} losses {losses:.1e}, norms {norms:.1e}, sums of states {sums:.1e}");
        assert!(losses < 1e-5, "{name}: losses {losses}");
    }
}
