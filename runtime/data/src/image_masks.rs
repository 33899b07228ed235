//! A folder of images and a folder of masks: segmentation.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use super::decode::MAX_PIXELS;
use super::geometry::PADDED_LABEL;
use super::image_file::{read_file, read_image};
use super::image_folder::visible_files;
use super::pixels::ImageTransforms;
use super::random::{Epoch, SampleDraw};
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, Tensor, TensorSpec};

/// The description of images with masks.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageMaskOptions {
    /// The folder of images: BMP, GIF, JPEG, PNG or WebP files.
    pub images: PathBuf,
    /// The folder of masks: a PNG file with the name of each image, 8-bit greyscale, whose levels are the classes.
    pub masks: PathBuf,
    /// Number of classes; a mask may also have the label 255, which does not count.
    pub classes: usize,
    /// Number of points on the objects of each image.
    pub points: usize,
}

/// Opened images with masks. Fields: `images` (input), `points` (input, `P,2`) if there are any, and `masks` (truth,
/// `H,W,u8`).
pub struct ImageMasks {
    root: PathBuf,
    options: ImageMaskOptions,
    /// Name of each image and of its mask.
    samples: Vec<(String, String)>,
    fields: Vec<Field>,
    transforms: ImageTransforms,
    facts: DatasetFacts,
}

impl ImageMasks {
    /// Lists the images and finds the mask of each.
    ///
    /// # Errors
    /// When a folder is missing or empty, an image has no mask, or a mask has no image.
    pub fn open(root: &DataRoot, options: &ImageMaskOptions, transforms: ImageTransforms) -> Result<Self, DataError> {
        transforms.check_truth("masks")?;
        let images = visible_files(root, &root.resolve(&options.images)?)?;
        let mut masks: BTreeMap<String, u64> =
            visible_files(root, &root.resolve(&options.masks)?)?.into_iter().collect();
        let mut index = String::new();
        let mut samples = Vec::with_capacity(images.len());
        for (image, bytes) in images {
            let mask = Path::new(&image).with_extension("png").to_string_lossy().into_owned();
            let missing = || DataError::Missing { path: options.masks.join(&mask), root: root.path().to_owned() };
            let mask_bytes = masks.remove(&mask).ok_or_else(missing)?;
            index += &format!("{image}\0{bytes}\0{mask_bytes}\n");
            samples.push((image, mask));
        }
        if let Some(mask) = masks.keys().next() {
            let reason = format!("has no image of this name in `{}`", options.images.display());
            return Err(DataError::Invalid { path: options.masks.join(mask), reason });
        }
        if samples.is_empty() {
            return Err(DataError::Invalid { path: options.images.clone(), reason: "has no images".to_owned() });
        }
        let (input, mask) = (transforms.spec(), transforms.mask_spec());
        let ImageMaskOptions { images, masks, classes, points } = options;
        let mut pipeline =
            vec![format!("images {}, masks {}, {classes} classes, {points} points", images.display(), masks.display())];
        pipeline.extend_from_slice(transforms.descriptions());
        let facts = root.facts(root.path(), samples.len(), hash_bytes(index.as_bytes()), pipeline);
        let field = |name: &str, role, spec| Field { name: name.to_owned(), role, spec };
        let mut fields = Vec::new();
        if *points > 0 {
            let dtype = if input.dtype.is_float() { input.dtype } else { DType::F32 };
            fields.push(field("points", FieldRole::Input, TensorSpec::new([*points, 2], dtype)));
        }
        fields.insert(0, field("images", FieldRole::Input, input));
        fields.push(field("masks", FieldRole::Truth, mask));
        let root = root.path().to_owned();
        Ok(ImageMasks { root, options: options.clone(), samples, fields, transforms, facts })
    }

