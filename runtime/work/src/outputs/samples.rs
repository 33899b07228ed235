//! Samples with kept outputs, for another engine to compute again.

use std::hash::{BuildHasher, RandomState};

use flagperf_core::tensor::Tensor;
use flagperf_data::BatchRequest;

use super::{KeptBatch, KeptOutputs};

/// Some samples of a batch.
#[derive(Debug)]
pub struct DrawnSamples {
    /// Requests the samples.
    pub request: BatchRequest,
    /// Their rows in the batch.
    pub rows: Vec<usize>,
    /// Number of rows of the batch.
    pub batch_rows: usize,
    /// The outputs of the batch.
    pub outputs: Vec<(String, Tensor)>,
}

/// Number of samples that are drawn from a batch.
pub const SAMPLES_DRAWN: usize = 2;

/// Draws samples of one of these batches.
fn draw_samples(mut batches: Vec<(BatchRequest, &KeptBatch)>) -> Option<DrawnSamples> {
    batches.retain(|(_, batch)| batch.tickets.len() == batch.samples as usize && batch.samples > 0);
    let random = |below: usize| RandomState::new().hash_one(0) as usize % below;
    let (request, batch) = batches.get(random(batches.len().max(1)))?;
    let batch_rows = batch.tickets.len();
    let first = random(batch_rows);
    // The second row is any of the others.
    let second = (first + 1 + random((batch_rows - 1).max(1))) % batch_rows;
    let rows: Vec<usize> = [first, second].into_iter().take(SAMPLES_DRAWN.min(batch_rows)).collect();
    let samples = rows.iter().map(|row| batch.tickets[*row]).collect();
    let request = BatchRequest { samples, ..request.clone() };
    Some(DrawnSamples { request, rows, batch_rows, outputs: batch.outputs.clone() })
}

impl KeptOutputs {
    /// Returns some samples of the pass, and some of the fresh inputs, drawn at random so that no engine can know them. Batches of
    /// which a sample could not be read are left out.
    pub fn draw_samples(&self) -> Vec<DrawnSamples> {
        let of_pass = |batch: &KeptBatch| BatchRequest {
            number: 0,
            samples: batch.tickets.as_slice().into(),
            perturbation: None,
        };
        let pass = self.batches.iter().map(|batch| (of_pass(batch), batch)).collect();
        let fresh = self.fresh_requests.iter().cloned().zip(&self.fresh).collect();
        [pass, fresh].into_iter().filter_map(draw_samples).collect()
    }

    /// Returns some samples of the fresh inputs that validation did not run; `None` if there are none, or if the sample of a batch
    /// could not be read.
    pub fn draw_unseen(&self) -> Option<DrawnSamples> {
        let (request, batch) = self.unseen.as_ref()?;
        draw_samples(vec![(request.clone(), batch)])
    }

    /// Returns all samples of the pass, or as many of them, drawn at random, as are given at most. A request has at most so many
    /// of a batch.
    pub fn all_samples(&self, samples_max: usize, batch_size: usize) -> Vec<DrawnSamples> {
        let random = RandomState::new();
        let shuffled = |count: usize, salt: usize| {
            let mut numbers: Vec<usize> = (0..count).collect();
            numbers.sort_by_cached_key(|number| random.hash_one((salt, number)));
            numbers
        };
        let (mut left, mut all) = (samples_max, Vec::new());
        for index in shuffled(self.batches.len(), usize::MAX) {
            let batch = &self.batches[index];
            if batch.tickets.len() != batch.samples as usize {
                continue;
            }
            for rows in shuffled(batch.tickets.len(), index).chunks(batch_size.max(1)) {
                let rows = rows[..rows.len().min(left)].to_vec();
                left -= rows.len();
                if rows.is_empty() {
                    return all;
                }
                let samples = rows.iter().map(|row| batch.tickets[*row]).collect();
                let request = BatchRequest { number: 0, samples, perturbation: None };
                let outputs = batch.outputs.clone();
                all.push(DrawnSamples { request, rows, batch_rows: batch.tickets.len(), outputs });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_samples_are_requested_once_or_as_many_as_are_given() {
        let batch = |tickets: std::ops::Range<u64>| KeptBatch {
            samples: tickets.clone().count() as u32,
            tickets: tickets.collect(),
            outputs: Vec::new(),
        };
        let kept = KeptOutputs { batches: vec![batch(0..7), batch(7..10)], ..KeptOutputs::default() };
        let samples = |count, size| {
            let drawn = kept.all_samples(count, size);
            assert!(
                drawn.iter().all(|drawn| drawn.rows.len() == drawn.request.samples.len() && drawn.rows.len() <= size)
            );
            let mut samples: Vec<u64> = drawn.iter().flat_map(|drawn| drawn.request.samples.to_vec()).collect();
            samples.sort_unstable();
            samples
        };
        assert_eq!(samples(usize::MAX, 4), (0..10).collect::<Vec<_>>());
        let mut some = samples(5, 2);
        assert_eq!(some.len(), 5);
        some.dedup();
        assert_eq!(some.len(), 5);
    }
}
