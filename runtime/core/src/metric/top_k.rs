//! Top-k accuracy.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::elements::{integers, unsupported};
use super::{Accumulator, MetricError};
use crate::tensor::{DType, Tensor};

/// Computes top-k accuracy, the share of rows whose label is among the `k` largest scores, as `top1`, `top5`, ...
///
/// `scores`: `N,C` of any float type; `labels`: `N,i64`. Equal scores rank by index, lower first; NaN ranks last.
///
/// # Errors
/// When shapes or types differ from these, a label is outside `0..C`, `ks` is empty, or one of its elements is outside
/// `1..=C` or duplicate.
pub fn top_k(scores: &Tensor, labels: &Tensor, ks: &[usize]) -> Result<Accumulator, MetricError> {
    let (&[rows, classes], true) = (scores.shape(), scores.dtype().is_float()) else {
        return Err(unsupported("the scores are", scores, "`N,C` of a float type"));
    };
    if labels.shape() != [rows] || labels.dtype() != DType::I64 {
        return Err(unsupported("the labels are", labels, &format!("`{rows},i64`")));
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
    let labels = integers(labels).unwrap_or_default();
    let ranks = if let Ok(scores) = scores.as_slice::<f32>() {
        ranks(scores, classes, &labels)?
    } else if let Ok(halves) = scores.as_slice::<f16>() {
        let mut widened = vec![0.0; halves.len()];
        halves.convert_to_f32_slice(&mut widened);
        ranks(&widened, classes, &labels)?
    } else {
        ranks(&scores.to_f64(), classes, &labels)?
    };
    let mut accumulator = Accumulator::default();
    for k in ks {
        let hits = ranks.iter().filter(|rank| *rank < k).count();
        accumulator.merge(&Accumulator::mean(&format!("top{k}"), hits as f64, rows as u64))?;
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
pub(super) fn rank_of<T: PartialOrd + Copy>(row: &[T], label: i64) -> Option<usize> {
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
        merged.merge(&top_k(&second, &labels(&[1]), &[1]).unwrap()).unwrap();
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
}
