//! Batch normalizations whose statistics are those of the batches of several processes.

use flagperf_onnx::{ALL_REDUCE, Tensor, TrainingOptions, TrainingStep, training_step};
use indexmap::IndexMap;

use super::training::{BATCH, Training, batch, network, optimizer};
use crate::{CpuOps, Executor};

const OPTIMIZER: &str = "sgd momentum";

fn step(processes: usize, sync_batch_norm: bool) -> TrainingStep {
    let sizes = IndexMap::from([("N".to_owned(), BATCH / processes)]);
    let options = TrainingOptions {
        clip_norm: Some(0.1),
        sizes,
        processes: processes as u32,
        sync_batch_norm,
        ..TrainingOptions::new(optimizer(OPTIMIZER).0)
    };
    training_step(&network(), "loss", &options).unwrap()
}

/// Returns the samples of one of several processes.
fn part(tensor: &Tensor, process: usize, processes: usize) -> Tensor {
    let (shape, bytes) = (tensor.shape(), tensor.bytes());
    let length = bytes.len() / processes;
    let shape: Vec<usize> = [shape[0] / processes].into_iter().chain(shape[1..].iter().copied()).collect();
    Tensor::from_bytes(shape, tensor.dtype(), &bytes[process * length..(process + 1) * length]).unwrap()
}

/// The batch of one process is also that of PyTorch, to which another test compares 100 steps of every optimizer.
#[test]
fn several_processes_train_as_one_with_all_their_samples() {
    for processes in [2, 4] {
        let step = step(processes, true);
        let [gradients, update] = [&step.gradients, &step.update].map(|part| Executor::load(part, CpuOps).unwrap());
        let mut alone = Training::new(OPTIMIZER, |options| options);
        let mut states = alone.states.clone();
        let (optimizer, rate) = optimizer(OPTIMIZER);
        for number in 0..50 {
            let scalars: Vec<Tensor> = optimizer.scalars(number as u64 + 1, rate).values().map(Tensor::scalar).into();
            let of_process = |process| {
                let fields = batch(number).map(|field| part(&field, process, processes));
                fields.into_iter().chain(scalars.clone()).collect::<Vec<_>>()
            };
            let inputs: Vec<Tensor> = (0..processes).flat_map(of_process).chain(states.clone()).collect();
            let mut results = gradients.run_host(&inputs).unwrap();
            let loss = results.remove(0).to_f64()[0];
            let inputs: Vec<Tensor> = results.into_iter().chain(scalars.clone()).chain(states).collect();
            let mut results = update.run_host(&inputs).unwrap();
            states = results.split_off(1);
            let [expected, norm] = alone.run(number);
            let relative = (loss - expected).abs() / expected + (results[0].to_f64()[0] - norm).abs() / norm;
            assert!(relative < 1e-5, "step {number} of {processes} processes: {loss} instead of {expected}");
        }
        for ((state, together), alone) in step.states.iter().zip(&states).zip(&alone.states) {
            for (together, alone) in together.to_f64().into_iter().zip(alone.to_f64()) {
                assert!((together - alone).abs() < 1e-5 * alone.abs().max(0.1), "{}: {together} {alone}", state.name);
            }
        }
    }
}

#[test]
fn a_process_exchanges_statistics_and_their_gradients_and_its_next_statistics_are_those_of_all() {
    let exchanged = |step: &TrainingStep, undifferentiated: bool| -> Vec<String> {
        let graph = if undifferentiated { &step.undifferentiated } else { &step.graph };
        let nodes = graph.nodes.iter().filter(|node| node.op == ALL_REDUCE);
        nodes
            .flat_map(|node| node.outputs.clone())
            .filter(|output| output.contains("norm") && !output.starts_with("mean.norm.w"))
            .filter(|output| *output != graph.outputs[1].name)
            .collect()
    };
    let count = |sync, undifferentiated| exchanged(&step(2, sync), undifferentiated).len();
    // Mean and variance, and the gradient of each; the last one is that of the bias.
    assert_eq!([count(true, false), count(true, true)], [5, 3]);
    let own = exchanged(&step(2, false), true);
    assert_eq!(own, ["mean.norm.bias", "mean.norm.running_mean", "mean.norm.running_var"]);
    assert!(step(2, true).joins_processes && !step(2, false).joins_processes);
    assert!(!step(1, true).joins_processes, "one process has all samples");
}
