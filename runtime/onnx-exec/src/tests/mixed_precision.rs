//! Training in mixed precision: which types compute what, how far the losses are from those in f32, and what the scale of the loss
//! does.

use flagperf_onnx::{
    DType, GraphBuilder, HalfPrecision, LossScale, Optimizer, OptimizerKind, StateKind, Tensor, TensorSpec,
    TrainingOptions, layers, training_step,
};

use super::training::Training;
use crate::{CpuOps, Executor};

fn mixed(half: HalfPrecision, scale: Option<LossScale>) -> impl FnOnce(TrainingOptions) -> TrainingOptions {
    move |options| TrainingOptions { half: Some(half), loss_scale: scale, ..options }
}

/// The largest difference of the losses of 100 steps, relative to those in f32, and the last loss.
fn deviation(name: &str, half: HalfPrecision, scale: Option<LossScale>) -> [f64; 3] {
    let mut exact = Training::new(name, |options| options);
    let mut rounded = Training::new(name, mixed(half, scale));
    let mut largest = 0f64;
    let mut last = [0.0; 2];
    for number in 0..100 {
        last = [&mut exact, &mut rounded].map(|training| training.run(number)[0]);
        largest = largest.max((last[0] - last[1]).abs() / last[0]);
    }
    [largest, last[0], last[1]]
}

/// The units in the last place are 2⁻⁸ in bf16 and 2⁻¹¹ in fp16; the losses deviate by less than two of them.
#[test]
fn losses_in_mixed_precision_stay_close_to_those_in_f32() {
    for (half, scale, tolerance) in
        [(HalfPrecision::BF16, None, 8e-3), (HalfPrecision::F16, Some(LossScale::default()), 1e-3)]
    {
        for name in ["sgd momentum", "adam"] {
            let [largest, exact, rounded] = deviation(name, half, scale);
            println!("{half:?} {name}: {largest:.1e}, last losses {exact} and {rounded}");
            assert!(largest > 0.0 && largest < tolerance, "{half:?} {name}: {largest}");
            assert!(rounded < 1.58, "{half:?} {name}: the loss {rounded} did not fall");
        }
    }
}

#[test]
fn products_are_half_precision_and_everything_that_sums_or_stays_is_f32() {
    let training = Training::new("adam", mixed(HalfPrecision::BF16, None));
    let graph = &training.step.graph;
    let count = |ops: &[&str], dtype| {
        let nodes = graph.nodes.iter().filter(|node| ops.contains(&node.op.as_str()));
        nodes.filter(|node| graph.values[&node.outputs[0]].dtype == dtype).count()
    };
    let products = ["Conv", "ConvTranspose", "MatMul", "Gemm"];
    assert_eq!(count(&products, DType::F32), 0);
    assert!(count(&products, DType::BF16) >= 6);
    let sums = ["LogSoftmax", "Softmax", "ReduceMean", "ReduceSumSquare", "Sqrt", "Erf"];
    assert_eq!(count(&sums, DType::BF16), 0);
    assert!(count(&sums, DType::F32) > 10);
    assert!(training.step.states.iter().all(|state| state.initial.spec.dtype == DType::F32));
    assert!(graph.outputs.iter().all(|output| output.spec.dtype == DType::F32));
}

#[test]
fn gradients_that_overflow_skip_the_step_and_halve_the_scale() {
    let scale = LossScale { initial: 2f32.powi(30), growth_interval: 5 };
    let mut training = Training::new("adam", mixed(HalfPrecision::F16, Some(scale)));
    let kept = |training: &Training| {
        let states = training.step.states.iter().zip(&training.states);
        let kept = states.filter(|(state, _)| state.kind != StateKind::LossScale);
        kept.map(|(_, value)| value.to_f64()).collect::<Vec<_>>()
    };
    let (mut skipped, mut updated) = (0, 0);
    for number in 0..30 {
        let (before, scale) = (kept(&training), training.state("loss_scale")[0]);
        let [loss, norm] = training.run(number);
        let next = training.state("loss_scale")[0];
        assert!(loss.is_finite());
        if norm.is_finite() {
            updated += 1;
            assert!(kept(&training) != before && next >= scale);
        } else {
            skipped += 1;
            assert_eq!((kept(&training), next), (before, scale / 2.0));
        }
    }
    assert!(skipped > 3 && updated > 10, "{skipped} {updated}");
}

