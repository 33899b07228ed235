//! Changes inputs, so that an engine has to compute outputs that it cannot know.
//!
//! An input becomes a mixture of two samples: no sample of the dataset is near it, so that an engine that returns the
//! outputs of the nearest sample is found. The change of a sample depends only on the seed and on the dataset, so that
//! two engines get the same inputs.

use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{Dataset, Field, FieldRole, OpenLength};
use flagperf_core::hash::Seed;
use flagperf_core::tensor::DType;

/// Share of the other sample in a mixture of numbers: at least, and how much more at most.
const OTHER_SHARE: (f64, f64) = (0.35, 0.3);
/// Largest additional change of an element of a floating-point input, as a share of the largest magnitude in the sample.
const AMPLITUDE: f64 = 0.02;
/// Largest additional change of an element of a `u8` input.
const AMPLITUDE_U8: f64 = 5.0;

/// A way to change inputs.
///
/// Elements of floating-point and `u8` inputs become a weighted mean of two samples, with a small random amount. Other
/// whole numbers, such as token ids, must stay valid: at about half of the positions, the same ones in all such inputs of
/// the same length, they become those of the other sample. Lengths do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perturbation {
    seed: Seed,
}

impl Perturbation {
    /// Creates a perturbation that depends on `seed`.
    pub fn new(seed: Seed) -> Self {
        Perturbation { seed }
    }

    /// Returns the sample with which `sample` is mixed; `None` if the dataset has no other one.
    pub fn other_sample(&self, sample: u64, samples: u64) -> Option<u64> {
        let others = samples.checked_sub(1).filter(|others| *others > 0)?;
        Some((sample + 1 + self.stream("other", sample, 0).next_u64() % others) % samples)
    }

    /// Changes the inputs of the sample with the index `sample`; `fields` has the bytes of each field of the dataset, and
    /// `other` those of the sample that [`Perturbation::other_sample`] returns. Without another sample, only numbers change.
    pub fn apply(&self, dataset: &dyn Dataset, sample: u64, fields: &mut [&mut [u8]], other: Option<&[Vec<u8>]>) {
        let open = dataset.open_length();
        let valid = open.as_ref().zip(other).map(|(open, other)| shared_length(open, fields, other));
        let share = OTHER_SHARE.0 + OTHER_SHARE.1 * next_unit(&mut self.stream("share", sample, 0));
        let mut single_numbers = 0;
        for (index, (field, bytes)) in dataset.fields().iter().zip(fields).enumerate() {
            if field.role != FieldRole::Input || open.as_ref().is_some_and(|open| open.lengths == index) {
                continue;
            }
            let other = other.map(|fields| fields[index].as_slice());
            let random = &mut self.stream("noise", sample, index);
            match field.spec.dtype {
                DType::F64 => mix_numbers::<f64>(random, bytes, (other, share), |x| x, |x| x),
                DType::F32 => mix_numbers(random, bytes, (other, share), f64::from, |x| x as f32),
                DType::F16 => mix_numbers(random, bytes, (other, share), f64::from, f16::from_f64),
                DType::BF16 => mix_numbers(random, bytes, (other, share), f64::from, bf16::from_f64),
                DType::U8 => mix_levels(random, bytes, (other, share)),
                dtype => {
                    let Some(other) = other else { continue };
                    let positions = positions(field, bytes.len() / dtype.size());
                    let valid = open.as_ref().filter(|open| open.fields.contains(&index)).and(valid);
                    if positions > 1 {
                        // The same positions in every field: a token and its mask stay together.
                        let random = &mut self.stream("positions", sample, 0);
                        take_positions(random, bytes, other, positions, valid.map(|v| valid_range(v, positions)));
                        continue;
                    }
                    // Of several single numbers, such as a user and an item, at least the first one changes.
                    if single_numbers == 0 || next_unit(random) < 0.5 {
                        bytes.copy_from_slice(other);
                    }
                    single_numbers += 1;
                }
            }
        }
    }

    fn stream(&self, purpose: &str, sample: u64, field: usize) -> ChaCha8Rng {
        let seed = self.seed.derive(purpose, sample).derive("field", field as u64);
        ChaCha8Rng::from_seed(seed.bytes())
    }
}

/// The elements of an open length that two samples have in common.
#[derive(Clone, Copy, Debug)]
struct SharedLength {
    elements: usize,
    is_at_end: bool,
}