    fn read_sample(&self, draw: &SampleDraw, image: &mut [u8], mask: &mut [u8]) -> Result<(), String> {
        let (image_name, mask_name) = &self.samples[draw.sample as usize];
        let path = self.root.join(&self.options.images).join(image_name);
        let size = read_image(&path, &self.transforms, draw, image)?;
        let mut file = Vec::new();
        read_file(&self.root.join(&self.options.masks).join(mask_name), &mut file)?;
        let in_mask = |reason: String| format!("its mask `{mask_name}`: {reason}");
        let (labels, mask_size) = decode_mask(&file).map_err(in_mask)?;
        if mask_size != size {
            let sizes = [mask_size.0, mask_size.1, size.0, size.1];
            return Err(in_mask(format!(
                "has {}x{} pixels, but the image {}x{}",
                sizes[0], sizes[1], sizes[2], sizes[3]
            )));
        }
        let is_class = |label: &u8| usize::from(*label) < self.options.classes || *label == PADDED_LABEL;
        if let Some(at) = labels.iter().position(|label| !is_class(label)) {
            let (x, y) = (at % size.0, at / size.0);
            let classes = self.options.classes;
            return Err(in_mask(format!("the label {} at {x},{y} is outside the {classes} classes", labels[at])));
        }
        self.transforms.apply_to_mask(labels, size, draw, mask)
    }
}

impl Dataset for ImageMasks {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        self.options.images.join(&self.samples[index].0).display().to_string()
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_in_epoch(index, Epoch::default(), fields)
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        let [image, points @ .., mask] = fields else {
            return Err(failed(format!("{} fields requested, but a sample has more", fields.len())));
        };
        self.read_sample(&SampleDraw { sample: index as u64, epoch }, image, mask).map_err(failed)?;
        match (points, self.fields.get(1)) {
            ([points], Some(field)) => write_points(mask, &self.fields[2].spec, &field.spec, points).map_err(failed),
            _ => Ok(()),
        }
    }
}

/// Writes points on the objects of a transformed mask as column and row: the pixels of objects, row by row, are divided
/// into as many equal parts as there are points, and the middle of each part is one.
fn write_points(mask: &[u8], mask_spec: &TensorSpec, spec: &TensorSpec, out: &mut [u8]) -> Result<(), String> {
    let is_object = |at: &usize| ![0, PADDED_LABEL].contains(&mask[*at]);
    let objects: Vec<usize> = (0..mask.len()).filter(is_object).collect();
    if objects.is_empty() {
        return Err("no pixel of an object for `points`: after the transforms, the mask has only background".to_owned());
    }
    let shape = |spec: &TensorSpec| spec.fixed_shape().unwrap_or_default();
    let (width, points) = (shape(mask_spec)[1], shape(spec)[0]);
    let point = |rank: usize| {
        let at = objects[(2 * rank + 1) * objects.len() / (2 * points)];
        [(at % width) as f64, (at / width) as f64]
    };
    let tensor = Tensor::from_vec([points, 2], (0..points).flat_map(point).collect()).map_err(|e| e.to_string())?;
    out.copy_from_slice(tensor.cast(spec.dtype).bytes());
    Ok(())
}

