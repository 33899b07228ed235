//! The random order of samples: which samples form a batch, and in which order each pass runs the batches.
//!
//! The order follows from a seed that the conductor draws when a case begins, so no engine can know before the run
//! which sample comes when. Both phases have the same batches, so that their outputs can be compared. Samples of
//! different lengths keep their neighbours, because a dataset may be sorted by length on purpose.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use flagperf_core::hash::Seed;
use flagperf_core::step::Phase;

/// Decides which samples form a batch and in which order the batches of each pass run.
///
/// Validation and inference have the same batches in different orders, so that their outputs can be compared.
#[derive(Clone, Copy, Debug)]
pub struct SampleOrder {
    seed: Seed,
    batches: usize,
}

impl SampleOrder {
    /// Creates the order of a dataset of so many batches.
    pub fn new(seed: Seed, batches: usize) -> Self {
        SampleOrder { seed, batches }
    }

    /// Divides `samples` samples at random into batches of `batch_size`; only the last one may have fewer samples.
    pub fn divide(&self, samples: usize, batch_size: usize) -> Vec<Arc<[u64]>> {
        let samples = shuffled((0..samples as u64).collect(), self.seed.derive("samples", 0));
        samples.chunks(batch_size.max(1)).map(Arc::from).collect()
    }

    /// Returns the order of the batches in a pass.
    pub fn of_pass(&self, phase: Phase, pass: u32) -> Vec<usize> {
        self.shuffle(phase.name(), u64::from(pass), self.batches)
    }

    /// Returns the rank of each batch when the outputs of only some batches can be kept: those of the lowest ranks are.
    pub fn ranks(&self) -> Vec<usize> {
        self.shuffle("kept outputs", 0, self.batches)
    }

    /// Returns a random number below `count`, which must not be 0, for the choice number `number` of a purpose.
    pub fn choose(&self, purpose: &str, number: u64, count: usize) -> usize {
        let mut random = ChaCha8Rng::from_seed(self.seed.derive(purpose, number).bytes());
        below(&mut random, count)
    }

    /// Returns the numbers below `count` in a random order, for the choice number `number` of a purpose.
    pub fn shuffle(&self, purpose: &str, number: u64, count: usize) -> Vec<usize> {
        shuffled((0..count).collect(), self.seed.derive(purpose, number))
    }

    /// Returns the seed.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }
}

/// Returns the elements in a random order (Fisher and Yates).
fn shuffled<T>(mut elements: Vec<T>, seed: Seed) -> Vec<T> {
    let mut random = ChaCha8Rng::from_seed(seed.bytes());
    for last in (1..elements.len()).rev() {
        elements.swap(last, below(&mut random, last + 1));
    }
    elements
}

/// Returns a random number below `count`: the bias of the remainder is below `count / 2^64`.
fn below(random: &mut ChaCha8Rng, count: usize) -> usize {
    usize::try_from(random.next_u64() % count as u64).expect("the remainder is below a `usize`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_batch_and_every_batch_in_each_pass() {
        let order = SampleOrder::new(Seed::from([3; 32]), 8);
        let batches = order.divide(30, 4);
        let mut samples: Vec<u64> = batches.iter().flat_map(|batch| batch.iter().copied()).collect();
        assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [4, 4, 4, 4, 4, 4, 4, 2]);
        assert!(!samples.is_sorted());
        samples.sort_unstable();
        assert_eq!(samples, (0..30).collect::<Vec<_>>());
        for pass in 0..10 {
            let mut batches = order.of_pass(Phase::Infer, pass);
            batches.sort_unstable();
            assert_eq!(batches, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn passes_phases_and_seeds_have_orders_of_their_own() {
        let order = |seed: u8| SampleOrder::new(Seed::from([seed; 32]), 50);
        let first = order(1).of_pass(Phase::Infer, 0);
        assert_eq!(first, order(1).of_pass(Phase::Infer, 0));
        assert_ne!(first, order(1).of_pass(Phase::Infer, 1));
        assert_ne!(first, order(1).of_pass(Phase::Validate, 0));
        assert_ne!(first, order(2).of_pass(Phase::Infer, 0));
        assert_eq!(order(1).divide(50, 1), order(1).divide(50, 1), "validation and inference have the same batches");
        assert_ne!(order(1).divide(50, 1), order(2).divide(50, 1));
    }
}
