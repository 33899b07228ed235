//! The scripts of a case: the sandbox they run in, the stages of a case, and the packages granted to each stage.
//!
//! Knows nothing about vendors. A script can use its packages and nothing else: no clock, process, socket or path.

mod allocator;
mod budget;
mod case;
mod compiled;
mod config_keys;
mod error;
mod exported;
mod forward;
mod function_error;
mod monitor;
mod names;
mod output;
mod packages;
mod sandbox;
mod shared;
mod stack;
mod stage;
mod suggestion;
mod syntax;
mod training;

pub use allocator::{MEMORY_EXIT_STATUS, limit_worker_memory, worker_heap_bytes};
pub use case::{CaseScripts, ForwardKind, ScriptChoice, ScriptConfig, Sessions, load_evaluator};
pub use error::ScriptError;
pub use exported::{Exported, ModelRewrite};
pub use forward::{EvaluatorFn, ForwardFn};
pub use monitor::MonitorScript;
pub use output::StepOutput;
pub use packages::session::ModelRuns;
pub use packages::timing::{SPAN_TIMES_MAX, Span};
pub use sandbox::HostServices;
pub use stack::{STACK_EXIT_STATUS, run_on_script_stack};
pub use stage::Stage;
pub use syntax::{FunctionOutline, NodeKind, ScriptOutline, ScriptParser, SyntaxNode, SyntaxProblem, packages_of};
pub use training::ScriptedTraining;

#[cfg(test)]
mod case_tests;
#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod states_tests;
#[cfg(test)]
mod tests;
