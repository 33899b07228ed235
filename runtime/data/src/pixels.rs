//! Converts decoded pixels to the inputs of a model: first the transforms that move pixels, then those of their values.
//!
//! Knows nothing about file formats.

use half::{bf16, f16};

use super::geometry::{Geometry, Placement, Size, Step, Target};
use super::resize::ResizeScratch;
use super::{DataError, Transform};
use flagperf_core::tensor::{DType, TensorSpec};

/// Number of channels, and of bytes, of an RGB pixel.
pub const CHANNELS: usize = 3;

/// The checked transforms of an image, ready to apply: those that move pixels, then those that compute values.
pub struct ImageTransforms {
    steps: Vec<Step>,
    /// Width and height of every transformed image.
    size: Size,
    dtype: DType,
    values: LevelTable,
    descriptions: Vec<String>,
}

/// The bytes of the value for each channel and each of the 256 levels of a pixel, by the size of a value.
enum LevelTable {
    One(Box<[[[u8; 1]; 256]; CHANNELS]>),
    Two(Box<[[[u8; 2]; 256]; CHANNELS]>),
    Four(Box<[[[u8; 4]; 256]; CHANNELS]>),
    Eight(Box<[[[u8; 8]; 256]; CHANNELS]>),
}

/// Memory that a thread reuses from image to image.
#[derive(Default)]
pub struct CropScratch {
    resize: ResizeScratch,
    front: Vec<u8>,
    back: Vec<u8>,
}

/// How a level becomes a value: `(level * factor - mean) / std`, and the type of the values.
struct Values {
    factor: Option<f32>,
    normalize: Option<([f32; 3], [f32; 3])>,
    dtype: DType,
}

impl ImageTransforms {
    /// Checks `transforms` and prepares them to produce values of type `dtype`, unless they name another.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for an order without meaning or images of different sizes;
    /// [`DataError::UnsupportedType`] for an unsupported type.
    pub fn new(transforms: &[Transform], dtype: DType) -> Result<Self, DataError> {
        let unsupported = DataError::Transforms;
        let geometry = |transform: &Transform| match transform {
            Transform::Geometry(geometry) => Some(geometry.clone()),
            _ => None,
        };
        let moves: Vec<Geometry> = transforms.iter().map_while(geometry).collect();
        let values = &transforms[moves.len()..];
        if let Some(late) = values.iter().find(|transform| matches!(transform, Transform::Geometry(_))) {
            let reason = format!("`{late}` moves pixels: place it before `{}`", values[0]);
            return Err(unsupported(reason));
        }
        let (steps, size) = steps(moves).map_err(unsupported)?;
        let Some(size) = size else {
            return Err(unsupported("these transforms do not produce an image of a fixed shape".to_owned()));
        };
        let values = values_of(values, dtype).map_err(unsupported)?;
        let dtype = values.dtype;
        let values = level_table(&values).ok_or(DataError::UnsupportedType(dtype))?;
        let descriptions = transforms.iter().map(ToString::to_string).collect();
        Ok(ImageTransforms { steps, size, dtype, values, descriptions })
    }

    /// Returns a description of each transform, for the record.
    pub fn descriptions(&self) -> &[String] {
        &self.descriptions
    }

