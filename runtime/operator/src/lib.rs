//! Operators of vendors: builds them, compares them with what they mean in standard operators, and measures them.
//!
//! An engine runs them, so nothing here knows a device.

mod bench;
mod build;
mod check;
mod inputs;
mod node;
mod target;

pub use bench::{Measured, measure};
pub use build::{BuildError, build, build_decoder, build_shell};
pub use check::{CaseOutcome, Tested, check_case, check_description};
pub use node::CaseError;
pub use target::{EngineName, Target};
