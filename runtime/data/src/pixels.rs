//! Converts decoded pixels to the inputs of a model: first the transforms of pixels, then those of their values.
//!
//! Knows nothing about file formats.

mod steps;
#[cfg(test)]
mod tests;
mod values;

use self::steps::{PixelStep, check_order, pixel_steps};
use self::values::LevelTable;
use super::augmentation::RandomErasing;
use super::geometry::{Geometry, Placement, Size, Step};
use super::random::SampleDraw;
use super::resize::ResizeScratch;
use super::{DataError, Transform};
use flagperf_core::image_decoder::{AxisWeights, DecoderOptions};
use flagperf_core::tensor::{DType, TensorSpec};

/// Number of channels, and of bytes, of an RGB pixel.
pub const CHANNELS: usize = 3;

/// The checked transforms of an image, ready to apply: those of pixels, then those that compute values.
pub struct ImageTransforms {
    steps: Vec<PixelStep>,
    /// Width and height of every transformed image.
    size: Size,
    dtype: DType,
    values: LevelTable,
    /// With the place of each in the pipeline.
    erasings: Vec<(usize, RandomErasing)>,
    descriptions: Vec<String>,
}

/// Memory that a thread reuses from image to image.
#[derive(Default)]
pub struct CropScratch {
    resize: ResizeScratch,
    front: Vec<u8>,
    back: Vec<u8>,
}

impl ImageTransforms {
    /// Checks `transforms` and prepares them to produce values of type `dtype`, unless they name another. Those of whole
    /// batches are ignored.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for an order without meaning or images of different sizes;
    /// [`DataError::UnsupportedType`] for an unsupported type.
    pub fn new(transforms: &[Transform], dtype: DType) -> Result<Self, DataError> {
        check_order(transforms).map_err(DataError::Transforms)?;
        let (steps, size) = pixel_steps(transforms).map_err(DataError::Transforms)?;
        let Some(size) = size else {
            let reason = "these transforms do not produce an image of a fixed shape";
            return Err(DataError::Transforms(reason.to_owned()));
        };
        let (values, dtype) = LevelTable::new(transforms, dtype)?;
        let erasing = |(place, transform): (usize, &Transform)| match transform {
            Transform::RandomErasing(erasing) => Some((place, erasing.clone())),
            _ => None,
        };
        let erasings = transforms.iter().enumerate().filter_map(erasing).collect();
        let descriptions = transforms.iter().map(ToString::to_string).collect();
        Ok(ImageTransforms { steps, size, dtype, values, erasings, descriptions })
    }

    /// Checks that the transforms apply to `truth`, such as `masks`, too: that they move it as they move the image.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for a policy, whose operations move the pixels of images only.
    pub fn check_truth(&self, truth: &str) -> Result<(), DataError> {
        match self.steps.iter().find_map(PixelStep::policy) {
            Some(policy) => {
                Err(DataError::Transforms(format!("`{policy}` moves pixels of images, but does not move {truth}")))
            }
            None => Ok(()),
        }
    }

    /// Returns what a decoder of whole batches needs to know of all images.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for transforms of pixels that such a decoder does not have.
    pub fn decoder_options(&self) -> Result<DecoderOptions, DataError> {
        let refused = |text: &str| {
            let supported = "`resize` with a filter of PIL, and `center_crop` after it";
            DataError::Transforms(format!(
                "a decoder of whole batches has only {supported}, not these transforms: {text}"
            ))
        };
        match &self.steps[..] {
            [PixelStep::Move(step)] if self.erasings.is_empty() && step.has_axis_weights() => {}
            _ => return Err(refused(&self.descriptions.join("; "))),
        }
        let values = self.values.bytes();
        Ok(DecoderOptions { size: self.size, value_bytes: self.dtype.size(), values: values.to_vec() })
    }

    /// Returns the weights of the columns and of the rows of an image of `size`, for a decoder of whole batches.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`], and where [`ImageTransforms::decoder_options`] fails.
    pub fn axis_weights(&self, size: Size) -> Result<[AxisWeights; 2], String> {
        match &self.steps[..] {
            [PixelStep::Move(step)] => step.axis_weights(size),
            _ => Err("the transforms are no sums of weighted pixels".to_owned()),
        }
    }

    /// Returns the levels of values, one each; `None` if one is not the value of a level of its channel.
    pub fn levels(&self, values: &[u8]) -> Option<Vec<u8>> {
        self.values.levels(values)
    }

    /// Returns a description of each transform, for the record.
    pub fn descriptions(&self) -> &[String] {
        &self.descriptions
    }

