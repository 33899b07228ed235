//! Images with boxes in COCO's format: object detection.
//!
//! Boxes stay in pixels of the original images, in which COCO's evaluation measures them, unless they are for a training. Each
//! image has the placement with which `boxes::restore` converts the boxes of a model to these pixels.

mod annotations;
mod moved;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use bytemuck::NoUninit;

use self::annotations::{AnnotatedImage, AnnotatedObject, Annotations};
use super::geometry::Size;
use super::image_file::read_image;
use super::pixels::ImageTransforms;
use super::random::{Epoch, SampleDraw};
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SAMPLE_BYTES_MAX, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::tensor::{DType, TensorSpec};

/// The description of images with boxes.
#[derive(Clone, Debug, PartialEq)]
pub struct CocoOptions {
    /// The folder of images: BMP, GIF, JPEG, PNG or WebP files.
    pub images: PathBuf,
    /// The JSON file of instances.
    pub annotations: PathBuf,
    /// Whether `classes` are the ids of the categories; otherwise they are their ranks by id, from 0.
    pub category_ids: bool,
    /// Number of classes of the model, which must have a class for each category. `None` for no check.
    pub model_classes: Option<usize>,
    /// Whether boxes move with their image and are clipped to it; those of which less than a pixel is left are left out.
    pub move_boxes: bool,
    /// Whether samples have the input `pixel_mask`, with 1 for pixels of the image and 0 for padding.
    pub pixel_mask: bool,
}

/// Opened images with boxes: the index of the annotations, without pixels. Fields: `images` (input), `pixel_mask` (input,
/// optional); truth, with `D` the largest number of objects of an image: `boxes` (`D,4,f64`), `classes` (`D,i64`), `areas` (`D,f64`), `crowds`
/// (`D,bool`), `counts` (`i64`), `image_ids` (`i64`), `placements` (`4,f64`: scale across and down, left, top) and `sizes`
/// (`2,i64`: height and width of the original image).
pub struct Coco {
    root: PathBuf,
    options: CocoOptions,
    annotations: Annotations,
    fields: Vec<Field>,
    transforms: ImageTransforms,
    facts: DatasetFacts,
}

impl Coco {
    /// Reads the annotations and finds the images.
    ///
    /// # Errors
    /// When the file of annotations is not valid, a category is not a class of the model, or an image is missing; the error
    /// contains the id.
    pub fn open(root: &DataRoot, options: &CocoOptions, transforms: ImageTransforms) -> Result<Self, DataError> {
        transforms.check_truth("boxes")?;
        if options.pixel_mask {
            transforms.check_pixel_mask()?;
        }
        root.resolve(&options.images)?;
        let annotations = Annotations::read(root, &options.annotations)?;
        if let Some(classes) = options.model_classes {
            let unsuited = |reason| DataError::Invalid { path: options.annotations.clone(), reason };
            annotations.check_classes(classes, options.category_ids).map_err(unsuited)?;
        }
        let file_bytes = find_images(root, options, &annotations)?;
        let CocoOptions { images, annotations: file, category_ids, move_boxes, pixel_mask, .. } = options;
        let classes = if *category_ids { "ids of the categories" } else { "ranks of the categories" };
        let boxes = if *move_boxes { ", boxes move with their image" } else { "" };
        let mask = if *pixel_mask { ", with a pixel mask" } else { "" };
        let mut pipeline = vec![format!(
            "coco images {}, annotations {}, classes: {classes}{boxes}{mask}",
            images.display(),
            file.display()
        )];
        pipeline.extend_from_slice(transforms.descriptions());
        let facts = root.facts(root.path(), annotations.images.len(), annotations.hash(&file_bytes), pipeline);
        let fields = coco_fields(&transforms, annotations.objects_max().max(1), *pixel_mask)?;
        Ok(Coco { root: root.path().to_owned(), options: options.clone(), annotations, fields, transforms, facts })
    }

    fn read_sample(&self, draw: &SampleDraw, fields: &mut [&mut [u8]]) -> Result<(), String> {
        let (requested, inputs) = (fields.len(), if self.options.pixel_mask { 2 } else { 1 });
        let (images, truth) = fields.split_at_mut_checked(inputs).unwrap_or_default();
        let [boxes, classes, areas, crowds, counts, ids, placements, sizes] = truth else {
            return Err(format!("{requested} fields requested, but a sample has {}", self.fields.len()));
        };
        let index = draw.sample as usize;
        let annotated = &self.annotations.images[index];
        let size = self.read_inputs(annotated, draw, images)?;
        let placement = self.transforms.placement(size, draw)?;
        let mut objects = self.annotations.objects(index);
        let moved: Vec<AnnotatedObject>;
        if self.options.move_boxes {
            let size = self.transforms.size();
            moved = objects.iter().filter_map(|object| moved::moved(object, &placement, size)).collect();
            objects = &moved;
        }
        write_padded(objects, |object| object.bbox, boxes);
        write_padded(objects, |object| [self.class_of(object)], classes);
        write_padded(objects, |object| [object.area], areas);
        write_padded(objects, |object| [u8::from(object.is_crowd)], crowds);
        counts.copy_from_slice(&(objects.len() as i64).to_ne_bytes());
        ids.copy_from_slice(&annotated.id.to_ne_bytes());
        let [[across, down], [left, top]] = [placement.scale, placement.shift];
        placements.copy_from_slice(bytemuck::bytes_of(&[across, down, left, top]));
        sizes.copy_from_slice(bytemuck::bytes_of(&[size.1 as i64, size.0 as i64]));
        Ok(())
    }

