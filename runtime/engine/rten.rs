//! rten: a compiler in pure Rust. Loads ONNX files, computes on the processor in 32-bit floats.
//!
//! Knows no graph of ours: it is given files.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use flagperf_onnx::{Element, Graph, ValueInfo};
use rten::{LoadError, LoadErrorKind, Model, ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView, ValueView};
use rten_tensor::Layout;

use super::options::{Asked, lacks_threads, threads};
use super::panics::caught;
use super::{Artifact, Engine, EngineError, Facts, Options, Roles, Session, Unavailable, Value, check_inputs, model};
use crate::tensor::{DType, Tensor};

/// Copies the weights of matrix products into the layout that computes fastest, at load; on unless switched off.
const PREPACK: &str = "prepack_weights";
/// Fuses operators and folds constants at load; on unless switched off.
const OPTIMIZE: &str = "optimize";

/// The compiler rten.
///
/// It knows neither i64 nor bool: inputs of these types are given to it as i32 (a value that does not fit is an error),
/// outputs come back as the type that the file declares.
#[derive(Debug)]
pub struct Rten;

impl Rten {
    /// Version of the crate, as in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.27.0";
}

impl Engine for Rten {
    fn facts(&self) -> Facts {
        Facts {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32],
            // It has Attention, RMSNormalization and RotaryEmbedding of 23, but not TensorScatter of 24.
            opset_max: 23,
            takes_compiled: false,
            ..Facts::widest("rten", "compiler in pure Rust for the processor (AVX2, AVX-512, Neon), loads ONNX files")
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Rten::VERSION.to_owned())
    }

    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        let asked = Asked::check(self, options, &[PREPACK, OPTIMIZE])?;
        asked.switch(PREPACK).and(asked.switch(OPTIMIZE)).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let asked = Asked::check(self, options, &[PREPACK, OPTIMIZE])?;
        let Artifact::Onnx(path) = artifact else { return Err(asked.refuse_artifact("an ONNX file", artifact)) };
        let graph = model::read(path)?;
        model::check(self, &graph, options.precision)?;
        let mut model = ModelOptions::with_all_ops();
        model.prepack_weights(asked.switch(PREPACK)?.unwrap_or(true));
        model.enable_optimization(asked.switch(OPTIMIZE)?.unwrap_or(true));
        let model =
            caught("rten", "loading the model", || model.load_file(path).map_err(|error| not_loaded(path, &error)))?;
        let [fed, asked_for] = [&graph.inputs, &graph.outputs].map(|infos| ids(&model, infos));
        let (fed, asked_for) = (fed?, asked_for?);
        let threads = threads(options);
        let pool = Some(Arc::new(pool(threads)?));
        let Graph { inputs, outputs, .. } = graph;
        Ok(Box::new(RtenSession { model, inputs, outputs, fed, asked_for, threads, pool }))
    }
}

/// Threads of the session's own. rten goes on without them when they cannot be started, and computes in the caller.
fn pool(threads: usize) -> Result<ThreadPool, EngineError> {
    let pool = ThreadPool::with_num_threads(threads);
    let caller = thread::current().id();
    if pool.run(|| thread::current().id()) == caller {
        return Err(lacks_threads("rten", threads, &"the system refuses"));
    }
    Ok(pool)
}

/// rten's nodes of these names.
fn ids(model: &Model, infos: &[ValueInfo]) -> Result<Vec<NodeId>, EngineError> {
    infos.iter().map(|info| model.node_id(&info.name).map_err(|error| EngineError::Failed(error.to_string()))).collect()
}

/// What rten says of a file that it could not load, with the operator and node where it names them.
fn not_loaded(path: &Path, error: &LoadError) -> EngineError {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let lacks = cause.strip_suffix(" operator not supported or not enabled");
    match (error.kind(), lacks) {
        (LoadErrorKind::OperatorInvalid, Some(op)) => EngineError::Operator {
            engine: "rten",
            op: op.to_owned(),
            node: error.node().unwrap_or_default().to_owned(),
        },
        (LoadErrorKind::UnknownFileType, _) => {
            EngineError::Failed(format!("`{}`: rten knows a model by the ending of its name, `.onnx`", path.display()))
        }
        _ => EngineError::Failed(format!("`{}`: {error}", path.display())),
    }
}

struct RtenSession {
    model: Model,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    fed: Vec<NodeId>,
    asked_for: Vec<NodeId>,
    threads: usize,
    pool: Option<Arc<ThreadPool>>,
}

