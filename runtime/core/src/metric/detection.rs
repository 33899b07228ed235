//! COCO's average precision and recall of boxes, equal to pycocotools on the same detections.
//!
//! The definition follows `COCOeval` of pycocotools 2.0: greedy matching by score at ten thresholds of intersection over
//! union, four ranges of area, at most 1, 10 or 100 detections per image and category.

mod matching;
mod precision;
#[cfg(test)]
mod tests;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use matching::{ImageDetections, ImageTruth};
use precision::Curve;

use super::state::MetricState;
use super::{Accumulator, MetricError};

/// Number of thresholds of intersection over union: 0.5 to 0.95 in steps of 0.05.
const THRESHOLDS: usize = 10;
/// Number of ranges of area: all, small, medium, large.
const AREAS: usize = 4;
/// The ranges of area in square pixels: below 32² is small, above 96² is large.
const AREA_RANGES: [(f64, f64); AREAS] = [(0.0, 1e10), (0.0, 1024.0), (1024.0, 9216.0), (9216.0, 1e10)];
/// Largest number of detections per image and category that count.
const PER_IMAGE_MAX: usize = 100;
/// Largest number of detections that are kept for a pass: 48 bytes each.
const DETECTIONS_MAX: usize = 1 << 24;

/// The figures: name, threshold (`None` for the mean of all), index of the range of area, detections per image and
/// category, and whether it is a recall.
const FIGURES: [(&str, Option<usize>, usize, usize, bool); 12] = [
    ("map", None, 0, 100, false),
    ("map50", Some(0), 0, 100, false),
    ("map75", Some(5), 0, 100, false),
    ("map_small", None, 1, 100, false),
    ("map_medium", None, 2, 100, false),
    ("map_large", None, 3, 100, false),
    ("ar1", None, 0, 1, true),
    ("ar10", None, 0, 10, true),
    ("ar100", None, 0, 100, true),
    ("ar_small", None, 1, 100, true),
    ("ar_medium", None, 2, 100, true),
    ("ar_large", None, 3, 100, true),
];

/// One detection after matching, in all ranges of area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MatchedDetection {
    score: f64,
    /// Id of its image: detections with equal scores are in the order of these ids, whatever the order of the samples.
    image: i64,
    /// Rank by score among the detections of its category in its image, from 0.
    rank: u8,
    /// For each range of area, one bit per threshold: whether a box of the truth matches.
    matched: [u16; AREAS],
    /// For each range of area, one bit per threshold: whether the detection is neither right nor wrong.
    ignored: [u16; AREAS],
}

/// The detections of one category, in any order, and the number of boxes to find in each range of area.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct CategoryMatches {
    detections: Vec<MatchedDetection>,
    positives: [u64; AREAS],
}

/// The matched detections of some images, by category.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetectionMatches {
    categories: IndexMap<i64, CategoryMatches>,
    images: u64,
    detections: usize,
}

impl DetectionMatches {
    /// Adds the matches of other images.
    ///
    /// # Errors
    /// [`MetricError::Detections`] when there are too many.
    pub(super) fn merge(&mut self, other: &DetectionMatches) -> Result<(), MetricError> {
        for (category, matches) in &other.categories {
            let own = self.categories.entry(*category).or_default();
            own.detections.extend_from_slice(&matches.detections);
            own.positives.iter_mut().zip(matches.positives).for_each(|(own, other)| *own += other);
        }
        self.images = self.images.saturating_add(other.images);
        self.detections += other.detections;
        self.check_size()
    }

    pub(super) fn images(&self) -> u64 {
        self.images
    }

    fn check_size(&self) -> Result<(), MetricError> {
        if self.detections > DETECTIONS_MAX { Err(MetricError::Detections(DETECTIONS_MAX)) } else { Ok(()) }
    }

    pub(super) fn names() -> Vec<String> {
        FIGURES.iter().map(|(name, ..)| (*name).to_owned()).collect()
    }

    /// Returns the figures; one over boxes that the truth does not contain is left out (pycocotools: -1).
    pub(super) fn finish(&self) -> Vec<(String, f64)> {
        let wanted = |category: &&CategoryMatches, area: usize| category.positives[area] > 0;
        let figure = |(name, threshold, area, per_image, recall): &(&str, Option<usize>, usize, usize, bool)| {
            let categories = self.categories.values().filter(|category| wanted(category, *area));
            let curves: Vec<[Curve; THRESHOLDS]> =
                categories.map(|category| precision::curves(category, *area, *per_image)).collect();
            let chosen = curves.iter().flat_map(|curves| match threshold {
                Some(at) => &curves[*at..=*at],
                None => &curves[..],
            });
            let values: Vec<f64> = chosen.map(|curve| if *recall { curve.recall } else { curve.precision }).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (!values.is_empty()).then(|| ((*name).to_owned(), mean))
        };
        FIGURES.iter().filter_map(figure).collect()
    }
}

/// Computes COCO's figures of object detection over the images of a batch: `map` (the mean over thresholds from 0.5 to
/// 0.95), `map50`, `map75`, `map_small`, `map_medium`, `map_large`, and the recalls `ar1`, `ar10`, `ar100`, `ar_small`,
/// `ar_medium`, `ar_large`. They equal those of pycocotools, in whatever order the images come.
///
/// # Errors
/// When a box or score is not finite or a size is negative, or there are too many detections.
pub fn coco_map(images: &[(ImageDetections, ImageTruth)]) -> Result<Accumulator, MetricError> {
    let mut matches = DetectionMatches { images: images.len() as u64, ..DetectionMatches::default() };
    for (image, (detections, truth)) in images.iter().enumerate() {
        matching::check(detections, truth, image)?;
        for (category, matched) in matching::match_image(detections, truth) {
            let own = matches.categories.entry(category).or_default();
            matches.detections += matched.detections.len();
            own.detections.extend(matched.detections);
            own.positives.iter_mut().zip(matched.positives).for_each(|(own, found)| *own += found);
        }
        matches.check_size()?;
    }
    Ok(Accumulator::of("map", MetricState::Detections(matches)))
}
