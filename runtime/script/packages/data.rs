//! `data`: the source of samples. A pipeline is only a description: no sample is read while the script runs.

use std::path::{Component, Path, PathBuf};

use rhai::plugin::*;
use rhai::{Dynamic, Map, Module, NativeCallContext};

use super::options::FunctionOptions;
use crate::data::{Field, FieldRole, Pipeline as HostPipeline, SAMPLE_BYTES_MAX, SampleSource};
use crate::script::sandbox::{Fallible, script_state};
use crate::tensor::{TensorSpec, byte_count};

/// A dataset and the transforms of every sample.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline(pub(crate) HostPipeline);

/// Largest number of samples of a synthetic dataset.
const SYNTHETIC_SAMPLES_MAX: usize = 10_000_000;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Pipeline>("Pipeline");
    module
}

/// Checks that the text of `path` stays inside the data directory; links are resolved when the path is opened.
pub(super) fn relative_path(path: &str) -> Fallible<PathBuf> {
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(stays) {
        return Err(format!("path `{path}` leaves the data directory: use a path inside it, without `..`").into());
    }
    Ok(PathBuf::from(path))
}

fn parse_fields(map: Map, role: FieldRole) -> Fallible<Vec<Field>> {
    let field = |(name, spec): (rhai::Identifier, Dynamic)| {
        let text = spec
            .into_immutable_string()
            .map_err(|actual| format!("field `{name}` must be a shape as a string, not {actual}"))?;
        let spec: TensorSpec = text.parse().map_err(|error| format!("field `{name}`: {error}"))?;
        let shape = spec
            .fixed_shape()
            .ok_or_else(|| format!("field `{name}`: every dimension of `{spec}` must be a number"))?;
        if byte_count(&shape, spec.dtype).is_none_or(|bytes| bytes > SAMPLE_BYTES_MAX) {
            return Err(format!(
                "field `{name}` of `{spec}` is too large: a sample may have at most {SAMPLE_BYTES_MAX} bytes"
            )
            .into());
        }
        Ok(Field { name: name.into(), role, spec })
    };
    map.into_iter().map(field).collect()
}

#[export_module]
mod functions {
    /// Describes a dataset of images with one folder per class, inside the data directory. The class of a folder is its
    /// rank among the folders in byte order. Fields: `images` (input), `labels` (truth, `N,i64`).
    ///
    /// ```rhai
    /// data::image_folder("val").resize(256).center_crop(224).normalize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    /// ```
    #[rhai_fn(return_raw)]
    pub fn image_folder(context: NativeCallContext, images: &str) -> Fallible<Pipeline> {
        image_folder_with_classes(context, images, Dynamic::UNIT)
    }

    /// Describes a dataset of images with a class list: a text file inside the data directory with the name of one
    /// class folder per line. The class of a folder is its line, from 0. With `()`, there is no list.
    ///
    /// ```rhai
    /// data::image_folder("val", "classes.txt").resize(256)
    /// ```
    #[rhai_fn(name = "image_folder", return_raw)]
    pub fn image_folder_with_classes(context: NativeCallContext, images: &str, classes: Dynamic) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let classes = if classes.is_unit() {
            None
        } else {
            let file = classes
                .into_immutable_string()
                .map_err(|actual| format!("the class list must be a path, not {actual}"))?;
            Some(relative_path(&file)?)
        };
        let source = SampleSource::ImageFolder { images: relative_path(images)?, classes };
        Ok(Pipeline(HostPipeline { source, transforms: Vec::new() }))
    }

    /// Describes a dataset of seeded random samples in memory, for which accuracy is meaningless. Options: `samples`,
    /// `seed` (default 0), and the fields by name with the shape of one sample: `inputs` for forward functions, `truth`
    /// for evaluators only.
    ///
    /// ```rhai
    /// data::synthetic(#{samples: 100, inputs: #{images: "3,224,224,f32"}, truth: #{labels: "i64"}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn synthetic(context: NativeCallContext, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("synthetic", options);
        let samples = options.required_size("samples")?;
        if samples == 0 || samples > SYNTHETIC_SAMPLES_MAX {
            return Err(format!("`samples` must be from 1 to {SYNTHETIC_SAMPLES_MAX}, not `{samples}`").into());
        }
        let seed = options.size("seed")?.unwrap_or(0) as u64;
        let mut all = parse_fields(options.map("inputs")?, FieldRole::Input)?;
        all.extend(parse_fields(options.map("truth")?, FieldRole::Truth)?);
        options.finish()?;
        let source = SampleSource::Synthetic { fields: all, samples, seed };
        Ok(Pipeline(HostPipeline { source, transforms: Vec::new() }))
    }
}
