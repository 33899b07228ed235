//! Dropout in a training step: the masks of the graph are those of a second implementation of the generator.

use flagperf_onnx::{
    DType, Graph, GraphBuilder, HalfPrecision, Init, Optimizer, OptimizerKind, Tensor, TensorSpec, TrainingOptions,
    TrainingStep, ValueInfo, WeightRole, layers, training_step,
};

use crate::{CpuOps, Executor, ReferenceOps, TensorOps};

const RATIO: f32 = 0.3;
const SIZES: [usize; 3] = [20, 5, 80];

/// Two dropouts of `x * scale`, one of which keeps everything, and a third of another shape.
fn model(ratio: f32, dtype: DType) -> Graph {
    let mut g = GraphBuilder::new("model");
    let x = g.input("x", TensorSpec::new(SIZES, dtype)).unwrap();
    let scale =
        g.weight("scale", TensorSpec::new([80usize], dtype), WeightRole::Parameter, Init::Constant(1.0)).unwrap();
    let y = layers::mul(&mut g, "product", &x, &scale).unwrap();
    let y = layers::dropout(&mut g, "first", &y, ratio).unwrap();
    let y = layers::dropout(&mut g, "none", &y, 0.0).unwrap();
    let z = layers::mean(&mut g, "mean", &y, &[0], false).unwrap();
    let z = layers::dropout(&mut g, "second", &z, 0.5).unwrap();
    let loss = layers::reduce(&mut g, "loss", &z, layers::Reduction::Sum, (&[], false)).unwrap();
    g.output("loss", &loss).unwrap();
    g.finish().unwrap()
}

fn optimizer() -> Optimizer {
    let kind = OptimizerKind::Sgd { momentum: 0.0, nesterov: false };
    Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None }
}

fn step(ratio: f32) -> TrainingStep {
    let options = TrainingOptions::new(optimizer());
    training_step(&model(ratio, DType::F32), "loss", &options).unwrap()
}

/// Returns the outputs of both dropouts of ones, and the next value of the scale.
fn run<O: TensorOps>(ops: O, step: &TrainingStep, seed: u64, number: u64) -> [Vec<f64>; 3] {
    let mut graph = step.graph.clone();
    for name in ["first", "second"] {
        graph.outputs.push(ValueInfo { name: name.to_owned(), spec: graph.values[name].clone() });
    }
    let ones = |shape: &[usize]| Tensor::from_vec(shape, vec![1f32; shape.iter().product()]).unwrap();
    let scalars = optimizer().scalars(1, 1.0).with_masks(seed, number).values().map(Tensor::scalar);
    let inputs: Vec<Tensor> = [ones(&SIZES)].into_iter().chain(scalars).chain([ones(&[80])]).collect();
    let outputs = Executor::load(&graph, ops).unwrap().run_host(&inputs).unwrap();
    [&outputs[3], &outputs[4], &outputs[2]].map(Tensor::to_f64)
}

/// Encrypts a counter with MiMC-2p/p over the field of 46,337 elements.
fn encrypt(counter: i64, seed: i64, step: i64) -> [i64; 2] {
    const P: i64 = 46_337;
    let keys = [step % P, step / P, seed % P, seed / P];
    let (mut left, mut right) = (counter % P, counter / P);
    for (round, constant) in [31_415, 9_265, 35_897, 9_323, 8_462, 6_433, 8_327, 9_502].into_iter().enumerate() {
        let base = (right + keys[round % 4] + constant) % P;
        (left, right) = (right, (left + base * base * base) % P);
    }
    [left, right]
}

/// Returns the factors of a mask whose counters begin with `first`.
fn reference(ratio: f64, [rows, columns]: [i64; 2], first: i64, seed: i64, step: i64) -> Vec<f64> {
    let bound = (ratio * 46_337.0).round() as i64;
    let kept = f64::from((1.0 / (1.0 - ratio)) as f32);
    let element = |row: i64, column: i64| {
        let [[a, b], [c, d]] = [first + row, first + rows + column].map(|counter| encrypt(counter, seed, step));
        if (a * c + b + d) % 46_337 < bound { 0.0 } else { kept }
    };
    (0..rows).flat_map(|row| (0..columns).map(move |column| element(row, column))).collect()
}

#[test]
fn masks_are_those_of_the_generator_on_every_library() {
    let step = step(RATIO);
    for (seed, number) in [(1, 1), (77, 50_000)] {
        let [first, second, _] = run(CpuOps, &step, seed, number);
        let expected = reference(f64::from(RATIO), [100, 80], 0, seed as i64, number as i64);
        assert_eq!(first, expected);
        let factors = reference(0.5, [5, 80], 180, seed as i64, number as i64);
        let means: Vec<f64> =
            (0..400).map(|i| (0..20).map(|row| expected[row * 400 + i]).sum::<f64>() / 20.0).collect();
        for ((actual, factor), mean) in second.iter().zip(factors).zip(means) {
            assert!((actual - factor * mean).abs() < 1e-5, "{actual} {factor} {mean}");
        }
        assert_eq!(run(ReferenceOps, &step, seed, number)[0], first);
    }
    assert_ne!(run(CpuOps, &step, 1, 1)[0], run(CpuOps, &step, 1, 2)[0]);
    assert_ne!(run(CpuOps, &step, 1, 1)[0], run(CpuOps, &step, 2, 1)[0]);
}

