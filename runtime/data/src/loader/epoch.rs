//! The passes of a training: the batches of a rank in an epoch.

use std::ops::Range;

use super::{BatchRequest, Loader};
use crate::TrainingSampler;

impl Loader {
    /// Starts a pass over `batches` of those that the sampler draws for the epoch `number`; random transforms draw for this epoch.
    /// Samples are read even if the dataset is preloaded. A pass in progress is abandoned.
    pub fn start_epoch(&mut self, sampler: &TrainingSampler, number: u64, batches: Range<usize>) {
        assert!(
            sampler.batch <= self.options.batch_size && sampler.samples <= self.dataset.len(),
            "the sampler draws samples of this dataset in batches that fit into the slots"
        );
        let request = |(number, samples): (usize, Vec<usize>)| BatchRequest {
            number: number as u64,
            samples: samples.into_iter().map(|sample| sample as u64).collect(),
            perturbation: None,
        };
        let drawn = sampler.epoch(number).into_iter().enumerate();
        let batches = drawn.skip(batches.start).take(batches.len()).map(request).collect();
        self.start_plan(batches, false, Some(sampler.epoch_of(number)));
    }
}
