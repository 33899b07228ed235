//! Random transforms of pixels, which draw for each sample and epoch of a training.

#[cfg(test)]
mod tests;

use rhai::plugin::*;
use rhai::{Array, Dynamic, Map};

use super::{add_geometry, add_transform, filter, level, sides};
use crate::packages::data::Pipeline;
use crate::packages::options::{FunctionOptions, Number, finite_number, number};
use crate::sandbox::Fallible;
use flagperf_data::{ColorJitter, CropRange, Geometry, Interpolation, Outside, Policy, PolicyKind, Transform};

/// Largest number of operations that `rand_augment` applies to an image, and of magnitudes.
const OPERATIONS_MAX: usize = 20;
const BINS_MAX: usize = 1000;

/// Checks a probability.
pub(super) fn probability(value: &Number) -> Fallible<f64> {
    let value = finite_number("a probability", value)?;
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("a probability must be from 0 to 1, not {value}").into()),
    }
}

/// Reads an array of two numbers, the smaller one first.
fn range(function: &str, key: &str, value: &Dynamic) -> Fallible<(f64, f64)> {
    let numbers = value.read_lock::<Array>().map(|array| array.iter().map(number).collect::<Option<Vec<f64>>>());
    match numbers.flatten().as_deref() {
        Some(&[least, most]) if least <= most && least.is_finite() && most.is_finite() => Ok((least, most)),
        _ => Err(format!("`{function}`: `{key}` must be two numbers, the smaller one first, not `{value}`").into()),
    }
}

/// Reads the options `scale`, within 0..=1, and `ratio`, above 0.
pub(super) fn crop_range(
    function: &'static str,
    options: &mut FunctionOptions,
    default: CropRange,
) -> Fallible<CropRange> {
    let mut read = |key: &'static str, default: (f64, f64)| {
        options.value(key).map_or(Ok(default), |value| range(function, key, &value))
    };
    let found = CropRange { scale: read("scale", default.scale)?, ratio: read("ratio", default.ratio)? };
    if found.scale.0 < 0.0 || found.scale.1 > 1.0 {
        return Err(format!("`{function}`: `scale` must be within 0 and 1").into());
    }
    if found.ratio.0 < 1e-3 || found.ratio.1 > 1e3 {
        return Err(format!("`{function}`: `ratio` must be within 0.001 and 1000").into());
    }
    Ok(found)
}

/// Reads the options of `color_jitter`: a distance from `centre`, or a range.
fn jitter_range(
    options: &mut FunctionOptions,
    key: &'static str,
    centre: f64,
    bounds: (f64, f64),
) -> Fallible<Option<(f64, f64)>> {
    let Some(value) = options.value(key) else { return Ok(None) };
    let found = match number(&value) {
        Some(distance) if distance >= 0.0 => ((centre - distance).max(bounds.0), centre + distance),
        Some(_) => return Err(format!("`color_jitter`: `{key}` must be at least 0, not `{value}`").into()),
        None => range("color_jitter", key, &value)?,
    };
    if found.0 < bounds.0 || found.1 > bounds.1 {
        return Err(format!("`color_jitter`: `{key}` must be within {} and {}", bounds.0, bounds.1).into());
    }
    Ok(Some(found))
}

/// Reads the options `interpolation` and `level` of a policy.
fn outside(options: &mut FunctionOptions) -> Fallible<Outside> {
    let interpolation = match options.text("interpolation")?.as_deref() {
        None | Some("nearest") => Interpolation::Nearest,
        Some("bilinear") => Interpolation::Bilinear,
        Some(other) => return Err(format!("unknown interpolation `{other}` (known: nearest, bilinear)").into()),
    };
    Ok(Outside { interpolation, level: level(options.size("level")?, 0)? })
}

/// Reads the option `bins`.
fn bins(function: &str, options: &mut FunctionOptions) -> Fallible<usize> {
    match options.size("bins")?.unwrap_or(31) {
        bins @ 2..=BINS_MAX => Ok(bins),
        other => Err(format!("`{function}`: `bins` must be from 2 to {BINS_MAX}, not {other}").into()),
    }
}

