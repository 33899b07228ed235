//! `data`: where samples come from. A pipeline is a description: nothing is read while the script runs.

use std::path::{Component, Path, PathBuf};

use rhai::plugin::*;
use rhai::{Dynamic, Map, Module, NativeCallContext};

use super::options::Options;
use crate::data::{Field, FieldRole, Pipeline as Description, SAMPLE_BYTES_MAX, SampleSource};
use crate::script::sandbox::{Fallible, host_of};
use crate::tensor::{TensorSpec, byte_count};

/// A dataset and the transforms of every sample.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline(pub(crate) Description);

/// Samples of a synthetic dataset at most.
const SYNTHETIC_SAMPLES: usize = 10_000_000;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Pipeline>("Pipeline");
    module
}

/// A path that stays below the data directory, as far as its text says; links are looked at when it is opened.
pub(super) fn inside(path: &str) -> Fallible<PathBuf> {
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(stays) {
        return Err(format!("path `{path}` leaves the data directory: give one below it, without `..`").into());
    }
    Ok(PathBuf::from(path))
}

fn fields(map: Map, role: FieldRole) -> Fallible<Vec<Field>> {
    let field = |(name, spec): (rhai::Identifier, Dynamic)| {
        let text = spec.into_immutable_string().map_err(|is| format!("field `{name}` is a text, not {is}"))?;
        let spec: TensorSpec = text.parse().map_err(|error| format!("field `{name}`: {error}"))?;
        let shape =
            spec.fixed_shape().ok_or_else(|| format!("field `{name}`: every dimension of `{spec}` must be a size"))?;
        if byte_count(&shape, spec.dtype).is_none_or(|bytes| bytes > SAMPLE_BYTES_MAX) {
            return Err(format!("field `{name}` is `{spec}`: a sample takes at most {SAMPLE_BYTES_MAX} bytes").into());
        }
        Ok(Field { name: name.into(), role, spec })
    };
    map.into_iter().map(field).collect()
}

#[export_module]
mod functions {
    /// Images in one folder a class, below the data directory. A folder's class is its rank among the folders.
    /// Fields: `images` (input), `labels` (truth, `N,i64`).
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256).center_crop(224).normalize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    /// ```
    #[rhai_fn(return_raw)]
    pub fn image_folder(context: NativeCallContext, images: &str) -> Fallible<Pipeline> {
        image_folder_with_classes(context, images, Dynamic::UNIT)
    }

    /// The same, with a class list: a text file below the data directory with one class folder a line; a folder's
    /// class is its line, from 0. `()` is no list.
    ///
    /// ```rhai
    /// data::image_folder("val", "classes.txt").resize(256)
    /// ```
    #[rhai_fn(name = "image_folder", return_raw)]
    pub fn image_folder_with_classes(context: NativeCallContext, images: &str, classes: Dynamic) -> Fallible<Pipeline> {
        host_of(&context)?.budget.check()?;
        let classes = if classes.is_unit() {
            None
        } else {
            let file = classes.into_immutable_string().map_err(|is| format!("a class list is a path, not {is}"))?;
            Some(inside(&file)?)
        };
        let source = SampleSource::ImageFolder { images: inside(images)?, classes };
        Ok(Pipeline(Description { source, transforms: Vec::new() }))
    }

    /// Seeded random samples in memory; no accuracy means anything on them. Options: `samples`, `seed` (0), and the
    /// fields by name as shapes of one sample: `inputs` for forward functions, `truth` for evaluators only.
    ///
    /// ```rhai
    /// data::synthetic(#{samples: 100, inputs: #{images: "3,224,224,f32"}, truth: #{labels: "i64"}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn synthetic(context: NativeCallContext, options: Map) -> Fallible<Pipeline> {
        host_of(&context)?.budget.check()?;
        let mut options = Options::new("synthetic", options);
        let samples = options.required_size("samples")?;
        if samples == 0 || samples > SYNTHETIC_SAMPLES {
            return Err(format!("`samples` is 1 to {SYNTHETIC_SAMPLES}, not `{samples}`").into());
        }
        let seed = options.size("seed")?.unwrap_or(0) as u64;
        let mut all = fields(options.map("inputs")?, FieldRole::Input)?;
        all.extend(fields(options.map("truth")?, FieldRole::Truth)?);
        options.finish()?;
        let source = SampleSource::Synthetic { fields: all, samples, seed };
        Ok(Pipeline(Description { source, transforms: Vec::new() }))
    }
}
