//! What an evaluator returns: sums that merge over batches and are finished once a pass.

use half::f16;
use half::slice::HalfFloatSliceExt;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::tensor::{DType, Tensor};

/// Mergeable state of a metric over some samples. `finish` turns it into named figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accumulator {
    means: IndexMap<String, Mean>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Accumulator {
    /// Adds `count` observations that sum to `sum` to the mean called `name`. More observations than 64 bits count make
    /// its figure NaN, never a wrong number.
    pub fn add(&mut self, name: &str, sum: f64, count: u64) {
        let mean = self.means.entry(name.to_owned()).or_default();
        let (counted, wrapped) = mean.count.overflowing_add(count);
        mean.sum = if wrapped { f64::NAN } else { mean.sum + sum };
        mean.count = if wrapped { u64::MAX } else { counted };
    }

    /// Takes over what another accumulator has seen.
    pub fn merge(&mut self, other: &Accumulator) {
        for (name, mean) in &other.means {
            self.add(name, mean.sum, mean.count);
        }
    }

    /// The figures by name; one without observations is left out.
    pub fn finish(&self) -> IndexMap<String, f64> {
        let seen = self.means.iter().filter(|(_, mean)| mean.count > 0);
        seen.map(|(name, mean)| (name.clone(), mean.sum / mean.count as f64)).collect()
    }

    /// The names of figures without an observation: they were to be measured, and nothing was.
    pub fn unobserved(&self) -> impl Iterator<Item = &str> {
        self.means.iter().filter(|(_, mean)| mean.count == 0).map(|(name, _)| name.as_str())
    }

    /// The names of all figures, with and without observations.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.means.keys().map(String::as_str)
    }

    /// The observations of each figure.
    pub fn counts(&self) -> IndexMap<String, u64> {
        self.means.iter().map(|(name, mean)| (name.clone(), mean.count)).collect()
    }

    /// The most observations that any figure has: the samples evaluated.
    pub fn observations(&self) -> u64 {
        self.means.values().map(|mean| mean.count).max().unwrap_or(0)
    }
}

/// Top-k accuracy: the share of rows whose label is among the `k` largest scores, as `top1`, `top5`, ...
///
/// `scores`: `N,C` of any float type; `labels`: `N,i64`. Equal scores rank by index, lower first; NaN ranks last.
///
/// # Errors
/// When shapes or types differ from that, a label is outside `0..C`, there is no `k`, or one is outside `1..=C` or there
/// twice.
pub fn top_k(scores: &Tensor, labels: &Tensor, ks: &[usize]) -> Result<Accumulator, MetricError> {
    let (&[rows, classes], true) = (scores.shape(), scores.dtype().is_float()) else {
        return Err(MetricError::Scores(scores.spec().to_string()));
    };
    if labels.shape() != [rows] || labels.dtype() != DType::I64 {
        return Err(MetricError::Labels { is: labels.spec().to_string(), rows });
    }
    if let Some(k) = ks.iter().find(|k| **k == 0 || **k > classes) {
        return Err(MetricError::K { k: *k, classes });
    }
    if ks.is_empty() {
        return Err(MetricError::NoK);
    }
    if let Some((at, k)) = ks.iter().enumerate().find(|(at, k)| ks[..*at].contains(k)) {
        return Err(MetricError::KTwice { k: *k, at: at + 1 });
    }
    let labels = labels.as_slice::<i64>().map_err(|_| MetricError::Labels { is: labels.spec().to_string(), rows })?;
    let ranks = if let Ok(scores) = scores.as_slice::<f32>() {
        ranks(scores, classes, labels)?
    } else if let Ok(halves) = scores.as_slice::<f16>() {
        let mut widened = vec![0.0; halves.len()];
        halves.convert_to_f32_slice(&mut widened);
        ranks(&widened, classes, labels)?
    } else {
        ranks(&scores.to_f64(), classes, labels)?
    };
    let mut seen = Accumulator::default();
    for k in ks {
        let hits = ranks.iter().filter(|rank| *rank < k).count();
        seen.add(&format!("top{k}"), hits as f64, rows as u64);
    }
    Ok(seen)
}

/// The rank of each row's label.
fn ranks<T: PartialOrd + Copy>(scores: &[T], classes: usize, labels: &[i64]) -> Result<Vec<usize>, MetricError> {
    let rows = scores.chunks_exact(classes.max(1)).zip(labels);
    rows.map(|(row, label)| rank_of(row, *label).ok_or(MetricError::Label { label: *label, classes })).collect()
}

