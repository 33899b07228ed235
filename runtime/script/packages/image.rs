//! `image`: what is done to every image of a pipeline, in the order of the calls.

use rhai::plugin::*;
use rhai::{Array, Module};

use super::data::Pipeline;
use super::options::{number, size};
use crate::data::Transform;
use crate::script::sandbox::Fallible;

/// Pixels of a side at most.
const SIDE: usize = 1 << 14;
/// Transforms of a pipeline at most.
const TRANSFORMS: usize = 100;

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

fn then(mut pipeline: Pipeline, transform: Transform) -> Fallible<Pipeline> {
    if pipeline.0.transforms.len() >= TRANSFORMS {
        return Err(format!("a pipeline has at most {TRANSFORMS} transforms").into());
    }
    pipeline.0.transforms.push(transform);
    Ok(pipeline)
}

fn side(pixels: i64) -> Fallible<usize> {
    match size("a side", pixels)? {
        0 => Err("a side has at least one pixel".into()),
        side if side > SIDE => Err(format!("a side has at most {SIDE} pixels, not {side}").into()),
        side => Ok(side),
    }
}

fn channels(what: &str, values: &Array) -> Fallible<[f32; 3]> {
    let numbers: Option<Vec<f32>> = values.iter().map(|v| number(v).map(|n| n as f32)).collect();
    let three = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
    three.ok_or_else(|| format!("`{what}` is three numbers, one a channel").into())
}

#[export_module]
mod functions {
    /// Scales the shorter side to `size` pixels, antialiased bilinear as PIL does it.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn resize(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        then(pipeline, Transform::Resize { size: side(size)? })
    }

    /// Cuts the middle `size` x `size` pixels.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256).center_crop(224)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn center_crop(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        then(pipeline, Transform::CenterCrop { size: side(size)? })
    }

    /// `(value / 255 - mean) / std`, one number a channel (red, green, blue); makes `3,H,W` of the input type.
    ///
    /// ```rhai
    /// data::image_folder("val").normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn normalize(pipeline: Pipeline, mean: Array, std: Array) -> Fallible<Pipeline> {
        let (mean, std) = (channels("mean", &mean)?, channels("std", &std)?);
        if std.iter().any(|deviation| *deviation <= 0.0) {
            return Err("`std` is above 0 in every channel".into());
        }
        then(pipeline, Transform::Normalize { mean, std })
    }
}
