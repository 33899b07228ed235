//! interpreter: flagperf's own framework, which runs a graph operator by operator with the crate `flagperf-onnx-exec`.
//!
//! Reads no files: it loads graphs in memory.

use std::any::Any;
use std::sync::Arc;

use flagperf_onnx::{Graph, OPSET_NEWEST, ValueInfo};
use flagperf_onnx_exec::{CpuOps, ExecError, Executor, NodeEvent, TensorOps};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::options::{EngineOptions, thread_count, thread_start_error};
use super::panics::catch_panic;
use super::{
    Artifact, DeviceTensor, Engine, EngineError, LoadOptions, OperatorTime, RunProfile, Session, SessionFacts,
    Unavailable, Value, check_inputs, deviations, model,
};
use flagperf_core::description::{EngineDescription, Roles};
use flagperf_core::measure::Clock;
use flagperf_core::tensor::{DType, Tensor, TensorSpec};

/// The framework `interpreter`, on the processor.
///
/// Outputs remain tensors of the executor until the host fetches them, and can be inputs again without a copy.
#[derive(Debug)]
pub struct Interpreter;

impl Interpreter {
    /// The version of the crate of the matrix products in `Cargo.lock`.
    pub(super) const GEMM_VERSION: &str = "0.19.0";
}

impl Engine for Interpreter {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: true, compiler: false },
            precisions: &[DType::F64, DType::F32, DType::F16, DType::BF16],
            opset_max: OPSET_NEWEST,
            loads_compiled: false,
            ..EngineDescription::unrestricted(
                "interpreter",
                "flagperf's own graph executor in pure Rust, runs operator by operator on the processor",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(format!("{} (gemm {})", env!("CARGO_PKG_VERSION"), Interpreter::GEMM_VERSION))
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let Artifact::Graph(graph) = artifact else { return Err(engine_options.artifact_error("a graph", artifact)) };
        model::check(self, graph, options.precision)?;
        let (_, warnings) = deviations::apply(self.name(), graph.clone())?;
        let threads = thread_count(options);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("interpreter-{index}"))
            .build()
            .map_err(|error| thread_start_error("interpreter", threads, &error))?;
        let profile = options.profile.clone().map(|clock| Profile { clock, runs: Vec::new() });
        Ok(Box::new(InterpreterSession { profile, ..InterpreterSession::new(graph, pool, warnings)? }))
    }
}

struct InterpreterSession {
    executor: Executor<CpuOps>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// The executor computes in the thread pool that it is called from.
    pool: ThreadPool,
    warnings: Vec<String>,
    profile: Option<Profile>,
}

/// The times of the operators of the runs.
struct Profile {
    clock: Arc<dyn Clock>,
    runs: Vec<RunProfile>,
}

impl InterpreterSession {
    fn new(graph: &Graph, pool: ThreadPool, warnings: Vec<String>) -> Result<Self, EngineError> {
        let executor =
            catch_panic("interpreter", "loading the model", || Executor::load(graph, CpuOps).map_err(to_engine_error))?;
        let (inputs, outputs) = (graph.inputs.clone(), graph.outputs.clone());
        Ok(InterpreterSession { executor, inputs, outputs, pool, warnings, profile: None })
    }
}

impl Profile {
    /// Runs the graph, and keeps how long each node ran.
    fn run(&mut self, executor: &Executor<CpuOps>, inputs: Vec<NativeTensor>) -> Result<Vec<NativeTensor>, ExecError> {
        let (clock, mut nodes) = (&self.clock, Vec::new());
        let begin = clock.now();
        let mut last = begin;
        let outputs = executor.run_observed(inputs, &mut |event| {
            let NodeEvent::Ended(node, _) = event else { return };
            let now = clock.now();
            let (name, operator) = (node.name.to_owned(), node.op.to_owned());
            nodes.push(OperatorTime { name, operator, begin_s: last.since(begin), time_s: now.since(last) });
            last = now;
        })?;
        self.runs.push(nodes);
        Ok(outputs)
    }
}

fn to_engine_error(error: ExecError) -> EngineError {
    match error {
        ExecError::UnknownOperator { node, op } => EngineError::Operator { engine: "interpreter", op, node },
        error => EngineError::Failed(error.to_string()),
    }
}

impl Session for InterpreterSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let inputs = inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let (executor, profile) = (&self.executor, &mut self.profile);
        let run = || match profile {
            None => executor.run(inputs),
            Some(profile) => profile.run(executor, inputs),
        };
        let run = || self.pool.install(run).map_err(to_engine_error);
        let tensors = catch_panic("interpreter", "computing", run)?;
        let output = |(info, tensor): (&ValueInfo, NativeTensor)| {
            Value::Device(Arc::new(InterpreterTensor { tensor, dtype: info.spec.dtype }))
        };
        Ok(self.outputs.iter().zip(tensors).map(output).collect())
    }

    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        Ok(self.profile.as_mut().map(|profile| std::mem::take(&mut profile.runs)))
    }

    fn facts(&self) -> SessionFacts {
        let (threads, warnings) = (self.pool.current_num_threads(), self.warnings.clone());
        SessionFacts { threads, warnings, ..SessionFacts::default() }
    }
}

type NativeTensor = <CpuOps as TensorOps>::Tensor;

/// Returns the executor's own tensor when the value is one, and otherwise copies the value.
fn upload(value: &Value) -> Result<NativeTensor, EngineError> {
    if let Value::Device(tensor) = value
        && let Some(own) = tensor.as_any().downcast_ref::<InterpreterTensor>()
    {
        return Ok(own.tensor.clone());
    }
    CpuOps.upload(&value.to_host()?).map_err(|error| EngineError::Failed(error.to_string()))
}

/// An output in the executor's form; `dtype` is the type that the graph declares (the executor represents bool as u8).
#[derive(Debug)]
struct InterpreterTensor {
    tensor: NativeTensor,
    dtype: DType,
}

impl DeviceTensor for InterpreterTensor {
    fn spec(&self) -> TensorSpec {
        TensorSpec::new(CpuOps.shape(&self.tensor), self.dtype)
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        CpuOps.download(&self.tensor, self.dtype).map_err(|error| EngineError::Failed(error.to_string()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
