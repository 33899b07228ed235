//! The synthetic dataset: samples of seeded random values in memory.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{DataError, Dataset, Field, FieldRole, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, Element as _, byte_count};
use flagperf_core::with_element_type;

/// Largest number of random samples kept. A larger dataset repeats them, each time rotated by one more element, so that
/// its memory does not grow and no two samples are equal.
const SAMPLES_KEPT_MAX: usize = 16;

/// Largest size of a sample in bytes.
pub const SAMPLE_BYTES_MAX: usize = 1 << 30;

/// Largest number of bytes kept: fewer large samples are kept than small ones, but at least one.
const KEPT_BYTES_MAX: usize = SAMPLE_BYTES_MAX;

/// A field of random values.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticField {
    /// Name, role and shape.
    pub field: Field,
    /// The smallest value; `None` for -1, or 0 for integers.
    pub min: Option<f64>,
    /// The end of the values, exclusive for integers; `None` for 1, or for integers 1000 or the end of a smaller type.
    pub max: Option<f64>,
}

impl SyntheticField {
    /// Returns the range of the values.
    fn range(&self) -> (f64, f64) {
        let (min, max) = match self.field.spec.dtype {
            dtype if dtype.is_float() => (-1.0, 1.0),
            DType::I8 => (0.0, 128.0),
            DType::U8 => (0.0, 256.0),
            DType::Bool => (0.0, 2.0),
            // The number of classes of ImageNet.
            _ => (0.0, 1000.0),
        };
        (self.min.unwrap_or(min), self.max.unwrap_or(max))
    }

    /// Checks that the range is not empty and fits the type.
    fn check_range(&self) -> Result<(), DataError> {
        let (min, max) = self.range();
        let (least, end) = match self.field.spec.dtype {
            dtype if dtype.is_float() => (f64::MIN, f64::MAX),
            DType::I8 => (-128.0, 128.0),
            DType::I16 => (-2f64.powi(15), 2f64.powi(15)),
            DType::I32 => (-2f64.powi(31), 2f64.powi(31)),
            DType::U8 => (0.0, 256.0),
            DType::U16 => (0.0, 2f64.powi(16)),
            DType::U32 => (0.0, 2f64.powi(32)),
            DType::U64 => (0.0, 2f64.powi(53)),
            DType::Bool => (0.0, 2.0),
            _ => (-2f64.powi(53), 2f64.powi(53)),
        };
        let is_float = self.field.spec.dtype.is_float();
        let is_whole = is_float || (min.fract() == 0.0 && max.fract() == 0.0);
        if min < max && min >= least && max <= end && is_whole && (!is_float || (max - min).is_finite()) {
            return Ok(());
        }
        Err(DataError::Range {
            field: self.field.name.clone(),
            spec: self.field.spec.clone(),
            min: min.to_string(),
            max: max.to_string(),
        })
    }
}

/// A dataset of random values: floats uniform in -1..1, integers in 0..1000 or the smaller range of their type, or in
/// the range of the field.
pub struct Synthetic {
    fields: Vec<Field>,
    kept: Vec<Vec<Vec<u8>>>,
    facts: DatasetFacts,
}

impl Synthetic {
    /// Creates `samples` samples of `fields`; float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When a field has an open dimension or an empty range, a sample needs more than 1 GiB, or there are no samples or
    /// fields.
    pub fn new(fields: &[SyntheticField], samples: usize, seed: u64, dtype: DType) -> Result<Self, DataError> {
        let (fields, bytes) = check_fields(fields, samples, dtype)?;
        let kept = (KEPT_BYTES_MAX / bytes.max(1)).clamp(1, SAMPLES_KEPT_MAX);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let sample =
            |_: usize| fields.iter().map(|field| random_values(field, &mut random)).collect::<Result<Vec<_>, _>>();
        let kept = (0..samples.min(kept)).map(sample).collect::<Result<_, _>>()?;
        let describe = |random: &SyntheticField| {
            let range = match (random.min, random.max) {
                (None, None) => String::new(),
                _ => format!(" from {} to {}", random.range().0, random.range().1),
            };
            format!("{} {}{range}", random.field.name, random.field.spec)
        };
        let specs: Vec<String> = fields.iter().map(describe).collect();
        let text = format!("synthetic, seed {seed}: {}", specs.join("; "));
        let facts = DatasetFacts {
            location: "memory".to_owned(),
            samples: samples as u64,
            index_sha256: hash_bytes(format!("{text}; {samples} samples").as_bytes()),
            pipeline: vec![text],
            synthetic: true,
            ..DatasetFacts::default()
        };
        Ok(Synthetic { fields: fields.into_iter().map(|random| random.field).collect(), kept, facts })
    }
}

