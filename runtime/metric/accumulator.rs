//! The result of an evaluator: sums that are merged over the batches of a pass and then turned into figures.

use half::f16;
use half::slice::HalfFloatSliceExt;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::tensor::{DType, Tensor};

/// Mergeable sums of metrics over some samples. [`Accumulator::finish`] turns them into named figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accumulator {
    sums: IndexMap<String, MetricSum>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct MetricSum {
    sum: f64,
    count: u64,
}

impl Accumulator {
    /// Adds `count` observations with the total `sum` to the metric `name`. If the number of observations overflows 64
    /// bits, the figure becomes NaN rather than a wrong number.
    pub fn add(&mut self, name: &str, sum: f64, count: u64) {
        let mean = self.sums.entry(name.to_owned()).or_default();
        let (counted, wrapped) = mean.count.overflowing_add(count);
        mean.sum = if wrapped { f64::NAN } else { mean.sum + sum };
        mean.count = if wrapped { u64::MAX } else { counted };
    }

    /// Adds the observations of another accumulator.
    pub fn merge(&mut self, other: &Accumulator) {
        for (name, mean) in &other.sums {
            self.add(name, mean.sum, mean.count);
        }
    }

    /// Returns the figures by name, without those that have no observations.
    pub fn finish(&self) -> IndexMap<String, f64> {
        let observed = self.sums.iter().filter(|(_, mean)| mean.count > 0);
        observed.map(|(name, mean)| (name.clone(), mean.sum / mean.count as f64)).collect()
    }

    /// Returns the names of the metrics that an evaluator added without any observation.
    pub fn unobserved(&self) -> impl Iterator<Item = &str> {
        self.sums.iter().filter(|(_, mean)| mean.count == 0).map(|(name, _)| name.as_str())
    }

    /// Returns the names of all metrics, with and without observations.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sums.keys().map(String::as_str)
    }

    /// Returns the number of observations of each metric.
    pub fn counts(&self) -> IndexMap<String, u64> {
        self.sums.iter().map(|(name, mean)| (name.clone(), mean.count)).collect()
    }

    /// Returns the number of evaluated samples: the largest number of observations of any metric.
    pub fn observations(&self) -> u64 {
        self.sums.values().map(|mean| mean.count).max().unwrap_or(0)
    }
}

/// Computes top-k accuracy, the share of rows whose label is among the `k` largest scores, as `top1`, `top5`, ...
///
/// `scores`: `N,C` of any float type; `labels`: `N,i64`. Equal scores rank by index, lower first; NaN ranks last.
///
/// # Errors
/// When shapes or types differ from these, a label is outside `0..C`, `ks` is empty, or one of its elements is outside
/// `1..=C` or duplicate.
pub fn top_k(scores: &Tensor, labels: &Tensor, ks: &[usize]) -> Result<Accumulator, MetricError> {
    let (&[rows, classes], true) = (scores.shape(), scores.dtype().is_float()) else {
        return Err(MetricError::UnsupportedScores(scores.spec().to_string()));
    };
    if labels.shape() != [rows] || labels.dtype() != DType::I64 {
        return Err(MetricError::LabelsMismatch { found: labels.spec().to_string(), rows });
    }
    if let Some(k) = ks.iter().find(|k| **k == 0 || **k > classes) {
        return Err(MetricError::KOutOfRange { k: *k, classes });
    }
    if ks.is_empty() {
        return Err(MetricError::NoK);
    }
    if let Some((index, k)) = ks.iter().enumerate().find(|(index, k)| ks[..*index].contains(k)) {
        return Err(MetricError::DuplicateK { k: *k, position: index + 1 });
    }
    let labels =
        labels.as_slice::<i64>().map_err(|_| MetricError::LabelsMismatch { found: labels.spec().to_string(), rows })?;
    let ranks = if let Ok(scores) = scores.as_slice::<f32>() {
        ranks(scores, classes, labels)?
    } else if let Ok(halves) = scores.as_slice::<f16>() {
        let mut widened = vec![0.0; halves.len()];
        halves.convert_to_f32_slice(&mut widened);
        ranks(&widened, classes, labels)?
    } else {
        ranks(&scores.to_f64(), classes, labels)?
    };
    let mut accumulator = Accumulator::default();
    for k in ks {
        let hits = ranks.iter().filter(|rank| *rank < k).count();
        accumulator.add(&format!("top{k}"), hits as f64, rows as u64);
    }
    Ok(accumulator)
}

/// Returns the rank of each row's label, from 0.
fn ranks<T: PartialOrd + Copy>(scores: &[T], classes: usize, labels: &[i64]) -> Result<Vec<usize>, MetricError> {
    let rows = scores.chunks_exact(classes.max(1)).zip(labels);
    rows.map(|(row, label)| rank_of(row, *label).ok_or(MetricError::LabelOutOfRange { label: *label, classes }))
        .collect()
}

/// Returns the number of classes that rank above the label, or `None` when the label is out of range.
fn rank_of<T: PartialOrd + Copy>(row: &[T], label: i64) -> Option<usize> {
    let label = usize::try_from(label).ok().filter(|l| *l < row.len())?;
    let own = row[label];
    if own.partial_cmp(&own).is_none() {
        return Some(row.len());
    }
    // Sums of 32 bits let the compiler vectorize the comparisons.
    let before: u32 = row[..label].iter().map(|score| u32::from(*score >= own)).sum();
    let after: u32 = row[label + 1..].iter().map(|score| u32::from(*score > own)).sum();
    Some((before + after) as usize)
}

