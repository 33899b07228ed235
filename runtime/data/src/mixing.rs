//! Mixes the samples of a batch, and their labels as probabilities of classes: mixup and cutmix.

mod labels;
#[cfg(test)]
mod tests;

use half::{bf16, f16};
use rayon::prelude::*;

pub use self::labels::{LabelProbabilities, mixing_of};
use super::geometry::Size;
use super::random::{Epoch, RandomStream};
use super::{Field, Transform};
use flagperf_core::tensor::DType;

/// The parameters of mixup and cutmix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Both parameters of the beta distribution from which the share of a sample is drawn.
    pub alpha: f64,
    /// Number of classes.
    pub classes: usize,
}

/// How the batches of a dataset are mixed: in one of these ways, each with the same probability, as torchvision's training
/// scripts choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixing {
    ways: Vec<Transform>,
    /// Index of the field of images, `3,H,W`.
    images: usize,
    /// Index of the field of labels, as probabilities of the classes.
    labels: usize,
}

/// A drawn mixture of every sample with the one before it in the batch; the first is mixed with the last.
#[derive(Clone, Debug, PartialEq)]
enum Mixture {
    /// The share of the sample itself.
    Blend { share: f64 },
    /// The rectangle that comes from the other sample.
    Paste { left: usize, top: usize, right: usize, bottom: usize },
}

impl Mixture {
    /// Draws as torchvision's `MixUp` and `CutMix`; `None` for any other transform.
    fn draw(way: &Transform, random: &mut RandomStream, (width, height): Size) -> Option<Self> {
        match way {
            Transform::MixUp(mix) => Some(Mixture::Blend { share: random.beta(mix.alpha) }),
            Transform::CutMix(mix) => {
                let side = 0.5 * (1.0 - random.beta(mix.alpha)).sqrt();
                let (x, y) = (random.below(width), random.below(height));
                let (across, down) = ((side * width as f64) as usize, (side * height as f64) as usize);
                Some(Mixture::Paste {
                    left: x.saturating_sub(across),
                    top: y.saturating_sub(down),
                    right: (x + across).min(width),
                    bottom: (y + down).min(height),
                })
            }
            _ => None,
        }
    }

    /// Returns the share of the sample itself, by which labels are mixed.
    fn share(&self, (width, height): Size) -> f64 {
        match *self {
            Mixture::Blend { share } => share,
            Mixture::Paste { left, top, right, bottom } => {
                1.0 - ((right - left) * (bottom - top)) as f64 / (width * height) as f64
            }
        }
    }

    /// Mixes a plane of an image of `size` with that of the other image.
    fn apply(&self, plane: &mut [u8], other: &[u8], size: Size, dtype: DType) {
        match *self {
            Mixture::Blend { share } => blend(plane, other, share, dtype),
            Mixture::Paste { left, top, right, bottom } => {
                let (bytes, stride) = (dtype.size(), size.0 * dtype.size());
                let lines = plane.chunks_exact_mut(stride).zip(other.chunks_exact(stride));
                for (line, other) in lines.skip(top).take(bottom - top) {
                    line[left * bytes..right * bytes].copy_from_slice(&other[left * bytes..right * bytes]);
                }
            }
        }
    }
}

impl Mixing {
    /// Mixes the rows of a batch, one for each of `samples`, in the way that epoch and first sample draw.
    pub fn apply(&self, epoch: Epoch, samples: &[u64], fields: &[Field], rows: Vec<Vec<&mut [u8]>>) {
        let shape = fields[self.images].spec.fixed_shape().unwrap_or_default();
        let (&[_, height, width], Some(first)) = (&shape[..], samples.first()) else { return };
        let random = &mut epoch.stream("mixing", *first);
        let way = &self.ways[random.below(self.ways.len())];
        let Some(mixture) = Mixture::draw(way, random, (width, height)) else { return };
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for row in rows.into_iter().take(samples.len()) {
            for (index, field) in row.into_iter().enumerate() {
                match index {
                    _ if index == self.images => images.push(field),
                    _ if index == self.labels => labels.push(field),
                    _ => {}
                }
            }
        }
        let dtype = fields[self.images].spec.dtype;
        let planes = transposed(images, (width * height * dtype.size()).max(1));
        planes.into_par_iter().for_each(|plane| {
            mix_with_previous(plane, |own, other| mixture.apply(own, other, (width, height), dtype));
        });
        let share = mixture.share((width, height));
        mix_with_previous(labels, |own, other| blend(own, other, share, fields[self.labels].spec.dtype));
    }
}

/// Cuts each row into pieces of `bytes` and returns the first pieces of all rows, then the second ones, and so on.
fn transposed(rows: Vec<&mut [u8]>, bytes: usize) -> Vec<Vec<&mut [u8]>> {
    let mut pieces: Vec<Vec<&mut [u8]>> = Vec::new();
    for row in rows {
        for (at, piece) in row.chunks_exact_mut(bytes).enumerate() {
            if pieces.len() <= at {
                pieces.push(Vec::new());
            }
            pieces[at].push(piece);
        }
    }
    pieces
}

/// Mixes each piece with the original of the one before it, the first with that of the last.
fn mix_with_previous(mut pieces: Vec<&mut [u8]>, mix: impl Fn(&mut [u8], &[u8])) {
    let Some(mut previous) = pieces.last().map(|last| last.to_vec()) else { return };
    let mut own = Vec::new();
    for piece in &mut pieces {
        own.clear();
        own.extend_from_slice(piece);
        mix(piece, &previous);
        std::mem::swap(&mut own, &mut previous);
    }
}

/// Computes `own * share + other * (1 - share)` and rounds after each operation, as PyTorch.
fn blend(own: &mut [u8], other: &[u8], share: f64, dtype: DType) {
    match dtype {
        DType::F64 => blend_numbers(own, other, share, f64::from_ne_bytes, f64::to_ne_bytes),
        DType::F32 => blend_numbers(own, other, share, |b| f32::from_ne_bytes(b).into(), |x| (x as f32).to_ne_bytes()),
        DType::F16 => {
            blend_numbers(own, other, share, |b| f16::from_ne_bytes(b).into(), |x| f16::from_f64(x).to_ne_bytes());
        }
        DType::BF16 => {
            blend_numbers(own, other, share, |b| bf16::from_ne_bytes(b).into(), |x| bf16::from_f64(x).to_ne_bytes());
        }
        _ => {}
    }
}

#[inline(always)]
fn blend_numbers<const N: usize>(
    own: &mut [u8],
    other: &[u8],
    share: f64,
    number: impl Fn([u8; N]) -> f64,
    bytes: impl Fn(f64) -> [u8; N],
) {
    // PyTorch multiplies types of up to 32 bits by factors in f32.
    let factor = |share: f64| if N == 8 { share } else { f64::from(share as f32) };
    let (share, rest) = (factor(share), factor(1.0 - share));
    for (own, other) in own.as_chunks_mut::<N>().0.iter_mut().zip(other.as_chunks::<N>().0) {
        let rounded = |number_: f64| number(bytes(number_));
        *own = bytes(rounded(number(*other) * rest) + rounded(number(*own) * share));
    }
}