#[export_module]
pub(super) mod functions {
    /// Only in a training: keeps a random part of each image and scales it to `size` x `size` pixels, with the defaults of
    /// torchvision's `RandomResizedCrop`. Masks and boxes move with their image.
    ///
    /// Every random transform draws by the seed of the training, the epoch and the index of the sample, so that the number
    /// of workers changes nothing.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).random_horizontal_flip(0.5)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn random_resized_crop(pipeline: Pipeline, size: i64) -> Fallible<Pipeline> {
        random_resized_crop_with(pipeline, size, Map::new())
    }

    /// Only in a training: keeps a random part of each image and scales it to `size` x `size` pixels. Options: `scale`, the
    /// range of the part's area as a share of the image (default `[0.08, 1.0]`); `ratio`, the range of its width divided by
    /// its height (default `[0.75, 1.3333]`, exactly 3/4 and 4/3); `filter`: `bilinear` (default) or `bicubic`.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(176, #{scale: [0.25, 1.0], filter: "bicubic"})
    /// ```
    #[rhai_fn(name = "random_resized_crop", global, return_raw)]
    pub fn random_resized_crop_with(pipeline: Pipeline, size: i64, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("random_resized_crop", options);
        let default = CropRange { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };
        let range = crop_range("random_resized_crop", &mut options, default)?;
        let filter = filter(options.text("filter")?.as_deref().unwrap_or("bilinear"))?;
        options.finish()?;
        add_geometry(pipeline, Geometry::RandomResizedCrop { size: sides(size, size)?, range, filter })
    }

    /// Only in a training: exchanges left and right of an image, and of its mask and boxes, with `probability`.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).random_horizontal_flip(0.5)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn random_horizontal_flip(pipeline: Pipeline, probability: Number) -> Fallible<Pipeline> {
        let probability = super::probability(&probability)?;
        add_geometry(pipeline, Geometry::RandomHorizontalFlip { probability })
    }

    /// Only in a training: changes brightness, contrast, saturation and hue by random factors in a random order, as
    /// torchvision's `ColorJitter`. Options: `brightness`, `contrast`, `saturation`: a factor is drawn within this distance
    /// of 1, or from a range `[least, most]`; `hue`: a part of a turn, at most 0.5, or a range. What has no option stays.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).color_jitter(#{brightness: 0.4, contrast: [0.8, 1.2], hue: 0.1})
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn color_jitter(pipeline: Pipeline, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("color_jitter", options);
        let mut factor = |key| jitter_range(&mut options, key, 1.0, (0.0, 1e6));
        let (brightness, contrast, saturation) = (factor("brightness")?, factor("contrast")?, factor("saturation")?);
        let hue = jitter_range(&mut options, "hue", 0.0, (-0.5, 0.5))?;
        options.finish()?;
        add_transform(pipeline, Transform::ColorJitter(ColorJitter { brightness, contrast, saturation, hue }))
    }

    /// Only in a training: applies two random operations of magnitude 9 to each image, as torchvision's `RandAugment`. Masks
    /// and boxes cannot follow.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).random_horizontal_flip(0.5).rand_augment()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn rand_augment(pipeline: Pipeline) -> Fallible<Pipeline> {
        rand_augment_with(pipeline, Map::new())
    }

    /// Only in a training: applies random operations of one magnitude to each image, as torchvision's `RandAugment`.
    /// Options: `operations`, their number (default 2); `magnitude` (default 9), below `bins` (default 31);
    /// `interpolation`: `nearest` (default) or `bilinear`; `level`, that of pixels from outside the image (default 0).
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).rand_augment(#{magnitude: 5, interpolation: "bilinear"})
    /// ```
    #[rhai_fn(name = "rand_augment", global, return_raw)]
    pub fn rand_augment_with(pipeline: Pipeline, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("rand_augment", options);
        let (operations, magnitude) =
            (options.size("operations")?.unwrap_or(2), options.size("magnitude")?.unwrap_or(9));
        let (bins, outside) = (bins("rand_augment", &mut options)?, outside(&mut options)?);
        options.finish()?;
        if operations > OPERATIONS_MAX {
            return Err(format!("`rand_augment` applies at most {OPERATIONS_MAX} operations, not {operations}").into());
        }
        if magnitude >= bins {
            return Err(format!("`rand_augment`: `magnitude` must be below `bins`, {bins}, not {magnitude}").into());
        }
        let kind = PolicyKind::RandAugment { operations, magnitude, bins };
        add_transform(pipeline, Transform::Policy(Policy { kind, outside }))
    }

    /// Only in a training: applies one random operation of a random magnitude to each image, as torchvision's
    /// `TrivialAugmentWide`. Masks and boxes cannot follow.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(176).random_horizontal_flip(0.5).trivial_augment_wide()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn trivial_augment_wide(pipeline: Pipeline) -> Fallible<Pipeline> {
        trivial_augment_wide_with(pipeline, Map::new())
    }

    /// Only in a training: applies one random operation of a random magnitude to each image. Options: `bins`, the number of
    /// magnitudes (default 31); `interpolation` and `level` as in `rand_augment`.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(176).trivial_augment_wide(#{interpolation: "bilinear"})
    /// ```
    #[rhai_fn(name = "trivial_augment_wide", global, return_raw)]
    pub fn trivial_augment_wide_with(pipeline: Pipeline, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("trivial_augment_wide", options);
        let (bins, outside) = (bins("trivial_augment_wide", &mut options)?, outside(&mut options)?);
        options.finish()?;
        add_transform(pipeline, Transform::Policy(Policy { kind: PolicyKind::TrivialAugmentWide { bins }, outside }))
    }

    /// Only in a training: applies one of the 25 pairs of operations that AutoAugment learned on ImageNet, as torchvision's
    /// `AutoAugment`. Masks and boxes cannot follow.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).random_horizontal_flip(0.5).auto_augment()
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn auto_augment(pipeline: Pipeline) -> Fallible<Pipeline> {
        auto_augment_with(pipeline, Map::new())
    }

    /// Only in a training: applies one of the 25 pairs of operations that AutoAugment learned on ImageNet. Options:
    /// `interpolation` and `level` as in `rand_augment`.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).auto_augment(#{interpolation: "bilinear", level: 128})
    /// ```
    #[rhai_fn(name = "auto_augment", global, return_raw)]
    pub fn auto_augment_with(pipeline: Pipeline, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("auto_augment", options);
        let outside = outside(&mut options)?;
        options.finish()?;
        add_transform(pipeline, Transform::Policy(Policy { kind: PolicyKind::AutoAugment, outside }))
    }
}
