//! Similarity of images and texts by their embeddings.

use super::elements::{for_each_row, unsupported};
use super::state::{MetricState, MetricSum};
use super::{Accumulator, MetricError};
use crate::tensor::Tensor;

/// Computes `clip_score`: the mean over the rows of `100 * max(cosine, 0)` of an image and its text (Hessel et al.,
/// "CLIPScore", 2021, with torchmetrics' factor of 100). An embedding of length 0 has the cosine 0.
///
/// `images` and `texts`: `N,D` of a float type.
///
/// # Errors
/// When shapes or types differ from these.
pub fn clip_score(images: &Tensor, texts: &Tensor) -> Result<Accumulator, MetricError> {
    let (&[rows, width], true) = (images.shape(), images.dtype().is_float()) else {
        return Err(unsupported("the image embeddings are", images, "`N,D` of a float type"));
    };
    if texts.shape() != images.shape() || !texts.dtype().is_float() {
        return Err(unsupported("the text embeddings are", texts, &format!("`{rows},{width}` of a float type")));
    }
    let others = texts.to_f64();
    let mut sum = MetricSum::default();
    for_each_row(
        images,
        |_| true,
        |row, image| {
            let cosine = cosine(image, &others[row * width..(row + 1) * width]);
            // Unlike `max`, this keeps NaN.
            sum.add(if cosine < 0.0 { 0.0 } else { 100.0 * cosine }, 1);
            Ok::<_, MetricError>(())
        },
    )?;
    Ok(Accumulator::of("clip_score", MetricState::Mean(sum)))
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { (dot(a, b) / lengths).clamp(-1.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_mean_of_positive_cosines() {
        let rows = |values: [f32; 8]| Tensor::from_vec([4, 2], values.to_vec()).unwrap();
        let images = rows([3.0, 4.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        let texts = rows([6.0, 8.0, -2.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        let score = clip_score(&images, &texts).unwrap().finish()["clip_score"];
        assert!((score - (100.0 + 0.0 + 100.0 / 2f64.sqrt() + 0.0) / 4.0).abs() < 1e-12, "{score}");
    }

    #[test]
    fn embeddings_of_different_shapes_are_refused() {
        let of = |shape: [usize; 2]| Tensor::from_vec(shape, vec![1.0f32; shape[0] * shape[1]]).unwrap();
        let error = clip_score(&of([2, 3]), &of([2, 4])).unwrap_err();
        assert_eq!(error.to_string(), "the text embeddings are `2,4,f32` (expected: `2,3` of a float type)");
    }
}
