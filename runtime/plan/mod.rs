//! Configuration and catalogue made into jobs; finds every mistake that needs no device.
//!
//! Pure: reads files through the catalogue only, starts nothing, knows no engine's inside.

mod catalogue;
mod checks;
mod engines;
mod job;
mod manifest;
mod planning;
mod problem;
mod route;
mod rows;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;

pub use catalogue::{CaseFolder, Catalogue, CheckOptions, KnownEngine, RefusedOption};
pub use job::{EngineChoice, Job, Limits, ModelInput, Settings};
pub use manifest::{FoundModel, Manifest, ManifestError, ManifestGraph, find_model, graph_name_fault};
pub use planning::{CasePlan, Plan, PlanErrors, plan};
pub use problem::PlanProblem;
pub use rows::{Row, rows};
