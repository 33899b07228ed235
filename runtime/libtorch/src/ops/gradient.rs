//! Gradients by libtorch's own differentiation, and the operators that only trainings have.

use tch::{TchError, Tensor};

use crate::shim;
use crate::tensor::TorchTensor;

/// Returns the leaves of what this thread records from now on.
pub fn record(leaves: &[TorchTensor]) -> Result<Vec<TorchTensor>, TchError> {
    let leaf = |x: &TorchTensor| Ok(TorchTensor(x.0.f_detach()?.f_set_requires_grad(true)?));
    let leaves = leaves.iter().map(leaf).collect();
    shim::record(true);
    leaves
}

/// Returns the gradients of a loss, and ends the recording.
pub fn gradients(loss: &TorchTensor, leaves: &[TorchTensor]) -> Result<Vec<TorchTensor>, TchError> {
    let leaves: Vec<&Tensor> = leaves.iter().map(|leaf| &leaf.0).collect();
    let gradients = Tensor::f_run_backward(&[&loss.0], &leaves, false, false);
    shim::record(false);
    // The states that a gradient changes are dense.
    gradients?.iter().map(|gradient| gradient.f_contiguous().map(TorchTensor)).collect()
}

/// Normalizes with the statistics of the batch, and returns them: the mean, and the biased variance.
pub fn batch_norm(x: &Tensor, scale: &Tensor, bias: &Tensor, epsilon: f64) -> Result<[Tensor; 3], TchError> {
    let channels = x.size()[1];
    let count = x.numel() as f64 / channels.max(1) as f64;
    let statistic = || Tensor::f_zeros([channels], (scale.kind(), x.device()));
    let (mean, variance) = (statistic()?, statistic()?);
    let y = x.f_batch_norm(Some(scale), Some(bias), Some(&mean), Some(&variance), true, 1.0, epsilon, true)?;
    // libtorch's running variance is the unbiased one.
    let variance = variance.f_mul_scalar((count - 1.0) / count)?;
    Ok([y, mean, variance])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flagperf_onnx::{
        Accumulation, DType, Graph, GraphBuilder, HalfPrecision, LossScale, Moments, Optimizer, OptimizerKind,
        StepScalars, Tensor, TensorSpec, TrainingOptions, TrainingStep, UPDATE, ValueInfo, layers, training_step,
    };
    use flagperf_onnx_exec::{Binary, Executor, ReferenceOps, TensorOps};
    use tch::Device;

    use super::super::TorchOps;
    use super::*;
    use crate::shim::RunMode;

    const BATCH: usize = 4;

    /// A network of operators whose gradients libtorch has kernels for.
    fn network() -> Graph {
        let mut graph = GraphBuilder::new("network");
        let g = &mut graph;
        let x = g.input("x", TensorSpec::new([BATCH, 3, 12, 12], DType::F32)).unwrap();
        let labels = g.input("labels", TensorSpec::new([BATCH], DType::I64)).unwrap();
        let padded = |input, output, bias| layers::Conv2d {
            padding: layers::Padding::Explicit([1; 4]),
            bias,
            ..layers::Conv2d::new(input, output, 3)
        };
        let y = layers::conv2d(g, "conv", &x, padded(3, 8, false)).unwrap();
        let y = layers::batch_norm(g, "norm", &y, layers::BatchNorm::default()).unwrap();
        let y = layers::silu(g, "silu", &y).unwrap();
        let pool = layers::Pool2d { padding: [1; 2], stride: [2; 2], ..layers::Pool2d::new(3) };
        let y = layers::max_pool2d(g, "pool", &y, pool).unwrap();
        let z = layers::conv2d(g, "deep", &y, padded(8, 8, true)).unwrap();
        let z = layers::add(g, "sum", &z, &y).unwrap();
        let z = layers::relu(g, "relu", &z).unwrap();
        let z = layers::mean(g, "mean", &z, &[2, 3], false).unwrap();
        let z = layers::layer_norm(g, "layer_norm", &z, 1, 1e-5).unwrap();
        let logits = layers::linear(g, "head", &z, layers::Linear::new(8, 5)).unwrap();
        let smoothing = layers::CrossEntropy { label_smoothing: 0.1, ignore_index: None };
        let loss = layers::cross_entropy(g, "loss", &logits, &labels, smoothing).unwrap();
        g.output("loss", &loss).unwrap();
        graph.finish().unwrap()
    }

    fn optimizer(kind: OptimizerKind) -> Optimizer {
        Optimizer { kind, weight_decay: 1e-2, norm_weight_decay: Some(0.0), bias_weight_decay: None }
    }

    fn step(options: &TrainingOptions) -> TrainingStep {
        training_step(&network(), "loss", options).unwrap()
    }

    fn inputs(graph: &Graph, scalars: StepScalars) -> Vec<Tensor> {
        let scalars: HashMap<&str, f32> = StepScalars::NAMES.into_iter().zip(scalars.values()).collect();
        let input = |(seed, ValueInfo { name, spec }): (usize, &ValueInfo)| {
            let shape = spec.fixed_shape().unwrap();
            let value = |i: usize| match spec.dtype {
                DType::I64 => (i % 5) as f32,
                _ if name == "loss_scale" => 1024.0,
                _ if shape.is_empty() => scalars.get(name.as_str()).copied().unwrap_or(0.0),
                _ if name.contains("_sq") || name.contains("square") => 0.5 + (i as f32).cos() * 0.4,
                _ => (i as f32 * 0.7 + seed as f32).sin() * 0.4 + if shape.len() == 1 { 1.0 } else { 0.0 },
            };
            let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
            Tensor::from_vec(shape, values).unwrap().cast(spec.dtype)
        };
        graph.inputs.iter().enumerate().map(input).collect()
    }

    /// Asserts that both forms of a step compute the same states, also of one that adds up gradients.
    fn assert_equal_forms(options: &TrainingOptions, scalars: StepScalars, channels_last: bool, bound: f64) {
        let step = step(options);
        assert_equal([&step.graph, &step.undifferentiated], options, scalars, channels_last, bound);
        if let Some(Accumulation { graph, undifferentiated, .. }) = &step.accumulation {
            assert_equal([graph, undifferentiated], options, scalars.without_update(), channels_last, bound);
        }
    }

    fn assert_equal(
        [graph, undifferentiated]: [&Graph; 2],
        options: &TrainingOptions,
        scalars: StepScalars,
        channels_last: bool,
        bound: f64,
    ) {
        let inputs = inputs(graph, scalars);
        let expected = Executor::load(graph, ReferenceOps).unwrap().run_host(&inputs).unwrap();
        let ops = TorchOps { channels_last, ..TorchOps::on(Device::Cpu) };
        let _mode = RunMode::begin(true);
        let executor = Executor::load(undifferentiated, ops).unwrap();
        for run in 0..2 {
            let actual = executor.run_host(&inputs).unwrap();
            assert_eq!(actual.len(), expected.len());
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_eq!(actual.spec(), expected.spec());
                let name = &undifferentiated.outputs[i].name;
                for (a, e) in actual.to_f64().into_iter().zip(expected.to_f64()) {
                    let kind = options.optimizer.kind;
                    assert!(
                        (a - e).abs() <= bound * e.abs().max(0.1),
                        "run {run}: {kind:?} {name}: {a} instead of {e}"
                    );
                }
            }
        }
    }

    const SGD: OptimizerKind = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
    const MOMENTS: Moments = Moments { beta1: 0.9, beta2: 0.99, eps: 1e-6 };
    const ADAM_W: OptimizerKind = OptimizerKind::AdamW(MOMENTS);

    #[test]
    fn a_step_that_libtorch_differentiates_has_the_states_of_the_one_that_is_differentiated_already() {
        for (half, bound) in [(None, 2e-5), (Some(HalfPrecision::BF16), 1e-1)] {
            let options = TrainingOptions { half, ..TrainingOptions::new(optimizer(SGD)) };
            for channels_last in [false, true] {
                assert_equal_forms(&options, options.optimizer.scalars(3, 0.1), channels_last, bound);
            }
        }
    }

    #[test]
    fn every_optimizer_updates_as_its_definition() {
        let kinds = [
            OptimizerKind::Sgd { momentum: 0.0, nesterov: false },
            OptimizerKind::Sgd { momentum: 0.9, nesterov: true },
            OptimizerKind::Adam(MOMENTS),
            ADAM_W,
            OptimizerKind::Lamb(MOMENTS),
            OptimizerKind::RmsProp { alpha: 0.9, eps: 1e-6, momentum: 0.0 },
            OptimizerKind::RmsProp { alpha: 0.9, eps: 1e-6, momentum: 0.9 },
        ];
        for kind in kinds {
            let options = TrainingOptions::new(optimizer(kind));
            assert!(step(&options).undifferentiated.nodes.iter().any(|node| node.op == UPDATE), "{kind:?}");
            assert_equal_forms(&options, options.optimizer.scalars(3, 0.1), true, 3e-4);
        }
    }

    #[test]
    fn an_update_waits_for_all_batches_and_is_skipped_if_gradients_are_not_finite() {
        for kind in [SGD, ADAM_W, OptimizerKind::Lamb(MOMENTS)] {
            let plain = TrainingOptions::new(optimizer(kind));
            let accumulated = TrainingOptions { accumulated_batches: 2, ..plain.clone() };
            let scaled = TrainingOptions { loss_scale: Some(LossScale::default()), ..plain };
            let scalars = accumulated.optimizer.scalars(3, 0.1);
            assert_equal_forms(&accumulated, scalars, false, 2e-5);
            assert_equal_forms(&scaled, scalars, false, 2e-5);
        }
    }

    #[test]
    fn a_step_with_a_gradient_that_is_not_finite_changes_nothing() {
        let options =
            TrainingOptions { loss_scale: Some(LossScale::default()), ..TrainingOptions::new(optimizer(ADAM_W)) };
        let step = step(&options);
        let mut inputs = inputs(&step.graph, options.optimizer.scalars(3, 0.1));
        inputs[0] = Tensor::from_vec(inputs[0].shape().to_vec(), vec![f32::INFINITY; inputs[0].len()]).unwrap();
        let _mode = RunMode::begin(true);
        let ops = TorchOps { channels_last: false, ..TorchOps::on(Device::Cpu) };
        let outputs = Executor::load(&step.undifferentiated, ops).unwrap().run_host(&inputs).unwrap();
        let before = &inputs[inputs.len() - step.states.len()..];
        for ((state, before), after) in step.states.iter().zip(before).zip(&outputs[2..]) {
            let expected = if state.name == "loss_scale" { vec![512.0] } else { before.to_f64() };
            assert_eq!(after.to_f64(), expected, "{}", state.name);
        }
    }

    /// What is recorded keeps its inputs in memory.
    #[test]
    fn nothing_is_recorded_before_and_after_the_gradients() {
        let ops = TorchOps { channels_last: false, ..TorchOps::on(Device::Cpu) };
        let _mode = RunMode::begin(true);
        let x = ops.upload(&Tensor::from_vec([2], vec![1f32, 2.0]).unwrap()).unwrap();
        let square = |x: &TorchTensor| ops.binary(Binary::Mul, x, x).unwrap();
        assert!(!square(&x).0.requires_grad());
        let leaf = ops.record(&[x]).unwrap().remove(0);
        let loss = TorchTensor(square(&leaf).0.sum(None));
        let gradient = ops.gradients(&loss, std::slice::from_ref(&leaf), &[]).unwrap().remove(0);
        assert_eq!(ops.download(&gradient, DType::F32).unwrap().to_f64(), [2.0, 4.0]);
        assert!(!square(&leaf).0.requires_grad());
    }
}
