//! The test harness of an engine: loads models, as a graph or as a file, and runs them.

use std::fmt;
use std::path::Path;

use flagperf_core::description::Roles;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, Engine, EngineError, LoadOptions, Session, Value, find, open_plugin};
use flagperf_onnx::{Graph, write_onnx};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::networks::residual;

/// Rows of a full batch in every check.
pub const BATCH: usize = 4;

/// The form in which an engine receives a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelForm {
    /// In memory, like a framework.
    Graph,
    /// As an ONNX file, like a compiler.
    File,
}

impl ModelForm {
    /// Returns the forms that an engine with these roles accepts.
    pub fn of(roles: Roles) -> Vec<ModelForm> {
        [(roles.framework, ModelForm::Graph), (roles.compiler, ModelForm::File)]
            .into_iter()
            .filter_map(|(accepts, form)| accepts.then_some(form))
            .collect()
    }
}

impl fmt::Display for ModelForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModelForm::Graph => "graph",
            ModelForm::File => "file",
        })
    }
}

/// An engine that the suite tests: a row of the table of engines, with the options that select a variant of it.
#[derive(Clone)]
pub struct Subject {
    /// The subject's name in the names of trials.
    pub name: String,
    /// The row of the table of engines.
    pub engine: &'static dyn Engine,
    /// The options of every load, such as the library of a plug-in.
    pub base_options: LoadOptions,
    /// Whether it can be a framework, a compiler or both.
    pub roles: Roles,
    /// Floating-point types that it computes in.
    pub precisions: Vec<DType>,
}

impl Subject {
    /// Returns the engine as a subject, with default options.
    pub fn row(engine: &'static dyn Engine) -> Self {
        let (name, roles, precisions) = (engine.name().to_owned(), engine.roles(), engine.precisions().to_vec());
        Subject { name, engine, base_options: LoadOptions::default(), roles, precisions }
    }

    /// Returns ONNX Runtime on the processor, where fp16 is refused.
    pub fn onnxruntime(engine: &'static dyn Engine) -> Self {
        Subject { precisions: vec![DType::F32], ..Subject::row(engine) }
    }

    /// Returns OpenVINO on the processor, in the types that load on this machine's processor.
    pub fn openvino(engine: &'static dyn Engine) -> Self {
        let row = Subject::row(engine);
        let harness = Harness { subject: row.clone(), form: ModelForm::File };
        let refused = |precision: DType| {
            let loaded = harness.try_load(&residual(precision), &harness.options(precision));
            matches!(loaded.err(), Some(EngineError::Precision { .. }))
        };
        let precisions = row.precisions.iter().copied().filter(|precision| !refused(*precision)).collect();
        Subject { precisions, ..row }
    }

    /// Returns the same subject with concurrent batches, whose outputs may still be in progress.
    pub fn with_streams(self) -> Self {
        self.with("streams", json!({"num_streams": 2}))
    }

    /// Returns ONNX Runtime on a CUDA GPU, and the same with runs captured and replayed as CUDA graphs.
    pub fn onnxruntime_cuda(engine: &'static dyn Engine, device: &str) -> [Self; 2] {
        let id = device.rsplit(':').next().unwrap();
        let options =
            |graph| json!({"provider": "cuda", "provider_options": {"device_id": id, "enable_cuda_graph": graph}});
        let row = Subject::row(engine);
        [row.clone().with("cuda", options(0)), row.with("cuda_graph", options(1))]
    }

    /// Returns libtorch on a CUDA GPU, and the same with runs captured and replayed as CUDA graphs.
    pub fn libtorch_cuda(library: &Path, device: &str) -> [Self; 2] {
        let options = |graph| json!({"device": device, "cuda_graph": graph});
        let plugin = Subject::plugin(library);
        [plugin.clone().with("cuda", options(false)), plugin.with("cuda_graph", options(true))]
    }

    /// Returns the same subject with these options, and with `name` appended to its name.
    fn with(self, name: &str, options: Json) -> Self {
        let base_options = LoadOptions { extra: serde_json::from_value(options).unwrap(), ..self.base_options };
        Subject { name: format!("{}_{name}", self.name), base_options, ..self }
    }