impl Session for RtenSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        let given = self.inputs.iter().zip(&tensors).map(|(info, tensor)| lend(&info.name, tensor));
        let fed = self.fed.iter().copied().zip(given);
        let fed = fed.map(|(id, value)| Ok((id, value?))).collect::<Result<Vec<_>, EngineError>>()?;
        let options = RunOptions::default().with_thread_pool(self.pool.clone());
        let values = caught("rten", "computing", || {
            let run = self.model.run(fed, &self.asked_for, Some(options));
            run.map_err(|error| EngineError::Failed(error.to_string()))
        })?;
        self.outputs.iter().zip(values).map(|(info, value)| take(info, value).map(Value::Host)).collect()
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

/// A view of the tensor's own memory; integers that rten does not know are converted.
fn lend<'a>(name: &str, tensor: &'a Tensor) -> Result<ValueOrView<'a>, EngineError> {
    fn elements<T: Element>(tensor: &Tensor) -> &[T] {
        tensor.as_slice().expect("matched by the element type")
    }
    fn fits<T, E>(made: Result<T, E>) -> T {
        made.unwrap_or_else(|_| unreachable!("a tensor has as many elements as its shape says"))
    }
    let shape = tensor.shape();
    Ok(match tensor.dtype() {
        DType::F32 => fits(ValueView::from_shape(shape, elements::<f32>(tensor))).into(),
        DType::I32 => fits(ValueView::from_shape(shape, elements::<i32>(tensor))).into(),
        DType::I8 => fits(ValueView::from_shape(shape, elements::<i8>(tensor))).into(),
        DType::U8 => fits(ValueView::from_shape(shape, elements::<u8>(tensor))).into(),
        DType::Bool => {
            fits(rten::Value::from_shape(shape, tensor.bytes().iter().copied().map(i32::from).collect())).into()
        }
        DType::I64 => fits(rten::Value::from_shape(shape, narrow(name, elements::<i64>(tensor))?)).into(),
        DType::F64 | DType::F16 | DType::BF16 => {
            return Err(EngineError::Failed(format!("input `{name}`: rten has no `{}`", tensor.dtype())));
        }
    })
}

fn narrow(name: &str, elements: &[i64]) -> Result<Vec<i32>, EngineError> {
    let too_large =
        |x| EngineError::Failed(format!("input `{name}`: `{x}` does not fit the 32 bits that rten computes in"));
    elements.iter().map(|x| i32::try_from(*x).map_err(|_| too_large(x))).collect()
}

/// The tensor of an output, over rten's own memory where the file declares the type that rten computes in.
fn take(info: &ValueInfo, value: rten::Value) -> Result<Tensor, EngineError> {
    let shape = value.shape().to_vec();
    let tensor = match value {
        rten::Value::FloatTensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::Int32Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::Int8Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::UInt8Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        _ => return Err(EngineError::Failed(format!("output `{}` is a sequence, not a tensor", info.name))),
    };
    tensor.map(|tensor| tensor.cast(info.spec.dtype)).map_err(|error| EngineError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(artifact: Artifact<'_>, precision: DType) -> String {
        let options = Options { precision, ..Options::default() };
        Rten.load(artifact, &options).err().unwrap().to_string()
    }

    #[test]
    fn half_precision_is_refused_rather_than_passed_off() {
        let error = refusal(Artifact::Onnx(Path::new("model.onnx")), DType::F16);
        assert_eq!(error, "engine `rten` does not compute in `f16` (it has: f32)");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = refusal(Artifact::Onnx(Path::new("no/such.onnx")), DType::F32);
        assert!(error.contains("`no/such.onnx`") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_graph_in_memory_is_refused_by_its_name() {
        let graph = flagperf_onnx::Graph { name: "toy".to_owned(), ..Default::default() };
        let error = refusal(Artifact::Graph(&graph), DType::F32);
        assert_eq!(error, "engine `rten` takes an ONNX file, not the graph `toy`");
    }

    #[test]
    fn an_integer_beyond_32_bits_is_an_error_that_names_the_input() {
        let tensor = Tensor::from_vec([2], vec![1i64, 1 << 40]).unwrap();
        let error = lend("ids", &tensor).unwrap_err().to_string();
        assert_eq!(error, "input `ids`: `1099511627776` does not fit the 32 bits that rten computes in");
    }

    #[test]
    fn floats_are_lent_without_a_copy() {
        let tensor = Tensor::from_vec([2, 2], vec![1.0f32; 4]).unwrap();
        let ValueOrView::View(ValueView::FloatTensor(view)) = lend("x", &tensor).unwrap() else { panic!("no view") };
        assert_eq!(view.data().unwrap().as_ptr().cast(), tensor.bytes().as_ptr());
    }
}
