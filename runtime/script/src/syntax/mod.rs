//! Scripts as syntax trees that can be compared: functions, calls, literals, each with its line.
//!
//! Parses with the settings of the sandbox and runs nothing. Knows nothing about cases and stages.

mod outline;
mod packages;
mod parser;
#[cfg(test)]
mod tests;
mod visit;

pub use outline::{FunctionOutline, NodeKind, ScriptOutline, SyntaxNode};
pub use packages::packages_of;
pub use parser::{ScriptParser, SyntaxProblem};
