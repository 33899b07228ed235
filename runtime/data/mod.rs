//! Datasets: where samples come from, what is done to each, and how they become batches.
//!
//! Knows no model and no metric; reads no clock.

mod batch;
mod class_list;
mod decode;
pub mod drawn;
mod fill;
mod image_folder;
mod loader;
mod pipeline;
mod pixels;
mod resize;
mod root;
mod slot;
mod synthetic;

pub use batch::{Batch, Dataset, Field, FieldRole, SampleError};
pub use loader::{LoadError, Loader, LoaderOptions, OnBadSample};
pub use pipeline::{DataError, Pipeline, SampleSource, Transform};
pub use root::DataRoot;
pub use slot::{Lend, RecycleError};
pub use synthetic::SAMPLE_BYTES_MAX;
