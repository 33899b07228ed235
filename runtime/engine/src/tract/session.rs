//! A model loaded by tract, with one compiled plan for each set of input shapes.
//!
//! Knows nothing about other engines.

use std::path::Path;
use std::sync::Arc;

use flagperf_onnx::{Element, ValueInfo};
use half::f16;
use indexmap::IndexMap;
use tract_onnx::prelude::multithread::Executor;
use tract_onnx::prelude::{
    Datum, DatumType, Framework, InferenceFact, InferenceModel, InferenceModelExt, RunOptions, TValue, TVec,
    Tensor as TractTensor, TractError, TypedRunnableModel,
};
use tract_onnx::tract_hir::ops::unimpl::UnimplementedOp;

use super::Tract;
use crate::model::ModelSource;
use crate::options::{EngineOptions, thread_count};
use crate::panics::catch_panic;
use crate::{Artifact, Engine, EngineError, LoadOptions, Session, SessionFacts, Value, check_inputs, model};
use flagperf_core::tensor::{DType, Dim, HostMemory, Tensor};

/// The number of plans kept. Each plan holds its own packed weights, so the oldest one is dropped.
const PLANS_MAX: usize = 8;

/// The shapes of all inputs, in order.
type Shapes = Vec<Vec<usize>>;
type Plan = Arc<TypedRunnableModel>;

pub(super) fn load(
    engine: &Tract,
    artifact: Artifact<'_>,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, EngineError> {
    let engine_options = EngineOptions::check(engine, options)?;
    let Artifact::Onnx(path) = artifact else { return Err(engine_options.artifact_error("an ONNX file", artifact)) };
    // The folder of a decomposed model is needed until tract has parsed it.
    let ModelSource { path, graph, folder: _folder, warnings } =
        model::read_lowered(&engine.description(), path, &options.scratch)?;
    model::check(engine, &graph, options.precision)?;
    let threads = thread_count(options);
    let executor = catch_panic("tract", "starting its threads", || {
        Ok(if threads == 1 { Executor::SingleThread } else { Executor::multithread(threads) })
    })?;
    let mut session = TractSession {
        model: catch_panic("tract", "loading the model", || parse(&path))?,
        inputs: graph.inputs,
        outputs: graph.outputs,
        plans: IndexMap::new(),
        executor,
        threads,
        warnings,
    };
    if let Some(shapes) = full_batch_shapes(&session.inputs, options.batch_size) {
        session.plan(&shapes)?;
    }
    Ok(Box::new(session))
}

/// Parses the file. The shapes of inner values are ignored and inferred by tract again, because the batch size is only
/// fixed when a plan is compiled.
fn parse(path: &Path) -> Result<InferenceModel, EngineError> {
    let parser = tract_onnx::onnx().with_ignore_value_info(true).with_ignore_output_shapes(true);
    let parse_error = |error: TractError| EngineError::Failed(format!("`{}`: {error:#}", path.display()));
    let model = parser.model_for_path(path).map_err(parse_error)?;
    match model.nodes().iter().find(|node| node.op_is::<UnimplementedOp>()) {
        Some(node) => Err(unsupported_operator(&node.op().name(), &node.name)),
        None => Ok(model),
    }
}

/// Returns the error for an operator that tract does not support, which tract calls `Unimplemented(Name)`.
fn unsupported_operator(op: &str, node: &str) -> EngineError {
    let op = op.strip_prefix("Unimplemented(").and_then(|op| op.strip_suffix(')')).unwrap_or(op);
    EngineError::Operator { engine: "tract", op: op.to_owned(), node: node.to_owned() }
}

/// Returns the inputs' shapes with `rows` for each open leading dimension; `None` when another dimension is open.
fn full_batch_shapes(inputs: &[ValueInfo], rows: usize) -> Option<Shapes> {
    let size = |(axis, dim): (usize, &Dim)| dim.fixed().or_else(|| (axis == 0).then_some(rows));
    inputs.iter().map(|info| info.spec.dims.iter().enumerate().map(size).collect()).collect()
}

struct TractSession {
    model: InferenceModel,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    plans: IndexMap<Shapes, Plan>,
    executor: Executor,
    threads: usize,
    warnings: Vec<String>,
}

impl TractSession {
    /// Returns the plan for these shapes, which is compiled at its first use.
    fn plan(&mut self, shapes: &Shapes) -> Result<Plan, EngineError> {
        if let Some(plan) = self.plans.get(shapes) {
            return Ok(Arc::clone(plan));
        }
        let plan = catch_panic("tract", "compiling the model", || self.compile(shapes).map_err(to_engine_error))?;
        if self.plans.len() == PLANS_MAX {
            self.plans.shift_remove_index(0);
        }
        self.plans.insert(shapes.clone(), Arc::clone(&plan));
        Ok(plan)
    }

