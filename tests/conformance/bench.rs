//! Where an engine is tried: loads graphs on it, as a graph or as a file, and feeds them.

use std::fmt;
use std::path::Path;

use flagperf::engine::{Artifact, Engine, EngineError, Options, Roles, Session, Value, find, open_plugin};
use flagperf::tensor::{DType, Tensor};
use flagperf_onnx::{Graph, write_onnx};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::networks::residual;

/// Rows of a full batch in every check.
pub const BATCH: usize = 4;

/// How an engine is given a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In memory, as a framework.
    Graph,
    /// As an ONNX file, as a compiler.
    File,
}

impl Form {
    /// The forms that an engine takes by its roles.
    pub fn of(roles: Roles) -> Vec<Form> {
        [(roles.framework, Form::Graph), (roles.compiler, Form::File)]
            .into_iter()
            .filter_map(|(takes, form)| takes.then_some(form))
            .collect()
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Graph => "graph",
            Form::File => "file",
        })
    }
}

/// What is held to the suite: a row of the table of engines, with the options that make it this engine.
#[derive(Clone)]
pub struct Subject {
    /// Its name in the names of trials.
    pub name: String,
    /// The row.
    pub engine: &'static dyn Engine,
    /// What every load adds to: the library of a plug-in.
    pub base: Options,
    /// Which sides of a case it can take.
    pub roles: Roles,
    /// Floating-point types that it computes in.
    pub precisions: Vec<DType>,
}

impl Subject {
    /// A row as it is.
    pub fn row(engine: &'static dyn Engine) -> Self {
        let (name, roles, precisions) = (engine.name().to_owned(), engine.roles(), engine.precisions().to_vec());
        Subject { name, engine, base: Options::default(), roles, precisions }
    }

    /// ONNX Runtime on the processor, where f16 is refused.
    pub fn onnxruntime(engine: &'static dyn Engine) -> Self {
        Subject { precisions: vec![DType::F32], ..Subject::row(engine) }
    }

    /// OpenVINO on the processor, in the types that this one has: it says so when it loads.
    pub fn openvino(engine: &'static dyn Engine) -> Self {
        let row = Subject::row(engine);
        let bench = Bench { subject: row.clone(), form: Form::File };
        let refused = |precision: DType| {
            let loaded = bench.try_load(&residual(precision), &bench.options(precision));
            matches!(loaded.err(), Some(EngineError::Precision { .. }))
        };
        let precisions = row.precisions.iter().copied().filter(|precision| !refused(*precision)).collect();
        Subject { precisions, ..row }
    }

    /// The same with batches side by side: their outputs may still be under way.
    pub fn with_streams(self) -> Self {
        self.with("streams", json!({"num_streams": 2}))
    }

    /// ONNX Runtime on a GPU of CUDA, and on it with runs that are captured and replayed.
    pub fn onnxruntime_cuda(engine: &'static dyn Engine, device: &str) -> [Self; 2] {
        let id = device.rsplit(':').next().unwrap();
        let options =
            |graph| json!({"provider": "cuda", "provider_options": {"device_id": id, "enable_cuda_graph": graph}});
        let row = Subject::row(engine);
        [row.clone().with("cuda", options(0)), row.with("cuda_graph", options(1))]
    }

    /// libtorch on a GPU of CUDA, and on it with runs that are captured and replayed.
    pub fn libtorch_cuda(library: &Path, device: &str) -> [Self; 2] {
        let options = |graph| json!({"device": device, "cuda_graph": graph});
        let plugin = Subject::plugin(library);
        [plugin.clone().with("cuda", options(false)), plugin.with("cuda_graph", options(true))]
    }

    /// The same with these options.
    fn with(self, name: &str, options: Json) -> Self {
        let base = Options { extra: serde_json::from_value(options).unwrap(), ..self.base };
        Subject { name: format!("{}_{name}", self.name), base, ..self }
    }

    /// The engine in a shared library.
    pub fn plugin(library: &Path) -> Self {
        let said = open_plugin(library).unwrap_or_else(|missing| panic!("{missing} ({})", missing.remedy));
        Subject {
            name: said.name().to_owned(),
            engine: find("plugin").unwrap(),
            base: Options { library: Some(library.to_owned()), ..Options::default() },
            roles: said.roles(),
            precisions: said.precisions().to_vec(),
        }
    }
}

impl Subject {
    /// libtorch on the processor, where f16 is refused, and bf16 on processors without it.
    pub fn libtorch(library: &Path) -> Self {
        let mut subject = Subject::plugin(library);
        let bench = Bench { subject: subject.clone(), form: Form::Graph };
        subject.precisions.retain(|precision| {
            *precision == DType::F32 || bench.try_load(&residual(*precision), &bench.options(*precision)).is_ok()
        });
        subject
    }

    /// ONNX Runtime's package of Python, as the vendor `cpu` has it; `python` is one that has it.
    pub fn onnxruntime_in(python: &Path) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let words = [python.to_str().unwrap(), "-m", "flagperf_sidecar", "engines/onnxruntime_py.py"];
        let base = Options {
            folder: root.join("vendors/cpu"),
            command: words.map(str::to_owned).to_vec(),
            ..Options::default()
        };
        Subject {
            name: "onnxruntime_py".to_owned(),
            engine: find("sidecar").unwrap(),
            base,
            roles: Roles { framework: false, compiler: true },
            precisions: vec![DType::F32],
        }
    }
}

/// An engine under trial.
pub struct Bench {
    /// The engine.
    pub subject: Subject,
    /// How it is given models.
    pub form: Form,
}

/// A loaded model; its file lives as long.
pub struct Loaded {
    pub session: Box<dyn Session>,
    _folder: TempDir,
}

impl Bench {
    /// One thread, full batches of [`BATCH`], the given precision, no further options.
    pub fn options(&self, precision: DType) -> Options {
        Options { threads: 1, batch_size: BATCH, precision, ..self.subject.base.clone() }
    }

    /// Loads a graph with options of the caller's.
    pub fn try_load(&self, graph: &Graph, options: &Options) -> Result<Loaded, EngineError> {
        let folder = tempfile::tempdir().unwrap();
        let session = match self.form {
            Form::Graph => self.subject.engine.load(Artifact::Graph(graph), options)?,
            Form::File => {
                let path = folder.path().join("model.onnx");
                write_onnx(graph, &path).unwrap();
                self.subject.engine.load(Artifact::Onnx(&path), options)?
            }
        };
        Ok(Loaded { session, _folder: folder })
    }

    /// Loads a graph that the engine has to take.
    pub fn load(&self, graph: &Graph) -> Loaded {
        self.try_load(graph, &self.options(DType::F32)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Loads a file as it is.
    pub fn load_file(&self, path: &Path) -> Result<Box<dyn Session>, EngineError> {
        self.subject.engine.load(Artifact::Onnx(path), &self.options(DType::F32))
    }
}

impl Loaded {
    /// Computes one batch to the end and brings the outputs to the host.
    pub fn run(&mut self, inputs: &[Tensor]) -> Vec<Tensor> {
        let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
        let outputs = self.session.submit(&inputs).unwrap_or_else(|error| panic!("{error}"));
        self.session.sync().unwrap();
        outputs.iter().map(|output| output.to_host().unwrap()).collect()
    }

    /// The error of a submit that has to fail.
    pub fn refusal(&mut self, inputs: &[Tensor]) -> EngineError {
        let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Host).collect();
        self.session.submit(&inputs).expect_err("the inputs do not fit the model")
    }
}
