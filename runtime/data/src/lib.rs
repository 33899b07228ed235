//! Datasets: the sources of samples, the transforms applied to them, and their assembly into batches.
//!
//! Knows nothing about models and metrics; reads no clock.

mod array_file;
mod arrays;
mod augmentation;
mod batch;
mod batch_decoder;
mod class_list;
mod coco;
mod data_file;
mod decode;
pub mod drawn;
mod error;
mod fill;
mod geometry;
mod held_samples;
mod hdf5;
mod image_file;
mod image_folder;
mod image_masks;
mod indexed_file;
mod line_file;
mod loader;
mod masking;
mod mixing;
mod padding;
mod perturbation;
mod pipeline;
mod pixels;
mod prompts;
mod questions;
mod random;
mod repeated;
mod resize;
mod root;
mod sampler;
mod slot;
mod squad;
pub mod stored_files;
mod synthetic;
mod tokenizer;
mod tokens;
mod transform;

pub use array_file::StoredType;
pub use arrays::ArrayField;
pub use augmentation::{
    ColorJitter, CropRange, ErasedValue, Interpolation, Outside, Policy, PolicyKind, RandomErasing,
};
pub use batch::{Batch, Dataset, Field, FieldRole, OpenLength, SampleError};
pub use batch_decoder::check_decoder;
pub use coco::CocoOptions;
pub use error::DataError;
pub use geometry::{Fit, Geometry, Target};
pub use hdf5::{Hdf5Field, Hdf5Options};
pub use held_samples::HeldSamples;
pub use image_masks::ImageMaskOptions;
pub use loader::{BadSamplePolicy, BatchRequest, LoadError, Loader, LoaderOptions};
pub use masking::Masking;
pub use mixing::{Mix, Mixing};
pub use padding::{PaddingOptions, PaddingSide};
pub use perturbation::Perturbation;
pub use pipeline::{DataCheck, Pipeline, SampleSource};
pub use prompts::{NumberList, PromptOptions};
pub use questions::QuestionOptions;
pub use random::Epoch;
pub use resize::Filter;
pub use root::DataRoot;
pub use sampler::TrainingSampler;
pub use slot::{MemoryLender, RecycleError};
pub use squad::SquadOptions;
pub use synthetic::{SAMPLE_BYTES_MAX, SyntheticField};
pub use tokenizer::{TextTokenizer, TokenizerFiles};
pub use tokens::TokenStreamOptions;
pub use transform::Transform;