/// Decodes a mask to its labels and its width and height.
fn decode_mask(file: &[u8]) -> Result<(Vec<u8>, (usize, usize)), String> {
    let damaged = |error| format!("damaged PNG: {error}");
    let decoder = ImageReader::with_format(Cursor::new(file), ImageFormat::Png).into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let size = (width as usize, height as usize);
    if size.0.saturating_mul(size.1) > MAX_PIXELS {
        return Err(format!("has {width}x{height} pixels (at most {MAX_PIXELS})"));
    }
    if decoder.color_type() != ColorType::L8 {
        return Err(format!("has pixels of {:?}, but a mask is an 8-bit greyscale PNG", decoder.color_type()));
    }
    let decoded = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok((decoded.into_luma8().into_raw(), size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Geometry, Target, Transform};

    /// Writes an image of 4x2 pixels and a mask with these labels.
    fn folder(size: (u32, u32), labels: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["images", "masks"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let rgb: Vec<u8> = (0..8).flat_map(|at| [at * 30, 0, 0]).collect();
        image::RgbImage::from_raw(4, 2, rgb).unwrap().save(folder.path().join("images/a.png")).unwrap();
        let mask = image::GrayImage::from_raw(size.0, size.1, labels.to_vec()).unwrap();
        mask.save(folder.path().join("masks/a.png")).unwrap();
        folder
    }

    fn open(folder: &Path) -> Result<ImageMasks, String> {
        open_with_points(folder, 0)
    }

    fn open_with_points(folder: &Path, points: usize) -> Result<ImageMasks, String> {
        let moves = [
            Geometry::Flip { probability: 1.0, seed: 0 },
            Geometry::Resize { target: Target::Exactly((8, 2)), filter: Filter::Bilinear },
        ]
        .map(Transform::Geometry);
        let options = ImageMaskOptions { images: "images".into(), masks: "masks".into(), classes: 3, points };
        let transforms = ImageTransforms::new(&moves, DType::F32).unwrap();
        ImageMasks::open(&DataRoot::open(folder).unwrap(), &options, transforms).map_err(|error| error.to_string())
    }

    fn read(masks: &ImageMasks) -> Result<(Vec<f32>, Vec<u8>), String> {
        let (mut image, mut mask) = (vec![0; 3 * 8 * 2 * 4], vec![0; 8 * 2]);
        masks.read(0, &mut [&mut image, &mut mask]).map_err(|error| error.to_string())?;
        Ok((bytemuck::pod_collect_to_vec(&image), mask))
    }

    #[test]
    fn a_mask_is_transformed_as_its_image() {
        let folder = folder((4, 2), &[0, 1, 2, 255, 1, 1, 0, 0]);
        let masks = open(folder.path()).unwrap();
        assert_eq!(masks.fields()[1].spec.to_string(), "2,8,u8");
        let (image, mask) = read(&masks).unwrap();
        assert_eq!(mask, [255, 255, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!((image[0], image[7]), (90.0, 0.0));
    }

    #[test]
    fn points_are_on_the_objects_of_the_transformed_mask() {
        let folder = folder((4, 2), &[0, 1, 2, 255, 1, 1, 0, 0]);
        let masks = open_with_points(folder.path(), 2).unwrap();
        let specs: Vec<_> = masks.fields().iter().map(|field| format!("{} {}", field.name, field.spec)).collect();
        assert_eq!(specs, ["images 3,2,8,f32", "points 2,2,f32", "masks 2,8,u8"]);
        let (mut image, mut points, mut mask) = (vec![0; 3 * 8 * 2 * 4], vec![0; 16], vec![0; 16]);
        masks.read(0, &mut [&mut image, &mut points, &mut mask]).unwrap();
        // The objects are columns 2 to 5 of the first row and 4 to 7 of the second.
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&points), [4.0, 0.0, 6.0, 1.0]);
    }

    #[test]
    fn points_need_an_object() {
        let folder = folder((4, 2), &[0, 0, 255, 255, 0, 0, 0, 0]);
        let masks = open_with_points(folder.path(), 1).unwrap();
        let (mut image, mut points, mut mask) = (vec![0; 3 * 8 * 2 * 4], vec![0; 8], vec![0; 16]);
        let error = masks.read(0, &mut [&mut image, &mut points, &mut mask]).unwrap_err().to_string();
        assert!(error.starts_with("images/a.png: no pixel of an object for `points`"), "{error}");
    }

    #[test]
    fn a_mask_of_another_size_or_with_a_label_outside_the_classes_is_named() {
        let outside = folder((4, 2), &[0, 1, 2, 0, 0, 3, 0, 0]);
        let masks = open(outside.path()).unwrap();
        assert_eq!(
            read(&masks).unwrap_err(),
            "images/a.png: its mask `a.png`: the label 3 at 1,1 is outside the 3 classes"
        );
        let small = folder((2, 2), &[0; 4]);
        let masks = open(small.path()).unwrap();
        assert_eq!(read(&masks).unwrap_err(), "images/a.png: its mask `a.png`: has 2x2 pixels, but the image 4x2");
    }

    #[test]
    fn an_image_without_a_mask_and_a_mask_without_an_image_are_named() {
        let folder = folder((4, 2), &[0; 8]);
        std::fs::copy(folder.path().join("masks/a.png"), folder.path().join("masks/b.png")).unwrap();
        assert_eq!(open(folder.path()).err().unwrap(), "`masks/b.png`: has no image of this name in `images`");
        std::fs::remove_file(folder.path().join("masks/a.png")).unwrap();
        assert!(open(folder.path()).err().unwrap().starts_with("there is no `masks/a.png` in the data directory"));
    }
}
