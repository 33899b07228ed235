//! Tests that need a CUDA device: `cargo test -- --ignored`.

use flagperf_onnx_exec::{
    Binary, Conv, ConvEpilogue, Elementwise, ElementwiseFunction, ElementwiseOperand, TensorOps, Unary,
};
use tch::{Device, Kind, Tensor};

use crate::capture::CapturedGraph;
use crate::cuda;
use crate::ops::TorchOps;
use crate::shim::{allocate_pinned, prepare_devices};
use crate::tensor::TorchTensor;

fn device() -> Device {
    cuda::open(0).unwrap();
    prepare_devices(false);
    Device::Cuda(0)
}

fn random(size: [i64; 4], device: Device) -> TorchTensor {
    TorchTensor(Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::Half))
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_fused_convolution_matches_separate_operators() {
    let device = device();
    tch::manual_seed(1);
    let ops = |fused_convolutions| TorchOps { fused_convolutions, ..TorchOps::on(device) };
    for (size, strides, pad) in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (7, 2, 3)] {
        let x = random([2, 16, 28, 28], device);
        let weight = random([32, 16, size, size], device);
        let bias = TorchTensor(Tensor::randn([32], (Kind::Float, device)).to_kind(Kind::Half));
        let (before, after) = ([pad, pad], [pad, pad]);
        let conv = Conv { strides: [strides, strides], dilations: [1, 1], before, after, groups: 1 };
        let plain = ops(false).conv(&x, &weight, Some(&bias), &conv).unwrap();
        let residual = TorchTensor(plain.0.randn_like());
        for residual in [None, Some(&residual)] {
            let [fused, parts] = [true, false].map(|fused| {
                let after = ConvEpilogue { residual, activation: Some(Unary::Relu) };
                ops(fused).conv_fused(&x, &weight, Some(&bias), &conv, after).unwrap().0.to_kind(Kind::Float)
            });
            let difference = (&fused - &parts).abs().max().double_value(&[]);
            let scale = parts.abs().max().double_value(&[]);
            assert!(difference < 2e-3 * scale, "{size}x{size}: {difference} of {scale}");
            assert_eq!(fused.min().double_value(&[]), 0.0, "ReLU clipped nothing");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_compiled_function_matches_separate_operators() {
    let device = device();
    tch::manual_seed(1);
    let ops = TorchOps::on(device);
    let x = ElementwiseOperand::Input;
    let function = ElementwiseFunction::default()
        .then(Elementwise::Binary(Binary::Add), &[x(0), x(1)])
        .then(Elementwise::Unary(Unary::Silu), &[ElementwiseOperand::Step(0)])
        .then(
            Elementwise::MultiplyAdd { subtract: true },
            &[ElementwiseOperand::Step(1), x(2), ElementwiseOperand::Number(0.5)],
        );
    for (kind, limit) in [(Kind::Float, 1e-6), (Kind::Half, 4e-3), (Kind::BFloat16, 3e-2)] {
        let inputs = [[2, 16, 28, 28], [1, 16, 1, 1], [2, 1, 28, 28]]
            .map(|size| TorchTensor(Tensor::randn(size, (Kind::Float, device)).to_kind(kind)));
        let [compiled, separate] = [ops.elementwise(&function, &inputs), function.apply(&ops, &inputs)];
        let [compiled, separate] = [compiled, separate].map(|result| result.unwrap().0);
        assert_eq!((compiled.size(), compiled.kind()), (separate.size(), kind));
        let difference = (compiled - &separate).abs().max().double_value(&[]);
        assert!(difference < limit * separate.abs().max().double_value(&[]), "{kind:?}: {difference}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn what_follows_a_convolution_in_f32_is_one_function() {
    let device = device();
    tch::manual_seed(1);
    let ops = TorchOps::on(device);
    let [x, weight] =
        [[2, 16, 28, 28], [32, 16, 3, 3]].map(|size| TorchTensor(Tensor::randn(size, (Kind::Float, device))));
    let bias = TorchTensor(Tensor::randn([32], (Kind::Float, device)));
    let conv = Conv { strides: [1, 1], dilations: [1, 1], before: [1, 1], after: [1, 1], groups: 1 };
    let plain = ops.conv(&x, &weight, Some(&bias), &conv).unwrap();
    let residual = TorchTensor(plain.0.randn_like());
    for residual in [None, Some(&residual)] {
        for activation in [None, Some(Unary::Relu), Some(Unary::Silu)] {
            let after = || ConvEpilogue { residual, activation };
            let expected = after().apply(&ops, plain.clone()).unwrap().0;
            let actual = ops.conv_fused(&x, &weight, Some(&bias), &conv, after()).unwrap().0;
            let difference = (actual - &expected).abs().max().double_value(&[]);
            assert!(difference < 1e-5 * expected.abs().max().double_value(&[]), "{difference}");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn fp16_attention_matches_separate_operators_with_and_without_capture() {
    let device = device();
    tch::manual_seed(1);
    let ops = TorchOps::on(device);
    let [q, k, v] = [(); 3].map(|()| random([2, 12, 128, 64], device));
    let mask = random([2, 1, 128, 128], device);
    for mask in [None, Some(&mask)] {
        let wide = |x: &TorchTensor| x.0.to_kind(Kind::Float);
        let mut scores = wide(&q).matmul(&wide(&k).transpose(-1, -2)) * 0.125;
        if let Some(mask) = mask {
            scores += wide(mask);
        }
        let parts = scores.softmax(-1, None).matmul(&wide(&v));
        let merged = || ops.attention(&q, &k, &v, mask, 0.125).map(|y| y.0).map_err(flagperf_plugin::Error::failed);
        let (run, captured) = CapturedGraph::capture(0, 3, merged).unwrap();
        run.replay().unwrap();
        tch::Cuda::synchronize(0);
        for output in [merged().unwrap(), captured] {
            let difference = (output.to_kind(Kind::Float) - &parts).abs().max().double_value(&[]);
            assert!(difference < 5e-3 * parts.abs().max().double_value(&[]), "{difference}");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_replayed_run_reads_the_current_contents_of_its_inputs() {
    let device = device();
    let mut input = Tensor::zeros([64], (Kind::Float, device));
    let (run, output) = CapturedGraph::capture(0, 3, || Ok(&input * 2.0 + 1.0)).unwrap();
    for value in [1.0, 5.0] {
        let _ = input.fill_(value);
        run.replay().unwrap();
        tch::Cuda::synchronize(0);
        assert_eq!(output.double_value(&[63]), 2.0 * value + 1.0);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_run_that_reads_a_value_cannot_be_captured_and_leaves_the_device_usable() {
    let device = device();
    let input = Tensor::ones([64], (Kind::Float, device));
    let read_value = || {
        let sum = input.sum(Kind::Float);
        let value = Tensor::zeros([1], (Kind::Float, Device::Cpu)).f_copy_(&sum);
        value.map_err(flagperf_plugin::Error::failed)
    };
    let error = CapturedGraph::capture(0, 0, read_value).err().map(|error| error.to_string());
    assert!(error.is_some_and(|message| message.contains("captur")));
    assert_eq!(input.sum(Kind::Float).double_value(&[]), 64.0);
}

#[test]
#[ignore = "needs a CUDA device"]
fn pinned_memory_is_zero_and_pinned() {
    let device = device();
    let memory = allocate_pinned(1000).unwrap();
    assert!(memory.is_pinned(device) && memory.sum(Kind::Int64).int64_value(&[]) == 0);
}
