//! The steps of the transforms of pixels, and the order in which transforms have a meaning.

use crate::Transform;
use crate::augmentation::{ColorJitter, Operation, Policy};
use crate::geometry::{Fit, Geometry, Size, Step, Target};
use crate::random::RandomStream;

/// A transform of pixels.
pub enum PixelStep {
    Move(Step),
    /// Changes the pixels of an image, but not its size.
    Change {
        /// Place of the transform in the pipeline, which random numbers depend on.
        place: usize,
        change: Change,
    },
}

/// A transform that draws operations for each image.
pub enum Change {
    ColorJitter(ColorJitter),
    Policy(Policy),
}

impl Change {
    /// Changes an image of `size`. `scratch` is memory to reuse.
    pub fn apply(&self, random: &mut RandomStream, size: Size, rgb: &mut Vec<u8>, scratch: &mut Vec<u8>) {
        let (operations, outside) = match self {
            Change::ColorJitter(jitter) => (jitter.draw(random), Default::default()),
            Change::Policy(policy) => (policy.draw(random, size), policy.outside),
        };
        let apply = |operation: Operation| operation.apply(rgb, size, outside, scratch);
        operations.into_iter().for_each(apply);
    }
}

impl PixelStep {
    /// Returns the transform that moves pixels, if it is one.
    pub fn moves(&self) -> Option<&Step> {
        match self {
            PixelStep::Move(step) => Some(step),
            PixelStep::Change { .. } => None,
        }
    }

    /// Returns the policy, if it is one.
    pub fn policy(&self) -> Option<&Policy> {
        match self {
            PixelStep::Change { change: Change::Policy(policy), .. } => Some(policy),
            _ => None,
        }
    }
}

/// Checks that transforms of pixels precede those that compute values, these those that erase values, and these those of
/// whole batches; and that no transform moves pixels after `fit`.
///
/// # Errors
/// With the transform that comes too late.
pub fn check_order(transforms: &[Transform]) -> Result<(), String> {
    let stage = |transform: &Transform| match transform {
        Transform::Geometry(_) => (0, "moves pixels"),
        Transform::ColorJitter(_) | Transform::Policy(_) => (0, "changes pixels"),
        Transform::Scale { .. } | Transform::Normalize { .. } | Transform::To { .. } => (1, "computes values"),
        Transform::RandomErasing(_) => (2, "erases values of one image"),
        Transform::MixUp(_) | Transform::CutMix(_) => (3, "mixes images"),
    };
    for (at, late) in transforms.iter().enumerate() {
        let (own, effect) = stage(late);
        if let Some(earlier) = transforms[..at].iter().find(|earlier| stage(earlier).0 > own) {
            return Err(format!("`{late}` {effect}: place it before `{earlier}`"));
        }
    }
    // Otherwise the place of the padding, whose values become 0, would depend on the transforms after it.
    let mut moves = transforms.iter().filter(|transform| matches!(transform, Transform::Geometry(_)));
    let fit = moves.find(|transform| matches!(transform, Transform::Geometry(Geometry::Fit(_))));
    match (fit, moves.next()) {
        (Some(fit), Some(late)) => Err(format!("`{late}` moves pixels: place it before `{fit}`")),
        _ => Ok(()),
    }
}

/// Combines central crops with the transforms before them, and returns the size of the result if it is the same for every
/// image.
///
/// # Errors
/// When a crop is larger than the images before it.
pub fn pixel_steps(transforms: &[Transform]) -> Result<(Vec<PixelStep>, Option<Size>), String> {
    let (mut steps, mut known): (Vec<PixelStep>, KnownSize) = (Vec::new(), KnownSize::default());
    for (place, transform) in transforms.iter().enumerate() {
        let step = match transform {
            Transform::Geometry(geometry) => {
                known.transform(geometry)?;
                if let (Geometry::CenterCrop(crop), Some(PixelStep::Move(step))) = (geometry, steps.last_mut())
                    && matches!(step, Step { geometry: Geometry::Resize { .. }, centre: None, .. })
                {
                    step.centre = Some(*crop);
                    continue;
                }
                PixelStep::Move(Step { geometry: geometry.clone(), place, centre: None })
            }
            Transform::ColorJitter(jitter) => PixelStep::Change { place, change: Change::ColorJitter(jitter.clone()) },
            Transform::Policy(policy) => PixelStep::Change { place, change: Change::Policy(policy.clone()) },
            _ => break,
        };
        steps.push(step);
    }
    Ok((steps, known.size))
}

/// What is known about the size of images between transforms.
#[derive(Default)]
struct KnownSize {
    /// The size, if it is the same for every image.
    size: Option<Size>,
    /// The shorter side, while only that is known.
    shorter: Option<usize>,
}

impl KnownSize {
    /// Updates what is known by a transform.
    fn transform(&mut self, geometry: &Geometry) -> Result<(), String> {
        match *geometry {
            Geometry::Resize { target: Target::Shorter(side), .. } => (self.shorter, self.size) = (Some(side), None),
            Geometry::Resize { target: Target::Longer(_), .. } => (self.shorter, self.size) = (None, None),
            Geometry::Resize { target: Target::Exactly(target), .. }
            | Geometry::Letterbox { size: target, .. }
            | Geometry::Fit(Fit { size: target, .. })
            | Geometry::RandomResizedCrop { size: target, .. } => self.size = Some(target),
            Geometry::CenterCrop(crop) => {
                check_crop(crop, (0, 0), self.size, self.shorter)?;
                self.size = Some(crop);
            }
            Geometry::Crop { left, top, size: crop } => {
                check_crop(crop, (left, top), self.size, None)?;
                self.size = Some(crop);
            }
            Geometry::Pad { sides: [left, top, right, bottom], .. } => {
                self.size = self.size.map(|(width, height)| (width + left + right, height + top + bottom));
                self.shorter = None;
            }
            Geometry::Flip { .. } | Geometry::RandomHorizontalFlip { .. } => {}
        }
        Ok(())
    }
}

/// Refuses a crop that no image of the known size contains.
fn check_crop(crop: Size, at: Size, size: Option<Size>, shorter: Option<usize>) -> Result<(), String> {
    let known = size.or(shorter.map(|side| (side, side)));
    match known {
        _ if crop.0 == 0 || crop.1 == 0 => Err("a crop must have at least one pixel".to_owned()),
        Some((width, height)) if crop.0 + at.0 > width || crop.1 + at.1 > height => {
            let side = if crop.0 == crop.1 { crop.0.to_string() } else { format!("{}x{}", crop.0, crop.1) };
            let whole = if width == height { width.to_string() } else { format!("{width}x{height}") };
            Err(format!("cannot crop {side} pixels from an image resized to {whole}"))
        }
        _ => Ok(()),
    }
}