    /// Reads an image, and writes its mask if there is a field for it. Returns width and height in the file.
    fn read_inputs(&self, image: &AnnotatedImage, draw: &SampleDraw, fields: &mut [&mut [u8]]) -> Result<Size, String> {
        let path = self.root.join(&self.options.images).join(&*image.file);
        let size = read_image(&path, &self.transforms, draw, fields[0])?;
        if size != image.size {
            return Err(format!(
                "the file has {}x{} pixels, but image {} in `{}` has {}x{}",
                size.0,
                size.1,
                image.id,
                self.options.annotations.display(),
                image.size.0,
                image.size.1
            ));
        }
        if let Some(mask) = fields.get_mut(1) {
            self.transforms.write_pixel_mask(size, draw, mask)?;
        }
        Ok(size)
    }

    fn class_of(&self, object: &AnnotatedObject) -> i64 {
        if self.options.category_ids {
            self.annotations.categories[object.class as usize].id
        } else {
            i64::from(object.class)
        }
    }
}

impl Dataset for Coco {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.annotations.images.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        self.options.images.join(&*self.annotations.images[index].file).display().to_string()
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_in_epoch(index, Epoch::default(), fields)
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let read = self.read_sample(&SampleDraw { sample: index as u64, epoch }, fields);
        read.map_err(|reason| SampleError { sample: self.sample_name(index), reason })
    }
}

/// Checks that the file of every image exists, and returns its size in bytes.
fn find_images(root: &DataRoot, options: &CocoOptions, annotations: &Annotations) -> Result<Vec<u64>, DataError> {
    let find = |image: &AnnotatedImage| {
        let invalid = |reason| DataError::Invalid {
            path: options.annotations.clone(),
            reason: format!("image {}: {reason}", image.id),
        };
        let relative = options.images.join(&*image.file);
        let path = root.resolve(&relative).map_err(|error| invalid(error.to_string()))?;
        let metadata = path.metadata().map_err(|error| invalid(format!("`{}`: {error}", relative.display())))?;
        if metadata.is_file() {
            Ok(metadata.len())
        } else {
            Err(invalid(format!("`{}` is not a regular file", relative.display())))
        }
    };
    annotations.images.iter().map(find).collect()
}

/// Returns the fields for images with at most `objects` objects.
fn coco_fields(transforms: &ImageTransforms, objects: usize, pixel_mask: bool) -> Result<Vec<Field>, DataError> {
    let truth = |name: &str, shape: &[usize], dtype| Field {
        name: name.to_owned(),
        role: FieldRole::Truth,
        spec: TensorSpec::new(shape.to_vec(), dtype),
    };
    let input = |name: &str, spec| Field { name: name.to_owned(), role: FieldRole::Input, spec };
    let boxes = truth("boxes", &[objects, 4], DType::F64);
    if objects > SAMPLE_BYTES_MAX / 64 {
        return Err(DataError::FieldTooLarge { field: boxes.name, spec: boxes.spec });
    }
    let mut fields = vec![input("images", transforms.spec())];
    fields.extend(pixel_mask.then(|| input("pixel_mask", transforms.pixel_mask_spec())));
    fields.extend([
        boxes,
        truth("classes", &[objects], DType::I64),
        truth("areas", &[objects], DType::F64),
        truth("crowds", &[objects], DType::Bool),
        truth("counts", &[], DType::I64),
        truth("image_ids", &[], DType::I64),
        truth("placements", &[4], DType::F64),
        truth("sizes", &[2], DType::I64),
    ]);
    Ok(fields)
}

/// Writes the values of each object, and zeros after them.
fn write_padded<T: NoUninit, const N: usize>(
    objects: &[AnnotatedObject],
    values: impl Fn(&AnnotatedObject) -> [T; N],
    out: &mut [u8],
) {
    out.fill(0);
    for (object, out) in objects.iter().zip(out.chunks_exact_mut(size_of::<[T; N]>())) {
        values(object).iter().zip(out.chunks_exact_mut(size_of::<T>())).for_each(|(value, out)| {
            out.copy_from_slice(bytemuck::bytes_of(value));
        });
    }
}
