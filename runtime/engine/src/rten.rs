//! rten: a compiler in pure Rust. Loads ONNX files and computes on the CPU in fp32.
//!
//! Accepts no graphs in memory: it loads files.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use flagperf_onnx::{Element, Graph, ValueInfo};
use rten::{LoadError, LoadErrorKind, Model, ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView, ValueView};
use rten_tensor::Layout;

use super::model::ModelSource;
use super::options::{EngineOptions, thread_count, thread_start_error};
use super::panics::catch_panic;
use super::{
    Artifact, Engine, EngineError, LoadOptions, Session, SessionFacts, Unavailable, Value, check_inputs, model,
};
use flagperf_core::description::{EngineDescription, EngineOption, OptionKind, Roles};
use flagperf_core::tensor::{DType, Tensor};

const PREPACK: &str = "prepack_weights";
const OPTIMIZE: &str = "optimize";

const OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: PREPACK,
        kind: OptionKind::Boolean,
        default: "true",
        about: "whether loading copies the weights of matrix products into the fastest layout",
    },
    EngineOption {
        name: OPTIMIZE,
        kind: OptionKind::Boolean,
        default: "true",
        about: "whether loading fuses operators and folds constants",
    },
];

/// The compiler rten.
///
/// rten supports neither i64 nor bool: inputs of these types are converted to i32 (a value that does not fit is an
/// error), and outputs are converted to the type that the file declares.
#[derive(Debug)]
pub struct Rten;

impl Rten {
    /// The version of the crate `rten` in `Cargo.lock`.
    pub(super) const VERSION: &str = "0.27.0";
}

impl Engine for Rten {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32],
            // rten has Attention, RMSNormalization and RotaryEmbedding of version 23, but not TensorScatter of 24.
            opset_max: 23,
            loads_compiled: false,
            options: Some(OPTIONS),
            ..EngineDescription::unrestricted(
                "rten",
                "compiler in pure Rust for the processor (AVX2, AVX-512, Neon), loads ONNX files",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Rten::VERSION.to_owned())
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let Artifact::Onnx(path) = artifact else {
            return Err(engine_options.artifact_error("an ONNX file", artifact));
        };
        // The folder of a decomposed model is needed until rten has read it.
        let ModelSource { path, graph, folder: _folder, warnings } =
            model::read_lowered(&self.description(), path, &options.scratch)?;
        model::check(self, &graph, options.precision)?;
        let mut model = ModelOptions::with_all_ops();
        model.prepack_weights(engine_options.boolean(PREPACK).unwrap_or(true));
        model.enable_optimization(engine_options.boolean(OPTIMIZE).unwrap_or(true));
        let load = || model.load_file(&path).map_err(|error| load_error(&path, &error));
        let model = catch_panic("rten", "loading the model", load)?;
        let [input_ids, output_ids] = [&graph.inputs, &graph.outputs].map(|infos| node_ids(&model, infos));
        let (input_ids, output_ids) = (input_ids?, output_ids?);
        let threads = thread_count(options);
        let pool = Some(Arc::new(start_pool(threads)?));
        let Graph { inputs, outputs, .. } = graph;
        Ok(Box::new(RtenSession { model, inputs, outputs, input_ids, output_ids, threads, pool, warnings }))
    }
}

/// Starts the session's own threads. When they cannot be started, rten silently computes in the calling thread; this
/// function returns an error instead.
fn start_pool(threads: usize) -> Result<ThreadPool, EngineError> {
    let pool = ThreadPool::with_num_threads(threads);
    let caller = thread::current().id();
    if pool.run(|| thread::current().id()) == caller {
        return Err(thread_start_error("rten", threads, &"the operating system refused"));
    }
    Ok(pool)
}

/// Returns the ids of rten's nodes with these names.
fn node_ids(model: &Model, infos: &[ValueInfo]) -> Result<Vec<NodeId>, EngineError> {
    infos.iter().map(|info| model.node_id(&info.name).map_err(|error| EngineError::Failed(error.to_string()))).collect()
}

