//! Softmax and layer normalization, which operate on each row of the last dimensions.

use rayon::prelude::*;
use rten_simd::SimdUnaryOp;
use rten_vecmath::Exp;

use super::OpError;
use super::movement::{expand, permute};
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
        if log {
            let sum: f32 = row.iter().map(|x| (x - largest).exp()).sum();
            row.iter_mut().for_each(|x| *x -= largest + sum.ln());
        } else {
            row.iter_mut().for_each(|x| *x -= largest);
            Exp {}.map_mut(row);
            let sum: f32 = row.iter().sum();
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
        let mean = row.iter().sum::<f32>() / length as f32;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / length as f32;
        let factor = 1.0 / (variance + epsilon as f32).sqrt();
        for ((x, scale), bias) in row.iter_mut().zip(&scale).zip(&bias) {
            *x = (*x - mean) * factor * scale + bias;
        }
    })
}

fn each_row(x: &Dense, length: usize, f: impl Fn(&mut [f32]) + Send + Sync) -> Result<Dense, OpError> {
    let mut elements = with_f32_elements(x, <[f32]>::to_vec)?;
    elements.par_chunks_mut(length).for_each(f);
    f32_tensor(elements, x.shape())
}
