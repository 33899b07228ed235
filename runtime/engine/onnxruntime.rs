//! ONNX Runtime: a compiler in a C library that is found at run time, with its providers by name.
//!
//! Knows no vendor, and never takes another provider than the one asked for: how many nodes each got is told.

mod library;
mod options;
mod placement;
mod provider;
mod session;
mod tensor;

use super::model;
use super::options::lacks_precision;
use super::{Artifact, Engine, EngineError, Options, Roles, Session, Unavailable};
use crate::tensor::DType;

use options::Settings;
use session::OrtSession;

/// The compiler ONNX Runtime.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "onnxruntime"
    }

    fn about(&self) -> &'static str {
        "ONNX Runtime by its C library: processors, CUDA, TensorRT and its other providers by name"
    }

    fn roles(&self) -> Roles {
        Roles { framework: false, compiler: true }
    }

    fn precisions(&self) -> &'static [DType] {
        &[DType::F32, DType::F16]
    }

    fn opset_max(&self) -> i64 {
        23
    }

    fn check(&self) -> Result<String, Unavailable> {
        library::open(None).map(|library| library.version.clone())
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let settings = Settings::read(self, options)?;
        let path = match artifact {
            Artifact::Onnx(path) => {
                let graph = model::read(path)?;
                model::check_types(self, &graph, options.precision)?;
                path
            }
            Artifact::Compiled(path) => path,
            Artifact::Graph(_) => return Err(settings.refuse_artifact("an ONNX file or one that it wrote", artifact)),
        };
        if !settings.provider.computes_in(options.precision) {
            return Err(lacks_precision(self, options.precision));
        }
        OrtSession::load(path, &settings).map(|session| Box::new(session) as Box<dyn Session>)
    }
}

/// What ONNX Runtime says, as an error of ours: memory that it could not have, operators that it lacks.
fn failed<R>(error: &ort::Error<R>) -> EngineError {
    let message = error.message();
    let quoted = |text: &str| text.split('\'').nth(1).map(str::to_owned);
    if let Some((_, bytes)) = message.split_once("requested buffer of size ") {
        let digits: String = bytes.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(bytes) = digits.parse() {
            return EngineError::OutOfMemory { bytes };
        }
    }
    if let Some((_, what)) = message.split_once("Could not find an implementation for ") {
        let op = what.split(' ').next().unwrap_or_default().to_owned();
        return EngineError::Operator { engine: "onnxruntime", op, node: quoted(what).unwrap_or_default() };
    }
    EngineError::Failed(format!("ONNX Runtime: {message}"))
}
