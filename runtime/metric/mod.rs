//! Metrics of accuracy: accumulators that merge over batches and finish once a pass; agreement of two sets of outputs.
//!
//! Knows no dataset and no engine; takes tensors, gives numbers.

mod accumulator;
mod agreement;
mod table;

pub use accumulator::{Accumulator, MetricError, top_k};
pub use agreement::{Agreement, AgreementMeter};
pub use table::{METRICS, Metric, examples, find, range};
