//! From decoded pixels to the values that a model takes: resize, centre crop, normalise, as torchvision does them.
//!
//! Knows no file format.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use half::f16;

use super::{DataError, Transform};
use crate::tensor::{DType, TensorSpec};

/// Bytes of an RGB pixel.
pub const CHANNELS: usize = 3;

/// The transforms of an image, checked and ready: `[resize], center_crop, normalize`.
pub struct ImageSteps {
    resize: Option<usize>,
    crop: usize,
    values: Values,
    text: Vec<String>,
}

/// The value of each channel for each of the 256 levels of a pixel.
enum Values {
    F32(Box<[[f32; 256]; CHANNELS]>),
    F16(Box<[[f16; 256]; CHANNELS]>),
}

/// Memory that one thread reuses from image to image.
#[derive(Default)]
pub struct CropScratch {
    resizer: Resizer,
    pixels: Vec<u8>,
}

impl ImageSteps {
    /// Checks `transforms`; the values are made as `dtype`.
    ///
    /// # Errors
    /// [`DataError::Transforms`] when they are others, or in another order; [`DataError::Type`].
    pub fn new(transforms: &[Transform], dtype: DType) -> Result<Self, DataError> {
        let refused = |reason: &str| Err(DataError::Transforms(reason.to_owned()));
        let (resize, rest) = match transforms {
            [Transform::Resize { size }, rest @ ..] => (Some(*size), rest),
            rest => (None, rest),
        };
        let [Transform::CenterCrop { size: crop }, Transform::Normalize { mean, std }] = rest else {
            return refused("these transforms make no image of a fixed shape");
        };
        if *crop == 0 || resize.is_some_and(|size| size < *crop) {
            return refused(&format!("cannot crop {crop} pixels from an image resized to {}", resize.unwrap_or(0)));
        }
        if std.contains(&0.0) {
            return refused("normalize divides by a standard deviation of 0");
        }
        let values = match dtype {
            DType::F32 => Values::F32(Box::new(normalized(mean, std, |value| value))),
            DType::F16 => Values::F16(Box::new(normalized(mean, std, f16::from_f32))),
            other => return Err(DataError::Type(other)),
        };
        Ok(ImageSteps { resize, crop: *crop, values, text: transforms.iter().map(ToString::to_string).collect() })
    }

    /// The steps as text, for the record.
    pub fn text(&self) -> &[String] {
        &self.text
    }

    /// Shape and type of an image: `3,H,W`.
    pub fn spec(&self) -> TensorSpec {
        let dtype = match self.values {
            Values::F32(_) => DType::F32,
            Values::F16(_) => DType::F16,
        };
        TensorSpec::new([CHANNELS, self.crop, self.crop], dtype)
    }

    /// Writes the values of an RGB image of `width` x `height` pixels to `out`, channel by channel.
    ///
    /// # Errors
    /// When the image is smaller than the crop.
    pub fn apply(
        &self,
        rgb: &[u8],
        (width, height): (usize, usize),
        scratch: &mut CropScratch,
        out: &mut [u8],
    ) -> Result<(), String> {
        let scaled = self.resize.map_or((width, height), |size| scaled((width, height), size));
        if scaled.0 < self.crop || scaled.1 < self.crop {
            return Err(format!("{width}x{height} pixels are fewer than the crop of {0}x{0}", self.crop));
        }
        scratch.pixels.resize(self.crop * self.crop * CHANNELS, 0);
        // Only the part that the crop keeps is computed: the filter still sees the pixels around it.
        let (left, crop_width) = source_range(width, scaled.0, self.crop);
        let (top, crop_height) = source_range(height, scaled.1, self.crop);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).crop(
            left,
            top,
            crop_width,
            crop_height,
        );
        let source = ImageRef::new(width as u32, height as u32, rgb, PixelType::U8x3).map_err(|e| e.to_string())?;
        let side = self.crop as u32;
        let mut cut =
            Image::from_slice_u8(side, side, &mut scratch.pixels, PixelType::U8x3).map_err(|e| e.to_string())?;
        scratch.resizer.resize(&source, &mut cut, &options).map_err(|e| e.to_string())?;
        match &self.values {
            Values::F32(values) => spread(&scratch.pixels, values, out),
            Values::F16(values) => spread(&scratch.pixels, values, out),
        }
    }
}

/// `(level / 255 - mean) / std` in f32, operation by operation as torchvision's `ToTensor` and `Normalize`.
fn normalized<T: Copy>(mean: &[f32; 3], std: &[f32; 3], to: impl Fn(f32) -> T) -> [[T; 256]; CHANNELS] {
    std::array::from_fn(|channel| {
        std::array::from_fn(|level| to((level as f32 / 255.0 - mean[channel]) / std[channel]))
    })
}

/// Width and height after scaling the shorter side to `size`; the longer is rounded down, as in torchvision's `Resize`.
fn scaled((width, height): (usize, usize), size: usize) -> (usize, usize) {
    if width <= height { (size, size * height / width) } else { (size * width / height, size) }
}

/// Where the middle `crop` of `scaled` pixels comes from in `original` pixels: start and length. The start before
/// scaling is rounded half to even, as in torchvision's `center_crop`.
fn source_range(original: usize, scaled: usize, crop: usize) -> (f64, f64) {
    let first = ((scaled - crop) as f64 / 2.0).round_ties_even();
    let (original, scaled) = (original as f64, scaled as f64);
    let start = first * original / scaled;
    (start, (crop as f64 * original / scaled).min(original - start))
}

/// Interleaved levels to planes of values.
fn spread<T: bytemuck::Pod>(rgb: &[u8], values: &[[T; 256]; CHANNELS], out: &mut [u8]) -> Result<(), String> {
    let out: &mut [T] =
        bytemuck::try_cast_slice_mut(out).map_err(|error| format!("the memory lent for the sample: {error}"))?;
    for (channel, plane) in out.chunks_exact_mut(rgb.len() / CHANNELS).enumerate() {
        for (value, pixel) in plane.iter_mut().zip(rgb.chunks_exact(CHANNELS)) {
            *value = values[channel][usize::from(pixel[channel])];
        }
    }
    Ok(())
}
