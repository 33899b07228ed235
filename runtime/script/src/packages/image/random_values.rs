//! Random transforms of the values of images and batches, which draw for each sample or batch and epoch of a training.

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map};

use super::augmentation::{crop_range, probability};
use super::{add_transform, channel_values};
use crate::packages::data::Pipeline;
use crate::packages::options::{FunctionOptions, Number, finite_number, number, size};
use crate::sandbox::Fallible;
use flagperf_data::{CropRange, ErasedValue, Mix, RandomErasing, Transform};

/// Range of the parameter of the beta distribution of mixup and cutmix.
const ALPHA: (f64, f64) = (1e-3, 1e3);
/// Largest number of classes of soft labels.
const CLASSES_MAX: usize = 1 << 20;

fn erased_value(value: Option<Dynamic>) -> Fallible<ErasedValue> {
    let Some(value) = value else { return Ok(ErasedValue::Channels([0.0; 3])) };
    if value.read_lock::<ImmutableString>().is_some_and(|text| *text == "random") {
        return Ok(ErasedValue::Normal);
    }
    if let Some(number) = number(&value) {
        return Ok(ErasedValue::Channels([number as f32; 3]));
    }
    match value.read_lock::<Array>() {
        Some(numbers) => Ok(ErasedValue::Channels(channel_values("value", &numbers)?)),
        None => Err(format!("`random_erasing`: `value` must be a number, three, or \"random\", not `{value}`").into()),
    }
}

fn mix(function: &str, alpha: &Number, classes: i64) -> Fallible<Mix> {
    let alpha = finite_number("`alpha`", alpha)?;
    if !(ALPHA.0..=ALPHA.1).contains(&alpha) {
        return Err(format!("`{function}`: `alpha` must be from {} to {}, not {alpha}", ALPHA.0, ALPHA.1).into());
    }
    match size("the number of classes", classes)? {
        classes @ 1..=CLASSES_MAX => Ok(Mix { alpha, classes }),
        other => Err(format!("`{function}`: 1 to {CLASSES_MAX} classes are supported, not {other}").into()),
    }
}

#[export_module]
pub(super) mod functions {
    /// Only in a training: overwrites a random rectangle of the values with 0, with `probability`, as torchvision's
    /// `RandomErasing`. Must follow `scale`, `normalize` and `to`.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).normalize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]).random_erasing(0.1)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn random_erasing(pipeline: Pipeline, probability: Number) -> Fallible<Pipeline> {
        random_erasing_with(pipeline, probability, Map::new())
    }

    /// Only in a training: overwrites a random rectangle of the values, with `probability`. Options: `scale`, the range of
    /// its area as a share of the image (default `[0.02, 0.33]`); `ratio`, the range of its height divided by its width
    /// (default `[0.3, 3.3]`); `value`: a number (default 0), three, one per channel, or `"random"` for normal numbers.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).scale(1.0 / 255.0).random_erasing(0.25, #{value: "random"})
    /// ```
    #[rhai_fn(name = "random_erasing", global, return_raw)]
    pub fn random_erasing_with(pipeline: Pipeline, probability: Number, options: Map) -> Fallible<Pipeline> {
        let mut options = FunctionOptions::new("random_erasing", options);
        let default = CropRange { scale: (0.02, 0.33), ratio: (0.3, 3.3) };
        let range = crop_range("random_erasing", &mut options, default)?;
        let value = erased_value(options.value("value"))?;
        options.finish()?;
        let probability = super::probability(&probability)?;
        add_transform(pipeline, Transform::RandomErasing(RandomErasing { probability, range, value }))
    }

    /// Only in a training: mixes each image of a batch with the one before it, the first with the last, as torchvision's
    /// `MixUp`; the share is drawn for each batch from the beta distribution with both parameters `alpha`. The field
    /// `labels` becomes `N,C,f32`: the probabilities of `classes` classes. With `cutmix` beside it, each batch draws one of
    /// the two. Must follow all transforms of single images.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).scale(1.0 / 255.0).mixup(0.2, 1000).cutmix(1.0, 1000)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn mixup(pipeline: Pipeline, alpha: Number, classes: i64) -> Fallible<Pipeline> {
        add_transform(pipeline, Transform::MixUp(mix("mixup", &alpha, classes)?))
    }

    /// Only in a training: pastes a random rectangle of the image before it into each image of a batch, as torchvision's
    /// `CutMix`. The field `labels` becomes `N,C,f32`: the shares of the areas as probabilities of `classes` classes.
    ///
    /// ```rhai
    /// data::image_folder("train").random_resized_crop(224).scale(1.0 / 255.0).cutmix(1.0, 1000)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn cutmix(pipeline: Pipeline, alpha: Number, classes: i64) -> Fallible<Pipeline> {
        add_transform(pipeline, Transform::CutMix(mix("cutmix", &alpha, classes)?))
    }
}
