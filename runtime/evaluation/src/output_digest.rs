//! The digest of a step's outputs, which shows that stored outputs are those of the timed step.

use std::ops::Range;

use flagperf_core::hash::{OutputDigest, Seed};
use flagperf_core::tensor::Tensor;
use flagperf_script::StepOutput;

/// Largest number of bytes of a step's outputs that are hashed: of larger outputs, pieces that the seed chooses are.
const HASHED_BYTES_MAX: usize = 16 << 20;
/// Length in bytes of a piece of a larger output.
const PIECE_BYTES: usize = 64 << 10;

/// Returns the outputs by name: `output` for a single one, `output0`, `output1`, ... for a list, or the names in a map.
pub fn name_outputs(output: &StepOutput<Tensor>) -> Vec<(String, Tensor)> {
    match output {
        StepOutput::One(tensor) => vec![("output".to_owned(), tensor.clone())],
        StepOutput::Many(tensors) => {
            tensors.iter().enumerate().map(|(index, tensor)| (format!("output{index}"), tensor.clone())).collect()
        }
        StepOutput::Named(tensors) => tensors.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect(),
    }
}

/// Returns the digest of the outputs of a step: of the indices of its samples, and of the name, the specification and the
/// elements of each output. Of outputs of more than 16 MiB, about 16 MiB in pieces of 64 KiB are hashed; the seed chooses
/// them, so that nobody knows before the run which elements are not hashed.
pub fn digest_outputs(seed: &Seed, sample_indices: &[u64], outputs: &[(String, Tensor)]) -> OutputDigest {
    let heads: Vec<String> = outputs.iter().map(|(name, tensor)| format!("{name}:{}", tensor.spec())).collect();
    let bytes: usize = outputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
    let tensors = outputs.iter().zip(&heads).flat_map(|((_, tensor), head)| {
        let pieces = hashed_pieces(seed, tensor.bytes().len(), bytes.div_ceil(HASHED_BYTES_MAX));
        std::iter::once(head.as_bytes()).chain(pieces.into_iter().map(|piece| &tensor.bytes()[piece]))
    });
    OutputDigest::of(std::iter::once(bytemuck::cast_slice(sample_indices)).chain(tensors))
}

/// Returns the pieces of `len` bytes that are hashed: one of every `group` successive pieces, or everything.
fn hashed_pieces(seed: &Seed, len: usize, group: usize) -> Vec<Range<usize>> {
    if group <= 1 {
        return std::iter::once(0..len).collect();
    }
    let starts = (0..len).step_by(group * PIECE_BYTES).enumerate().map(|(number, start)| {
        let [low, high, ..] = seed.derive("hashed piece", number as u64).bytes();
        start + PIECE_BYTES * (usize::from(u16::from_le_bytes([low, high])) % group)
    });
    starts.filter(|start| *start < len).map(|start| start..len.min(start + PIECE_BYTES)).collect()
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn digest_of(samples: &[u64], output: &StepOutput<Tensor>) -> OutputDigest {
        digest_outputs(&Seed::default(), samples, &name_outputs(output))
    }

    #[test]
    fn the_digest_of_outputs_depends_on_samples_names_and_elements() {
        let small = |value: f32| StepOutput::One(Tensor::from_vec([1], vec![value]).unwrap());
        assert_eq!(digest_of(&[0, 1], &small(0.0)), digest_of(&[0, 1], &small(0.0)));
        assert_ne!(digest_of(&[0, 1], &small(0.0)), digest_of(&[1, 0], &small(0.0)));
        assert_ne!(digest_of(&[0], &small(1.0)), digest_of(&[0], &small(2.0)));
        let named = |name: &str| {
            StepOutput::Named(IndexMap::from([(name.to_owned(), Tensor::from_vec([1], vec![0.0f32]).unwrap())]))
        };
        assert_ne!(digest_of(&[0], &named("a")), digest_of(&[0], &named("b")));
    }

    #[test]
    fn the_seed_chooses_the_pieces_of_large_outputs() {
        let len = (40 << 20) + 5;
        let pieces = |seed: u8| hashed_pieces(&Seed::from([seed; 32]), len, len.div_ceil(HASHED_BYTES_MAX));
        assert_eq!(pieces(1), pieces(1));
        assert_ne!(pieces(1), pieces(2));
        let hashed: usize = pieces(1).iter().map(|piece| piece.len()).sum();
        assert!(hashed > HASHED_BYTES_MAX / 2 && hashed <= HASHED_BYTES_MAX, "{hashed}");
        assert!(pieces(3).iter().all(|piece| piece.end <= len));
        let whole = hashed_pieces(&Seed::default(), 100, 1);
        assert_eq!((whole.len(), whole[0].clone()), (1, 0..100));

        let mut values = vec![0u8; len];
        let first = pieces(0)[0].start;
        let digest = |values: &[u8]| {
            let tensor = Tensor::from_vec([values.len()], values.to_vec()).unwrap();
            digest_outputs(&Seed::from([0; 32]), &[0], &[("output".to_owned(), tensor)])
        };
        let before = digest(&values);
        values[first] = 1;
        assert_ne!(digest(&values), before);
    }
}
