//! What differs between TensorRT (feature `tensorrt`) and TensorRT-RTX.

use flagperf_plugin::Error;
use trtx::{CudaEngine, ExecutionContext, Runtime};

/// Which of the two this is, by the name that vendor.yaml has for it.
pub const NAME: &str = if cfg!(feature = "tensorrt") { "tensorrt" } else { "tensorrt_rtx" };
/// What it calls itself.
pub const TITLE: &str = if cfg!(feature = "tensorrt") { "TensorRT" } else { "TensorRT-RTX" };
/// The version whose headers this was built with; a library of another one has other tables of functions.
pub const VERSION: &str = if cfg!(feature = "tensorrt") { "11.4" } else { "1.7" };

/// The library, and the parser of ONNX files.
pub const FILES: [&str; 2] = if cfg!(feature = "tensorrt") {
    ["libnvinfer.so.11", "libnvonnxparser.so.11"]
} else {
    ["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"]
};

/// How to get it.
pub const REMEDY: &str = if cfg!(feature = "tensorrt") {
    "it is in the vendor's container image; `flagperf backend install tensorrt` there, or LD_LIBRARY_PATH, says where"
} else {
    "`flagperf backend install tensorrt_rtx` gets it"
};

/// Whether an engine fits one kind of GPU only; those of TensorRT-RTX fit any that it takes.
pub const BOUND_TO_GPU: bool = cfg!(feature = "tensorrt");
/// Whether CUDA graphs have to be captured from outside. TensorRT-RTX does it itself, after it has compiled its kernels
/// for a shape.
pub const IS_CAPTURED: bool = cfg!(feature = "tensorrt");

/// Refuses an engine that TensorRT-RTX knows not to run here, in its own words.
#[cfg(not(feature = "tensorrt"))]
pub fn fits(runtime: &Runtime<'static>, engine: &[u8]) -> Result<(), Error> {
    let (validity, reasons) = crate::log::explained("the engine cannot be read", || runtime.engine_validity(engine))?;
    if validity != trtx::EngineValidity::kINVALID {
        return Ok(());
    }
    let names: Vec<&str> = reasons.iter_names().map(|(name, _)| name).collect();
    Err(Error::Unavailable {
        reason: format!("the engine does not fit this machine ({})", names.join(", ").to_lowercase().replace('_', " ")),
        remedy: "TensorRT-RTX takes GPUs of the compute capabilities in its support matrix only".to_owned(),
    })
}

/// TensorRT says it when the engine is loaded.
#[cfg(feature = "tensorrt")]
pub fn fits(_: &Runtime<'static>, _: &[u8]) -> Result<(), Error> {
    Ok(())
}

/// A context that compiles kernels for a shape when it is set, not beside the measured steps.
#[cfg(not(feature = "tensorrt"))]
pub fn context(engine: &mut CudaEngine<'static>, graph: bool) -> trtx::Result<ExecutionContext<'static>> {
    use trtx::{CudaGraphStrategy, DynamicShapesKernelSpecializationStrategy as Specialization};
    let mut config = engine.create_runtime_config()?;
    config.set_dynamic_shapes_kernel_specialization_strategy(Specialization::kEAGER);
    if graph {
        config.set_cuda_graph_strategy(CudaGraphStrategy::kWHOLE_GRAPH_CAPTURE)?;
    }
    engine.create_execution_context_with_config(std::rc::Rc::new(config))
}

#[cfg(feature = "tensorrt")]
pub fn context(engine: &mut CudaEngine<'static>, _: bool) -> trtx::Result<ExecutionContext<'static>> {
    engine.create_execution_context()
}
