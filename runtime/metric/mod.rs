//! Accuracy metrics, accumulated over the batches of a pass, and the agreement of two sets of outputs.
//!
//! Computes numbers from tensors. Knows nothing about datasets and engines.

mod accumulator;
mod agreement;
mod table;
mod variation;

pub use accumulator::{Accumulator, MetricError, top_k};
pub use agreement::{AGREEMENT_LIMITS, Agreement, AgreementLimits, AgreementMeter, OutputAgreement};
pub use table::{METRICS, Metric, examples, find, range};
