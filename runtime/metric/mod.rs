//! Metrics of accuracy: accumulators that merge over batches and finish once a pass; agreement of two sets of outputs.
//!
//! Knows no dataset and no engine; takes tensors, gives numbers.

mod accumulator;
mod agreement;
mod table;
mod variation;

pub use accumulator::{Accumulator, MetricError, top_k};
pub use agreement::{
    AGREEMENT_LIMITS, AGREEMENT_PRECISIONS, Agreement, AgreementLimits, AgreementMeter, OutputAgreement, agreement_name,
};
pub use table::{METRICS, Metric, examples, find, range};
