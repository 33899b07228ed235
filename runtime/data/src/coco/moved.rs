//! Boxes that move with their image, as detection is trained on them.

use super::AnnotatedObject;
use crate::geometry::{Placement, Size};

/// Least width and height of a box in pixels, as in torchvision's `SanitizeBoundingBoxes`.
const SIDE_MIN: f64 = 1.0;

/// Returns an object in pixels of the transformed image of `size`, its box clipped to the image; `None` if too little of it
/// is left. Of its area, the same share remains as of its box.
pub fn moved(object: &AnnotatedObject, placement: &Placement, size: Size) -> Option<AnnotatedObject> {
    let sides = [size.0 as f64, size.1 as f64];
    let ends = [0, 1].map(|axis| {
        let start = object.bbox[axis] * placement.scale[axis] + placement.shift[axis];
        let end = start + object.bbox[axis + 2] * placement.scale[axis];
        [start.min(end), start.max(end)]
    });
    let [across, down] = [0, 1].map(|axis| ends[axis].map(|end| end.clamp(0.0, sides[axis])));
    let (width, height) = (across[1] - across[0], down[1] - down[0]);
    if width < SIDE_MIN || height < SIDE_MIN {
        return None;
    }
    let share = width * height / (object.bbox[2] * object.bbox[3]);
    Some(AnnotatedObject { bbox: [across[0], down[0], width, height], area: object.area * share, ..*object })
}
