//! The synthetic dataset: samples of seeded random values in memory.

use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{DataError, Dataset, Field, SampleError};
use crate::event::DatasetFacts;
use crate::hash::hash_bytes;
use crate::tensor::{DType, byte_count};

/// Largest number of random samples kept. A larger dataset repeats them, each time rotated by one more element, so that
/// its memory does not grow and no two samples are equal.
const SAMPLES_KEPT_MAX: usize = 16;

/// Largest size of a sample in bytes.
pub const SAMPLE_BYTES_MAX: usize = 1 << 30;

/// Largest number of bytes kept: fewer large samples are kept than small ones, but at least one.
const KEPT_BYTES_MAX: usize = SAMPLE_BYTES_MAX;

/// Random integers are below this number: the number of classes of ImageNet.
const CLASSES: u32 = 1000;

/// A dataset of random values: floats uniform in -1..1, integers in 0..1000 or the smaller range of their type.
pub struct Synthetic {
    fields: Vec<Field>,
    kept: Vec<Vec<Vec<u8>>>,
    facts: DatasetFacts,
}

impl Synthetic {
    /// Creates `samples` samples of `fields`; float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When a field has an open dimension, a sample needs more than 1 GiB, or there are no samples or fields.
    pub fn new(fields: &[Field], samples: usize, seed: u64, dtype: DType) -> Result<Self, DataError> {
        let (fields, bytes) = check_fields(fields, samples, dtype)?;
        let kept = (KEPT_BYTES_MAX / bytes.max(1)).clamp(1, SAMPLES_KEPT_MAX);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let sample =
            |_: usize| fields.iter().map(|field| random_values(field, &mut random)).collect::<Result<Vec<_>, _>>();
        let kept = (0..samples.min(kept)).map(sample).collect::<Result<_, _>>()?;
        let specs: Vec<String> = fields.iter().map(|field| format!("{} {}", field.name, field.spec)).collect();
        let text = format!("synthetic, seed {seed}: {}", specs.join("; "));
        let facts = DatasetFacts {
            location: "memory".to_owned(),
            samples: samples as u64,
            index_sha256: hash_bytes(format!("{text}; {samples} samples").as_bytes()),
            pipeline: vec![text],
            synthetic: true,
        };
        Ok(Synthetic { fields, kept, facts })
    }
}

/// Returns the fields, float inputs with the type `dtype`, and the bytes of a sample. Draws no values.
///
/// # Errors
/// As [`Synthetic::new`].
pub(super) fn check_fields(fields: &[Field], samples: usize, dtype: DType) -> Result<(Vec<Field>, usize), DataError> {
    if samples == 0 || fields.is_empty() {
        return Err(DataError::Empty { path: "synthetic".into() });
    }
    let mut fields = fields.to_vec();
    for field in fields.iter_mut().filter(|field| field.role == super::FieldRole::Input) {
        if field.spec.dtype.is_float() {
            field.spec.dtype = dtype;
        }
    }
    let sizes = fields.iter().map(field_bytes).collect::<Result<Vec<usize>, _>>()?;
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

    fn len(&self) -> usize {
        self.facts.samples as usize
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

fn random_values(field: &Field, random: &mut ChaCha8Rng) -> Result<Vec<u8>, DataError> {
    let size = field_bytes(field)?;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let word = random.next_u32();
        let float = f64::from(word) / f64::from(u32::MAX) * 2.0 - 1.0;
        match field.spec.dtype {
            DType::F64 => bytes.extend(float.to_ne_bytes()),
            DType::F32 => bytes.extend((float as f32).to_ne_bytes()),
            DType::F16 => bytes.extend(f16::from_f64(float).to_ne_bytes()),
            DType::BF16 => bytes.extend(bf16::from_f64(float).to_ne_bytes()),
            DType::I64 => bytes.extend(i64::from(word % CLASSES).to_ne_bytes()),
            DType::I32 => bytes.extend((word % CLASSES).to_ne_bytes()),
            DType::I8 => bytes.push((word % 128) as u8),
            DType::U8 => bytes.push((word % 256) as u8),
            DType::Bool => bytes.push((word % 2) as u8),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::FieldRole;
    use crate::tensor::{Tensor, TensorSpec};

    fn fields() -> Vec<Field> {
        let field = |name: &str, role, spec: &str| Field { name: name.to_owned(), role, spec: spec.parse().unwrap() };
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
            large.iter_mut().zip(specs).for_each(|(field, spec)| field.spec = spec.parse().unwrap());
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
        open[0].spec = "3,H,W,f32".parse().unwrap();
        let error = Synthetic::new(&open, 1, 0, DType::F32).err().unwrap();
        assert_eq!(
            error.to_string(),
            "field `images` of `3,H,W,f32` has an open dimension: a synthetic sample needs fixed dimensions"
        );
    }
}
