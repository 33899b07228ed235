//! The values of levels: the transforms `scale`, `normalize` and `to` as a table.

use std::collections::HashMap;

use half::{bf16, f16};

use super::CHANNELS;
use crate::{DataError, Transform};
use flagperf_core::tensor::DType;

/// The bytes of the value for each channel and each of the 256 levels of a pixel, by the size of a value.
pub enum LevelTable {
    One(Box<[[[u8; 1]; 256]; CHANNELS]>),
    Two(Box<[[[u8; 2]; 256]; CHANNELS]>),
    Four(Box<[[[u8; 4]; 256]; CHANNELS]>),
    Eight(Box<[[[u8; 8]; 256]; CHANNELS]>),
}

/// How a level becomes a value: `(level * factor - mean) / std`, and the type of the values.
struct Values {
    factor: Option<f32>,
    normalize: Option<([f32; 3], [f32; 3])>,
    dtype: DType,
}

impl LevelTable {
    /// Checks the transforms of values and computes the values, which have the type `dtype` unless a transform names
    /// another; also returns the type.
    ///
    /// # Errors
    /// As [`super::ImageTransforms::new`].
    pub fn new(transforms: &[Transform], dtype: DType) -> Result<(Self, DType), DataError> {
        let values = values_of(transforms, dtype).map_err(DataError::Transforms)?;
        let table = level_table(&values).ok_or(DataError::UnsupportedType(values.dtype))?;
        Ok((table, values.dtype))
    }

    /// Returns the values of all levels, channel by channel.
    pub fn bytes(&self) -> &[u8] {
        match self {
            LevelTable::One(values) => values.as_flattened().as_flattened(),
            LevelTable::Two(values) => values.as_flattened().as_flattened(),
            LevelTable::Four(values) => values.as_flattened().as_flattened(),
            LevelTable::Eight(values) => values.as_flattened().as_flattened(),
        }
    }

    /// Returns the level of each value; `None` if one is not the value of a level of its channel. The values are those of
    /// [`LevelTable::write_planes`].
    pub fn levels(&self, values: &[u8]) -> Option<Vec<u8>> {
        let table = self.bytes();
        let bytes = table.len() / (CHANNELS * 256);
        let mut levels = Vec::with_capacity(values.len() / bytes);
        for (plane, own) in values.chunks_exact(values.len() / CHANNELS).zip(table.chunks_exact(256 * bytes)) {
            let known: HashMap<&[u8], u8> = own.chunks_exact(bytes).zip(0..=u8::MAX).collect();
            for value in plane.chunks_exact(bytes) {
                levels.push(*known.get(value)?);
            }
        }
        Some(levels)
    }

    /// Converts interleaved levels to one plane of values per channel.
    ///
    /// # Errors
    /// When `out` has another length.
    pub fn write_planes(&self, rgb: &[u8], out: &mut [u8]) -> Result<(), String> {
        match self {
            LevelTable::One(values) => write_planes(rgb, values, out),
            LevelTable::Two(values) => write_planes(rgb, values, out),
            LevelTable::Four(values) => write_planes(rgb, values, out),
            LevelTable::Eight(values) => write_planes(rgb, values, out),
        }
    }
}

/// Returns how levels become values.
fn values_of(transforms: &[Transform], dtype: DType) -> Result<Values, String> {
    let mut values = Values { factor: None, normalize: None, dtype };
    let mut has_type = false;
    let is_value = |transform: &&Transform| {
        matches!(transform, Transform::Scale { .. } | Transform::Normalize { .. } | Transform::To { .. })
    };
    for transform in transforms.iter().filter(is_value) {
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
        DType::I16 | DType::U16 => LevelTable::Two(table(|_, l| (l as u16).to_ne_bytes())),
        DType::U32 => LevelTable::Four(table(|_, l| (l as u32).to_ne_bytes())),
        DType::U64 => LevelTable::Eight(table(|_, l| (l as u64).to_ne_bytes())),
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
