//! candle: a framework in pure Rust. Runs graphs with the executor of the crate `flagperf-onnx`.
//!
//! Knows no file: it is given graphs.

use std::any::Any;
use std::sync::Arc;

use flagperf_onnx::exec::{CandleOps, ExecError, Executor, TensorOps};
use flagperf_onnx::{Graph, ValueInfo};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::options::{Asked, lacks_threads, threads};
use super::panics::caught;
use super::{
    Artifact, DeviceTensor, Engine, EngineError, Facts, Options, Roles, Session, Unavailable, Value, check_inputs,
    model,
};
use crate::tensor::{DType, Tensor, TensorSpec};

/// The framework candle, on the processor.
///
/// Outputs stay candle's until they are asked for on the host, and are taken back as inputs without a copy.
#[derive(Debug)]
pub struct Candle;

impl Candle {
    /// Version of the crate `candle-core`, as in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.11.1";
}

impl Engine for Candle {
    fn facts(&self) -> Facts {
        Facts {
            roles: Roles { framework: true, compiler: false },
            precisions: &[DType::F32],
            // Attention is the newest that the executor has; what 21 and 22 changed are types.
            opset_max: 23,
            takes_compiled: false,
            ..Facts::widest("candle", "framework in pure Rust, runs the graph operator by operator on the processor")
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Candle::VERSION.to_owned())
    }

    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        Asked::check(self, options, &[]).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let asked = Asked::check(self, options, &[])?;
        let Artifact::Graph(graph) = artifact else { return Err(asked.refuse_artifact("a graph", artifact)) };
        model::check(self, graph, options.precision)?;
        let threads = threads(options);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("candle-{index}"))
            .build()
            .map_err(|error| lacks_threads("candle", threads, &error))?;
        Ok(Box::new(CandleSession::new(graph, pool)?))
    }
}

struct CandleSession {
    executor: Executor<CandleOps>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// candle computes with whatever pool it is called in.
    pool: ThreadPool,
}

impl CandleSession {
    fn new(graph: &Graph, pool: ThreadPool) -> Result<Self, EngineError> {
        let executor = caught("candle", "loading the model", || Executor::load(graph, CandleOps).map_err(failed))?;
        Ok(CandleSession { executor, inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), pool })
    }
}

fn failed(error: ExecError) -> EngineError {
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
        let run = || self.pool.install(|| self.executor.run(inputs)).map_err(failed);
        let tensors = caught("candle", "computing", run)?;
        let kept = |(info, tensor): (&ValueInfo, Native)| {
            Value::Device(Arc::new(CandleTensor { tensor, dtype: info.spec.dtype }))
        };
        Ok(self.outputs.iter().zip(tensors).map(kept).collect())
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

type Native = <CandleOps as TensorOps>::Tensor;

/// candle's own tensor where the value is one, else a copy of it.
fn upload(value: &Value) -> Result<Native, EngineError> {
    if let Value::Device(tensor) = value
        && let Some(own) = tensor.as_any().downcast_ref::<CandleTensor>()
    {
        return Ok(own.tensor.clone());
    }
    CandleOps.upload(&value.to_host()?).map_err(|error| EngineError::Failed(error.to_string()))
}

/// An output that candle keeps; `dtype` is what the graph declares (candle has bool as u8).
#[derive(Debug)]
struct CandleTensor {
    tensor: Native,
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
