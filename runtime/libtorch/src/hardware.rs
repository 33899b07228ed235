//! What only a device of CUDA can show: `cargo test -- --ignored`.

use flagperf_onnx::exec::{After, Conv, TensorOps, Unary};
use tch::{Device, Kind, Tensor};

use crate::capture::Captured;
use crate::cuda;
use crate::ops::TorchOps;
use crate::shim::{pinned, prepare_devices};
use crate::tensor::Shared;

fn device() -> Device {
    cuda::open(0).unwrap();
    prepare_devices();
    Device::Cuda(0)
}

fn random(size: [i64; 4], device: Device) -> Shared {
    Shared(Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::Half))
}

#[test]
#[ignore = "needs a device of CUDA"]
fn a_fused_convolution_gives_what_its_parts_give() {
    let device = device();
    tch::manual_seed(1);
    let ops = |fused_convolutions| TorchOps { device, channels_last: true, fused_convolutions };
    for (size, strides, pad) in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (7, 2, 3)] {
        let x = random([2, 16, 28, 28], device);
        let weight = random([32, 16, size, size], device);
        let bias = Shared(Tensor::randn([32], (Kind::Float, device)).to_kind(Kind::Half));
        let (before, after) = ([pad, pad], [pad, pad]);
        let conv = Conv { strides: [strides, strides], dilations: [1, 1], before, after, groups: 1 };
        let plain = ops(false).conv(&x, &weight, Some(&bias), &conv).unwrap();
        let residual = Shared(plain.0.randn_like());
        for residual in [None, Some(&residual)] {
            let [fused, parts] = [true, false].map(|fused| {
                let after = After { residual, activation: Some(Unary::Relu) };
                ops(fused).conv_fused(&x, &weight, Some(&bias), &conv, after).unwrap().0.to_kind(Kind::Float)
            });
            let difference = (&fused - &parts).abs().max().double_value(&[]);
            let scale = parts.abs().max().double_value(&[]);
            assert!(difference < 2e-3 * scale, "{size}x{size}: {difference} of {scale}");
            assert_eq!(fused.min().double_value(&[]), 0.0, "nothing was rectified");
        }
    }
}

#[test]
#[ignore = "needs a device of CUDA"]
fn attention_of_16_bits_gives_what_its_parts_give_captured_or_not() {
    let device = device();
    tch::manual_seed(1);
    let ops = TorchOps { device, channels_last: true, fused_convolutions: true };
    let [q, k, v] = [(); 3].map(|()| random([2, 12, 128, 64], device));
    let mask = random([2, 1, 128, 128], device);
    for mask in [None, Some(&mask)] {
        let wide = |x: &Shared| x.0.to_kind(Kind::Float);
        let mut scores = wide(&q).matmul(&wide(&k).transpose(-1, -2)) * 0.125;
        if let Some(mask) = mask {
            scores += wide(mask);
        }
        let parts = scores.softmax(-1, None).matmul(&wide(&v));
        let merged = || ops.attention(&q, &k, &v, mask, 0.125).map(|y| y.0).map_err(flagperf_plugin::Error::failed);
        let (run, captured) = Captured::capture(0, 3, merged).unwrap();
        run.replay().unwrap();
        tch::Cuda::synchronize(0);
        for found in [merged().unwrap(), captured] {
            let difference = (found.to_kind(Kind::Float) - &parts).abs().max().double_value(&[]);
            assert!(difference < 5e-3 * parts.abs().max().double_value(&[]), "{difference}");
        }
    }
}

#[test]
#[ignore = "needs a device of CUDA"]
fn a_captured_run_computes_anew_from_what_its_inputs_hold() {
    let device = device();
    let mut input = Tensor::zeros([64], (Kind::Float, device));
    let (run, output) = Captured::capture(0, 3, || Ok(&input * 2.0 + 1.0)).unwrap();
    for value in [1.0, 5.0] {
        let _ = input.fill_(value);
        run.replay().unwrap();
        tch::Cuda::synchronize(0);
        assert_eq!(output.double_value(&[63]), 2.0 * value + 1.0);
    }
}

#[test]
#[ignore = "needs a device of CUDA"]
fn a_run_that_asks_for_a_value_cannot_be_captured_and_leaves_the_device_as_it_was() {
    let device = device();
    let input = Tensor::ones([64], (Kind::Float, device));
    let asks = || {
        let sum = input.sum(Kind::Float);
        let value = Tensor::zeros([1], (Kind::Float, Device::Cpu)).f_copy_(&sum);
        value.map_err(flagperf_plugin::Error::failed)
    };
    let refusal = Captured::capture(0, 0, asks).err().map(|error| error.to_string());
    assert!(refusal.is_some_and(|said| said.contains("captur")));
    assert_eq!(input.sum(Kind::Float).double_value(&[]), 64.0);
}

#[test]
#[ignore = "needs a device of CUDA"]
fn pinned_memory_is_zero_and_pinned() {
    let device = device();
    let memory = pinned(1000).unwrap();
    assert!(memory.is_pinned(device) && memory.sum(Kind::Int64).int64_value(&[]) == 0);
}