fn shared_length(open: &OpenLength, fields: &[&mut [u8]], other: &[Vec<u8>]) -> SharedLength {
    let length = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, i64>(bytes).first().copied().unwrap_or_default();
    let shorter = length(fields[open.lengths]).min(length(&other[open.lengths]));
    SharedLength { elements: usize::try_from(shorter).unwrap_or_default(), is_at_end: open.keeps_end }
}

fn valid_range(shared: SharedLength, positions: usize) -> std::ops::Range<usize> {
    let elements = shared.elements.min(positions);
    if shared.is_at_end { positions - elements..positions } else { 0..elements }
}

/// Returns the number of positions of a sample at which whole numbers are taken from another one: the first dimension, or
/// every element if that is 1, as in an image of one channel.
fn positions(field: &Field, elements: usize) -> usize {
    let shape = field.spec.fixed_shape().unwrap_or_default();
    shape.first().copied().filter(|positions| *positions > 1).unwrap_or(elements)
}

/// Returns a random number from 0 to 1.
fn next_unit(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

/// Returns a random number from -1 to 1.
fn next_signed(random: &mut ChaCha8Rng) -> f64 {
    2.0 * next_unit(random) - 1.0
}

fn mix_numbers<T: bytemuck::Pod>(
    random: &mut ChaCha8Rng,
    bytes: &mut [u8],
    (other, share): (Option<&[u8]>, f64),
    read: impl Fn(T) -> f64,
    write: impl Fn(f64) -> T,
) {
    let size = size_of::<T>();
    let value = |element: &[u8]| read(bytemuck::pod_read_unaligned(element));
    let largest = bytes.chunks_exact(size).map(|element| value(element).abs()).filter(|x| x.is_finite());
    let amplitude = AMPLITUDE * largest.fold(0.0f64, f64::max);
    for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
        let own = value(element);
        let other = other.map_or(own, |other| value(&other[index * size..][..size]));
        let mixed = own + share * (other - own) + amplitude * next_signed(random);
        element.copy_from_slice(bytemuck::bytes_of(&write(mixed)));
    }
}

fn mix_levels(random: &mut ChaCha8Rng, bytes: &mut [u8], (other, share): (Option<&[u8]>, f64)) {
    for (index, level) in bytes.iter_mut().enumerate() {
        let own = f64::from(*level);
        let other = other.map_or(own, |other| f64::from(other[index]));
        let mixed = own + share * (other - own) + AMPLITUDE_U8 * next_signed(random);
        // A cast from a float saturates.
        *level = mixed.round() as u8;
    }
}

