//! Changes inputs slightly, so that an engine has to compute outputs that it cannot know.
//!
//! The change of a sample depends only on the seed and on the sample, so that two engines get the same inputs.

use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{Dataset, Field, FieldRole};
use flagperf_core::hash::Seed;
use flagperf_core::tensor::DType;

/// Largest change of an element of a floating-point input, as a share of the largest magnitude in the sample.
const AMPLITUDE: f64 = 0.02;
/// Largest change of an element of a `u8` input.
const AMPLITUDE_U8: u8 = 5;
/// One of this many positions of a sample is exchanged with another one if the input consists of whole numbers.
const POSITIONS_PER_EXCHANGE: usize = 8;

/// A way to change inputs.
///
/// Elements of floating-point and `u8` inputs change by a small random amount. Other whole numbers, such as token
/// ids, must stay valid: positions of the sample are exchanged, the same ones in all such inputs of the same length.
/// Lengths and single numbers do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perturbation {
    seed: Seed,
}

impl Perturbation {
    /// Creates a perturbation that depends on `seed`.
    pub fn new(seed: Seed) -> Self {
        Perturbation { seed }
    }

    /// Changes the inputs of the sample with the index `sample`; `fields` has the bytes of each field of the dataset.
    pub fn apply(&self, dataset: &dyn Dataset, sample: u64, fields: &mut [&mut [u8]]) {
        let lengths = dataset.open_length().map(|open| open.lengths);
        let inputs = dataset.fields().iter().zip(fields).enumerate();
        for (index, (field, bytes)) in inputs.filter(|(_, (field, _))| field.role == FieldRole::Input) {
            match field.spec.dtype {
                DType::F64 => add_noise::<f64>(&mut self.stream("noise", sample, index), bytes, |x| x, |x| x),
                DType::F32 => add_noise(&mut self.stream("noise", sample, index), bytes, f64::from, |x| x as f32),
                DType::F16 => add_noise(&mut self.stream("noise", sample, index), bytes, f64::from, f16::from_f64),
                DType::BF16 => add_noise(&mut self.stream("noise", sample, index), bytes, f64::from, bf16::from_f64),
                DType::U8 => change_levels(&mut self.stream("noise", sample, index), bytes),
                _ if Some(index) == lengths => {}
                // The same positions in every field: a token and its mask stay together.
                _ => exchange_positions(&mut self.stream("exchange", sample, 0), field, bytes),
            }
        }
    }

    fn stream(&self, purpose: &str, sample: u64, field: usize) -> ChaCha8Rng {
        let seed = self.seed.derive(purpose, sample).derive("field", field as u64);
        ChaCha8Rng::from_seed(seed.bytes())
    }
}

/// Returns a random number from -1 to 1.
fn next_signed(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0
}

fn add_noise<T: bytemuck::Pod>(
    random: &mut ChaCha8Rng,
    bytes: &mut [u8],
    read: impl Fn(T) -> f64,
    write: impl Fn(f64) -> T,
) {
    let size = size_of::<T>();
    let value = |element: &[u8]| read(bytemuck::pod_read_unaligned(element));
    let largest = bytes.chunks_exact(size).map(|element| value(element).abs()).filter(|x| x.is_finite());
    let amplitude = AMPLITUDE * largest.fold(0.0f64, f64::max);
    for element in bytes.chunks_exact_mut(size) {
        let changed = write(read(bytemuck::pod_read_unaligned(element)) + amplitude * next_signed(random));
        element.copy_from_slice(bytemuck::bytes_of(&changed));
    }
}

fn change_levels(random: &mut ChaCha8Rng, bytes: &mut [u8]) {
    for level in bytes {
        let change = (next_signed(random) * f64::from(AMPLITUDE_U8)).round() as i16;
        *level = u8::try_from((i16::from(*level) + change).clamp(0, 255)).expect("it is between 0 and 255");
    }
}

