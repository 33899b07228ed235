//! The steps of a case and the phases in which workers run them.
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
    /// The framework's part of a case that trains: dataloader, model, training. Such a case has no other phase.
    Train,
}

/// The properties of a phase: its row of the table [`Phase::facts`]. A further phase is a row here, a variant of the job's
/// task, and the worker's function that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseFacts {
    /// The name in records, events and file names. Texts for people use the name of the measured step.
    pub name: &'static str,
    pub measured_step: Step,
    pub role: EngineRole,
    /// The phase with whose outputs those of this phase are compared if both run.
    pub compared_with: Option<Phase>,
    /// Whether an audit checks between passes that the engine computes what it returns.
    pub is_audited: bool,
}

impl Phase {
    /// Every phase, in the order in which a case runs them.
    pub const ALL: [Phase; 3] = [Phase::Validate, Phase::Infer, Phase::Train];

    /// Returns the row of the phase.
    pub const fn facts(self) -> &'static PhaseFacts {
        match self {
            Phase::Validate => &PhaseFacts {
                name: "validate",
                measured_step: Step::Validation,
                role: EngineRole::Framework,
                compared_with: None,
                is_audited: false,
            },
            Phase::Infer => &PhaseFacts {
                name: "infer",
                measured_step: Step::Inference,
                role: EngineRole::Compiler,
                compared_with: Some(Phase::Validate),
                is_audited: true,
            },
            Phase::Train => &PhaseFacts {
                name: "train",
                measured_step: Step::Training,
                role: EngineRole::Framework,
                compared_with: None,
                is_audited: false,
            },
        }
    }

    /// Returns the phase's name as used in records and file names.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the step that the phase measures.
    pub const fn measured_step(self) -> Step {
        self.facts().measured_step
    }

    /// Returns the role of the phase's engine.
    pub const fn role(self) -> EngineRole {
        self.facts().role
    }

    /// Returns whether the outputs of another phase are compared with those of this one.
    pub fn is_reference(self) -> bool {
        Phase::ALL.iter().any(|other| other.facts().compared_with == Some(self))
    }
}

/// The role of an engine in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineRole {
    /// The engine runs the model that the case's script builds.
    Framework,
    /// The engine compiles and runs a model file.
    Compiler,
}

impl EngineRole {
    /// Returns the role's name as used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            EngineRole::Framework => "framework",
            EngineRole::Compiler => "compiler",
        }
    }
}

/// The steps of a case, in order: the seven of inference (a to g in FlagPerf), and training.
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
    /// In a case that trains, between b and g: train the model in the framework until it reaches its target.
    Training,
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
            Step::Training => "training",
            Step::Compile => "compile",
            Step::Inference => "inference",
            Step::Record => "record",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_a_name_and_a_measured_step_of_its_own() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name(), "the name is that of the JSON form");
            for earlier in &Phase::ALL[..index] {
                assert_ne!(phase.name(), earlier.name());
                assert_ne!(phase.measured_step(), earlier.measured_step());
            }
        }
    }

    #[test]
    fn a_phase_is_compared_only_with_one_that_runs_before_it() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            let reference = phase.facts().compared_with;
            assert!(reference.is_none_or(|reference| Phase::ALL[..index].contains(&reference)), "{phase:?}");
        }
        assert_eq!(Phase::ALL.map(Phase::is_reference), [true, false, false]);
    }
}
