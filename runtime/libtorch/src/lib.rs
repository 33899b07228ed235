//! PyTorch's C++ library as an engine plug-in: the executor of `flagperf-onnx` over tch.
//!
//! On the processor outputs are lent as they lie in memory; on a CUDA device they stay there until they are asked for,
//! and are taken back as inputs. Knows no host and no clock.

mod capture;
mod cuda;
#[cfg(test)]
mod hardware;
mod library;
mod ops;
mod options;
mod session;
mod shim;
mod tensor;
mod turn;

use flagperf_onnx::exec::{ExecError, OpError};
use flagperf_plugin::{About, DType, Engine, Error, Load};

pub use session::TorchSession;

flagperf_plugin::export!(Torch);

/// The framework and compiler libtorch.
pub struct Torch;

impl Engine for Torch {
    type Session = TorchSession;

    const ABOUT: About = About {
        name: "libtorch",
        version: library::VERSION,
        about: "PyTorch's C++ library: runs the graph operator by operator, on the processor or with CUDA",
        framework: true,
        compiler: true,
        onnx: true,
        compiled: false,
        precisions: &[DType::F32, DType::F16, DType::BF16],
        opset_max: 23,
    };

    fn check() -> Result<(), Error> {
        library::check()
    }

    fn load(load: &Load<'_>) -> Result<TorchSession, Error> {
        library::check()?;
        TorchSession::load(load)
    }
}

/// What a failure of the executor is to the host.
fn failed(error: ExecError) -> Error {
    match &error {
        ExecError::UnknownOperator { node, op } => Error::UnknownOperator { op: op.clone(), node: node.clone() },
        ExecError::Node { reason: OpError::Library(said), .. } => {
            library::memory_asked_for(said).map_or_else(|| Error::failed(error), |bytes| Error::OutOfMemory { bytes })
        }
        _ => Error::failed(error),
    }
}