/// Exchanges positions along the first dimension of a sample.
fn exchange_positions(random: &mut ChaCha8Rng, field: &Field, bytes: &mut [u8]) {
    let shape = field.spec.fixed_shape().unwrap_or_default();
    let Some(&positions) = shape.first().filter(|positions| **positions > 1) else { return };
    let size = bytes.len() / positions;
    for _ in 0..positions.div_ceil(POSITIONS_PER_EXCHANGE) {
        let [a, b] = [0, 0].map(|_: i32| (random.next_u64() % positions as u64) as usize);
        let (low, high) = (a.min(b), a.max(b));
        if low < high {
            let (head, tail) = bytes.split_at_mut(high * size);
            head[low * size..(low + 1) * size].swap_with_slice(&mut tail[..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenLength, SampleError};
    use flagperf_core::event::DatasetFacts;
    use flagperf_core::tensor::TensorSpec;

    struct Fields(Vec<Field>, DatasetFacts);

    impl Dataset for Fields {
        fn facts(&self) -> &DatasetFacts {
            &self.1
        }
        fn len(&self) -> usize {
            1
        }
        fn fields(&self) -> &[Field] {
            &self.0
        }
        fn open_length(&self) -> Option<OpenLength> {
            let lengths = self.0.iter().position(|field| field.name == "lengths")?;
            Some(OpenLength { fields: Vec::new(), lengths, keeps_end: false })
        }
        fn sample_name(&self, _: usize) -> String {
            String::new()
        }
        fn read(&self, _: usize, _: &mut [&mut [u8]]) -> Result<(), SampleError> {
            Ok(())
        }
    }

    fn fields(specs: &[(&str, FieldRole, &[usize], DType)]) -> Fields {
        let field = |(name, role, shape, dtype): &(&str, FieldRole, &[usize], DType)| Field {
            name: (*name).to_owned(),
            role: *role,
            spec: TensorSpec::new(shape.to_vec(), *dtype),
        };
        Fields(specs.iter().map(field).collect(), DatasetFacts::default())
    }

    fn perturb(dataset: &Fields, seed: u8, sample: u64, fields: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut changed = fields.to_vec();
        let mut slices: Vec<&mut [u8]> = changed.iter_mut().map(Vec::as_mut_slice).collect();
        Perturbation::new(Seed::from([seed; 32])).apply(dataset, sample, &mut slices);
        changed
    }

    #[test]
    fn numbers_change_slightly_and_only_in_inputs() {
        let dataset =
            fields(&[("x", FieldRole::Input, &[1000], DType::F32), ("t", FieldRole::Truth, &[1000], DType::F32)]);
        let values: Vec<f32> = (0..1000).map(|i| i as f32 / 1000.0).collect();
        let bytes = bytemuck::cast_slice::<f32, u8>(&values).to_vec();
        let changed = perturb(&dataset, 1, 7, &[bytes.clone(), bytes.clone()]);
        assert_eq!(changed[1], bytes, "the truth does not change");
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&changed[0]);
        assert!(found.iter().zip(&values).all(|(a, b)| (a - b).abs() <= 0.02));
        assert!(found.iter().zip(&values).filter(|(a, b)| a != b).count() > 900);
        assert_eq!(perturb(&dataset, 1, 7, &[bytes.clone(), bytes.clone()]), changed, "the same sample and seed");
        assert_ne!(perturb(&dataset, 1, 8, &[bytes.clone(), bytes.clone()])[0], changed[0]);
        assert_ne!(perturb(&dataset, 2, 7, &[bytes.clone(), bytes.clone()])[0], changed[0]);
    }

    #[test]
    fn halves_and_levels_change_too() {
        for dtype in [DType::F16, DType::BF16, DType::F64, DType::U8] {
            let dataset = fields(&[("x", FieldRole::Input, &[64], dtype)]);
            let bytes = match dtype {
                DType::F16 => bytemuck::cast_slice(&[f16::from_f32(0.7); 64]).to_vec(),
                DType::BF16 => bytemuck::cast_slice(&[bf16::from_f32(0.7); 64]).to_vec(),
                DType::F64 => bytemuck::cast_slice(&[0.7f64; 64]).to_vec(),
                _ => vec![100u8; 64],
            };
            assert_ne!(perturb(&dataset, 1, 0, std::slice::from_ref(&bytes))[0], bytes, "{dtype}");
        }
    }

    #[test]
    fn tokens_and_their_masks_move_together_and_lengths_stay() {
        let dataset = fields(&[
            ("ids", FieldRole::Input, &[64], DType::I64),
            ("mask", FieldRole::Input, &[64], DType::I64),
            ("lengths", FieldRole::Input, &[], DType::I64),
        ]);
        let ids: Vec<i64> = (0..64).collect();
        let bytes = bytemuck::cast_slice::<i64, u8>(&ids).to_vec();
        let length = 64i64.to_ne_bytes().to_vec();
        let changed = perturb(&dataset, 1, 0, &[bytes.clone(), bytes.clone(), length.clone()]);
        assert_ne!(changed[0], bytes);
        assert_eq!((&changed[0], &changed[2]), (&changed[1], &length));
        let mut sorted: Vec<i64> = bytemuck::pod_collect_to_vec(&changed[0]);
        sorted.sort_unstable();
        assert_eq!(sorted, ids);
    }
}