#[test]
fn the_scale_doubles_after_the_interval() {
    let scale = LossScale { initial: 8.0, growth_interval: 3 };
    let mut training = Training::new("sgd", mixed(HalfPrecision::F16, Some(scale)));
    let scales: Vec<f64> = (0..7).map(|number| (training.run(number), training.state("loss_scale")[0]).1).collect();
    assert_eq!(scales, [8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0]);
}

/// Two batches of four make the updates of one batch of eight.
#[test]
fn accumulated_gradients_are_those_of_the_whole_batch() {
    let sgd = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
    let optimizer = Optimizer { kind: sgd, weight_decay: 0.01, norm_weight_decay: None, bias_weight_decay: None };
    let train = |batches: usize| {
        let rows = 8 / batches;
        let mut g = GraphBuilder::new("model");
        let x = g.input("x", TensorSpec::new([rows, 3], DType::F32)).unwrap();
        let y = layers::linear(&mut g, "head", &x, layers::Linear::new(3, 2)).unwrap();
        let y = layers::tanh(&mut g, "tanh", &y).unwrap();
        let loss = layers::mean(&mut g, "loss", &y, &[], false).unwrap();
        g.output("loss", &loss).unwrap();
        let options = TrainingOptions {
            clip_norm: Some(0.2),
            accumulated_batches: batches as u32,
            ..TrainingOptions::new(optimizer.clone())
        };
        let step = training_step(&g.finish().unwrap(), "loss", &options).unwrap();
        let executor = Executor::load(&step.graph, CpuOps).unwrap();
        let accumulation = step.accumulation.as_ref();
        let adder = accumulation.map(|accumulation| Executor::load(&accumulation.graph, CpuOps).unwrap());
        let fill = |shape: &[usize], seed: usize| {
            let count = shape.iter().product::<usize>();
            let values = (0..count).map(|i| ((i + seed) as f32 * 0.7).sin()).collect();
            Tensor::from_vec(shape, values).unwrap()
        };
        let first = |state: &flagperf_onnx::State| {
            let shape = state.initial.spec.fixed_shape().unwrap();
            state.first_value().unwrap_or_else(|| fill(&shape, 5))
        };
        let mut states: Vec<Tensor> = step.states.iter().map(first).collect();
        let mut norms = Vec::new();
        for batch in 0..4 * batches {
            let scalars = optimizer.scalars(1, 0.5);
            let is_update = (batch + 1) % batches == 0;
            let scalars = if is_update { scalars } else { scalars.without_update() };
            let x = fill(&[rows, 3], batch * rows * 3);
            let run = |executor: &Executor<CpuOps>, states: Vec<Tensor>| {
                let numbers = scalars.values().map(Tensor::scalar);
                let inputs: Vec<Tensor> = [x.clone()].into_iter().chain(numbers).chain(states).collect();
                executor.run_host(&inputs).unwrap()
            };
            let (outputs, next) = match (&adder, accumulation) {
                (Some(adder), Some(accumulation)) if !is_update => {
                    let read = accumulation.inputs.iter().map(|index| states[*index].clone()).collect();
                    let mut outputs = run(adder, read);
                    let mut next = states.clone();
                    accumulation.outputs.iter().zip(outputs.split_off(2)).for_each(|(index, sum)| next[*index] = sum);
                    (outputs, next)
                }
                _ => {
                    let mut outputs = run(&executor, states.clone());
                    let next = outputs.split_off(2);
                    (outputs, next)
                }
            };
            let unchanged = step
                .states
                .iter()
                .zip(states.iter().zip(&next))
                .filter(|(state, (old, new))| state.kind == StateKind::Parameter && old.to_f64() == new.to_f64());
            assert_eq!(unchanged.count(), if is_update { 0 } else { 2 });
            states = next;
            norms.extend(is_update.then(|| outputs[1].to_f64()[0]));
        }
        let parameters = step.states.iter().zip(&states).filter(|(state, _)| state.kind == StateKind::Parameter);
        (parameters.flat_map(|(_, value)| value.to_f64()).collect::<Vec<_>>(), norms)
    };
    let ((whole, norms), (parts, norms_of_parts)) = (train(1), train(2));
    let pairs = whole.iter().chain(&norms).zip(parts.iter().chain(&norms_of_parts));
    pairs.for_each(|(whole, parts)| assert!((whole - parts).abs() < 1e-6, "{whole} {parts}"));
}