    fn compile(&self, shapes: &Shapes) -> Result<Plan, TractError> {
        let mut model = self.model.clone();
        for (index, (info, shape)) in self.inputs.iter().zip(shapes).enumerate() {
            let dtype = datum_type(info.spec.dtype).map_err(|error| error.context(format!("input `{}`", info.name)))?;
            let fact = InferenceFact::dt_shape(dtype, shape);
            model.set_input_fact(index, fact)?;
        }
        let options = RunOptions { executor: Some(self.executor.clone()), ..RunOptions::default() };
        model.into_optimized()?.into_runnable_with_options(&options)
    }

    fn run(&self, plan: &Plan, tensors: &[Tensor]) -> Result<Vec<Value>, TractError> {
        let inputs = tensors.iter().map(|tensor| to_tract(tensor).map(TValue::from)).collect::<Result<TVec<_>, _>>()?;
        let values = plan.run(inputs)?;
        self.outputs.iter().zip(values).map(|(info, value)| Ok(Value::Host(from_tract(info, value)?))).collect()
    }
}

impl Session for TractSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        let plan = self.plan(&tensors.iter().map(|tensor| tensor.shape().to_vec()).collect())?;
        catch_panic("tract", "computing", || self.run(&plan, &tensors).map_err(to_engine_error))
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts { threads: self.threads, warnings: self.warnings.clone(), ..SessionFacts::default() }
    }
}

fn to_engine_error(error: TractError) -> EngineError {
    EngineError::Failed(format!("tract: {error:#}"))
}

fn datum_type(dtype: DType) -> Result<DatumType, TractError> {
    Ok(match dtype {
        DType::F64 => DatumType::F64,
        DType::F32 => DatumType::F32,
        DType::F16 => DatumType::F16,
        DType::I64 => DatumType::I64,
        DType::I32 => DatumType::I32,
        DType::I16 => DatumType::I16,
        DType::I8 => DatumType::I8,
        DType::U64 => DatumType::U64,
        DType::U32 => DatumType::U32,
        DType::U16 => DatumType::U16,
        DType::U8 => DatumType::U8,
        DType::Bool => DatumType::Bool,
        DType::BF16 => return Err(TractError::msg("`bf16` is not supported")),
    })
}

/// Copies a tensor, because tract's tensors own their memory.
fn to_tract(tensor: &Tensor) -> Result<TractTensor, TractError> {
    fn copy<T: Element + Datum>(tensor: &Tensor) -> Result<TractTensor, TractError> {
        TractTensor::from_shape(tensor.shape(), tensor.as_slice::<T>()?)
    }
    match tensor.dtype() {
        DType::F64 => copy::<f64>(tensor),
        DType::F32 => copy::<f32>(tensor),
        DType::F16 => copy::<f16>(tensor),
        DType::I64 => copy::<i64>(tensor),
        DType::I32 => copy::<i32>(tensor),
        DType::I16 => copy::<i16>(tensor),
        DType::I8 => copy::<i8>(tensor),
        DType::U64 => copy::<u64>(tensor),
        DType::U32 => copy::<u32>(tensor),
        DType::U16 => copy::<u16>(tensor),
        DType::U8 => copy::<u8>(tensor),
        DType::Bool => {
            let bools: Vec<bool> = tensor.bytes().iter().map(|byte| *byte != 0).collect();
            TractTensor::from_shape(tensor.shape(), &bools)
        }
        DType::BF16 => Err(TractError::msg("`bf16` is not supported")),
    }
}

/// The memory of an output that tract allocated.
struct TractMemory(TValue);

impl HostMemory for TractMemory {
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Converts an output to a tensor over tract's own memory. Symbolic integers are cast to the type that the file
/// declares.
fn from_tract(info: &ValueInfo, value: TValue) -> Result<Tensor, TractError> {
    let declared = datum_type(info.spec.dtype)?;
    let computed = value.datum_type();
    let value = match computed {
        _ if computed == declared => value,
        DatumType::TDim => value.cast_to_dt(declared)?.into_owned().into(),
        _ => {
            return Err(TractError::msg(format!(
                "output `{}` is {computed:?}, but the model declares {declared:?}",
                info.name
            )));
        }
    };
    let shape = value.shape().to_vec();
    if value.as_bytes().is_empty() {
        // There is no memory to share.
        return Ok(Tensor::from_bytes(shape, info.spec.dtype, &[])?);
    }
    Ok(Tensor::from_memory(shape, info.spec.dtype, Arc::new(TractMemory(value)), 0)?)
}