/// Invalid input of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// Scores with an unsupported shape or type.
    #[error("the scores are `{0}` (supported: `N,C` of a float type)")]
    UnsupportedScores(String),
    /// Labels with an unexpected shape or type.
    #[error("the labels are `{found}` (expected: `{rows},i64`)")]
    LabelsMismatch {
        /// Specification of the labels.
        found: String,
        /// Number of rows of the scores.
        rows: usize,
    },
    /// A label that is not the index of a class.
    #[error(
        "label {label} is out of range: the model has {classes} classes, 0 to {last}; \
         does the class list match the model?",
        last = .classes - 1
    )]
    LabelOutOfRange {
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// An empty list of `k`.
    #[error("top-k accuracy needs at least one `k`")]
    NoK,
    /// A duplicate `k`.
    #[error("duplicate `k` of top-k accuracy: `{k}` (again at position {position})")]
    DuplicateK {
        /// The k.
        k: usize,
        /// Position of the duplicate, from 1.
        position: usize,
    },
    /// A `k` that is zero or larger than the number of classes.
    #[error("top-k: `k` is {k}, but must be from 1 to {classes} (the number of classes)")]
    KOutOfRange {
        /// The k.
        k: usize,
        /// Number of classes.
        classes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores() -> Tensor {
        Tensor::from_vec([2, 3], vec![0.1f32, 0.9, 0.5, 0.3, 0.2, f32::NAN]).unwrap()
    }

    fn labels(values: &[i64]) -> Tensor {
        Tensor::from_vec([values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn top_k_counts_rows_whose_label_is_among_the_best() {
        let sums = top_k(&scores(), &labels(&[2, 0]), &[1, 2]).unwrap();
        assert_eq!(sums.finish()["top1"], 0.5);
        assert_eq!(sums.finish()["top2"], 1.0);
        assert_eq!(sums.observations(), 2);
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            assert_eq!(top_k(&scores().cast(dtype), &labels(&[2, 0]), &[1, 2]).unwrap(), sums, "{dtype}");
        }
    }

    #[test]
    fn a_nan_score_is_never_a_hit() {
        let sums = top_k(&scores(), &labels(&[1, 2]), &[3]).unwrap();
        assert_eq!(sums.finish()["top3"], 0.5);
    }

    #[test]
    fn merging_batches_equals_one_batch() {
        let whole = top_k(&scores(), &labels(&[1, 1]), &[1]).unwrap();
        let (first, second) =
            (scores().first_rows(1).unwrap(), Tensor::from_vec([1, 3], vec![0.3f32, 0.2, 0.1]).unwrap());
        let mut merged = top_k(&first, &labels(&[1]), &[1]).unwrap();
        merged.merge(&top_k(&second, &labels(&[1]), &[1]).unwrap());
        assert_eq!(merged, whole);
    }

    #[test]
    fn the_error_for_a_label_out_of_range_mentions_the_class_list() {
        let error = top_k(&scores(), &labels(&[0, 3]), &[1]).unwrap_err();
        let expected = "label 3 is out of range: the model has 3 classes, 0 to 2; does the class list match the model?";
        assert_eq!(error.to_string(), expected);
        for label in [-1, i64::MIN, i64::MAX] {
            assert_eq!(
                top_k(&scores(), &labels(&[0, label]), &[1]),
                Err(MetricError::LabelOutOfRange { label, classes: 3 })
            );
        }
    }

    #[test]
    fn a_missing_duplicate_or_out_of_range_k_is_refused() {
        let refused = |ks: &[usize]| top_k(&scores(), &labels(&[0, 1]), ks).unwrap_err().to_string();
        assert_eq!(refused(&[1, 4]), "top-k: `k` is 4, but must be from 1 to 3 (the number of classes)");
        assert_eq!(refused(&[0]), "top-k: `k` is 0, but must be from 1 to 3 (the number of classes)");
        assert_eq!(refused(&[]), "top-k accuracy needs at least one `k`");
        assert_eq!(refused(&[1, 2, 1]), "duplicate `k` of top-k accuracy: `1` (again at position 3)");
    }

    #[test]
    fn a_metric_without_observations_has_no_figure_and_is_listed() {
        let none = top_k(&scores().first_rows(0).unwrap(), &labels(&[]), &[1, 3]).unwrap();
        assert!(none.finish().is_empty());
        assert_eq!(none.unobserved().collect::<Vec<_>>(), ["top1", "top3"]);
        assert_eq!(none.observations(), 0);
        let mut some = none;
        some.merge(&top_k(&scores(), &labels(&[0, 0]), &[1]).unwrap());
        assert_eq!(some.unobserved().collect::<Vec<_>>(), ["top3"]);
        assert_eq!(some.finish().keys().collect::<Vec<_>>(), ["top1"]);
    }

    #[test]
    fn an_overflowing_count_makes_the_figure_nan() {
        let mut seen = Accumulator::default();
        seen.add("words", 1.0, u64::MAX - 1);
        assert_eq!(seen.finish()["words"], 1.0 / u64::MAX as f64);
        seen.add("words", 1.0, 2);
        assert!(seen.finish()["words"].is_nan());
        let other = seen.clone();
        seen.merge(&other);
        assert!(seen.finish()["words"].is_nan());
        assert_eq!(seen.observations(), u64::MAX);
    }
}