/// Converts rten's error about a file, with the operator and the node when rten's message contains them.
fn load_error(path: &Path, error: &LoadError) -> EngineError {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let unsupported = cause.strip_suffix(" operator not supported or not enabled");
    match (error.kind(), unsupported) {
        (LoadErrorKind::OperatorInvalid, Some(op)) => EngineError::Operator {
            engine: "rten",
            op: op.to_owned(),
            node: error.node().unwrap_or_default().to_owned(),
        },
        (LoadErrorKind::UnknownFileType, _) => {
            EngineError::Failed(format!("`{}`: rten loads only files with the extension `.onnx`", path.display()))
        }
        _ => EngineError::Failed(format!("`{}`: {error}", path.display())),
    }
}

struct RtenSession {
    model: Model,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    input_ids: Vec<NodeId>,
    output_ids: Vec<NodeId>,
    threads: usize,
    pool: Option<Arc<ThreadPool>>,
    warnings: Vec<String>,
}

impl Session for RtenSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        let values = self.inputs.iter().zip(&tensors).map(|(info, tensor)| to_rten(&info.name, tensor));
        let inputs = self.input_ids.iter().copied().zip(values);
        let inputs = inputs.map(|(id, value)| Ok((id, value?))).collect::<Result<Vec<_>, EngineError>>()?;
        let options = RunOptions::default().with_thread_pool(self.pool.clone());
        let values = catch_panic("rten", "computing", || {
            let run = self.model.run(inputs, &self.output_ids, Some(options));
            run.map_err(|error| EngineError::Failed(error.to_string()))
        })?;
        self.outputs.iter().zip(values).map(|(info, value)| from_rten(info, value).map(Value::Host)).collect()
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts { threads: self.threads, warnings: self.warnings.clone(), ..SessionFacts::default() }
    }
}

/// Returns a view of the tensor's own memory, or a converted copy of integers that rten does not support.
fn to_rten<'a>(name: &str, tensor: &'a Tensor) -> Result<ValueOrView<'a>, EngineError> {
    fn elements<T: Element>(tensor: &Tensor) -> &[T] {
        tensor.as_slice().expect("matched by the element type")
    }
    fn fits<T, E>(view: Result<T, E>) -> T {
        view.unwrap_or_else(|_| unreachable!("a tensor's number of elements follows from its shape"))
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
        _ => {
            return Err(EngineError::Failed(format!("input `{name}`: rten does not support `{}`", tensor.dtype())));
        }
    })
}

fn narrow(name: &str, elements: &[i64]) -> Result<Vec<i32>, EngineError> {
    let too_large = |x| EngineError::Failed(format!("input `{name}`: `{x}` does not fit in rten's 32-bit integers"));
    elements.iter().map(|x| i32::try_from(*x).map_err(|_| too_large(x))).collect()
}