    /// Returns the shape and the type of a transformed image: `3,H,W`.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new([CHANNELS, self.size.1, self.size.0], self.dtype)
    }

    /// Returns the shape and the type of a transformed mask: `H,W,u8`.
    pub fn mask_spec(&self) -> TensorSpec {
        TensorSpec::new([self.size.1, self.size.0], DType::U8)
    }

    /// Transforms an RGB image of `size` and writes the values to `out`, channel by channel. `index` is that of the
    /// sample, for transforms that draw random numbers.
    ///
    /// # Errors
    /// When the image is smaller than a crop, has another size than all others, or `out` has another length.
    pub fn apply(
        &self,
        rgb: &[u8],
        size: Size,
        index: u64,
        scratch: &mut CropScratch,
        out: &mut [u8],
    ) -> Result<(), String> {
        let CropScratch { resize, front, back } = scratch;
        let (mut found, mut moved) = (size, false);
        for step in &self.steps {
            found = step.apply(if moved { front.as_slice() } else { rgb }, found, index, resize, back)?;
            std::mem::swap(front, back);
            moved = true;
        }
        self.check_size(size, found)?;
        let pixels = if moved { front.as_slice() } else { rgb };
        match &self.values {
            LevelTable::One(values) => write_planes(pixels, values, out),
            LevelTable::Two(values) => write_planes(pixels, values, out),
            LevelTable::Four(values) => write_planes(pixels, values, out),
            LevelTable::Eight(values) => write_planes(pixels, values, out),
        }
    }

    /// Transforms a mask of `size` as the image of the sample `index` and writes the labels to `out`, row by row.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`].
    pub fn apply_to_mask(&self, labels: Vec<u8>, size: Size, index: u64, out: &mut [u8]) -> Result<(), String> {
        let (mut labels, mut found) = (labels, size);
        for step in &self.steps {
            (labels, found) = step.apply_to_mask(&labels, found, index)?;
        }
        self.check_size(size, found)?;
        if labels.len() != out.len() {
            return Err(format!("{} labels for a field of {} bytes", labels.len(), out.len()));
        }
        out.copy_from_slice(&labels);
        Ok(())
    }

    /// Returns where the points of an image of `size` are after the transforms; `index` is that of the sample.
    ///
    /// # Errors
    /// As [`ImageTransforms::apply`].
    pub fn placement(&self, size: Size, index: u64) -> Result<Placement, String> {
        let place = |(placement, size), step: &Step| step.place(placement, size, index);
        Ok(self.steps.iter().try_fold((Placement::IDENTITY, size), place)?.0)
    }

    fn check_size(&self, size: Size, found: Size) -> Result<(), String> {
        let (width, height) = self.size;
        if found == self.size {
            return Ok(());
        }
        Err(format!("the image of {}x{} pixels becomes {}x{}, not {width}x{height}", size.0, size.1, found.0, found.1))
    }
}

/// Combines central crops with the transforms before them, and returns the size of the result if it is the same for every
/// image.
fn steps(transforms: Vec<Geometry>) -> Result<(Vec<Step>, Option<Size>), String> {
    let (mut steps, mut size): (Vec<Step>, Option<Size>) = (Vec::new(), None);
    // The shorter side, while only that is known.
    let mut shorter = None;
    for geometry in transforms {
        match geometry {
            Geometry::Resize { target: Target::Shorter(side), .. } => (shorter, size) = (Some(side), None),
            Geometry::Resize { target: Target::Exactly(target), .. } | Geometry::Letterbox { size: target, .. } => {
                size = Some(target);
            }
            Geometry::CenterCrop(crop) => {
                check_crop(crop, (0, 0), size, shorter)?;
                size = Some(crop);
                if let Some(Step { geometry: Geometry::Resize { .. }, centre: centre @ None }) = steps.last_mut() {
                    *centre = Some(crop);
                    continue;
                }
            }
            Geometry::Crop { left, top, size: crop } => {
                check_crop(crop, (left, top), size, None)?;
                size = Some(crop);
            }
            Geometry::Pad { sides: [left, top, right, bottom], .. } => {
                size = size.map(|(width, height)| (width + left + right, height + top + bottom));
                shorter = None;
            }
            Geometry::Flip { .. } => {}
        }
        steps.push(Step { geometry, centre: None });
    }
    Ok((steps, size))
}

/// Refuses a crop that no image of the known size contains.
fn check_crop(crop: Size, at: Size, size: Option<Size>, shorter: Option<usize>) -> Result<(), String> {
    let known = size.or(shorter.map(|side| (side, side)));
    match known {
        _ if crop.0 == 0 || crop.1 == 0 => Err("a crop must have at least one pixel".to_owned()),
        Some((width, height)) if crop.0 + at.0 > width || crop.1 + at.1 > height => {
            let side = if crop.0 == crop.1 { crop.0.to_string() } else { format!("{}x{}", crop.0, crop.1) };
            let whole = if width == height { width.to_string() } else { format!("{width}x{height}") };
            Err(format!("cannot crop {side} pixels from an image resized to {whole}"))
        }
        _ => Ok(()),
    }
}

