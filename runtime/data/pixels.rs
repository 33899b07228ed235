//! From decoded pixels to the input values of a model: resize, centre crop and normalise, as torchvision does.
//!
//! Knows nothing about file formats.

use std::ops::Range;

use half::{bf16, f16};

use super::resize::{Axis, ResizeScratch, resize};
use super::{DataError, Transform};
use crate::tensor::{DType, TensorSpec};

/// Number of channels, and of bytes, of an RGB pixel.
pub const CHANNELS: usize = 3;

/// The checked transforms of an image, ready to apply: `[resize], center_crop, normalize`.
pub struct ImageTransforms {
    resize: Option<usize>,
    crop: usize,
    values: LevelTable,
    descriptions: Vec<String>,
}

/// The normalised value for each channel and each of the 256 levels of a pixel.
enum LevelTable {
    F32(Box<[[f32; 256]; CHANNELS]>),
    F16(Box<[[f16; 256]; CHANNELS]>),
    BF16(Box<[[bf16; 256]; CHANNELS]>),
}

/// Memory that a thread reuses from image to image.
#[derive(Default)]
pub struct CropScratch {
    resize: ResizeScratch,
    pixels: Vec<u8>,
}

impl ImageTransforms {
    /// Checks `transforms` and prepares them to produce values of type `dtype`.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for other transforms or another order; [`DataError::UnsupportedType`] for an
    /// unsupported `dtype`.
    pub fn new(transforms: &[Transform], dtype: DType) -> Result<Self, DataError> {
        let unsupported = |reason: &str| Err(DataError::Transforms(reason.to_owned()));
        let (resize, rest) = match transforms {
            [Transform::Resize { size }, rest @ ..] => (Some(*size), rest),
            rest => (None, rest),
        };
        let [Transform::CenterCrop { size: crop }, Transform::Normalize { mean, std }] = rest else {
            return unsupported("these transforms do not produce an image of a fixed shape");
        };
        if *crop == 0 || resize.is_some_and(|size| size < *crop) {
            return unsupported(&format!("cannot crop {crop} pixels from an image resized to {}", resize.unwrap_or(0)));
        }
        if std.contains(&0.0) {
            return unsupported("normalize would divide by a standard deviation of 0");
        }
        let values = match dtype {
            DType::F32 => LevelTable::F32(Box::new(level_table(mean, std, |value| value))),
            DType::F16 => LevelTable::F16(Box::new(level_table(mean, std, f16::from_f32))),
            DType::BF16 => LevelTable::BF16(Box::new(level_table(mean, std, bf16::from_f32))),
            other => return Err(DataError::UnsupportedType(other)),
        };
        Ok(ImageTransforms {
            resize,
            crop: *crop,
            values,
            descriptions: transforms.iter().map(ToString::to_string).collect(),
        })
    }

    /// Returns a description of each transform, for the record.
    pub fn descriptions(&self) -> &[String] {
        &self.descriptions
    }

    /// Returns the shape and the type of a transformed image: `3,H,W`.
    pub fn spec(&self) -> TensorSpec {
        let dtype = match self.values {
            LevelTable::F32(_) => DType::F32,
            LevelTable::F16(_) => DType::F16,
            LevelTable::BF16(_) => DType::BF16,
        };
        TensorSpec::new([CHANNELS, self.crop, self.crop], dtype)
    }

    /// Transforms an RGB image of `width` x `height` pixels and writes the values to `out`, channel by channel.
    ///
    /// # Errors
    /// When the resized image is smaller than the crop, or `out` is not aligned for the values.
    pub fn apply(
        &self,
        rgb: &[u8],
        (width, height): (usize, usize),
        scratch: &mut CropScratch,
        out: &mut [u8],
    ) -> Result<(), String> {
        let scaled = self.resize.map_or((width, height), |size| scaled_size((width, height), size));
        if scaled.0 < self.crop || scaled.1 < self.crop {
            return Err(format!("the image of {width}x{height} pixels is smaller than the crop of {0}x{0}", self.crop));
        }
        scratch.pixels.resize(self.crop * self.crop * CHANNELS, 0);
        let axis = |source, scaled| Axis { source, scaled, kept: central_range(scaled, self.crop) };
        let (columns, rows) = (axis(width, scaled.0), axis(height, scaled.1));
        resize(rgb, &columns, &rows, &mut scratch.resize, &mut scratch.pixels);
        match &self.values {
            LevelTable::F32(values) => write_planes(&scratch.pixels, values, out),
            LevelTable::F16(values) => write_planes(&scratch.pixels, values, out),
            LevelTable::BF16(values) => write_planes(&scratch.pixels, values, out),
        }
    }
}

/// Computes `(level / 255 - mean) / std` in f32 for every level and channel, with the same operations as torchvision's
/// `ToTensor` and `Normalize`.
fn level_table<T: Copy>(mean: &[f32; 3], std: &[f32; 3], to: impl Fn(f32) -> T) -> [[T; 256]; CHANNELS] {
    std::array::from_fn(|channel| {
        std::array::from_fn(|level| to((level as f32 / 255.0 - mean[channel]) / std[channel]))
    })
}