/// Returns the fields, float inputs with the type `dtype`, and the bytes of a sample. Draws no values.
///
/// # Errors
/// As [`Synthetic::new`].
pub(super) fn check_fields(
    fields: &[SyntheticField],
    samples: usize,
    dtype: DType,
) -> Result<(Vec<SyntheticField>, usize), DataError> {
    if samples == 0 || fields.is_empty() {
        return Err(DataError::Empty { path: "synthetic".into() });
    }
    let mut fields = fields.to_vec();
    for SyntheticField { field, .. } in fields.iter_mut().filter(|random| random.field.role == FieldRole::Input) {
        if field.spec.dtype.is_float() {
            field.spec.dtype = dtype;
        }
    }
    fields.iter().try_for_each(SyntheticField::check_range)?;
    let sizes = fields.iter().map(|random| field_bytes(&random.field)).collect::<Result<Vec<usize>, _>>()?;
    let bytes = sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size));
    if bytes > SAMPLE_BYTES_MAX {
        return Err(DataError::SampleTooLarge { fields: fields.len(), bytes });
    }
    Ok((fields, bytes))
}

impl Dataset for Synthetic {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        format!("synthetic sample {index}")
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let (rotation, kept) = (index / self.kept.len(), &self.kept[index % self.kept.len()]);
        for ((to, from), field) in fields.iter_mut().zip(kept).zip(&self.fields) {
            let element = field.spec.dtype.size();
            let (tail, head) = from.split_at(rotation % (from.len() / element).max(1) * element);
            to[..head.len()].copy_from_slice(head);
            to[head.len()..].copy_from_slice(tail);
        }
        Ok(())
    }
}

/// Returns the size of a field in one sample, in bytes.
fn field_bytes(field: &Field) -> Result<usize, DataError> {
    let open = || DataError::OpenDimension { field: field.name.clone(), spec: field.spec.clone() };
    let shape = field.spec.fixed_shape().ok_or_else(open)?;
    let bytes = byte_count(&shape, field.spec.dtype).filter(|bytes| *bytes <= SAMPLE_BYTES_MAX);
    bytes.ok_or_else(|| DataError::FieldTooLarge { field: field.name.clone(), spec: field.spec.clone() })
}

