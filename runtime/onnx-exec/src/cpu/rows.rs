//! Softmax and layer normalization, which operate on each row of the last dimensions.

use rayon::prelude::*;
use rten_simd::SimdUnaryOp;
use rten_vecmath::Exp;

use super::OpError;
use super::movement::{expand, permute};
use super::reduce::sum;
use super::storage::{Dense, f32_tensor, with_f32_elements};

/// Computes the softmax along an axis, or its logarithm.
pub(super) fn softmax(x: &Dense, axis: usize, log: bool) -> Result<Dense, OpError> {
    let rank = x.shape().len();
    if axis + 1 == rank {
        return softmax_rows(x, log);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(axis, rank - 1);
    Ok(permute(&softmax_rows(&permute(x, &order), log)?, &order))
}

fn softmax_rows(x: &Dense, log: bool) -> Result<Dense, OpError> {
    let length = x.shape().last().copied().unwrap_or(1).max(1);
    each_row(x, length, |row| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|x| *x -= largest);
        if log {
            let mut exponentials = row.to_vec();
            Exp {}.map_mut(&mut exponentials);
            let log_sum = sum(&exponentials).ln();
            row.iter_mut().for_each(|x| *x -= log_sum);
        } else {
            Exp {}.map_mut(row);
            let sum = sum(row);
            row.iter_mut().for_each(|x| *x /= sum);
        }
    })
}

pub(super) fn layer_norm(
    x: &Dense,
    scale: &Dense,
    bias: Option<&Dense>,
    axis: usize,
    epsilon: f64,
) -> Result<Dense, OpError> {
    let normal = &x.shape()[axis..];
    let length = normal.iter().product::<usize>().max(1);
    let scale = with_f32_elements(&expand(scale, normal)?, <[f32]>::to_vec)?;
    let bias = match bias {
        Some(bias) => with_f32_elements(&expand(bias, normal)?, <[f32]>::to_vec)?,
        None => vec![0.0; length],
    };
    each_row(x, length, |row| {
        let mean = sum(row) / length as f32;
        row.iter_mut().for_each(|x| *x -= mean);
        let squares: Vec<f32> = row.iter().map(|x| x * x).collect();
        let factor = 1.0 / (sum(&squares) / length as f32 + epsilon as f32).sqrt();
        for ((x, scale), bias) in row.iter_mut().zip(&scale).zip(&bias) {
            *x = *x * factor * scale + bias;
        }
    })
}

fn each_row(x: &Dense, length: usize, f: impl Fn(&mut [f32]) + Send + Sync) -> Result<Dense, OpError> {
    let mut elements = with_f32_elements(x, <[f32]>::to_vec)?;
    elements.par_chunks_mut(length).for_each(f);
    f32_tensor(elements, x.shape())
}

#[cfg(test)]
mod tests {
    use ndarray::IxDyn;

    use super::*;

    /// Returns the largest relative error of what is computed from a long row of numbers; `expected` computes it in f64.
    fn largest_error(compute: impl Fn(&Dense) -> Dense, expected: impl Fn(&[f64]) -> Vec<f64>) -> f64 {
        // As many as a language model has tokens; sums of terms that are all positive.
        let numbers: Vec<f32> = (0..50_000).map(|i| ((i * 7919) % 1009) as f32 / 1000.0).collect();
        let x = ndarray::ArrayD::from_shape_vec(IxDyn(&[1, numbers.len()]), numbers.clone()).unwrap();
        let computed = with_f32_elements(&compute(&x.into_shared().into()), <[f32]>::to_vec).unwrap();
        let expected = expected(&numbers.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        let errors = computed
            .iter()
            .zip(expected)
            .map(|(computed, expected)| (f64::from(*computed) - expected).abs() / expected.abs().max(1e-6));
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn long_rows_are_summed_as_exactly_as_short_ones() {
        let log_sum = |x: &[f64]| x.iter().map(|x| x.exp()).sum::<f64>().ln();
        let logarithms = |x: &[f64]| {
            let log_sum = log_sum(x);
            x.iter().map(|v| v - log_sum).collect::<Vec<f64>>()
        };
        let error = largest_error(|x| softmax(x, 1, true).unwrap(), logarithms);
        assert!(error < 2e-6, "{error:e}");
        let shares = |x: &[f64]| logarithms(x).into_iter().map(f64::exp).collect();
        let error = largest_error(|x| softmax(x, 1, false).unwrap(), shares);
        assert!(error < 2e-6, "{error:e}");
        let normalized = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64;
            x.iter().map(|v| (v - mean) / variance.sqrt() + 10.0).collect()
        };
        let scalar = |value: f32| Dense::from(ndarray::ArrayD::from_elem(IxDyn(&[1]), value).into_shared());
        let normalize = |x: &Dense| layer_norm(x, &scalar(1.0), Some(&scalar(10.0)), 1, 0.0).unwrap();
        let error = largest_error(normalize, normalized);
        assert!(error < 2e-6, "{error:e}");
    }
}
