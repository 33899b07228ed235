//! Decoders of images that a vendor brings, in place of the processor.

use crate::engine_error::EngineError;

/// The weights of one axis of a resized image in fixed point: for each pixel of the result, the first pixel of the source and
/// `taps` weights from there on. Weights of pixels beyond the source are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisWeights {
    /// Number of weights of a pixel.
    pub taps: usize,
    /// The first pixel of the source.
    pub first: Vec<u32>,
    /// The weights, [`AxisWeights::FRACTION`] bits of which are the fraction.
    pub values: Vec<i32>,
}

impl AxisWeights {
    /// Fractional bits of a weight, as in PIL for 8-bit pixels: 32 minus 8 for the pixel and 2 in reserve.
    pub const FRACTION: u32 = 32 - 8 - 2;

    /// Returns the first pixel and the weights of each pixel of the result.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.first.iter().map(|first| *first as usize).zip(self.values.chunks_exact(self.taps))
    }
}

/// What the images of a decoder have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Width and height of a resized image.
    pub size: (usize, usize),
    /// Bytes of a value: 1, 2, 4 or 8.
    pub value_bytes: usize,
    /// The value of each of the 256 levels of red, then of green, then of blue.
    pub values: Vec<u8>,
}

/// What became of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStatus {
    /// Its values are written.
    Decoded,
    /// The decoder does not support the form of the file.
    Unsupported,
    /// The file is damaged.
    Damaged,
}

/// A JPEG file to decode, in YCbCr or grey.
#[derive(Debug)]
pub struct EncodedImage<'a> {
    /// The content of the file.
    pub file: &'a [u8],
    /// Width and height of the image in the file.
    pub size: (usize, usize),
    /// How its columns are resized, which comes first.
    pub columns: &'a AxisWeights,
    /// How its rows are resized.
    pub rows: &'a AxisWeights,
    /// Memory for the values, channel by channel.
    pub out: &'a mut [u8],
    /// What became of it.
    pub status: ImageStatus,
}

/// Decodes images of a batch.
pub trait ImageDecoder: Send {
    /// Returns the library and what decodes, such as `nvJPEG 13.0.1, hardware`.
    fn description(&self) -> String;

    /// Decodes images, and sets the status of each.
    ///
    /// # Errors
    /// When the decoder fails for a reason that does not lie in an image.
    fn decode(&mut self, images: &mut [EncodedImage<'_>]) -> Result<(), EngineError>;
}

/// A library with decoders.
pub trait DecoderLibrary: Send + Sync {
    /// Returns the name in the configuration.
    fn name(&self) -> &str;

    /// Creates a decoder; several may decode at once.
    ///
    /// # Errors
    /// When the device or a library is missing, or there is no memory.
    fn open(&self, options: &DecoderOptions) -> Result<Box<dyn ImageDecoder>, EngineError>;

    /// Returns the SHA-256 of the library's file, hexadecimal; `None` if it cannot be read.
    fn sha256(&self) -> Option<String>;
}