    /// Returns the engine in a shared library.
    pub fn plugin(library: &Path) -> Self {
        let plugin = open_plugin(library).unwrap_or_else(|missing| panic!("{missing} ({})", missing.remedy));
        Subject {
            name: plugin.name().to_owned(),
            engine: find("plugin").unwrap(),
            base_options: LoadOptions { library: Some(library.to_owned()), ..LoadOptions::default() },
            roles: plugin.roles(),
            precisions: plugin.precisions().to_vec(),
        }
    }

    /// Returns libtorch on the processor, where fp16 is refused, and bf16 is refused if the processor lacks it.
    pub fn libtorch(library: &Path) -> Self {
        let mut subject = Subject::plugin(library);
        let harness = Harness { subject: subject.clone(), form: ModelForm::Graph };
        subject.precisions.retain(|precision| {
            *precision == DType::F32 || harness.try_load(&residual(*precision), &harness.options(*precision)).is_ok()
        });
        subject
    }

    /// Returns the sidecar of vendor `cpu` that runs ONNX Runtime's Python package; `python` must have that package.
    pub fn onnxruntime_python(python: &Path) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let words = [python.to_str().unwrap(), "-m", "flagperf_sidecar", "engines/onnxruntime_py.py"];
        let base_options = LoadOptions {
            folder: root.join("vendors/cpu"),
            command: words.map(str::to_owned).to_vec(),
            ..LoadOptions::default()
        };
        Subject {
            name: "onnxruntime_py".to_owned(),
            engine: find("sidecar").unwrap(),
            base_options,
            roles: Roles { framework: false, compiler: true },
            precisions: vec![DType::F32],
        }
    }
}

/// A subject with the form in which it receives models.
pub struct Harness {
    /// The engine under test.
    pub subject: Subject,
    /// The form in which it receives models.
    pub form: ModelForm,
}

/// A loaded model, whose file exists as long as this value.
pub struct LoadedModel {
    pub session: Box<dyn Session>,
    _folder: TempDir,
}

impl Harness {
    /// Returns options for one thread, full batches of [`BATCH`] and the given precision.
    pub fn options(&self, precision: DType) -> LoadOptions {
        LoadOptions { threads: 1, batch_size: BATCH, precision, ..self.subject.base_options.clone() }
    }

    /// Loads a graph with the given options.
    pub fn try_load(&self, graph: &Graph, options: &LoadOptions) -> Result<LoadedModel, EngineError> {
        let folder = tempfile::tempdir().unwrap();
        let session = match self.form {
            ModelForm::Graph => self.subject.engine.load(Artifact::Graph(graph), options)?,
            ModelForm::File => {
                let path = folder.path().join("model.onnx");
                write_onnx(graph, &path).unwrap();
                self.subject.engine.load(Artifact::Onnx(&path), options)?
            }
        };
        Ok(LoadedModel { session, _folder: folder })
    }

    /// Loads a graph in fp32; panics if the engine refuses it.
    pub fn load(&self, graph: &Graph) -> LoadedModel {
        self.try_load(graph, &self.options(DType::F32)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Loads an existing file in fp32.
    pub fn load_file(&self, path: &Path) -> Result<Box<dyn Session>, EngineError> {
        self.subject.engine.load(Artifact::Onnx(path), &self.options(DType::F32))
    }
}

impl LoadedModel {
    /// Runs one batch, synchronises, and copies the outputs to the host.
    pub fn run(&mut self, inputs: &[Tensor]) -> Vec<Tensor> {
        let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
        let outputs = self.session.submit(&inputs).unwrap_or_else(|error| panic!("{error}"));
        self.session.sync().unwrap();
        outputs.iter().map(|output| output.to_host().unwrap()).collect()
    }

    /// Submits inputs that the session must refuse, and returns the error.
    pub fn refusal(&mut self, inputs: &[Tensor]) -> EngineError {
        let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
        self.session.submit(&inputs).expect_err("the inputs do not fit the model")
    }
}
