//! TensorRT and TensorRT-RTX as engine plug-ins, from one source: the feature `tensorrt` makes it the first.
//!
//! Builds an engine from ONNX, keeps it in a file with a description of what it fits, and runs it on a stream of its own
//! from buffers that stay. Knows no host and no clock.

mod building;
mod cuda;
mod flavour;
mod kept;
mod library;
mod log;
mod memory;
mod options;
mod questions;
mod running;
mod session;
mod shapes;
mod tensor;
mod values;

use flagperf_plugin::{About, DType, Engine, Error, Load};

pub use session::TensorRtSession;

flagperf_plugin::export!(TensorRt);

/// The compiler TensorRT or TensorRT-RTX.
pub struct TensorRt;

impl Engine for TensorRt {
    type Session = TensorRtSession;

    const ABOUT: About = About {
        name: flavour::NAME,
        version: flavour::VERSION,
        about: "builds an engine from ONNX, keeps it, and runs it with CUDA graphs",
        framework: false,
        compiler: true,
        onnx: true,
        compiled: true,
        precisions: &[DType::F32, DType::F16, DType::BF16],
        opset_max: 24,
    };

    fn check() -> Result<(), Error> {
        library::open().map(|_| ())
    }

    fn load(load: &Load<'_>) -> Result<TensorRtSession, Error> {
        library::open()?;
        TensorRtSession::load(load)
    }
}
