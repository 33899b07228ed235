//! TensorRT and TensorRT-RTX as engine plug-ins, from one source: the feature `tensorrt` selects TensorRT.
//!
//! Builds an engine from an ONNX file, writes it to a file with a description of what it was built for, and runs it on
//! its own stream, with inputs in fixed buffers. Knows nothing about the host, and reads no clock.

mod builder;
mod cuda;
mod engine_file;
mod gpu_engine;
mod library;
mod log;
mod memory;
mod options;
mod questions;
mod session;
mod shapes;
mod tensor;
mod values;
mod variant;

use flagperf_plugin::{DType, Engine, EngineInfo, Error, Load};

pub use session::TensorRtSession;

flagperf_plugin::export!(TensorRt);

/// The compiler TensorRT or TensorRT-RTX.
pub struct TensorRt;

impl Engine for TensorRt {
    type Session = TensorRtSession;

    const INFO: EngineInfo = EngineInfo {
        name: variant::NAME,
        version: variant::VERSION,
        about: "builds an engine from an ONNX file, stores it, and runs it with CUDA graphs",
        framework: false,
        compiler: true,
        onnx: true,
        compiled: true,
        differentiates: false,
        shares_tensors: false,
        precisions: &[DType::F32, DType::F16, DType::BF16],
        opset_max: 24,
        options: Some(options::DESCRIPTION),
    };

    fn check() -> Result<(), Error> {
        library::open().map(|_| ())
    }

    fn load(load: &Load<'_>) -> Result<TensorRtSession, Error> {
        library::open()?;
        TensorRtSession::load(load)
    }
}