/// Returns the width and height after scaling the shorter side to `size`; the longer side is rounded down, as in
/// torchvision's `Resize`.
fn scaled_size((width, height): (usize, usize), size: usize) -> (usize, usize) {
    if width <= height { (size, size * height / width) } else { (size * width / height, size) }
}

/// Returns the range of the central `crop` of `scaled` pixels; the start is rounded half to even, as in torchvision's
/// `center_crop`.
fn central_range(scaled: usize, crop: usize) -> Range<usize> {
    let first = ((scaled - crop) as f64 / 2.0).round_ties_even() as usize;
    first..first + crop
}

/// Converts interleaved levels to one plane of values per channel.
fn write_planes<T: bytemuck::Pod>(rgb: &[u8], values: &[[T; 256]; CHANNELS], out: &mut [u8]) -> Result<(), String> {
    let out: &mut [T] = bytemuck::try_cast_slice_mut(out)
        .map_err(|error| format!("cannot write to the memory of the sample: {error}"))?;
    for (channel, plane) in out.chunks_exact_mut(rgb.len() / CHANNELS).enumerate() {
        for (value, pixel) in plane.iter_mut().zip(rgb.chunks_exact(CHANNELS)) {
            *value = values[channel][usize::from(pixel[channel])];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMALIZE: Transform = Transform::Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    fn image_transforms(size: usize, crop: usize, dtype: DType) -> ImageTransforms {
        let transforms = [Transform::Resize { size }, Transform::CenterCrop { size: crop }, NORMALIZE];
        ImageTransforms::new(&transforms, dtype).unwrap()
    }

    /// Creates an image with gradients that differ by direction and channel.
    fn image(width: usize, height: usize) -> Vec<u8> {
        let level = |at: usize| {
            let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
            ((x * (3 + channel) + y * (7 - channel)) % 509 / 2) as u8
        };
        (0..width * height * 3).map(level).collect()
    }

    fn apply<T: bytemuck::Pod>(image_transforms: &ImageTransforms, rgb: &[u8], size: (usize, usize)) -> Vec<T> {
        let mut out = vec![T::zeroed(); image_transforms.crop * image_transforms.crop * 3];
        image_transforms.apply(rgb, size, &mut CropScratch::default(), bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    #[test]
    fn the_longer_side_is_rounded_down_as_in_torchvision() {
        for (size, expected) in [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((300, 300), (256, 256))] {
            assert_eq!(scaled_size(size, 256), expected);
        }
        assert_eq!(scaled_size((100, 1), 256), (25600, 256));
    }

    #[test]
    fn the_start_of_the_crop_is_rounded_half_to_even_as_in_torchvision() {
        assert_eq!(central_range(341, 224), 58..282, "58.5 is rounded to 58");
        assert_eq!(central_range(343, 224), 60..284, "59.5 is rounded to 60");
    }

    #[test]
    fn values_are_normalised_and_ordered_by_channel() {
        let rgb = [255, 0, 51].repeat(4);
        let image_transforms =
            ImageTransforms::new(&[Transform::CenterCrop { size: 2 }, NORMALIZE], DType::F32).unwrap();
        let expected = [(1.0 - 0.485) / 0.229, (0.0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225f32];
        let values = apply::<f32>(&image_transforms, &rgb, (2, 2));
        for (channel, plane) in values.chunks_exact(4).enumerate() {
            assert!(plane.iter().all(|value| (value - expected[channel]).abs() < 1e-6), "{values:?}");
        }
    }

    #[test]
    fn half_precision_values_are_rounded_single_precision_values() {
        let (rgb, size) = (image(300, 260), (300, 260));
        let single = apply::<f32>(&image_transforms(256, 224, DType::F32), &rgb, size);
        let half = apply::<f16>(&image_transforms(256, 224, DType::F16), &rgb, size);
        assert!(single.iter().zip(&half).all(|(single, half)| f16::from_f32(*single) == *half));
    }

    #[test]
    fn an_image_smaller_than_the_crop_is_refused() {
        let image_transforms =
            ImageTransforms::new(&[Transform::CenterCrop { size: 8 }, NORMALIZE], DType::F32).unwrap();
        let result = image_transforms.apply(&image(9, 7), (9, 7), &mut CropScratch::default(), &mut [0; 8 * 8 * 3 * 4]);
        assert_eq!(result.unwrap_err(), "the image of 9x7 pixels is smaller than the crop of 8x8");
    }

    #[test]
    fn unsupported_transforms_are_reported_with_the_supported_order() {
        let crop = |size| Transform::CenterCrop { size };
        for transforms in
            [vec![], vec![NORMALIZE, crop(4)], vec![crop(4)], vec![Transform::Resize { size: 3 }, crop(4), NORMALIZE]]
        {
            let error = ImageTransforms::new(&transforms, DType::F32).err().unwrap();
            assert!(error.to_string().contains("resize, center_crop, normalize"), "{error}");
        }
        let error = ImageTransforms::new(&[crop(4), NORMALIZE], DType::I64).err().unwrap();
        assert_eq!(error, DataError::UnsupportedType(DType::I64));
    }
}
