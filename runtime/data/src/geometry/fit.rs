//! The size to which an image is scaled so that it fits, as in DETR.

use std::fmt;

use super::Size;

/// An image is scaled with its proportions kept and lies at the top left; the rest is padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Width and height with the padding.
    pub size: Size,
    /// The most pixels of the shorter side of the scaled image.
    pub shorter: Option<usize>,
}

impl Fit {
    /// Returns width and height of the scaled image. If both sides of the target are equal, they are those of the function
    /// `get_size_with_aspect_ratio` of transformers, which rounds the shorter side to the nearest number and the longer
    /// one down.
    pub(super) fn scaled(self, size: Size) -> Size {
        let is_wide = size.0 >= size.1;
        let by_length = |(width, height): Size| if is_wide { (height, width) } else { (width, height) };
        let ((shorter, longer), (shorter_max, longer_max)) = (by_length(size), by_length(self.size));
        let side = self.shorter.unwrap_or(shorter_max).min(shorter_max);
        let (width, length) = (shorter as f64, longer as f64);
        let exact = if length / width * side as f64 > longer_max as f64 {
            longer_max as f64 * width / length
        } else {
            side as f64
        };
        let side = (exact.round_ties_even() as usize).max(1);
        // transformers leaves the longer side unchanged here, too, even if it is a pixel longer than the target.
        let other = if side == shorter { longer } else { (exact * length / width) as usize };
        by_length((side, other.clamp(1, longer_max)))
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fit {}x{}", self.size.0, self.size.1)?;
        match self.shorter {
            Some(side) => write!(f, ", shorter side at most {side}"),
            None => Ok(()),
        }
    }
}
