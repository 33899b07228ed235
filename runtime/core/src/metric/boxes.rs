//! Boxes of detections: conversions between their forms, and non-maximum suppression.

/// Forms in which a box is written, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// Left, top, right, bottom.
    Corners,
    /// Centre across, centre down, width, height: YOLO.
    Center,
    /// Left, top, width, height: COCO.
    Coco,
}

impl BoxForm {
    /// The names by which scripts select a form.
    pub const NAMES: [(&str, BoxForm); 3] =
        [("corners", BoxForm::Corners), ("center", BoxForm::Center), ("coco", BoxForm::Coco)];

    /// Returns the corners of a box in this form.
    pub fn to_corners(self, [a, b, c, d]: [f64; 4]) -> [f64; 4] {
        match self {
            BoxForm::Corners => [a, b, c, d],
            BoxForm::Center => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
            BoxForm::Coco => [a, b, a + c, b + d],
        }
    }

    /// Returns a box given by its corners in this form.
    pub fn of_corners(self, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let (width, height) = (right - left, bottom - top);
        match self {
            BoxForm::Corners => [left, top, right, bottom],
            BoxForm::Center => [left + width / 2.0, top + height / 2.0, width, height],
            BoxForm::Coco => [left, top, width, height],
        }
    }
}

/// The limits of non-maximum suppression.
#[derive(Clone, Copy, Debug)]
pub struct Suppression {
    /// A box is dropped if it overlaps a better one of its class by more than this intersection over union.
    pub iou: f64,
    /// Boxes with this score or a lower one are dropped.
    pub score: f64,
    /// Largest number of boxes that remain in an image.
    pub max: usize,
    /// Largest number of candidates that are compared, best first.
    pub candidates: usize,
}

/// A box that remains after non-maximum suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptBox {
    pub index: usize,
    /// Class of the score.
    pub class: usize,
    pub score: f64,
}

/// Non-maximum suppression by class of one image: keeps the boxes whose score is the best among those that overlap
/// them, best first. Equal scores rank by box and then by class, lower first; a score that is NaN is dropped.
///
/// `corners`: left, top, right, bottom of each box; `scores`: one row of class scores per box.
pub fn suppress(corners: &[[f64; 4]], scores: &[f64], limits: &Suppression) -> Vec<KeptBox> {
    let classes = scores.len() / corners.len().max(1);
    let candidate = |(at, score): (usize, &f64)| KeptBox { index: at / classes, class: at % classes, score: *score };
    let mut candidates: Vec<KeptBox> =
        scores.iter().enumerate().filter(|(_, score)| **score > limits.score).map(candidate).collect();
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    candidates.truncate(limits.candidates);
    let mut kept: Vec<KeptBox> = Vec::new();
    for candidate in candidates {
        if kept.len() == limits.max {
            break;
        }
        let covers = |better: &KeptBox| {
            better.class == candidate.class && overlap(corners[better.index], corners[candidate.index]) > limits.iou
        };
        if !kept.iter().any(covers) {
            kept.push(candidate);
        }
    }
    kept
}

/// Returns intersection over union of two boxes given by their corners.
pub fn corner_iou(a: [f64; 4], b: [f64; 4]) -> f64 {
    let across = a[2].min(b[2]) - a[0].max(b[0]);
    let down = a[3].min(b[3]) - a[1].max(b[1]);
    if across <= 0.0 || down <= 0.0 {
        return 0.0;
    }
    let area = |c: [f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let both = across * down;
    both / (area(a) + area(b) - both)
}

/// Returns intersection over union as torchvision's `nms` computes it on a CPU for boxes in f32: it decides whether an overlap
/// of exactly the limit is more than it. Two boxes without an area have none.
fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let [a, b] = [a, b].map(|corners| corners.map(|edge| edge as f32));
    let area = |c: [f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let across = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let down = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let both = across * down;
    f64::from(both / (area(a) + area(b) - both))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_box_has_the_same_corners() {
        for (form, values) in [
            (BoxForm::Corners, [10.0, 20.0, 14.0, 30.0]),
            (BoxForm::Center, [12.0, 25.0, 4.0, 10.0]),
            (BoxForm::Coco, [10.0, 20.0, 4.0, 10.0]),
        ] {
            assert_eq!(form.to_corners(values), [10.0, 20.0, 14.0, 30.0]);
            assert_eq!(form.of_corners([10.0, 20.0, 14.0, 30.0]), values);
        }
    }

    #[test]
    fn a_box_that_overlaps_a_better_one_of_its_class_is_dropped() {
        let boxes = [[0.0, 0.0, 10.0, 10.0], [1.0, 0.0, 11.0, 10.0], [20.0, 0.0, 30.0, 10.0]];
        let scores = [0.8, 0.1, 0.9, 0.7, 0.3, 0.0];
        let limits = Suppression { iou: 0.5, score: 0.2, max: 10, candidates: 100 };
        let kept: Vec<_> = suppress(&boxes, &scores, &limits).iter().map(|kept| (kept.index, kept.class)).collect();
        assert_eq!(kept, [(1, 0), (1, 1), (2, 0)]);
        let one = suppress(&boxes, &scores, &Suppression { max: 1, ..limits });
        assert_eq!(one, [KeptBox { index: 1, class: 0, score: 0.9 }]);
        let apart = suppress(&boxes, &scores, &Suppression { iou: 0.9, ..limits });
        assert_eq!(apart.len(), 4);
        assert!(suppress(&boxes, &[f64::NAN; 3], &limits).is_empty());
        assert!(suppress(&[], &[], &limits).is_empty());
    }

    #[test]
    fn an_overlap_of_the_limit_is_decided_as_torchvision_decides_it() {
        let limits = Suppression { iou: 0.6, score: 0.2, max: 10, candidates: 100 };
        let kept = |height: f64, iou: f64| {
            let boxes = [[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, height]];
            suppress(&boxes, &[0.5, 0.5], &Suppression { iou, ..limits })
                .iter()
                .map(|kept| kept.index)
                .collect::<Vec<_>>()
        };
        // torchvision.ops.nms; in f32, 0.6 is more than it is in f64.
        assert_eq!(kept(6.0, 0.6), [0]);
        assert_eq!(kept(5.0, 0.5), [0, 1]);
    }
}
