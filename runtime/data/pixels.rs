//! From decoded pixels to the values that a model takes: resize, centre crop, normalise, as torchvision does them.
//!
//! Knows no file format.

use std::ops::Range;

use half::f16;

use super::resize::{Axis, ResizeScratch, resize};
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
    resize: ResizeScratch,
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
        let axis = |source, scaled| Axis { source, scaled, kept: middle(scaled, self.crop) };
        let (columns, rows) = (axis(width, scaled.0), axis(height, scaled.1));
        resize(rgb, &columns, &rows, &mut scratch.resize, &mut scratch.pixels);
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

/// The middle `crop` of `scaled` pixels; the start is rounded half to even, as in torchvision's `center_crop`.
fn middle(scaled: usize, crop: usize) -> Range<usize> {
    let first = ((scaled - crop) as f64 / 2.0).round_ties_even() as usize;
    first..first + crop
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

#[cfg(test)]
mod tests {
    use super::*;

    const NORMALIZE: Transform = Transform::Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    fn steps(size: usize, crop: usize, dtype: DType) -> ImageSteps {
        let transforms = [Transform::Resize { size }, Transform::CenterCrop { size: crop }, NORMALIZE];
        ImageSteps::new(&transforms, dtype).unwrap()
    }

    /// Hills that differ in every direction and channel.
    fn image(width: usize, height: usize) -> Vec<u8> {
        let level = |at: usize| {
            let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
            ((x * (3 + channel) + y * (7 - channel)) % 509 / 2) as u8
        };
        (0..width * height * 3).map(level).collect()
    }

    fn apply<T: bytemuck::Pod>(steps: &ImageSteps, rgb: &[u8], size: (usize, usize)) -> Vec<T> {
        let mut out = vec![T::zeroed(); steps.crop * steps.crop * 3];
        steps.apply(rgb, size, &mut CropScratch::default(), bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    #[test]
    fn the_longer_side_is_rounded_down_as_torchvision_does() {
        for (size, expected) in [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((300, 300), (256, 256))] {
            assert_eq!(scaled(size, 256), expected);
        }
        assert_eq!(scaled((100, 1), 256), (25600, 256));
    }

    #[test]
    fn the_crop_begins_half_to_even_as_torchvision_does() {
        assert_eq!(middle(341, 224), 58..282, "58.5 goes to 58");
        assert_eq!(middle(343, 224), 60..284, "59.5 goes to 60");
    }

    #[test]
    fn values_stand_channel_by_channel_and_normalised() {
        let rgb = [255, 0, 51].repeat(4);
        let steps = ImageSteps::new(&[Transform::CenterCrop { size: 2 }, NORMALIZE], DType::F32).unwrap();
        let expected = [(1.0 - 0.485) / 0.229, (0.0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225f32];
        let values = apply::<f32>(&steps, &rgb, (2, 2));
        for (channel, plane) in values.chunks_exact(4).enumerate() {
            assert!(plane.iter().all(|value| (value - expected[channel]).abs() < 1e-6), "{values:?}");
        }
    }

    #[test]
    fn half_precision_is_single_precision_rounded() {
        let (rgb, size) = (image(300, 260), (300, 260));
        let single = apply::<f32>(&steps(256, 224, DType::F32), &rgb, size);
        let half = apply::<f16>(&steps(256, 224, DType::F16), &rgb, size);
        assert!(single.iter().zip(&half).all(|(single, half)| f16::from_f32(*single) == *half));
    }

    #[test]
    fn an_image_smaller_than_the_crop_is_refused() {
        let steps = ImageSteps::new(&[Transform::CenterCrop { size: 8 }, NORMALIZE], DType::F32).unwrap();
        let refused = steps.apply(&image(9, 7), (9, 7), &mut CropScratch::default(), &mut [0; 8 * 8 * 3 * 4]);
        assert_eq!(refused.unwrap_err(), "9x7 pixels are fewer than the crop of 8x8");
    }

    #[test]
    fn transforms_that_fit_no_fixed_shape_name_the_known_order() {
        let crop = |size| Transform::CenterCrop { size };
        for transforms in
            [vec![], vec![NORMALIZE, crop(4)], vec![crop(4)], vec![Transform::Resize { size: 3 }, crop(4), NORMALIZE]]
        {
            let error = ImageSteps::new(&transforms, DType::F32).err().unwrap();
            assert!(error.to_string().contains("resize, center_crop, normalize"), "{error}");
        }
        let error = ImageSteps::new(&[crop(4), NORMALIZE], DType::I64).err().unwrap();
        assert_eq!(error, DataError::Type(DType::I64));
    }
}
