//! The seven steps of a case and the two phases in which workers run them.
//!
//! Knows the names and the order of the steps, not what happens in them.

use serde::{Deserialize, Serialize};

/// A phase of a case: the part that one worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The framework's part: dataloader, model, validation, export.
    Validate,
    /// The compiler's part: dataloader, compilation, inference.
    Infer,
}

impl Phase {
    /// Returns the phase's name as used in records and folder names.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Validate => "validate",
            Phase::Infer => "infer",
        }
    }
}

/// The seven steps of a case, in order (a to g in FlagPerf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// a: prepare the settings, the scripts and the engines.
    Init,
    /// b: create the dataset and the model.
    Build,
    /// c: run the model in the framework.
    Validation,
    /// d: write the model as ONNX.
    Export,
    /// e: let the compiler build its engine.
    Compile,
    /// f: run the compiled engine.
    Inference,
    /// g: collect the results.
    Record,
}

impl Step {
    /// Returns the step's name as used in records and messages.
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
