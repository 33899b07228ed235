//! Measures one operator of ONNX at a time, and the limits of a device, with any engine.
//!
//! The inputs lie where the engine keeps its own outputs: on its device. Knows no vendor, no case and no record.

mod check;
mod exchange;
mod exchange_figures;
mod figures;
mod format;
mod graph;
mod host_times;
mod inputs;
mod kernel_times;
mod limit_times;
mod limits;
mod measure;
mod operators;
mod sizes;
#[cfg(test)]
mod tests;
mod times;

pub use check::Comparison;
pub use exchange::{Exchange, ProcessTimes, SeriesTimes};
pub use exchange_figures::ExchangeFigures;
pub use figures::{DataSheet, OperatorFigures, Reason};
pub use format::{FORMATS, Format};
pub use graph::GraphFailure;
pub use kernel_times::kernel_times;
pub use limit_times::{LimitTimes, LimitValue, SizeTimes};
pub use limits::{GroupSize, LIMITS, Limit, LimitJob, measure_limit};
pub use measure::{MeasureError, OperatorJob, measure_operator};
pub use operators::{OPERATORS, Operator};
pub use sizes::{SizeError, Sizes};
pub use times::{OperatorTimes, Round};
