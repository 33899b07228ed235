//! The differences between TensorRT (feature `tensorrt`) and TensorRT-RTX.

use flagperf_plugin::Error;
use trtx::{CudaEngine, ExecutionContext, Runtime};

/// The compiler's name in vendor.yaml.
pub const NAME: &str = if cfg!(feature = "tensorrt") { "tensorrt" } else { "tensorrt_rtx" };
/// The product name.
pub const TITLE: &str = if cfg!(feature = "tensorrt") { "TensorRT" } else { "TensorRT-RTX" };
/// The version of the headers that the plug-in was built with; libraries of other versions have other function tables.
pub const VERSION: &str = if cfg!(feature = "tensorrt") { "11.4" } else { "1.7" };

/// The file names of the library and of the ONNX parser.
pub const FILES: [&str; 2] = if cfg!(feature = "tensorrt") {
    ["libnvinfer.so.11", "libnvonnxparser.so.11"]
} else {
    ["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"]
};

/// The name under which the parser itself opens the library when a node is a plug-in; without it, it ends the process.
pub const PARSER_OPENS: Option<&str> = if cfg!(feature = "tensorrt") { None } else { Some("libtensorrt_rtx.so") };

/// How to install the library.
pub const REMEDY: &str = if cfg!(feature = "tensorrt") {
    "run `flagperf backend install tensorrt` in the vendor's container image, which has it, or set LD_LIBRARY_PATH"
} else {
    "run `flagperf backend install tensorrt_rtx`"
};

/// Whether an engine only runs on the GPU model that it was built on. Engines of TensorRT-RTX run on every GPU that it
/// supports.
pub const BOUND_TO_GPU: bool = cfg!(feature = "tensorrt");
/// Whether the plug-in has to capture CUDA graphs. TensorRT-RTX captures them itself, after compiling its kernels for a
/// shape.
pub const NEEDS_CAPTURE: bool = cfg!(feature = "tensorrt");

/// Rejects an engine that cannot run on this machine according to TensorRT-RTX, with its reasons.
#[cfg(not(feature = "tensorrt"))]
pub fn check_validity(runtime: &Runtime<'static>, engine: &[u8]) -> Result<(), Error> {
    let (validity, reasons) =
        crate::log::with_logged_errors("the engine cannot be read", || runtime.engine_validity(engine))?;
    if validity != trtx::EngineValidity::kINVALID {
        return Ok(());
    }
    let names: Vec<&str> = reasons.iter_names().map(|(name, _)| name).collect();
    Err(Error::Unavailable {
        reason: format!(
            "the engine cannot run on this machine ({})",
            names.join(", ").to_lowercase().replace('_', " ")
        ),
        remedy: "TensorRT-RTX only supports GPUs with the compute capabilities in its support matrix".to_owned(),
    })
}

/// Accepts every engine: TensorRT itself rejects an invalid one when loading it.
#[cfg(feature = "tensorrt")]
pub fn check_validity(_: &Runtime<'static>, _: &[u8]) -> Result<(), Error> {
    Ok(())
}

/// Creates a context that compiles its kernels as soon as a shape is set, and not during the measured steps.
#[cfg(not(feature = "tensorrt"))]
pub fn create_context(engine: &mut CudaEngine<'static>, graph: bool) -> trtx::Result<ExecutionContext<'static>> {
    use trtx::{CudaGraphStrategy, DynamicShapesKernelSpecializationStrategy as Specialization};
    let mut config = engine.create_runtime_config()?;
    config.set_dynamic_shapes_kernel_specialization_strategy(Specialization::kEAGER);
    if graph {
        config.set_cuda_graph_strategy(CudaGraphStrategy::kWHOLE_GRAPH_CAPTURE)?;
    }
    engine.create_execution_context_with_config(std::rc::Rc::new(config))
}

/// Creates a context.
#[cfg(feature = "tensorrt")]
pub fn create_context(engine: &mut CudaEngine<'static>, _: bool) -> trtx::Result<ExecutionContext<'static>> {
    engine.create_execution_context()
}