/// Four standard deviations around the ratio; pairs of elements in rows, in columns and in successive steps are dropped together
/// as often as independent ones.
#[test]
fn elements_are_dropped_independently_with_the_ratio() {
    let ratio = f64::from(RATIO);
    let bound = |share: f64, count: f64| 4.0 * (share * (1.0 - share) / count).sqrt();
    let mask = |step| reference(ratio, [400, 500], 0, 3, step).iter().map(|f| *f == 0.0).collect::<Vec<bool>>();
    let (mask, later) = (mask(1), mask(2));
    let count = mask.len() as f64;
    let share = mask.iter().filter(|dropped| **dropped).count() as f64 / count;
    assert!((share - ratio).abs() < bound(ratio, count), "{share}");
    for (name, distance) in [("row", 1), ("column", 500), ("diagonal", 501)] {
        let pairs = mask.iter().zip(&mask[distance..]).filter(|(a, b)| **a && **b).count() as f64 / count;
        assert!((pairs - ratio * ratio).abs() < bound(ratio * ratio, count), "{name}: {pairs}");
    }
    let pairs = mask.iter().zip(&later).filter(|(a, b)| **a && **b).count() as f64 / count;
    assert!((pairs - ratio * ratio).abs() < bound(ratio * ratio, count), "steps: {pairs}");
    let rows = mask.chunks(500).map(|row| row.iter().filter(|dropped| **dropped).count() as f64 / 500.0);
    assert!(rows.into_iter().all(|share| (share - ratio).abs() < 1.3 * bound(ratio, 500.0)));
}

#[test]
fn a_layer_may_have_the_name_of_what_the_step_adds() {
    for name in ["dropout", "optimizer", "statistics"] {
        let mut g = GraphBuilder::new("model");
        let x = g.input("x", TensorSpec::new([40usize, 6], DType::F32)).unwrap();
        let y = layers::linear(&mut g, "head", &x, layers::Linear::new(6, 30)).unwrap();
        let y = layers::dropout(&mut g, name, &y, RATIO).unwrap();
        let loss = layers::mean(&mut g, "loss", &y, &[], false).unwrap();
        g.output("loss", &loss).unwrap();
        let step = training_step(&g.finish().unwrap(), "loss", &TrainingOptions::new(optimizer())).unwrap();
        let outputs: Vec<&String> = step.graph.nodes.iter().flat_map(|node| &node.outputs).collect();
        let names: std::collections::HashSet<&String> = outputs.iter().copied().collect();
        assert_eq!(names.len(), outputs.len(), "{name}");
    }
}

#[test]
fn mixed_precision_has_the_same_masks() {
    let mut g = GraphBuilder::new("model");
    let x = g.input("x", TensorSpec::new([40usize, 6], DType::F32)).unwrap();
    let y = layers::linear(&mut g, "head", &x, layers::Linear { bias: false, ..layers::Linear::new(6, 30) }).unwrap();
    let y = layers::dropout(&mut g, "dropout", &y, RATIO).unwrap();
    let loss = layers::mean(&mut g, "loss", &y, &[], false).unwrap();
    g.output("loss", &loss).unwrap();
    let options = TrainingOptions { half: Some(HalfPrecision::BF16), ..TrainingOptions::new(optimizer()) };
    let mut graph = training_step(&g.finish().unwrap(), "loss", &options).unwrap().graph;
    assert_eq!(graph.values["dropout"].to_string(), "40,30,bf16");
    graph.outputs.push(ValueInfo { name: "dropout".to_owned(), spec: graph.values["dropout"].clone() });
    let ones = |shape: &[usize]| Tensor::from_vec(shape, vec![1f32; shape.iter().product()]).unwrap();
    let scalars = optimizer().scalars(1, 1.0).with_masks(4, 8).values().map(Tensor::scalar);
    let inputs: Vec<Tensor> = [ones(&[40, 6])].into_iter().chain(scalars).chain([ones(&[30, 6])]).collect();
    let outputs = Executor::load(&graph, CpuOps).unwrap().run_host(&inputs).unwrap();
    let values = outputs.last().unwrap().to_f64();
    let expected = reference(f64::from(RATIO), [40, 30], 0, 4, 8);
    assert!(values.iter().zip(&expected).all(|(value, factor)| (value - 6.0 * factor).abs() <= 0.02 * factor));
}

#[test]
fn a_gradient_passes_kept_elements_only() {
    let [first, second, next] = run(CpuOps, &step(RATIO), 5, 9);
    let means: Vec<f64> = (0..400).map(|i| (0..20).map(|row| first[row * 400 + i]).sum::<f64>() / 20.0).collect();
    for (column, next) in next.iter().enumerate() {
        // The loss is a sum of products of the scale: its gradient is the sum of what passed.
        let passed: f64 = (0..5).map(|row| second[row * 80 + column]).sum();
        assert!((1.0 - next - passed).abs() < 1e-5, "{next} {passed}");
    }
    assert!(means.iter().any(|mean| *mean > 0.0));
}

#[test]
fn a_ratio_of_zero_and_a_graph_for_inference_keep_everything() {
    let [first, ..] = run(CpuOps, &step(0.0), 1, 1);
    assert!(first.iter().all(|value| *value == 1.0));
    let graph = model(RATIO, DType::F32);
    let ones = Tensor::from_vec(SIZES, vec![1f32; 8000]).unwrap();
    let mut graph = Graph { outputs: Vec::new(), ..graph };
    graph.weights["scale"].source =
        flagperf_onnx::WeightSource::Value(Tensor::from_vec([80usize], vec![1f32; 80]).unwrap());
    graph.outputs.push(ValueInfo { name: "first".to_owned(), spec: graph.values["first"].clone() });
    let outputs = Executor::load(&graph, CpuOps).unwrap().run_host(&[ones]).unwrap();
    assert!(outputs[0].to_f64().iter().all(|value| *value == 1.0));
}
