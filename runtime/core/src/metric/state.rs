//! What one metric has accumulated over some samples. Each kind of metric has its own way to merge and to finish.

use serde::{Deserialize, Serialize};

use super::MetricError;
use super::detection::DetectionMatches;
use super::grouped::GroupedHits;
use super::segmentation::ClassOverlap;
use super::spans::AnsweredQuestions;

/// What one metric has accumulated. States of different kinds cannot be merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MetricState {
    /// Finishes as the mean of the observations.
    Mean(MetricSum),
    /// Finishes as the exponential of the mean: perplexity from negative log likelihoods.
    ExpOfMean(MetricSum),
    /// Finishes as the mean of the classes' intersection over union.
    Overlap(ClassOverlap),
    /// Finishes as the accuracy over all observations, the mean over the groups, and the accuracy of each group.
    Groups(GroupedHits),
    /// Finishes as COCO's average precisions and recalls.
    Detections(DetectionMatches),
    /// Finishes as exact match and F1 over questions, each with its best answer.
    Questions(AnsweredQuestions),
}

/// The sum and the number of observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricSum {
    pub sum: f64,
    pub count: u64,
}

impl MetricSum {
    /// Adds `count` observations with the total `sum`. If the number of observations overflows 64 bits, the sum becomes
    /// NaN rather than a wrong number.
    pub fn add(&mut self, sum: f64, count: u64) {
        let (counted, wrapped) = self.count.overflowing_add(count);
        self.sum = if wrapped { f64::NAN } else { self.sum + sum };
        self.count = if wrapped { u64::MAX } else { counted };
    }

    /// Returns the mean of the observations; NaN without any.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

impl MetricState {
    /// Adds what another state of the same kind has accumulated; `name` is the metric, for errors.
    ///
    /// # Errors
    /// [`MetricError::Kinds`] when the other state has another kind or other classes, [`MetricError::Detections`] or
    /// [`MetricError::Questions`] when there are too many.
    pub fn merge(&mut self, name: &str, other: &MetricState) -> Result<(), MetricError> {
        match (self, other) {
            (MetricState::Mean(own), MetricState::Mean(other))
            | (MetricState::ExpOfMean(own), MetricState::ExpOfMean(other)) => own.add(other.sum, other.count),
            (MetricState::Overlap(own), MetricState::Overlap(other)) if own.classes() == other.classes() => {
                own.merge(other);
            }
            (MetricState::Groups(own), MetricState::Groups(other)) => own.merge(other)?,
            (MetricState::Detections(own), MetricState::Detections(other)) => own.merge(other)?,
            (MetricState::Questions(own), MetricState::Questions(other)) => own.merge(other)?,
            _ => return Err(MetricError::Kinds(name.to_owned())),
        }
        Ok(())
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        match self {
            MetricState::Mean(sum) | MetricState::ExpOfMean(sum) => sum.count,
            MetricState::Overlap(overlap) => overlap.pixels(),
            MetricState::Groups(groups) => groups.count(),
            MetricState::Detections(matches) => matches.images(),
            MetricState::Questions(questions) => questions.count(),
        }
    }

    /// Returns the names of the figures of the metric `name`.
    pub fn names(&self, name: &str) -> Vec<String> {
        match self {
            MetricState::Groups(groups) => groups.names(name),
            MetricState::Detections(_) => DetectionMatches::names(),
            MetricState::Questions(_) => AnsweredQuestions::names(),
            _ => vec![name.to_owned()],
        }
    }

    /// Returns the figures of the metric `name`, which has observations.
    pub fn finish(&self, name: &str) -> Vec<(String, f64)> {
        match self {
            MetricState::Mean(sum) => vec![(name.to_owned(), sum.mean())],
            MetricState::ExpOfMean(sum) => vec![(name.to_owned(), sum.mean().exp())],
            MetricState::Overlap(overlap) => vec![(name.to_owned(), overlap.mean())],
            MetricState::Groups(groups) => groups.finish(name),
            MetricState::Detections(matches) => matches.finish(),
            MetricState::Questions(questions) => questions.finish(),
        }
    }
}