/// Takes about half of the positions of a sample, of those in `valid`, from another one.
fn take_positions(
    random: &mut ChaCha8Rng,
    bytes: &mut [u8],
    other: &[u8],
    positions: usize,
    valid: Option<std::ops::Range<usize>>,
) {
    let size = bytes.len() / positions;
    for position in 0..positions {
        let is_taken = random.next_u32().is_multiple_of(2);
        if is_taken && valid.as_ref().is_none_or(|valid| valid.contains(&position)) {
            let place = position * size..(position + 1) * size;
            bytes[place.clone()].copy_from_slice(&other[place]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SampleError;
    use flagperf_core::event::DatasetFacts;
    use flagperf_core::tensor::TensorSpec;

    /// Fields, and whether an open length keeps the end.
    struct Fields(Vec<Field>, DatasetFacts, bool);

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
            Some(OpenLength { fields: (0..lengths).collect(), lengths, keeps_end: self.2 })
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
        Fields(specs.iter().map(field).collect(), DatasetFacts::default(), false)
    }

    fn perturb(dataset: &Fields, (seed, sample): (u8, u64), fields: &[Vec<u8>], other: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut changed = fields.to_vec();
        let mut slices: Vec<&mut [u8]> = changed.iter_mut().map(Vec::as_mut_slice).collect();
        let other = Some(other).filter(|other| !other.is_empty());
        Perturbation::new(Seed::from([seed; 32])).apply(dataset, sample, &mut slices, other);
        changed
    }

    fn bytes_of<T: bytemuck::Pod>(values: &[T]) -> Vec<u8> {
        bytemuck::cast_slice(values).to_vec()
    }

    #[test]
    fn numbers_become_a_mixture_of_two_samples_and_only_in_inputs() {
        let dataset =
            fields(&[("x", FieldRole::Input, &[1000], DType::F32), ("t", FieldRole::Truth, &[1000], DType::F32)]);
        let (own, other) = (vec![bytes_of(&[1.0f32; 1000]); 2], vec![bytes_of(&[0.0f32; 1000]); 2]);
        let changed = perturb(&dataset, (1, 7), &own, &other);
        assert_eq!(changed[1], own[1], "the truth does not change");
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&changed[0]);
        assert!(found.iter().all(|x| (0.32..0.68).contains(x)) && found[0] != found[1], "{found:?}");
        assert_eq!(perturb(&dataset, (1, 7), &own, &other), changed, "the same sample and seed");
        assert_ne!(perturb(&dataset, (1, 8), &own, &other)[0], changed[0]);
        assert_ne!(perturb(&dataset, (2, 7), &own, &other)[0], changed[0]);
        let alone: Vec<f32> = bytemuck::pod_collect_to_vec(&perturb(&dataset, (1, 7), &own, &[])[0]);
        assert!(alone.iter().all(|x| (x - 1.0).abs() <= 0.02) && alone[0] != 1.0, "without another sample");
    }

    #[test]
    fn halves_and_levels_change_too() {
        for dtype in [DType::F16, DType::BF16, DType::F64, DType::U8] {
            let dataset = fields(&[("x", FieldRole::Input, &[64], dtype)]);
            let filled = |x: f32| match dtype {
                DType::F16 => bytes_of(&[f16::from_f32(x); 64]),
                DType::BF16 => bytes_of(&[bf16::from_f32(x); 64]),
                DType::F64 => bytes_of(&[f64::from(x); 64]),
                _ => vec![(x * 100.0) as u8; 64],
            };
            let changed = &perturb(&dataset, (1, 0), &[filled(0.7)], &[filled(0.0)])[0];
            assert!(*changed != filled(0.7) && *changed != filled(0.0), "{dtype}");
        }
    }

    #[test]
    fn the_other_sample_is_never_the_same_one() {
        let perturbation = Perturbation::new(Seed::from([3; 32]));
        assert_eq!(perturbation.other_sample(0, 1), None);
        for sample in 0..50 {
            assert!(perturbation.other_sample(sample, 50).is_some_and(|other| other < 50 && other != sample));
        }
    }

    #[test]
    fn tokens_and_their_masks_come_from_the_same_sample_within_both_lengths() {
        let mut dataset = fields(&[
            ("ids", FieldRole::Input, &[64], DType::I64),
            ("mask", FieldRole::Input, &[64], DType::I64),
            ("lengths", FieldRole::Input, &[], DType::I64),
        ]);
        let sample =
            |value: i64, length: i64| vec![bytes_of(&[value; 64]), bytes_of(&[value; 64]), bytes_of(&[length])];
        let changed = perturb(&dataset, (1, 0), &sample(1, 64), &sample(2, 40));
        let ids: Vec<i64> = bytemuck::pod_collect_to_vec(&changed[0]);
        assert_eq!((&changed[0], &changed[2]), (&changed[1], &bytes_of(&[64i64])));
        assert!((8..32).contains(&ids[..40].iter().filter(|id| **id == 2).count()), "{ids:?}");
        assert!(ids[40..].iter().all(|id| *id == 1), "the other sample has only 40 tokens");
        dataset.2 = true;
        let at_end: Vec<i64> =
            bytemuck::pod_collect_to_vec(&perturb(&dataset, (1, 0), &sample(1, 64), &sample(2, 40))[0]);
        assert!(at_end[..24].iter().all(|id| *id == 1) && at_end[24..].contains(&2), "{at_end:?}");
    }

    #[test]
    fn single_numbers_and_images_of_one_channel_change_too() {
        let dataset = fields(&[
            ("user", FieldRole::Input, &[], DType::I64),
            ("item", FieldRole::Input, &[1], DType::I64),
            ("image", FieldRole::Input, &[1, 8, 8], DType::I32),
        ]);
        let sample =
            |value: i32| vec![bytes_of(&[i64::from(value)]), bytes_of(&[i64::from(value)]), bytes_of(&[value; 64])];
        let changed = perturb(&dataset, (1, 0), &sample(1), &sample(2));
        assert_eq!(changed[0], bytes_of(&[2i64]));
        let levels: Vec<i32> = bytemuck::pod_collect_to_vec(&changed[2]);
        assert!(levels.contains(&1) && levels.contains(&2));
    }
}