fn random_values(random: &SyntheticField, source: &mut ChaCha8Rng) -> Result<Vec<u8>, DataError> {
    let size = field_bytes(&random.field)?;
    let (min, max) = random.range();
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let word = source.next_u32();
        let float = f64::from(word) / f64::from(u32::MAX) * (max - min) + min;
        // Exact for ranges of up to 2^32 values.
        let whole = (min as i64).wrapping_add((u64::from(word) % (max - min).max(1.0) as u64) as i64);
        match random.field.spec.dtype {
            dtype @ (DType::F64 | DType::F32 | DType::F16 | DType::BF16) => {
                with_element_type!(dtype, T => bytes.extend(bytemuck::bytes_of(&T::from_f64(float))));
            }
            dtype => with_element_type!(dtype, T => bytes.extend(bytemuck::bytes_of(&T::convert(whole)))),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use flagperf_core::tensor::{Tensor, TensorSpec};

    fn fields() -> Vec<SyntheticField> {
        let field = |name: &str, role, spec: &str| SyntheticField {
            field: Field { name: name.to_owned(), role, spec: spec.parse().unwrap() },
            min: None,
            max: None,
        };
        vec![field("images", FieldRole::Input, "3,4,4,f32"), field("labels", FieldRole::Truth, "i64")]
    }

    fn read(dataset: &Synthetic, index: usize) -> (Vec<u8>, i64) {
        let (mut image, mut label) = (vec![0; 3 * 4 * 4 * 2], [0; 8]);
        dataset.read(index, &mut [&mut image, &mut label]).unwrap();
        (image, i64::from_ne_bytes(label))
    }

    #[test]
    fn the_same_seed_reproduces_the_same_samples() {
        let open = |seed| Synthetic::new(&fields(), 40, seed, DType::F16).unwrap();
        let (one, same, other) = (open(1), open(1), open(2));
        for index in [0, 1, 15, 16, 39] {
            assert_eq!(read(&one, index), read(&same, index));
            assert_ne!(read(&one, index), read(&other, index));
        }
        let mut seen: Vec<_> = (0..40).map(|index| read(&one, index).0).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 40, "no two samples are equal, so an engine cannot cache its answers");
        assert_ne!(one.facts().index_sha256, other.facts().index_sha256);
        assert!(one.facts().synthetic);
    }

    #[test]
    fn values_have_the_requested_type_and_are_in_range() {
        let dataset = Synthetic::new(&fields(), 1, 3, DType::F16).unwrap();
        assert_eq!(dataset.fields()[0].spec, "3,4,4,f16".parse::<TensorSpec>().unwrap());
        let (image, label) = read(&dataset, 0);
        let halves: Vec<f16> = bytemuck::pod_collect_to_vec(&image);
        let tensor = Tensor::from_vec([48], halves).unwrap().to_f64();
        assert!(tensor.iter().all(|value| (-1.0..=1.0).contains(value)) && tensor.iter().any(|value| *value < 0.0));
        assert!((0..1000).contains(&label));
    }

    #[test]
    fn a_sample_that_is_too_large_is_refused_with_its_shape() {
        let reason = |specs: [&str; 2]| {
            let mut large = fields();
            large.iter_mut().zip(specs).for_each(|(random, spec)| random.field.spec = spec.parse().unwrap());
            Synthetic::new(&large, 1, 0, DType::F32).err().unwrap().to_string()
        };
        let expected =
            "field `images` of `1000000,1000000,f32` is too large: a sample may have at most 1073741824 bytes";
        assert_eq!(reason(["1000000,1000000,f32", "i64"]), expected);
        let expected = "the 2 fields of a sample need 1073741832 bytes in total (at most 1073741824)";
        assert_eq!(reason(["1024,1024,256,f32", "i64"]), expected);
        assert!(reason([&format!("{0},{0},f32", usize::MAX), "i64"]).contains("at most 1073741824 bytes"));
    }

    #[test]
    fn an_open_dimension_is_refused_with_the_field() {
        let mut open = fields();
        open[0].field.spec = "3,H,W,f32".parse().unwrap();
        let error = Synthetic::new(&open, 1, 0, DType::F32).err().unwrap();
        assert_eq!(
            error.to_string(),
            "field `images` of `3,H,W,f32` has an open dimension: a synthetic sample needs fixed dimensions"
        );
    }

    #[test]
    fn values_lie_in_the_range_of_their_field() {
        let mut ranged = fields();
        (ranged[0].min, ranged[0].max) = (Some(0.0), Some(0.5));
        (ranged[1].min, ranged[1].max) = (Some(-3.0), Some(30_000.0));
        let dataset = Synthetic::new(&ranged, 40, 3, DType::F16).unwrap();
        let labels: Vec<i64> = (0..16).map(|index| read(&dataset, index).1).collect();
        assert!(labels.iter().all(|label| (-3..30_000).contains(label)) && labels.iter().any(|label| *label > 1000));
        let halves: Vec<f16> = bytemuck::pod_collect_to_vec(&read(&dataset, 0).0);
        assert!(halves.iter().all(|value| (0.0..=0.5).contains(&value.to_f32())));
        assert!(dataset.facts().pipeline[0].ends_with("labels i64 from -3 to 30000"), "{:?}", dataset.facts().pipeline);
    }

    #[test]
    fn a_range_that_is_empty_or_does_not_fit_the_type_is_refused() {
        let reason = |spec: &str, min: f64, max: f64| {
            let mut ranged = fields();
            ranged[1].field.spec = spec.parse().unwrap();
            (ranged[1].min, ranged[1].max) = (Some(min), Some(max));
            Synthetic::new(&ranged, 1, 0, DType::F32).err().unwrap().to_string()
        };
        assert_eq!(reason("i64", 5.0, 5.0), "field `labels` of `i64` cannot have values from 5 to below 5");
        for (spec, min, max) in
            [("u8", -1.0, 5.0), ("i64", 0.5, 5.0), ("f32", f64::MIN, f64::MAX), ("i8", 0.0, f64::NAN)]
        {
            assert!(reason(spec, min, max).contains("cannot have values from"), "{spec}");
        }
    }
}
