//! The order of the samples in each epoch of a training, and the share of each rank.

use super::Epoch;

/// Draws the batches of an epoch for one rank. Every rank has the same number of batches.
///
/// As PyTorch's `DistributedSampler` with shuffling, followed by its `BatchSampler`: all samples are shuffled by seed and
/// epoch, rank `r` of `world` takes the places `r`, `r + world`, and so on, and successive samples form a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingSampler {
    /// The seed of the training, which also seeds random transforms.
    pub seed: u64,
    /// Number of samples of the dataset.
    pub samples: usize,
    /// Samples per batch of this rank, at least 1.
    pub batch: usize,
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes, at least 1.
    pub world: usize,
    /// Whether samples that do not fill a batch of every rank are left out in this epoch. Otherwise the last batch is
    /// shorter, and the first samples of the order are read again so that every rank has the same number.
    pub drop_last: bool,
}

impl TrainingSampler {
    /// Returns the number of batches in an epoch; 0 if all samples are left out.
    pub fn batches(&self) -> usize {
        let share = self.share();
        if self.drop_last { share / self.batch } else { share.div_ceil(self.batch) }
    }

    /// Returns the epoch `number`, which random transforms depend on.
    pub fn epoch_of(&self, number: u64) -> Epoch {
        Epoch { seed: self.seed, number }
    }

    /// Returns the batches of the epoch `number`, each with the indices of its samples.
    pub fn epoch(&self, number: u64) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.samples).collect();
        self.epoch_of(number).stream("order", 0).shuffle(&mut order);
        let places = (self.rank..).step_by(self.world).take(self.share());
        let own: Vec<usize> = places.map(|place| order[place % self.samples]).collect();
        own.chunks(self.batch).take(self.batches()).map(<[usize]>::to_vec).collect()
    }

    /// Returns the number of samples of a rank.
    fn share(&self) -> usize {
        if self.drop_last { self.samples / self.world } else { self.samples.div_ceil(self.world) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sampler(samples: usize, batch: usize, rank: usize, world: usize, drop_last: bool) -> TrainingSampler {
        TrainingSampler { seed: 7, samples, batch, rank, world, drop_last }
    }

    #[test]
    fn an_epoch_reads_every_sample_once_in_an_order_of_its_own() {
        let sampler = sampler(10, 4, 0, 1, false);
        let epochs: Vec<Vec<usize>> = (0..3).map(|number| sampler.epoch(number).concat()).collect();
        for order in &epochs {
            assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..10).collect());
            assert_eq!(order.len(), 10);
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
        assert_eq!(epochs[1], sampler.epoch(1).concat());
        assert_ne!(epochs[1], TrainingSampler { seed: 8, ..sampler.clone() }.epoch(1).concat());
        assert_eq!(sampler.epoch(0).iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    }

    /// `DistributedSampler(range(11), 4, rank, drop_last=...)` has 3 samples a rank with padding, 2 without.
    #[test]
    fn ranks_share_the_samples_evenly_with_padding_or_without_the_rest() {
        let order = sampler(11, 2, 0, 1, false).epoch(5).concat();
        let all = |drop_last| (0..4).map(|rank| sampler(11, 2, rank, 4, drop_last).epoch(5)).collect::<Vec<_>>();
        let padded = all(false);
        assert_eq!(padded[1], [vec![order[1], order[5]], vec![order[9]]]);
        assert_eq!(padded[3], [vec![order[3], order[7]], vec![order[0]]], "the first sample pads the last rank");
        let dropped = all(true);
        assert_eq!(dropped[3], [[order[3], order[7]]]);
        assert!(padded.iter().all(|batches| batches.len() == 2) && dropped.iter().all(|batches| batches.len() == 1));
    }

    #[test]
    fn more_ranks_than_samples_read_samples_again_or_none() {
        let padded: Vec<usize> = (0..7).flat_map(|rank| sampler(3, 2, rank, 7, false).epoch(0).concat()).collect();
        assert_eq!((padded.len(), padded[..4] == padded[3..]), (7, true));
        assert_eq!(sampler(3, 2, 0, 7, true).epoch(0), Vec::<Vec<usize>>::new());
        assert_eq!(sampler(0, 2, 0, 1, false).epoch(0), Vec::<Vec<usize>>::new());
    }
}
