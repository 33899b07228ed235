//! Metrics of segmentation: intersection over union by class, accuracy of pixels, and FlagPerf's agreement of masks.

use serde::{Deserialize, Serialize};

use super::elements::{integers, unsupported};
use super::state::{MetricState, MetricSum};
use super::{Accumulator, MetricError};
use crate::tensor::Tensor;

/// Largest number of classes of a segmentation.
const CLASSES_MAX: usize = 1 << 16;

/// Pixels by class: in both the prediction and the truth, and in either.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassOverlap {
    intersection: Vec<u64>,
    union: Vec<u64>,
    pixels: u64,
}

impl ClassOverlap {
    /// Returns the number of classes.
    pub(super) fn classes(&self) -> usize {
        self.union.len()
    }

    /// Adds another overlap over the same classes.
    pub(super) fn merge(&mut self, other: &ClassOverlap) {
        let add = |own: &mut [u64], other: &[u64]| {
            own.iter_mut().zip(other).for_each(|(own, other)| *own = own.saturating_add(*other));
        };
        add(&mut self.intersection, &other.intersection);
        add(&mut self.union, &other.union);
        self.pixels = self.pixels.saturating_add(other.pixels);
    }

    /// Returns the number of pixels that count.
    pub(super) fn pixels(&self) -> u64 {
        self.pixels
    }

    /// Returns the mean of intersection over union, over the classes that the prediction or the truth contains.
    pub(super) fn mean(&self) -> f64 {
        let present = self.intersection.iter().zip(&self.union).filter(|(_, union)| **union > 0);
        let mut mean = MetricSum::default();
        present.for_each(|(intersection, union)| mean.add(*intersection as f64 / *union as f64, 1));
        mean.mean()
    }
}

/// Computes `mean_iou`, the mean over the classes of intersection over union, and `pixel_accuracy`, the share of pixels
/// whose class is that of the truth. Classes that neither contains have no part in the mean; pixels whose truth is
/// `ignore` do not count.
///
/// `labels` and `truth`: integers of the same shape, such as `N,H,W`, each a class from 0 to `classes - 1`.
///
/// # Errors
/// When shapes or types differ from these, a label is outside the classes, or there are no classes or more than 65,536.
pub fn iou(labels: &Tensor, truth: &Tensor, classes: usize, ignore: Option<i64>) -> Result<Accumulator, MetricError> {
    if classes == 0 || classes > CLASSES_MAX {
        return Err(MetricError::Classes { classes, max: CLASSES_MAX });
    }
    let (labels, truth) = same_shape(labels, truth)?;
    let class = |label: i64| {
        let class = usize::try_from(label).ok().filter(|class| *class < classes);
        class.ok_or(MetricError::LabelOutOfRange { label, classes })
    };
    let mut overlap = ClassOverlap { intersection: vec![0; classes], union: vec![0; classes], pixels: 0 };
    let mut hits = MetricSum::default();
    for (label, truth) in labels.iter().zip(&truth).filter(|(_, truth)| Some(**truth) != ignore) {
        let (label, truth) = (class(*label)?, class(*truth)?);
        overlap.union[label] += 1;
        overlap.pixels += 1;
        if label == truth {
            overlap.intersection[label] += 1;
        } else {
            overlap.union[truth] += 1;
        }
        hits.add(f64::from(u8::from(label == truth)), 1);
    }
    let mut figures = Accumulator::of("mean_iou", MetricState::Overlap(overlap));
    figures.merge(&Accumulator::of("pixel_accuracy", MetricState::Mean(hits)))?;
    Ok(figures)
}

/// Computes `pixel_agreement`, the share of mask pixels that equal the stored ones: what FlagPerf's SAM case calls IoU.
/// It counts pixels of the background too, so it exceeds the intersection over union of the masks.
///
/// `masks` and `truth`: integers or booleans of the same shape.
///
/// # Errors
/// When shapes or types differ from these.
pub fn pixel_agreement(masks: &Tensor, truth: &Tensor) -> Result<Accumulator, MetricError> {
    let (masks, truth) = same_shape(masks, truth)?;
    let equal = masks.iter().zip(&truth).filter(|(mask, truth)| mask == truth).count();
    Ok(Accumulator::mean("pixel_agreement", equal as f64, masks.len() as u64))
}

fn same_shape(labels: &Tensor, truth: &Tensor) -> Result<(Vec<i64>, Vec<i64>), MetricError> {
    let expected = "an integer type or `bool`";
    let wanted = integers(truth).ok_or_else(|| unsupported("the truth is", truth, expected))?;
    let found = integers(labels).ok_or_else(|| unsupported("the labels are", labels, expected))?;
    if labels.shape() != truth.shape() {
        return Err(unsupported("the labels are", labels, &format!("the shape of the truth, `{}`", truth.spec())));
    }
    Ok((found, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[i64]) -> Tensor {
        Tensor::from_vec([1, values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn mean_iou_is_the_mean_over_the_classes_that_occur() {
        let figures = iou(&labels(&[0, 0, 1, 1]), &labels(&[0, 1, 1, 1]), 5, None).unwrap().finish();
        assert_eq!(figures["mean_iou"], (1.0 / 2.0 + 2.0 / 3.0) / 2.0);
        assert_eq!(figures["pixel_accuracy"], 0.75);
    }

    #[test]
    fn mean_iou_over_batches_is_computed_from_all_pixels() {
        let of = |found: &[i64], truth: &[i64]| iou(&labels(found), &labels(truth), 2, Some(255)).unwrap();
        let mut both = of(&[0, 0, 1], &[0, 1, 255]);
        both.merge(&of(&[1], &[1])).unwrap();
        assert_eq!(both, of(&[0, 0, 1, 1], &[0, 1, 255, 1]));
        assert_eq!(both.finish()["mean_iou"], 0.5);
        let other = iou(&labels(&[0]), &labels(&[0]), 3, None).unwrap();
        assert!(both.merge(&other).is_err(), "another number of classes");
    }

    #[test]
    fn a_label_outside_the_classes_is_refused_on_either_side() {
        for (found, truth) in [([2], [0]), ([0], [2]), ([-1], [0])] {
            let error = iou(&labels(&found), &labels(&truth), 2, None).unwrap_err();
            assert!(error.to_string().contains("the model has 2 classes, 0 to 1"), "{error}");
        }
        assert!(iou(&labels(&[0]), &labels(&[0]), 0, None).is_err());
    }

    #[test]
    fn pixel_agreement_counts_the_background_too() {
        let (mask, truth) = ([true, false, false, false], [false, true, false, false]);
        let tensor = |flags: &[bool]| Tensor::from_bools([1, 4], flags).unwrap();
        let figures = pixel_agreement(&tensor(&mask), &tensor(&truth)).unwrap().finish();
        assert_eq!(figures["pixel_agreement"], 0.5);
        let error = pixel_agreement(&tensor(&mask), &labels(&[1, 2])).unwrap_err();
        assert_eq!(error.to_string(), "the labels are `1,4,bool` (expected: the shape of the truth, `1,2,i64`)");
    }
}