/// Returns how levels become values.
fn values_of(transforms: &[Transform], dtype: DType) -> Result<Values, String> {
    let mut values = Values { factor: None, normalize: None, dtype };
    let mut has_type = false;
    for transform in transforms {
        match *transform {
            _ if has_type => return Err(format!("`{transform}` follows `to`, which must be the last transform")),
            Transform::Scale { factor } if values.factor.is_none() && values.normalize.is_none() => {
                values.factor = Some(factor);
            }
            Transform::Normalize { mean, std } if values.normalize.is_none() => {
                if std.contains(&0.0) {
                    return Err("normalize would divide by a standard deviation of 0".to_owned());
                }
                values.normalize = Some((mean, std));
            }
            Transform::To { dtype } => (values.dtype, has_type) = (dtype, true),
            _ => return Err(format!("`{transform}` is applied twice or after `normalize`")),
        }
    }
    let computes = values.factor.is_some() || values.normalize.is_some();
    if computes && !values.dtype.is_float() {
        let name = values.dtype.name();
        return Err(format!("scaled or normalised values are fractions, which the type `{name}` cannot hold"));
    }
    Ok(values)
}

/// Computes the value of every level and channel in f32 with the same operations as torchvision's `ToTensor` and
/// `Normalize`; `None` for an unsupported type.
fn level_table(values: &Values) -> Option<LevelTable> {
    let value = |channel: usize, level: usize| {
        let level = level as f32;
        // `ToTensor` divides; the product with 1/255 would round differently.
        let scaled = match (values.factor, values.normalize) {
            (Some(factor), _) => level * factor,
            (None, Some(_)) => level / 255.0,
            (None, None) => level,
        };
        values.normalize.map_or(scaled, |(mean, std)| (scaled - mean[channel]) / std[channel])
    };
    Some(match values.dtype {
        DType::F64 => LevelTable::Eight(table(|c, l| f64::from(value(c, l)).to_ne_bytes())),
        DType::F32 => LevelTable::Four(table(|c, l| value(c, l).to_ne_bytes())),
        DType::F16 => LevelTable::Two(table(|c, l| f16::from_f32(value(c, l)).to_ne_bytes())),
        DType::BF16 => LevelTable::Two(table(|c, l| bf16::from_f32(value(c, l)).to_ne_bytes())),
        DType::I64 => LevelTable::Eight(table(|_, l| (l as i64).to_ne_bytes())),
        DType::I32 => LevelTable::Four(table(|_, l| (l as i32).to_ne_bytes())),
        DType::U8 => LevelTable::One(table(|_, l| [l as u8])),
        DType::I8 | DType::Bool => return None,
    })
}

fn table<const N: usize>(value: impl Fn(usize, usize) -> [u8; N]) -> Box<[[[u8; N]; 256]; CHANNELS]> {
    Box::new(std::array::from_fn(|channel| std::array::from_fn(|level| value(channel, level))))
}

