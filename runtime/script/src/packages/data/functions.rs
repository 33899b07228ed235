//! Datasets of images and of arrays.

use rhai::plugin::*;
use rhai::{Dynamic, Map, NativeCallContext};

use super::Pipeline;
use super::files::{pipeline_of, relative_path};
use crate::packages::options::{FunctionOptions, size};
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::SpecError;
use flagperf_data::{ArrayField, CocoOptions, FieldRole, Hdf5Field, Hdf5Options, ImageMaskOptions, SampleSource};

/// Largest number of points of an image.
const POINTS_MAX: usize = 1 << 16;

/// Reads the fields of `data::arrays`: a path by name, or `#{file: .., key: ..}`.
fn array_fields(map: Map, role: FieldRole) -> Fallible<Vec<ArrayField>> {
    let field = |(name, value): (rhai::Identifier, Dynamic)| {
        let (file, key) = match value.read_lock::<Map>() {
            Some(options) => {
                let mut options = FunctionOptions::new("arrays", options.clone());
                let found = (options.required_text("file")?, options.text("key")?);
                options.finish()?;
                found
            }
            None => {
                let error = |actual| format!("the field `{name}` must be a path or a map, not {actual}");
                (value.clone().into_immutable_string().map_err(error)?, None)
            }
        };
        let key = key.map(|key| key.to_string());
        Ok(ArrayField { name: name.into(), role, file: relative_path(&file)?, key })
    };
    map.into_iter().map(field).collect()
}

/// Reads the fields of `data::hdf5`: the name of a dataset by name, or `#{dataset: .., dtype: ..}`.
fn hdf5_fields(map: Map, role: FieldRole) -> Fallible<Vec<Hdf5Field>> {
    let field = |(name, value): (rhai::Identifier, Dynamic)| {
        let (dataset, dtype) = match value.read_lock::<Map>() {
            Some(options) => {
                let mut options = FunctionOptions::new("hdf5", options.clone());
                let found = (options.required_text("dataset")?, options.text("dtype")?);
                options.finish()?;
                found
            }
            None => {
                let error = |actual| format!("the field `{name}` must be the name of a dataset or a map, not {actual}");
                (value.clone().into_immutable_string().map_err(error)?, None)
            }
        };
        let parse = |dtype: rhai::ImmutableString| dtype.parse().map_err(|error: SpecError| error.to_string());
        let dtype = dtype.map(parse).transpose()?;
        Ok(Hdf5Field { name: name.into(), role, dataset: dataset.to_string(), dtype })
    };
    map.into_iter().map(field).collect()
}