/// How many classes score above the label's, or `None` when the label is no class.
fn rank_of<T: PartialOrd + Copy>(row: &[T], label: i64) -> Option<usize> {
    let label = usize::try_from(label).ok().filter(|l| *l < row.len())?;
    let own = row[label];
    if own.partial_cmp(&own).is_none() {
        return Some(row.len());
    }
    // Summed in 32 bits, so that the compiler compares several scores at once.
    let before: u32 = row[..label].iter().map(|score| u32::from(*score >= own)).sum();
    let after: u32 = row[label + 1..].iter().map(|score| u32::from(*score > own)).sum();
    Some((before + after) as usize)
}

/// An evaluator's input that a metric does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// Scores of another shape or type.
    #[error("scores are `{0}`, expected `N,C` of a float type")]
    Scores(String),
    /// Labels of another shape or type.
    #[error("labels are `{is}`, expected `{rows},i64`")]
    Labels {
        /// What they are.
        is: String,
        /// Rows of the scores.
        rows: usize,
    },
    /// A label that is no class.
    #[error(
        "label {label} is out of range: the model has {classes} classes, from 0; does the class list fit the model?"
    )]
    Label {
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// No k at all.
    #[error("top-k accuracy needs at least one `k`")]
    NoK,
    /// A k that is there twice.
    #[error("`{k}` is there twice among the `k` of top-k accuracy (again at place {at})")]
    KTwice {
        /// The k.
        k: usize,
        /// Its second place, from 1.
        at: usize,
    },
    /// A k that no rank can be compared with.
    #[error("top-{k} accuracy over {classes} classes: `k` is 1 to the number of classes")]
    K {
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
        let seen = top_k(&scores(), &labels(&[2, 0]), &[1, 2]).unwrap();
        assert_eq!(seen.finish()["top1"], 0.5);
        assert_eq!(seen.finish()["top2"], 1.0);
        assert_eq!(seen.observations(), 2);
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            assert_eq!(top_k(&scores().cast(dtype), &labels(&[2, 0]), &[1, 2]).unwrap(), seen, "{dtype}");
        }
    }

    #[test]
    fn a_nan_score_is_never_a_hit() {
        let seen = top_k(&scores(), &labels(&[1, 2]), &[3]).unwrap();
        assert_eq!(seen.finish()["top3"], 0.5);
    }

    #[test]
    fn merging_batches_equals_one_batch() {
        let whole = top_k(&scores(), &labels(&[1, 1]), &[1]).unwrap();
        let (first, second) = (scores().rows(1).unwrap(), Tensor::from_vec([1, 3], vec![0.3f32, 0.2, 0.1]).unwrap());
        let mut merged = top_k(&first, &labels(&[1]), &[1]).unwrap();
        merged.merge(&top_k(&second, &labels(&[1]), &[1]).unwrap());
        assert_eq!(merged, whole);
    }

    #[test]
    fn a_label_outside_the_classes_names_the_class_list() {
        let error = top_k(&scores(), &labels(&[0, 3]), &[1]).unwrap_err();
        let expected = "label 3 is out of range: the model has 3 classes, from 0; does the class list fit the model?";
        assert_eq!(error.to_string(), expected);
        for label in [-1, i64::MIN, i64::MAX] {
            assert_eq!(top_k(&scores(), &labels(&[0, label]), &[1]), Err(MetricError::Label { label, classes: 3 }));
        }
    }

    #[test]
    fn a_k_that_no_rank_can_be_compared_with_is_refused() {
        let refused = |ks: &[usize]| top_k(&scores(), &labels(&[0, 1]), ks).unwrap_err().to_string();
        assert_eq!(refused(&[1, 4]), "top-4 accuracy over 3 classes: `k` is 1 to the number of classes");
        assert_eq!(refused(&[0]), "top-0 accuracy over 3 classes: `k` is 1 to the number of classes");
        assert_eq!(refused(&[]), "top-k accuracy needs at least one `k`");
        assert_eq!(refused(&[1, 2, 1]), "`1` is there twice among the `k` of top-k accuracy (again at place 3)");
    }

    #[test]
    fn no_observation_is_no_figure_and_is_named() {
        let none = top_k(&scores().rows(0).unwrap(), &labels(&[]), &[1, 3]).unwrap();
        assert!(none.finish().is_empty());
        assert_eq!(none.unobserved().collect::<Vec<_>>(), ["top1", "top3"]);
        assert_eq!(none.observations(), 0);
        let mut some = none;
        some.merge(&top_k(&scores(), &labels(&[0, 0]), &[1]).unwrap());
        assert_eq!(some.unobserved().collect::<Vec<_>>(), ["top3"]);
        assert_eq!(some.finish().keys().collect::<Vec<_>>(), ["top1"]);
    }

    #[test]
    fn counts_do_not_wrap() {
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
