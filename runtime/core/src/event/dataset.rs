//! What is known of a dataset, of the decoder of its images, and of how it is loaded.

use serde::{Deserialize, Serialize};

use crate::units::{SamplesPerSecond, null_is_nan};

/// Properties of a dataset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct DatasetFacts {
    /// Path or description of the location.
    pub location: String,
    /// Number of samples.
    pub samples: u64,
    /// SHA-256 over the index (names, sizes and classes in order), hexadecimal.
    pub index_sha256: String,
    /// The transforms that are applied to every sample, as text.
    pub pipeline: Vec<String>,
    /// Whether flagperf generated the data itself, so that accuracy is meaningless.
    pub synthetic: bool,
    /// What decoded the images; `None` for flagperf itself, on the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<DecoderFacts>,
    /// The search for threads and batches before the measurement; `None` if the configuration states them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading: Option<LoadingSearch>,
}

/// A vendor's decoder of images, and how its pixels compare with those of flagperf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct DecoderFacts {
    /// The name in the configuration.
    pub name: String,
    /// The library and what decodes, as the decoder states it: `nvJPEG 13.0.1, hardware`.
    pub description: String,
    /// SHA-256 of the library, hexadecimal.
    pub library_sha256: Option<String>,
    /// Number of images that it decoded.
    pub images: u64,
    /// Number of images that flagperf decoded on the processor, because the decoder does not support them.
    pub on_processor: u64,
    /// Number of images whose values were compared with those of flagperf after the measurement.
    pub compared: u64,
    /// Largest difference of a value in levels of 8 bits.
    pub largest_difference: u8,
    /// Mean difference of the values in levels of 8 bits.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub mean_difference: f64,
}

/// What a search for more threads that load data, and for more batches that are read ahead, has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct LoadingSearch {
    /// What was tried, in order. Each ran for about two seconds or one pass.
    pub tried: Vec<LoadingTrial>,
    /// The index of what the measurement uses.
    pub chosen: usize,
}

/// A number of threads and of batches with the speed that it has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct LoadingTrial {
    /// Threads that load data.
    pub num_workers: u32,
    /// Batches that are read ahead.
    pub prefetch: u32,
    /// Samples per second from an empty queue, with loading, the model and the copy of outputs.
    pub samples_per_s: SamplesPerSecond,
}
