//! candle: a framework in pure Rust. Runs graphs with the executor of the crate `flagperf-onnx`.
//!
//! Reads no files: it loads graphs in memory.

use std::any::Any;
use std::sync::Arc;

use flagperf_onnx::exec::{CandleOps, ExecError, Executor, TensorOps};
use flagperf_onnx::{Graph, ValueInfo};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::options::{EngineOptions, thread_count, thread_start_error};
use super::panics::catch_panic;
use super::{
    Artifact, DeviceTensor, Engine, EngineError, LoadOptions, Session, Unavailable, Value, check_inputs, model,
};
use crate::description::{EngineDescription, Roles};
use crate::tensor::{DType, Tensor, TensorSpec};

/// The framework candle, on the CPU.
///
/// Outputs remain candle's tensors until the host fetches them, and can be inputs again without a copy.
#[derive(Debug)]
pub struct Candle;

impl Candle {
    /// The version of the crate `candle-core` in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.11.1";
}

impl Engine for Candle {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: true, compiler: false },
            precisions: &[DType::F32],
            // Attention, of version 23, is the newest operator of the executor; 21 and 22 only added types.
            opset_max: 23,
            loads_compiled: false,
            ..EngineDescription::unrestricted(
                "candle",
                "framework in pure Rust, runs the graph operator by operator on the processor",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Candle::VERSION.to_owned())
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let Artifact::Graph(graph) = artifact else { return Err(engine_options.artifact_error("a graph", artifact)) };
        model::check(self, graph, options.precision)?;
        let threads = thread_count(options);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("candle-{index}"))
            .build()
            .map_err(|error| thread_start_error("candle", threads, &error))?;
        Ok(Box::new(CandleSession::new(graph, pool)?))
    }
}

struct CandleSession {
    executor: Executor<CandleOps>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// candle computes in the thread pool that it is called from.
    pool: ThreadPool,
}

impl CandleSession {
    fn new(graph: &Graph, pool: ThreadPool) -> Result<Self, EngineError> {
        let executor =
            catch_panic("candle", "loading the model", || Executor::load(graph, CandleOps).map_err(to_engine_error))?;
        Ok(CandleSession { executor, inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), pool })
    }
}

fn to_engine_error(error: ExecError) -> EngineError {
    match error {
        ExecError::UnknownOperator { node, op } => EngineError::Operator { engine: "candle", op, node },
        error => EngineError::Failed(error.to_string()),
    }
}

impl Session for CandleSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let inputs = inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let run = || self.pool.install(|| self.executor.run(inputs)).map_err(to_engine_error);
        let tensors = catch_panic("candle", "computing", run)?;
        let output = |(info, tensor): (&ValueInfo, NativeTensor)| {
            Value::Device(Arc::new(CandleTensor { tensor, dtype: info.spec.dtype }))
        };
        Ok(self.outputs.iter().zip(tensors).map(output).collect())
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

type NativeTensor = <CandleOps as TensorOps>::Tensor;

/// Returns candle's own tensor when the value is one, and otherwise copies the value.
fn upload(value: &Value) -> Result<NativeTensor, EngineError> {
    if let Value::Device(tensor) = value
        && let Some(own) = tensor.as_any().downcast_ref::<CandleTensor>()
    {
        return Ok(own.tensor.clone());
    }
    CandleOps.upload(&value.to_host()?).map_err(|error| EngineError::Failed(error.to_string()))
}

/// An output that candle keeps; `dtype` is the type that the graph declares (candle represents bool as u8).
#[derive(Debug)]
struct CandleTensor {
    tensor: NativeTensor,
    dtype: DType,
}

impl DeviceTensor for CandleTensor {
    fn spec(&self) -> TensorSpec {
        TensorSpec::new(CandleOps.shape(&self.tensor), self.dtype)
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        CandleOps.download(&self.tensor, self.dtype).map_err(|error| EngineError::Failed(error.to_string()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