/// Converts interleaved levels to one plane of values per channel.
fn write_planes<const N: usize>(rgb: &[u8], values: &[[[u8; N]; 256]; CHANNELS], out: &mut [u8]) -> Result<(), String> {
    let (out, rest) = out.as_chunks_mut::<N>();
    if !rest.is_empty() || out.len() != rgb.len() {
        return Err(format!("{} values for a field of {}", rgb.len(), out.len()));
    }
    for (channel, plane) in out.chunks_exact_mut((rgb.len() / CHANNELS).max(1)).enumerate() {
        for (value, pixel) in plane.iter_mut().zip(rgb.chunks_exact(CHANNELS)) {
            *value = values[channel][usize::from(pixel[channel])];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;

    const NORMALIZE: Transform = Transform::Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    fn resize(size: usize) -> Transform {
        Transform::Geometry(Geometry::Resize { target: Target::Shorter(size), filter: Filter::Bilinear })
    }

    fn crop_to(size: usize) -> Transform {
        Transform::Geometry(Geometry::CenterCrop((size, size)))
    }

    fn image_transforms(size: usize, crop: usize, dtype: DType) -> ImageTransforms {
        let transforms = [resize(size), crop_to(crop), NORMALIZE];
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
        let mut out = vec![T::zeroed(); image_transforms.size.0 * image_transforms.size.1 * 3];
        image_transforms.apply(rgb, size, 0, &mut CropScratch::default(), bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    #[test]
    fn values_are_normalised_and_ordered_by_channel() {
        let rgb = [255, 0, 51].repeat(4);
        let image_transforms = ImageTransforms::new(&[crop_to(2), NORMALIZE], DType::F32).unwrap();
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
        let image_transforms = ImageTransforms::new(&[crop_to(8), NORMALIZE], DType::F32).unwrap();
        let result =
            image_transforms.apply(&image(9, 7), (9, 7), 0, &mut CropScratch::default(), &mut [0; 8 * 8 * 3 * 4]);
        assert_eq!(result.unwrap_err(), "the image of 9x7 pixels is smaller than the crop of 8x8");
    }

    fn refused(transforms: &[Transform], dtype: DType) -> String {
        ImageTransforms::new(transforms, dtype).err().unwrap().to_string()
    }

    #[test]
    fn transforms_without_a_fixed_shape_or_meaning_are_refused_with_the_reason() {
        let reason = |transforms: &[Transform]| refused(transforms, DType::F32);
        assert!(reason(&[NORMALIZE]).starts_with("these transforms do not produce an image of a fixed shape ("));
        assert!(
            reason(&[NORMALIZE, crop_to(4)]).starts_with("`center_crop 4` moves pixels: place it before `normalize")
        );
        assert!(reason(&[resize(3), crop_to(4)]).starts_with("cannot crop 4 pixels from an image resized to 3"));
        assert!(reason(&[crop_to(4), NORMALIZE, NORMALIZE]).contains("is applied twice or after `normalize`"));
        let to = Transform::To { dtype: DType::U8 };
        assert!(
            reason(&[crop_to(4), to.clone(), NORMALIZE]).contains("follows `to`, which must be the last transform")
        );
        assert!(reason(&[crop_to(4), NORMALIZE, to]).contains("the type `u8` cannot hold"));
        let bool = refused(&[crop_to(4)], DType::Bool);
        assert_eq!(bool, DataError::UnsupportedType(DType::Bool).to_string());
    }

    #[test]
    fn transforms_compose_in_any_order_that_has_a_meaning() {
        let shape = |transforms: &[Transform]| ImageTransforms::new(transforms, DType::F32).unwrap().spec().to_string();
        let wide = Transform::Geometry(Geometry::Resize { target: Target::Exactly((8, 6)), filter: Filter::Bicubic });
        assert_eq!(shape(std::slice::from_ref(&wide)), "3,6,8,f32");
        let pad = Transform::Geometry(Geometry::Pad { sides: [1, 2, 3, 4], level: 0 });
        assert_eq!(shape(&[wide.clone(), pad, crop_to(5)]), "3,5,5,f32");
        let flip = Transform::Geometry(Geometry::Flip { probability: 0.5, seed: 1 });
        let letterbox = Transform::Geometry(Geometry::Letterbox { size: (4, 2), level: 114 });
        let to = Transform::To { dtype: DType::U8 };
        assert_eq!(shape(&[flip.clone(), letterbox, flip, to]), "3,2,4,u8");
    }

    #[test]
    fn levels_are_scaled_or_kept_and_converted_to_the_type() {
        let rgb = [255, 0, 51];
        let scale = Transform::Scale { factor: 1.0 / 51.0 };
        let scaled = ImageTransforms::new(&[crop_to(1), scale.clone()], DType::F32).unwrap();
        assert_eq!(apply::<f32>(&scaled, &rgb, (1, 1)), [5.0, 0.0, 1.0]);
        let halves = Transform::Normalize { mean: [1.0; 3], std: [2.0; 3] };
        let both = ImageTransforms::new(&[crop_to(1), scale, halves], DType::F32).unwrap();
        assert_eq!(apply::<f32>(&both, &rgb, (1, 1)), [2.0, -0.5, 0.0]);
        let raw = ImageTransforms::new(&[crop_to(1), Transform::To { dtype: DType::I64 }], DType::F32).unwrap();
        assert_eq!(apply::<i64>(&raw, &rgb, (1, 1)), [255, 0, 51]);
    }
}
