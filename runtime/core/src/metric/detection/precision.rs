//! Precision over recall of one category, as pycocotools' `accumulate` computes it.

use super::matching::by_score;
use super::{CategoryMatches, MatchedDetection, THRESHOLDS};

/// Number of points at which precision is read: recall 0 to 1 in steps of 0.01.
const RECALL_POINTS: usize = 101;

/// The figures of a category at one threshold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Curve {
    /// Mean precision over the points of recall.
    pub(super) precision: f64,
    /// Recall over all detections.
    pub(super) recall: f64,
}

/// Returns the figures of a category with boxes to find in the range of area, with at most `per_image` detections of
/// each image.
pub(super) fn curves(category: &CategoryMatches, area: usize, per_image: usize) -> [Curve; THRESHOLDS] {
    let mut detections: Vec<&MatchedDetection> =
        category.detections.iter().filter(|detection| usize::from(detection.rank) < per_image).collect();
    // pycocotools sorts the detections of all images, in the order of their ids, with a stable sort.
    detections.sort_by(|a, b| by_score(a.score, b.score).then_with(|| (a.image, a.rank).cmp(&(b.image, b.rank))));
    let positives = category.positives[area] as f64;
    std::array::from_fn(|threshold| {
        let bit = 1 << threshold;
        let counted = detections.iter().filter(|detection| detection.ignored[area] & bit == 0);
        curve(counted.map(|detection| detection.matched[area] & bit != 0), positives)
    })
}

/// Returns the figures of detections that count, best first: `true` for a right one.
fn curve(right: impl Iterator<Item = bool>, positives: f64) -> Curve {
    let (mut hits, mut misses) = (0.0, 0.0);
    let (mut recalls, mut precisions) = (Vec::new(), Vec::new());
    for right in right {
        if right {
            hits += 1.0;
        } else {
            misses += 1.0;
        }
        recalls.push(hits / positives);
        precisions.push(hits / (hits + misses + f64::EPSILON));
    }
    for at in (1..precisions.len()).rev() {
        precisions[at - 1] = precisions[at - 1].max(precisions[at]);
    }
    let at_recall = |point: usize| {
        let least = if point + 1 == RECALL_POINTS { 1.0 } else { point as f64 * (1.0 / (RECALL_POINTS - 1) as f64) };
        precisions.get(recalls.partition_point(|recall| *recall < least)).copied().unwrap_or(0.0)
    };
    let sum: f64 = (0..RECALL_POINTS).map(at_recall).sum();
    Curve { precision: sum / RECALL_POINTS as f64, recall: recalls.last().copied().unwrap_or(0.0) }
}
