//! PyTorch's C++ library as an engine plug-in: the executor of `flagperf-onnx` over tch.
//!
//! On the CPU, the host reads outputs directly in libtorch's memory. On a CUDA device, outputs stay there until the
//! host fetches them, and can be inputs again. Knows nothing about the host, and reads no clock.

mod capture;
mod captured_run;
mod cuda;
#[cfg(test)]
mod cuda_tests;
mod device_lock;
mod device_output;
mod group;
mod library;
mod operators;
mod ops;
mod options;
mod profile;
mod ranges;
mod resident;
mod session;
mod shim;
mod tensor;
mod timer;

use flagperf_onnx_exec::{ExecError, OpError};
use flagperf_plugin::{DType, Engine, EngineInfo, Error, Load};

pub use session::TorchSession;

flagperf_plugin::export!(Torch);

/// The framework and compiler libtorch.
pub struct Torch;

impl Engine for Torch {
    type Session = TorchSession;

    const INFO: EngineInfo = EngineInfo {
        name: "libtorch",
        version: library::VERSION,
        about: "PyTorch's C++ library: runs the graph operator by operator, on the CPU or with CUDA",
        framework: true,
        compiler: true,
        onnx: true,
        compiled: false,
        differentiates: true,
        shares_tensors: true,
        precisions: &[DType::F64, DType::F32, DType::F16, DType::BF16],
        opset_max: 24,
        options: Some(options::DESCRIPTION),
    };

    fn check() -> Result<(), Error> {
        library::check()
    }

    fn load(load: &Load<'_>) -> Result<TorchSession, Error> {
        library::check()?;
        TorchSession::load(load)
    }
}

/// Converts an error of the executor to an error for the host.
fn executor_error(error: ExecError) -> Error {
    match &error {
        ExecError::UnknownOperator { node, op } => Error::UnknownOperator { op: op.clone(), node: node.clone() },
        ExecError::Node { reason: OpError::Library(message), .. }
        | ExecError::Transfer { reason: OpError::Library(message), .. }
        | ExecError::UploadWeight(OpError::Library(message)) => {
            library::requested_bytes(message).map_or_else(|| Error::failed(error), |bytes| Error::OutOfMemory { bytes })
        }
        _ => Error::failed(error),
    }
}