#[export_module]
pub(super) mod functions {
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
        Ok(pipeline_of(source))
    }

    /// Describes images with masks: a folder of images, and a folder with an 8-bit greyscale PNG of the same name
    /// for each, whose levels are the classes from 0 to `classes - 1`; the label 255 does not count. Transforms that move
    /// pixels move the labels, too, with the nearest filter. Fields: `images` (input), `masks` (truth, `N,H,W,u8`).
    ///
    /// ```rhai
    /// data::image_masks("images", "masks", 21).resize_to(512, 512, "bilinear").flip(0.5, 0).scale(1.0 / 255.0)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn image_masks(context: NativeCallContext, images: &str, masks: &str, classes: i64) -> Fallible<Pipeline> {
        image_masks_with_points(context, images, masks, classes, Map::new())
    }

    /// Describes images with masks and points on their objects, as segment-anything takes them. The option `points` is
    /// their number per image; they add the field `points` (input, `N,P,2` of the float type of the case: column and
    /// row in the transformed image, whole numbers without the half pixel that segment-anything adds). All labels other
    /// than 0 and 255 count as one object. Of its `count` pixels, numbered from 0 row by row, point `i` of `P` is pixel
    /// `(2 * i + 1) * count / (2 * P)`, rounded down. A mask without objects is a bad sample.
    ///
    /// ```rhai
    /// data::image_masks("images", "masks", 2, #{points: 1}).resize_to(1024, 1024, "bilinear").scale(1.0 / 255.0)
    /// ```
    #[rhai_fn(name = "image_masks", return_raw)]
    pub fn image_masks_with_points(
        context: NativeCallContext,
        images: &str,
        masks: &str,
        classes: i64,
        options: Map,
    ) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("image_masks", options);
        let points = options.size("points")?.unwrap_or(0);
        options.finish()?;
        if points > POINTS_MAX {
            return Err(format!("`image_masks`: `points` must be from 0 to {POINTS_MAX}, not {points}").into());
        }
        let classes = size("the number of classes", classes)?;
        if classes == 0 || classes > 255 {
            return Err(format!("masks of 8 bits have 1 to 255 classes, not {classes}").into());
        }
        let (images, masks) = (relative_path(images)?, relative_path(masks)?);
        Ok(pipeline_of(SampleSource::ImageMasks(ImageMaskOptions { images, masks, classes, points })))
    }

    /// Describes images with boxes in COCO's format: a folder of images, and the JSON file of instances. Samples
    /// are in the order of the image ids. Fields: `images` (input); truth, padded to `D`, the largest number of objects of
    /// an image in the file: `boxes` (`N,D,4,f64`: left, top, width, height in pixels of the original image), `classes`
    /// (`N,D,i64`: ranks of the categories by id, from 0), `areas` (`N,D,f64`), `crowds` (`N,D,bool`), `counts` (`N,i64`),
    /// `image_ids` (`N,i64`), `placements` (`N,4,f64`), by which `boxes::restore` converts the boxes of the model, and `sizes`
    /// (`N,2,i64`: height and width of the original image).
    ///
    /// The file of instances has `images` (`id`, `file_name`, and `width` and `height`, which must be those of the
    /// file), `annotations` (`id`, `image_id`, `category_id`, `bbox`, `area`, and optionally `iscrowd`, 0 by default)
    /// and `categories` (`id`). A box may have the width or height 0, and may reach over the edge of its image by at
    /// most one pixel.
    ///
    /// ```rhai
    /// data::coco("val2017", "annotations/instances_val2017.json").letterbox(640, 640).scale(1.0 / 255.0)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn coco(context: NativeCallContext, images: &str, annotations: &str) -> Fallible<Pipeline> {
        coco_with_options(context, images, annotations, Map::new())
    }

    /// Describes images with boxes in COCO's format. With the option `category_ids: true`, `classes` are the ids of the
    /// categories, as some models number them, in place of their ranks. With `move_boxes: true`, as a training needs them,
    /// `boxes` are in pixels of the transformed image and clipped to it; `counts` leaves out those of which less than one
    /// pixel across or down remains, and `areas` shrink with their boxes. With `pixel_mask: true`, there is an input field
    /// `pixel_mask` (`N,H,W,i64`): 1 for pixels of the image and 0 for the padding of `fit`. `classes` is the number of classes
    /// of the model: a category of which it has no class is an error.
    ///
    /// ```rhai
    /// data::coco("val2017", "instances.json", #{category_ids: true}).resize_to(800, 800, "bilinear")
    /// ```
    #[rhai_fn(name = "coco", return_raw)]
    pub fn coco_with_options(
        context: NativeCallContext,
        images: &str,
        annotations: &str,
        options: Map,
    ) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("coco", options);
        let category_ids = options.flag("category_ids", false)?;
        let move_boxes = options.flag("move_boxes", false)?;
        let pixel_mask = options.flag("pixel_mask", false)?;
        let model_classes = options.size("classes")?;
        options.finish()?;
        let (images, annotations) = (relative_path(images)?, relative_path(annotations)?);
        let options = CocoOptions { images, annotations, category_ids, model_classes, move_boxes, pixel_mask };
        Ok(pipeline_of(SampleSource::Coco(options)))
    }

    /// Describes a dataset of arrays in files: .npy, or a tensor of a .safetensors file. The first dimension of each counts
    /// the samples. Options: `inputs` for forward functions and `truth` for evaluators, each a map of fields with a path,
    /// or `#{file: .., key: ..}` with the name of the tensor. Float inputs get the type of the case.
    ///
    /// ```rhai
    /// data::arrays(#{inputs: #{points: "points.npy"}, truth: #{labels: #{file: "all.safetensors", key: "labels"}}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn arrays(context: NativeCallContext, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("arrays", options);
        let mut fields = array_fields(options.map("inputs")?, FieldRole::Input)?;
        fields.extend(array_fields(options.map("truth")?, FieldRole::Truth)?);
        options.finish()?;
        Ok(pipeline_of(SampleSource::Arrays(fields)))
    }

    /// Describes a dataset of arrays in HDF5 files: those in the folder `path` that end in .hdf5 or .h5, in byte order of their
    /// names, or one file. The first dimension of each array counts the samples, and those of the files follow each other. Options:
    /// `inputs` for forward functions and `truth` for evaluators, each a map of fields with the name of a dataset, or
    /// `#{dataset: .., dtype: ..}` with the type of the elements in a batch: the stored one, or that of the case for float inputs.
    ///
    /// ```rhai
    /// data::hdf5("shards", #{inputs: #{input_ids: #{dataset: "input_ids", dtype: "i64"}}, truth: #{labels: "next_sentence_labels"}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn hdf5(context: NativeCallContext, path: &str, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("hdf5", options);
        let mut fields = hdf5_fields(options.map("inputs")?, FieldRole::Input)?;
        fields.extend(hdf5_fields(options.map("truth")?, FieldRole::Truth)?);
        options.finish()?;
        if fields.is_empty() {
            return Err("`hdf5` needs a field in `inputs` or `truth`".into());
        }
        Ok(pipeline_of(SampleSource::Hdf5(Hdf5Options { path: relative_path(path)?, fields })))
    }
}
