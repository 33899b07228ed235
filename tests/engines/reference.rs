//! Compares results with other implementations: torchvision's network and pixels, ONNX's checker, ONNX Runtime.
//! Checks manifests with the published schemas of Kubernetes, too.
//!
//! README.md explains how the vectors next to this file were generated.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

mod attention;
mod diffusion;
mod exported;
mod exports;
mod formula;
mod manifests;
mod models;
mod networks;
mod pixels;
mod rewrites;
mod rotary;
mod sidecars;

use std::path::{Path, PathBuf};

use flagperf_onnx::{DType, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

use crate::support;

/// Returns the folder of the vectors and the Python scripts.
fn folder() -> PathBuf {
    support::root().join("tests/reference")
}

/// Writes named tensors to a safetensors file.
fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) {
    let views = tensors.iter().map(|(name, tensor)| (name, view(tensor)));
    serialize_to_file(views, None, path).unwrap();
}

fn view(tensor: &Tensor) -> TensorView<'_> {
    let dtype = match tensor.dtype() {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::U8 => Dtype::U8,
        other => panic!("unsupported element type {other}"),
    };
    TensorView::new(dtype, tensor.shape().to_vec(), tensor.bytes()).unwrap()
}

/// Reads the named fp32 tensors of a safetensors file.
fn read_tensors(path: &Path) -> Vec<(String, Tensor)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let read = |view: TensorView| {
        assert_eq!(view.dtype(), Dtype::F32);
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Tensor::from_vec(view.shape(), values).unwrap()
    };
    file.iter().map(|(name, view)| (name.to_owned(), read(view))).collect()
}
