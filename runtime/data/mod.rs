//! Datasets: the sources of samples, the transforms applied to them, and their assembly into batches.
//!
//! Knows nothing about models and metrics; reads no clock.

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
pub use loader::{BadSamplePolicy, LoadError, Loader, LoaderOptions};
pub use pipeline::{DataError, Pipeline, SampleSource, Transform};
pub use root::DataRoot;
pub use slot::{MemoryLender, RecycleError};
pub use synthetic::SAMPLE_BYTES_MAX;
