//! `image`: the transforms applied to every image of a pipeline, in the order of the calls.

mod augmentation;
mod random_values;

use rhai::plugin::*;
use rhai::{Array, Map, Module};

use super::data::Pipeline;
use super::options::{FunctionOptions, Number, finite_number, number, size};
use crate::sandbox::Fallible;
use flagperf_data::{Filter, Fit, Geometry, Target, Transform};

/// Largest side of an image in pixels.
const SIDE_PIXELS_MAX: usize = 1 << 14;
/// Largest number of transforms of a pipeline.
const TRANSFORMS_MAX: usize = 100;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.combine(rhai::exported_module!(augmentation::functions));
    module.combine(rhai::exported_module!(random_values::functions));
    module
}

fn add_transform(mut pipeline: Pipeline, transform: Transform) -> Fallible<Pipeline> {
    if pipeline.0.transforms.len() >= TRANSFORMS_MAX {
        return Err(format!("a pipeline may have at most {TRANSFORMS_MAX} transforms").into());
    }
    pipeline.0.transforms.push(transform);
    Ok(pipeline)
}

fn add_geometry(pipeline: Pipeline, geometry: Geometry) -> Fallible<Pipeline> {
    add_transform(pipeline, Transform::Geometry(geometry))
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

fn filter(name: &str) -> Fallible<Filter> {
    match name {
        "bilinear" => Ok(Filter::Bilinear),
        "bicubic" => Ok(Filter::Bicubic),
        "linear" => Ok(Filter::Linear),
        "area" => Ok(Filter::Area),
        _ => Err(format!("unknown filter `{name}` (known: bilinear, bicubic, linear, area)").into()),
    }
}

/// Reads height and width, in the order of tensors, as width and height.
fn sides(height: i64, width: i64) -> Fallible<(usize, usize)> {
    Ok((side_length(width)?, side_length(height)?))
}

fn level(value: Option<usize>, default: u8) -> Fallible<u8> {
    let Some(value) = value else { return Ok(default) };
    u8::try_from(value).map_err(|_| format!("the level of a pixel must be from 0 to 255, not {value}").into())
}

#[export_module]
mod functions {
    /// Scales the shorter side to `size` pixels with PIL's antialiased bilinear filter. All filters equal those of
    /// Pillow 10.4 to 12.3 to the bit; Pillow 13.0 computes some pixels one level differently.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn resize(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        resize_with(pipeline, size, "bilinear")
    }

    /// Scales the shorter side to `size` pixels with one of PIL's antialiased filters, `bilinear` or `bicubic`, or one of
    /// OpenCV's: `linear` is `INTER_LINEAR`; `area` is `INTER_AREA`, and `INTER_LINEAR` for an image that grows. They equal
    /// those of opencv-python 5.0 on x86-64 to the bit.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256, "bicubic")
    /// ```
    #[rhai_fn(name = "resize", global, return_raw)]
    pub fn resize_with(pipeline: Pipeline, size: i64, filter: &str) -> Fallible<Pipeline> {
        let target = Target::Shorter(side_length(size)?);
        add_geometry(pipeline, Geometry::Resize { target, filter: super::filter(filter)? })
    }

    /// Scales the longer side to `size` pixels with one of the filters of `resize`. Both sides are rounded up, as YOLOv5's
    /// dataloader does for a validation; the longer side of some images therefore has one pixel more.
    ///
    /// ```rhai
    /// data::coco("val2017", "instances.json").resize_longer(640, "area").letterbox(640, 640, "linear")
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn resize_longer(pipeline: Pipeline, size: i64, filter: &str) -> Fallible<Pipeline> {
        let target = Target::Longer(side_length(size)?);
        add_geometry(pipeline, Geometry::Resize { target, filter: super::filter(filter)? })
    }

    /// Scales to `height` x `width` pixels with one of the filters of `resize`.
    ///
    /// ```rhai
    /// data::image_folder("val").resize_to(384, 512, "bicubic")
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn resize_to(pipeline: Pipeline, height: i64, width: i64, filter: &str) -> Fallible<Pipeline> {
        let target = Target::Exactly(sides(height, width)?);
        add_geometry(pipeline, Geometry::Resize { target, filter: super::filter(filter)? })
    }

    /// Crops the central `size` x `size` pixels.
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256).center_crop(224)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn center_crop(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        add_geometry(pipeline, Geometry::CenterCrop(sides(size, size)?))
    }

    /// Crops `height` x `width` pixels from the pixel in row `top` and column `left` on.
    ///
    /// ```rhai
    /// data::image_folder("val").crop(10, 20, 224, 224)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn crop(pipeline: Pipeline, top: i64, left: i64, height: i64, width: i64) -> Fallible<Pipeline> {
        let (left, top) = (size("the column", left)?, size("the row", top)?);
        if left.max(top) > SIDE_PIXELS_MAX {
            return Err(format!("a crop may begin at most {SIDE_PIXELS_MAX} pixels from the edge").into());
        }
        add_geometry(pipeline, Geometry::Crop { left, top, size: sides(height, width)? })
    }

    /// Adds pixels at the edges. Options: `top`, `left`, `bottom`, `right` (default 0), and their `level` in every channel
    /// (default 0). In a mask they have the label 255.
    ///
    /// ```rhai
    /// data::image_folder("val").resize_to(224, 200, "bilinear").pad(#{left: 12, right: 12, level: 114})
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn pad(pipeline: Pipeline, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("pad", options);
        let mut side = |name: &'static str| options.size(name).map(|pixels| pixels.unwrap_or(0));
        let sides = [side("left")?, side("top")?, side("right")?, side("bottom")?];
        let level = level(options.size("level")?, 0)?;
        options.finish()?;
        if sides.iter().any(|pixels| *pixels > SIDE_PIXELS_MAX) {
            return Err(format!("`pad` adds at most {SIDE_PIXELS_MAX} pixels on each side").into());
        }
        add_geometry(pipeline, Geometry::Pad { sides, level })
    }

    /// Scales an image, up or down, with PIL's antialiased bilinear filter so that it fits into `height` x `width`
    /// pixels with its proportions kept, and centres it on the level 114. If the padding is odd, the extra row or
    /// column is at the bottom or at the right. In a mask, padding has the label 255.
    ///
    /// ```rhai
    /// data::image_folder("val").letterbox(640, 640)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn letterbox(pipeline: Pipeline, height: i64, width: i64) -> Fallible<Pipeline> {
        letterbox_with(pipeline, height, width, "bilinear")
    }

    /// Scales an image as `letterbox` does with one of the filters of `resize`. With `linear`, it has the pixels of
    /// YOLOv5's function `letterbox` with `auto=False`; its `val.py` scales the longer side with `area` before.
    ///
    /// ```rhai
    /// data::coco("val2017", "instances.json").resize_longer(640, "area").letterbox(640, 640, "linear")
    /// ```
    #[rhai_fn(name = "letterbox", global, return_raw)]
    pub fn letterbox_with(pipeline: Pipeline, height: i64, width: i64, filter: &str) -> Fallible<Pipeline> {
        let (size, filter) = (sides(height, width)?, super::filter(filter)?);
        add_geometry(pipeline, Geometry::Letterbox { size, level: 114, filter })
    }

    /// Scales an image, up or down, as `fit` with options does, without a limit of the shorter side.
    ///
    /// ```rhai
    /// data::coco("val2017", "instances.json").fit(800, 1333)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn fit(pipeline: Pipeline, height: i64, width: i64) -> Fallible<Pipeline> {
        fit_with_options(pipeline, height, width, Map::new())
    }

    /// Scales an image, up or down, with PIL's antialiased bilinear filter so that it fits into `height` x `width` pixels
    /// with its proportions kept, and places it at the top left. The option `shorter_side` is the most pixels of the shorter
    /// side. If `height` and `width` are equal, sizes are those of transformers' image processor of DETR; the rule "shortest
    /// edge 800, longest edge 1333" is `fit(1333, 1333, #{shorter_side: 800})`. The values of the padding are 0, also after
    /// `normalize`; with its option `pixel_mask`, `data::coco` returns where they are. In a mask, padding has the label 255.
    /// No transform that moves pixels may follow.
    ///
    /// ```rhai
    /// data::coco("val2017", "instances.json", #{pixel_mask: true}).fit(1333, 1333, #{shorter_side: 800})
    /// ```
    #[rhai_fn(name = "fit", global, return_raw)]
    pub fn fit_with_options(pipeline: Pipeline, height: i64, width: i64, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("fit", options);
        let shorter = options.size("shorter_side")?;
        options.finish()?;
        let shorter = shorter.map(|pixels| side_length(pixels as i64)).transpose()?;
        add_geometry(pipeline, Geometry::Fit(Fit { size: sides(height, width)?, shorter }))
    }

    /// Exchanges left and right of an image, and of its mask, with `probability`. The choice depends only on `seed` and
    /// the index of the sample.
    ///
    /// ```rhai
    /// data::image_folder("val").center_crop(224).flip(0.5, 7)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn flip(pipeline: Pipeline, probability: Number, seed: i64) -> Fallible<Pipeline> {
        let probability = finite_number("the probability of a flip", &probability)?;
        if !(0.0..=1.0).contains(&probability) {
            return Err(format!("the probability of a flip must be from 0 to 1, not {probability}").into());
        }
        add_geometry(pipeline, Geometry::Flip { probability, seed: size("the seed", seed)? as u64 })
    }

    /// Multiplies every level, which is from 0 to 255, by `factor`. Without it, `normalize` divides levels by 255.
    ///
    /// ```rhai
    /// data::image_folder("val").center_crop(224).scale(1.0 / 255.0)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn scale(pipeline: Pipeline, factor: Number) -> Fallible<Pipeline> {
        let factor = finite_number("the factor", &factor)?;
        if !(factor as f32).is_finite() {
            return Err(format!("the factor must be finite, not {factor}").into());
        }
        add_transform(pipeline, Transform::Scale { factor: factor as f32 })
    }

    /// Converts the values to a type other than that of the case: a float type, or `u8`, `i32`, `i64` for levels that are
    /// neither scaled nor normalised. Must be the last transform.
    ///
    /// ```rhai
    /// data::image_folder("val").center_crop(224).to("u8")
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn to(pipeline: Pipeline, dtype: &str) -> Fallible<Pipeline> {
        let dtype = dtype.parse().map_err(|error: flagperf_core::tensor::SpecError| error.to_string())?;
        add_transform(pipeline, Transform::To { dtype })
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
