//! Scripts of the cases: a sandbox, the stages of a case, and the packages that they are granted.
//!
//! Knows no vendor. Scripts reach nothing but their packages: no clock, no process, no socket, no path.

mod allocator;
mod budget;
mod case;
mod compiled;
mod error;
mod forward;
mod nearest;
mod output;
mod packages;
mod sandbox;
mod stack;
mod stage;

pub use allocator::{MEMORY_EXIT_STATUS, limit_worker, worker_bytes};
pub use case::{CaseScripts, Config, Forward, Sessions};
pub use error::ScriptError;
pub use forward::{EvaluatorFn, ForwardFn};
pub use output::Output;
pub use packages::timing::Span;
pub use sandbox::ScriptHost;
pub use stack::{STACK_EXIT_STATUS, on_script_stack};
pub use stage::Stage;

#[cfg(test)]
mod case_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
