//! Matching the detections of one image with its truth, as pycocotools' `evaluateImg` does.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{AREA_RANGES, AREAS, CategoryMatches, MatchedDetection, PER_IMAGE_MAX, THRESHOLDS};
use crate::metric::MetricError;

/// A box as COCO has it: left, top, width, height, in pixels.
pub type CocoBox = [f64; 4];

/// The detections of an image, in any order.
#[derive(Clone, Debug, Default)]
pub struct ImageDetections {
    pub boxes: Vec<CocoBox>,
    /// The score of each box.
    pub scores: Vec<f64>,
    /// The category of each box.
    pub classes: Vec<i64>,
}

/// The annotated boxes of an image.
#[derive(Clone, Debug, Default)]
pub struct ImageTruth {
    /// The id of the image.
    pub id: i64,
    pub boxes: Vec<CocoBox>,
    /// The category of each box.
    pub classes: Vec<i64>,
    /// The area of each object in square pixels, which selects its range: in COCO that of its mask.
    pub areas: Vec<f64>,
    /// Whether each box contains a crowd, which any number of detections may match without being right or wrong.
    pub crowds: Vec<bool>,
}

/// Checks that all numbers are finite and no size is negative. Comparisons of other numbers have no meaning.
pub(super) fn check(detections: &ImageDetections, truth: &ImageTruth, image: usize) -> Result<(), MetricError> {
    let bad = |what: &'static str, boxes: &[CocoBox], values: &[f64]| {
        let fits = |(corners, value): (&CocoBox, &f64)| {
            corners.iter().chain([value]).all(|number| number.is_finite()) && corners[2] >= 0.0 && corners[3] >= 0.0
        };
        let index = boxes.iter().zip(values).position(|pair| !fits(pair))?;
        let found = format!("{:?} with {}", boxes[index], values[index]);
        Some(MetricError::Box { what, index, image, found })
    };
    let found = bad("detection", &detections.boxes, &detections.scores);
    found.or_else(|| bad("truth", &truth.boxes, &truth.areas)).map_or(Ok(()), Err)
}

/// Matches detections and truth in every category and range of area.
pub(super) fn match_image(detections: &ImageDetections, truth: &ImageTruth) -> BTreeMap<i64, CategoryMatches> {
    let mut categories: BTreeMap<i64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (index, class) in detections.classes.iter().enumerate() {
        categories.entry(*class).or_default().0.push(index);
    }
    for (index, class) in truth.classes.iter().enumerate() {
        categories.entry(*class).or_default().1.push(index);
    }
    categories
        .into_iter()
        .map(|(class, (found, wanted))| (class, match_category(detections, truth, found, &wanted)))
        .collect()
}

/// Returns the order of two finite scores, the higher first; 0 and -0 are equal.
pub(super) fn by_score(score: f64, other: f64) -> Ordering {
    other.partial_cmp(&score).unwrap_or(Ordering::Equal)
}

fn match_category(
    detections: &ImageDetections,
    truth: &ImageTruth,
    mut found: Vec<usize>,
    wanted: &[usize],
) -> CategoryMatches {
    // A stable sort, as the merge sort of pycocotools.
    found.sort_by(|a, b| by_score(detections.scores[*a], detections.scores[*b]));
    found.truncate(PER_IMAGE_MAX);
    let overlaps: Vec<Vec<f64>> = found
        .iter()
        .map(|at| wanted.iter().map(|to| overlap(detections.boxes[*at], truth.boxes[*to], truth.crowds[*to])).collect())
        .collect();
    let matched = |(rank, at): (usize, &usize)| MatchedDetection {
        score: detections.scores[*at],
        image: truth.id,
        rank: rank as u8,
        matched: [0; AREAS],
        ignored: [0; AREAS],
    };
    let mut matches =
        CategoryMatches { detections: found.iter().enumerate().map(matched).collect(), positives: [0; AREAS] };
    for (area, (least, most)) in AREA_RANGES.into_iter().enumerate() {
        let outside = |size: f64| size < least || size > most;
        let mut boxes: Vec<TruthBox> = wanted
            .iter()
            .enumerate()
            .map(|(column, to)| TruthBox {
                column,
                crowd: truth.crowds[*to],
                ignored: truth.crowds[*to] || outside(truth.areas[*to]),
            })
            .collect();
        boxes.sort_by_key(|wanted| wanted.ignored);
        matches.positives[area] = boxes.iter().filter(|wanted| !wanted.ignored).count() as u64;
        let beyond = |rank: usize| {
            let [_, _, width, height] = detections.boxes[found[rank]];
            outside(width * height)
        };
        for threshold in 0..THRESHOLDS {
            match_at(threshold, area, &overlaps, &boxes, beyond, &mut matches.detections);
        }
    }
    matches
}

/// A box of the truth, with its state while detections are matched in one range of area.
struct TruthBox {
    /// Its column in the table of overlaps.
    column: usize,
    crowd: bool,
    ignored: bool,
}

/// Matches each detection, best first, with the free box that it overlaps most; boxes that are ignored come last.
fn match_at(
    threshold: usize,
    area: usize,
    overlaps: &[Vec<f64>],
    boxes: &[TruthBox],
    outside: impl Fn(usize) -> bool,
    detections: &mut [MatchedDetection],
) {
    let mut taken = vec![false; boxes.len()];
    let bit = 1 << threshold;
    for (rank, detection) in detections.iter_mut().enumerate() {
        let mut least = threshold_value(threshold).min(1.0 - 1e-10);
        let mut best: Option<usize> = None;
        for (index, wanted) in boxes.iter().enumerate() {
            if taken[index] && !wanted.crowd {
                continue;
            }
            if best.is_some_and(|best| !boxes[best].ignored && wanted.ignored) {
                break;
            }
            let overlap = overlaps[rank][wanted.column];
            if overlap >= least {
                least = overlap;
                best = Some(index);
            }
        }
        if let Some(best) = best {
            taken[best] = true;
            detection.matched[area] |= bit;
        }
        if best.map_or_else(|| outside(rank), |best| boxes[best].ignored) {
            detection.ignored[area] |= bit;
        }
    }
}

/// Returns a threshold with the rounding of NumPy's `linspace(0.5, 0.95, 10)`.
fn threshold_value(index: usize) -> f64 {
    const STEP: f64 = (0.95 - 0.5) / 9.0;
    if index + 1 == THRESHOLDS { 0.95 } else { index as f64 * STEP + 0.5 }
}

/// Returns intersection over union; for a crowd, intersection over the area of the detection.
fn overlap(found: CocoBox, wanted: CocoBox, crowd: bool) -> f64 {
    let [left, top, width, height] = found;
    let [other_left, other_top, other_width, other_height] = wanted;
    let across = (left + width).min(other_left + other_width) - left.max(other_left);
    let down = (top + height).min(other_top + other_height) - top.max(other_top);
    if across <= 0.0 || down <= 0.0 {
        return 0.0;
    }
    let both = across * down;
    let area = width * height;
    both / if crowd { area } else { area + other_width * other_height - both }
}