    /// Returns the width and the height of every transformed image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the shape and the type of a transformed image: `3,H,W`.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new([CHANNELS, self.size.1, self.size.0], self.dtype)
    }

    /// Returns the shape and the type of a transformed mask: `H,W,u8`.
    pub fn mask_spec(&self) -> TensorSpec {
        TensorSpec::new([self.size.1, self.size.0], DType::U8)
    }

    /// Returns the shape and the type of the mask of pixels that are no padding: `H,W,i64`.
    pub fn pixel_mask_spec(&self) -> TensorSpec {
        TensorSpec::new([self.size.1, self.size.0], DType::I64)
    }

    /// Transforms an RGB image of `size` and writes the values to `out`, channel by channel; those of the padding of `fit`
    /// are 0. Random transforms depend on `draw`.
    ///
    /// # Errors
    /// When the image is smaller than a crop, has another size than all others, or `out` has another length.
    pub fn apply(
        &self,
        rgb: &[u8],
        size: Size,
        draw: &SampleDraw,
        scratch: &mut CropScratch,
        out: &mut [u8],
    ) -> Result<(), String> {
        let CropScratch { resize, front, back } = scratch;
        let (mut found, mut changed) = (size, false);
        for step in &self.steps {
            match step {
                PixelStep::Move(step) => {
                    found = step.apply(if changed { front.as_slice() } else { rgb }, found, draw, resize, back)?;
                    std::mem::swap(front, back);
                }
                PixelStep::Change { place, change } => {
                    if !changed {
                        front.clear();
                        front.extend_from_slice(rgb);
                    }
                    change.apply(&mut draw.stream(*place), found, front, back);
                }
            }
            changed = true;
        }
        self.check_size(size, found)?;
        self.values.write_planes(if changed { front.as_slice() } else { rgb }, out)?;
        clear_padding(out, self.dtype.size(), self.size, self.filled(size, draw)?);
        for (place, erasing) in &self.erasings {
            erasing.apply(&mut draw.stream(*place), self.size, self.dtype, out);
        }
        Ok(())
    }

    /// Transforms a mask of `size` as the image of the sample and writes the labels to `out`, row by row.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`].
    pub fn apply_to_mask(&self, labels: Vec<u8>, size: Size, draw: &SampleDraw, out: &mut [u8]) -> Result<(), String> {
        let (mut labels, mut found) = (labels, size);
        for step in self.steps.iter().filter_map(PixelStep::moves) {
            (labels, found) = step.apply_to_mask(&labels, found, draw)?;
        }
        self.check_size(size, found)?;
        if labels.len() != out.len() {
            return Err(format!("{} labels for a field of {} bytes", labels.len(), out.len()));
        }
        out.copy_from_slice(&labels);
        Ok(())
    }

    /// Returns where the points of an image of `size` are after the transforms of the sample.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`].
    pub fn placement(&self, size: Size, draw: &SampleDraw) -> Result<Placement, String> {
        let mut moves = self.steps.iter().filter_map(PixelStep::moves);
        Ok(moves.try_fold((Placement::IDENTITY, size), |(before, size), step| step.placed(before, size, draw))?.0)
    }

    /// Writes 1 to `out` for each pixel that an image of `size` becomes, and 0 for the padding of `fit`, row by row.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`].
    pub fn write_pixel_mask(&self, size: Size, draw: &SampleDraw, out: &mut [u8]) -> Result<(), String> {
        let (width, height) = self.size;
        let mut mask = vec![1i64; width * height];
        let bytes = bytemuck::cast_slice_mut(&mut mask);
        clear_padding(bytes, size_of::<i64>(), self.size, self.filled(size, draw)?);
        if bytes.len() != out.len() {
            return Err(format!("{} bytes of a mask for a field of {}", bytes.len(), out.len()));
        }
        out.copy_from_slice(bytes);
        Ok(())
    }

    /// Checks that a mask of pixels would tell all padding from the image.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for a transform with padding that is a part of the image for a model.
    pub fn check_pixel_mask(&self) -> Result<(), DataError> {
        let is_padded = |step: &&Step| matches!(step.geometry, Geometry::Pad { .. } | Geometry::Letterbox { .. });
        match self.steps.iter().filter_map(PixelStep::moves).find(is_padded) {
            Some(Step { geometry, .. }) => {
                let reason = format!("`{geometry}` pads images, but a pixel mask has only the padding of `fit`");
                Err(DataError::Transforms(reason))
            }
            None => Ok(()),
        }
    }

    /// Returns the width and the height, from the top left, that are not padding of `fit`.
    fn filled(&self, size: Size, draw: &SampleDraw) -> Result<Size, String> {
        let mut moves = self.steps.iter().filter_map(PixelStep::moves);
        moves.try_fold(size, |size, step| step.filled(size, draw))
    }

    fn check_size(&self, size: Size, found: Size) -> Result<(), String> {
        let (width, height) = self.size;
        if found == self.size {
            return Ok(());
        }
        Err(format!("the image of {}x{} pixels becomes {}x{}, not {width}x{height}", size.0, size.1, found.0, found.1))
    }
}

/// Sets the values of every plane of `size` to 0 that are to the right of or below `filled`.
fn clear_padding(planes: &mut [u8], value_bytes: usize, size: Size, filled: Size) {
    if size == filled {
        return;
    }
    let row_bytes = size.0 * value_bytes;
    for (row, values) in planes.chunks_exact_mut(row_bytes).enumerate() {
        let kept = if row % size.1 < filled.1 { filled.0 } else { 0 };
        values[kept * value_bytes..].fill(0);
    }
}