/// Converts an output to a tensor, without a copy when the file declares the type that rten computes in. rten has 32-bit
/// integers in place of 64-bit ones and of bool.
fn from_rten(info: &ValueInfo, value: rten::Value) -> Result<Tensor, EngineError> {
    let shape = value.shape().to_vec();
    let tensor = match value {
        rten::Value::FloatTensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::Int32Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::Int8Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        rten::Value::UInt8Tensor(tensor) => Tensor::from_vec(shape, tensor.into_data()),
        _ => return Err(EngineError::Failed(format!("output `{}` is a sequence, not a tensor", info.name))),
    };
    let tensor = tensor.map_err(|error| EngineError::Failed(error.to_string()))?;
    match (tensor.dtype(), info.spec.dtype) {
        (DType::I32, DType::I64 | DType::Bool) => Ok(tensor.cast(info.spec.dtype)),
        // The check of the outputs names one of another type.
        _ => Ok(tensor),
    }
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::layers::{Interpolation, ResizeTo};
    use flagperf_onnx::{GraphBuilder, layers, write_onnx};

    use super::*;

    fn refusal(artifact: Artifact<'_>, precision: DType) -> String {
        let options = LoadOptions { precision, ..LoadOptions::default() };
        Rten.load(artifact, &options).err().unwrap().to_string()
    }

    #[test]
    fn fp16_is_rejected_rather_than_silently_widened() {
        let error = refusal(Artifact::Onnx(Path::new("model.onnx")), DType::F16);
        assert_eq!(error, "engine `rten` does not compute in `f16` (supported: f32)");
    }

    #[test]
    fn the_error_for_a_missing_file_contains_its_path() {
        let error = refusal(Artifact::Onnx(Path::new("no/such.onnx")), DType::F32);
        assert!(error.contains("`no/such.onnx`") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_cubic_resize_is_rejected_because_rten_computes_a_linear_one() {
        let folder = tempfile::tempdir().unwrap();
        let load = |mode| {
            let mut builder = GraphBuilder::new("resized");
            let x = builder.input("x", "N,3,4,4,f32".parse().unwrap()).unwrap();
            let y = layers::interpolate(&mut builder, "up", &x, ResizeTo::Pixels([8, 8]), (mode, false)).unwrap();
            builder.output("y", &y).unwrap();
            let path = folder.path().join("model.onnx");
            write_onnx(&builder.finish().unwrap(), &path).unwrap();
            let options = LoadOptions { scratch: folder.path().to_owned(), ..LoadOptions::default() };
            Rten.load(Artifact::Onnx(&path), &options).map(drop)
        };
        let error = load(Interpolation::Bicubic).unwrap_err();
        assert_eq!(error.to_string(), "engine `rten` does not support operator `Resize (mode: cubic)` (node `up`)");
        load(Interpolation::Bilinear).unwrap();
    }

    #[test]
    fn a_graph_in_memory_is_rejected() {
        let graph = flagperf_onnx::Graph { name: "toy".to_owned(), ..Default::default() };
        let error = refusal(Artifact::Graph(&graph), DType::F32);
        assert_eq!(error, "engine `rten` accepts an ONNX file, not the graph `toy`");
    }

    #[test]
    fn the_error_for_an_integer_beyond_32_bits_names_the_input() {
        let tensor = Tensor::from_vec([2], vec![1i64, 1 << 40]).unwrap();
        let error = to_rten("ids", &tensor).unwrap_err().to_string();
        assert_eq!(error, "input `ids`: `1099511627776` does not fit in rten's 32-bit integers");
    }

    #[test]
    fn only_the_types_that_rten_lacks_are_converted() {
        let convert = |declared: &str, value: rten::Value| {
            let info = ValueInfo { name: "y".to_owned(), spec: declared.parse().unwrap() };
            from_rten(&info, value).unwrap()
        };
        let integers = || rten::Value::from_shape(&[2], vec![2, 0]).unwrap();
        assert_eq!(convert("2,i64", integers()).as_slice::<i64>().unwrap(), [2, 0]);
        assert_eq!(convert("2,bool", integers()).bytes(), [1, 0]);
        assert_eq!(convert("2,f32", integers()).dtype(), DType::I32);
        assert_eq!(convert("1,i64", rten::Value::from_shape(&[1], vec![2.9f32]).unwrap()).dtype(), DType::F32);
    }

    #[test]
    fn floats_are_passed_without_a_copy() {
        let tensor = Tensor::from_vec([2, 2], vec![1.0f32; 4]).unwrap();
        let ValueOrView::View(ValueView::FloatTensor(view)) = to_rten("x", &tensor).unwrap() else { panic!("no view") };
        assert_eq!(view.data().unwrap().as_ptr().cast(), tensor.bytes().as_ptr());
    }
}
