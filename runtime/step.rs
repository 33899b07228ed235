//! The course of a case: seven steps, run by workers in two phases.
//!
//! Knows the names and their order, not what happens in them.

use serde::{Deserialize, Serialize};

/// Which half of a case a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Framework: dataloader, model, validation, export.
    Validate,
    /// Compiler: dataloader, compile, inference.
    Infer,
}

impl Phase {
    /// The phase's name in records and folders.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Validate => "validate",
            Phase::Infer => "infer",
        }
    }
}

/// The seven steps of a case, in order (FlagPerf's a to g).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// a: settings, scripts and engines are made ready.
    Init,
    /// b: the dataset and the model are made.
    Build,
    /// c: the framework runs the model.
    Validation,
    /// d: the model is written as ONNX.
    Export,
    /// e: the compiler builds its engine.
    Compile,
    /// f: the compiled engine runs.
    Inference,
    /// g: results are brought together.
    Record,
}

impl Step {
    /// The step's name in records and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Init => "init",
            Step::Build => "build",
            Step::Validation => "validation",
            Step::Export => "export",
            Step::Compile => "compile",
            Step::Inference => "inference",
            Step::Record => "record",
        }
    }
}
