//! Turns a configuration and a catalogue into jobs; finds every mistake that shows without a device.
//!
//! Pure: reads files only through the catalogue, starts nothing, and knows no internals of engines.

mod catalogue;
mod checks;
mod class_keys;
mod container;
mod container_checks;
mod decoder;
mod engine_checks;
mod engines;
mod job;
mod manifest;
mod options;
mod planning;
mod program;
mod route;
mod scenario;
mod effective_values;
mod training;
#[cfg(test)]
mod cause_tests;
#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod precision_tests;
#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod training_tests;

pub use catalogue::{
    CaseFolder, Catalogue, CheckOptions, DescribeEngine, EngineOnMachine, FULL_BATCHES_MIN, RefusedOption,
    UnavailableEngine, is_generated_on_first_use,
};
pub use checks::{DEVICE_VARIABLE_HINT, unknown_vendor};
pub use class_keys::{ADAPTOR, DATA_KEYS, class_file};
pub use container::{CaseContainer, Preparation};
pub use effective_values::{EffectiveValue, effective_values};
pub use engine_checks::VERSION_HINT;
pub use job::{
    AuditScope, CaseSettings, DecoderChoice, EngineChoice, Job, ModelInput, OUTPUTS_KIND, Task, TrainingSettings,
};
pub use manifest::{FoundModel, Manifest, ManifestError, ManifestGraph, find_model, graph_name_fault};
pub use planning::{CasePlan, INTERFACE_VARIABLES, Plan, PlanErrors, plan};
pub use program::{LinePatterns, PROGRAM_FIGURES, TrainingProgram};
