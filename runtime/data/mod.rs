//! Datasets: where samples come from, what is done to each, and how they become batches.
//!
//! Knows no model and no metric; reads no clock.

mod batch;
mod pipeline;

pub use batch::{Batch, Dataset, Field, FieldRole, SampleError};
pub use pipeline::{DataError, Pipeline, SampleSource, Transform};
