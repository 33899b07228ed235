//! Compares two sides of one case, each with one or several results: speed, outputs and accuracy.
//!
//! Reads records and what they store; never touches a running case.

mod comparable;
mod comparison;
mod outputs;
mod ratio;

pub use comparable::{Difference, differences};
pub use comparison::{Comparison, ComparisonError, MetricPair, Side, Speed, compare};
pub use outputs::{Errors, OutputErrors};
pub use ratio::{RatioInterval, SpeedVerdict};
