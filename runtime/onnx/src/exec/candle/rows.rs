//! Softmax and layer normalization, which operate on each row of the last dimensions.

use candle_core::Tensor as Candle;
use rayon::prelude::*;

use super::OpError;
use super::storage::{f32_tensor, with_f32_elements};

/// Computes the softmax over the last dimension, or its logarithm.
pub(super) fn softmax(x: &Candle, log: bool) -> Result<Candle, OpError> {
    let length = x.dims().last().copied().unwrap_or(1).max(1);
    each_row(x, length, |row| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log {
            let sum: f32 = row.iter().map(|x| (x - largest).exp()).sum();
            row.iter_mut().for_each(|x| *x -= largest + sum.ln());
        } else {
            row.iter_mut().for_each(|x| *x = (*x - largest).exp());
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
        }
    })
}

pub(super) fn layer_norm(
    x: &Candle,
    scale: &Candle,
    bias: Option<&Candle>,
    axis: usize,
    epsilon: f64,
) -> Result<Candle, OpError> {
    let normal = &x.dims()[axis..];
    let length = normal.iter().product::<usize>().max(1);
    let scale = with_f32_elements(&scale.broadcast_as(normal)?, <[f32]>::to_vec)?;
    let bias = match bias {
        Some(bias) => with_f32_elements(&bias.broadcast_as(normal)?, <[f32]>::to_vec)?,
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

fn each_row(x: &Candle, length: usize, f: impl Fn(&mut [f32]) + Send + Sync) -> Result<Candle, OpError> {
    let mut elements = with_f32_elements(x, <[f32]>::to_vec)?;
    elements.par_chunks_mut(length).for_each(f);
    f32_tensor(elements, x.dims())
}
