//! `image`: the transforms applied to every image of a pipeline, in the order of the calls.

use rhai::plugin::*;
use rhai::{Array, Module};

use super::data::Pipeline;
use super::options::{number, size};
use crate::data::Transform;
use crate::script::sandbox::Fallible;

/// Largest side of an image in pixels.
const SIDE_PIXELS_MAX: usize = 1 << 14;
/// Largest number of transforms of a pipeline.
const TRANSFORMS_MAX: usize = 100;

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

fn add_transform(mut pipeline: Pipeline, transform: Transform) -> Fallible<Pipeline> {
    if pipeline.0.transforms.len() >= TRANSFORMS_MAX {
        return Err(format!("a pipeline may have at most {TRANSFORMS_MAX} transforms").into());
    }
    pipeline.0.transforms.push(transform);
    Ok(pipeline)
}

fn side_length(pixels: i64) -> Fallible<usize> {
    match size("the side of an image", pixels)? {
        0 => Err("the side of an image must have at least one pixel".into()),
        side if side > SIDE_PIXELS_MAX => {
            Err(format!("the side of an image may have at most {SIDE_PIXELS_MAX} pixels, not {side}").into())
        }
        side => Ok(side),
    }
}

fn channel_values(what: &str, values: &Array) -> Fallible<[f32; 3]> {
    let numbers: Option<Vec<f32>> = values.iter().map(|v| number(v).map(|n| n as f32)).collect();
    let three = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
    three.ok_or_else(|| format!("`{what}` must be three numbers, one per channel").into())
}

#[export_module]
mod functions {
    /// Scales the shorter side to `size` pixels with PIL's antialiased bilinear filter.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn resize(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        add_transform(pipeline, Transform::Resize { size: side_length(size)? })
    }

    /// Crops the central `size` x `size` pixels.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256).center_crop(224)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn center_crop(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        add_transform(pipeline, Transform::CenterCrop { size: side_length(size)? })
    }

    /// Computes `(value / 255 - mean) / std` with one mean and one deviation per channel (red, green, blue). The result
    /// is `3,H,W` of the input type.
    ///
    /// ```rhai
    /// data::image_folder("val").normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn normalize(pipeline: Pipeline, mean: Array, std: Array) -> Fallible<Pipeline> {
        let (mean, std) = (channel_values("mean", &mean)?, channel_values("std", &std)?);
        if std.iter().any(|deviation| *deviation <= 0.0) {
            return Err("`std` must be above 0 in every channel".into());
        }
        add_transform(pipeline, Transform::Normalize { mean, std })
    }
}
