//! Draws the part of an image that `random_resized_crop` keeps.

use crate::geometry::{Part, Size};
use crate::random::RandomStream;

/// Number of draws before the central part is taken, as in torchvision.
const DRAWS: usize = 10;

/// The sizes of random parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropRange {
    /// Least and largest area, as shares of that of the image.
    pub scale: (f64, f64),
    /// Least and largest ratio of the width to the height.
    pub ratio: (f64, f64),
}

impl CropRange {
    /// Draws a part as torchvision's `RandomResizedCrop.get_params`: if ten draws do not fit into the image, the central
    /// part with the nearest ratio.
    pub(crate) fn draw(&self, random: &mut RandomStream, (width, height): Size) -> Part {
        for _ in 0..DRAWS {
            let part = self.draw_size(random, (width, height));
            if (1..=width).contains(&part.0) && (1..=height).contains(&part.1) {
                let (rows, columns) = (random.place(part.1, height), random.place(part.0, width));
                return Part { left: columns.start, top: rows.start, size: part };
            }
        }
        self.central((width, height))
    }

    /// Draws a width and a height, which may be larger than those of the image.
    pub(crate) fn draw_size(&self, random: &mut RandomStream, (width, height): Size) -> Size {
        let area = (width * height) as f64 * random.uniform(self.scale);
        let ratio = random.log_uniform(self.ratio);
        let side = |square: f64| square.sqrt().round_ties_even() as usize;
        (side(area * ratio), side(area / ratio))
    }

    fn central(&self, (width, height): Size) -> Part {
        let ratio = width as f64 / height as f64;
        let round = |side: f64, most: usize| (side.round_ties_even() as usize).clamp(1, most);
        let size = if ratio < self.ratio.0 {
            (width, round(width as f64 / self.ratio.0, height))
        } else if ratio > self.ratio.1 {
            (round(height as f64 * self.ratio.1, width), height)
        } else {
            (width, height)
        };
        Part { left: (width - size.0) / 2, top: (height - size.1) / 2, size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Epoch;

    const USUAL: CropRange = CropRange { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };

    fn parts(range: CropRange, size: Size) -> Vec<Part> {
        (0..3000).map(|sample| range.draw(&mut Epoch::default().stream("test", sample), size)).collect()
    }

    #[test]
    fn parts_lie_in_the_image_and_have_the_area_and_the_ratio_of_the_range() {
        let parts = parts(USUAL, (500, 375));
        for Part { left, top, size: (width, height) } in &parts {
            assert!(left + width <= 500 && top + height <= 375);
            let (area, ratio) = ((width * height) as f64 / (500.0 * 375.0), *width as f64 / *height as f64);
            assert!((0.078..=1.0).contains(&area) && (0.74..=1.35).contains(&ratio), "{area} {ratio}");
        }
        let mean_area = parts.iter().map(|part| part.size.0 * part.size.1).sum::<usize>() as f64 / 3000.0 / 187_500.0;
        // torchvision's mean of 100,000 draws for this size is 0.434: large parts often do not fit.
        assert!((0.42..0.45).contains(&mean_area), "{mean_area}");
        assert!(parts.iter().any(|part| part.left == 0) && parts.iter().any(|part| part.left > 250));
    }

    /// The expected parts are those of torchvision's fallback.
    #[test]
    fn an_image_in_which_no_part_fits_gives_its_central_part() {
        let whole = CropRange { scale: (1.0, 1.0), ..USUAL };
        let central = |size| parts(whole, size)[0].clone();
        assert_eq!(central((400, 100)), Part { left: 133, top: 0, size: (133, 100) });
        assert_eq!(central((101, 400)), Part { left: 0, top: 132, size: (101, 135) });
        assert_eq!(central((1, 100)), Part { left: 0, top: 49, size: (1, 1) });
    }
}
