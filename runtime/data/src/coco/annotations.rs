//! COCO's instances format: one JSON file with images, boxes and categories. Outlines of objects are skipped.

use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::data_file::read_json;
use crate::{DataError, DataRoot};
use flagperf_core::hash::hexadecimal;

/// Largest size of a file of annotations in bytes; that of the training set of 2017 has 450 MB.
const FILE_BYTES_MAX: u64 = 1 << 33;
/// How far a box may be outside its image, in pixels: annotations are rounded.
const OUTSIDE_MAX: f64 = 1.0;

#[derive(Deserialize)]
struct InstancesFile {
    images: Vec<ImageEntry>,
    annotations: Vec<AnnotationEntry>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct ImageEntry {
    id: i64,
    file_name: Box<str>,
    width: u32,
    height: u32,
}

#[derive(Deserialize)]
struct AnnotationEntry {
    id: i64,
    image_id: i64,
    category_id: i64,
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
}

/// A category of objects.
#[derive(Deserialize)]
pub struct Category {
    pub id: i64,
    #[serde(default)]
    name: Box<str>,
}

/// An annotated image.
pub struct AnnotatedImage {
    pub id: i64,
    /// Its file, relative to the folder of images.
    pub file: Box<str>,
    /// Width and height in pixels.
    pub size: (usize, usize),
    /// Index of its first object.
    first: usize,
}

/// An annotated object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnnotatedObject {
    /// Left, top, width and height in pixels of the original image.
    pub bbox: [f64; 4],
    /// Area of its outline in square pixels.
    pub area: f64,
    /// Rank of its category by id.
    pub class: u32,
    /// Whether the box contains a crowd.
    pub is_crowd: bool,
}

/// The index of a file of annotations.
pub struct Annotations {
    /// The images in the order of their ids.
    pub images: Vec<AnnotatedImage>,
    /// The categories in the order of their ids.
    pub categories: Vec<Category>,
    /// The objects in the order of the images; those of one image in the order of the file.
    objects: Vec<AnnotatedObject>,
}

impl Annotations {
    /// Reads a file of annotations as a stream.
    ///
    /// # Errors
    /// When the file cannot be read or is not of the format, an id occurs twice or is unknown, or a box is outside its
    /// image; the error contains the id.
    pub fn read(root: &DataRoot, path: &Path) -> Result<Self, DataError> {
        let file = read_json(root, path, FILE_BYTES_MAX, "a file of COCO instances")?;
        Annotations::index(file).map_err(|reason| DataError::Invalid { path: path.to_owned(), reason })
    }

    fn index(file: InstancesFile) -> Result<Self, String> {
        let InstancesFile { images: mut entries, mut annotations, mut categories } = file;
        categories.sort_by_key(|category| category.id);
        let category_ids: Vec<i64> = categories.iter().map(|category| category.id).collect();
        check_unique("category", &category_ids)?;
        entries.sort_by_key(|image| image.id);
        let ids: Vec<i64> = entries.iter().map(|image| image.id).collect();
        check_unique("image", &ids)?;
        if ids.is_empty() {
            return Err("has no images".to_owned());
        }
        let mut annotation_ids: Vec<i64> = annotations.iter().map(|annotation| annotation.id).collect();
        annotation_ids.sort_unstable();
        check_unique("annotation", &annotation_ids)?;
        // A stable sort keeps the order of the file within an image, on which the figures depend when scores are equal.
        annotations.sort_by_key(|annotation| annotation.image_id);
        let mut objects = Vec::with_capacity(annotations.len());
        let mut images = Vec::with_capacity(entries.len());
        let mut rest = annotations.into_iter().peekable();
        for entry in entries {
            let first = objects.len();
            while let Some(annotation) = rest.next_if(|annotation| annotation.image_id == entry.id) {
                objects.push(object(&annotation, &entry, &category_ids)?);
            }
            let size = (entry.width as usize, entry.height as usize);
            images.push(AnnotatedImage { id: entry.id, file: entry.file_name, size, first });
            if let Some(unknown) = rest.peek().filter(|next| ids.binary_search(&next.image_id).is_err()) {
                return Err(unknown_image(unknown));
            }
        }
        rest.next().map_or(Ok(()), |unknown| Err(unknown_image(&unknown)))?;
        Ok(Annotations { images, categories, objects })
    }

    /// Checks that a model with `classes` classes has one for each category: that of its id if `by_id`, otherwise that of
    /// its rank.
    pub fn check_classes(&self, classes: usize, by_id: bool) -> Result<(), String> {
        let class = |(rank, category): &(usize, &Category)| if by_id { category.id } else { *rank as i64 };
        let is_class = |class: i64| usize::try_from(class).is_ok_and(|class| class < classes);
        let Some((rank, category)) = self.categories.iter().enumerate().find(|entry| !is_class(class(entry))) else {
            return Ok(());
        };
        let Category { id, name } = category;
        let place = if by_id { String::new() } else { format!(", which is number {rank} from 0,") };
        Err(format!(
            "category {id} (`{}`){place} is not a class of the model, whose {classes} classes count from 0: set `classes` \
             to that of the weights, or use the annotations with which the model was trained",
            name.escape_debug()
        ))
    }

    /// Returns the objects of an image.
    pub fn objects(&self, image: usize) -> &[AnnotatedObject] {
        let end = self.images.get(image + 1).map_or(self.objects.len(), |next| next.first);
        &self.objects[self.images[image].first..end]
    }

    /// Returns the largest number of objects of an image.
    pub fn objects_max(&self) -> usize {
        (0..self.images.len()).map(|image| self.objects(image).len()).max().unwrap_or(0)
    }

    /// Returns a hash of the images, with the size in bytes of each file, and of the objects.
    pub fn hash(&self, file_bytes: &[u64]) -> String {
        let mut hash = Sha256::new();
        for (at, (image, bytes)) in self.images.iter().zip(file_bytes).enumerate() {
            hash.update(format!("{} {}\0{bytes} {:?}\n", image.id, image.file, image.size));
            for AnnotatedObject { bbox, area, class, is_crowd } in self.objects(at) {
                hash.update(format!("{} {bbox:?} {area:?} {is_crowd}\n", self.categories[*class as usize].id));
            }
        }
        hexadecimal(&hash.finalize())
    }
}

/// Checks that no id occurs twice among sorted ids.
fn check_unique(what: &str, ids: &[i64]) -> Result<(), String> {
    let twice = ids.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(format!("has two entries for {what} {}: each id must be unique", pair[0])))
}

fn unknown_image(annotation: &AnnotationEntry) -> String {
    format!("annotation {} is of image {}, which is not among the images", annotation.id, annotation.image_id)
}

/// Checks an annotation of an image and converts it.
fn object(annotation: &AnnotationEntry, image: &ImageEntry, categories: &[i64]) -> Result<AnnotatedObject, String> {
    let AnnotationEntry { id, category_id, bbox, area, iscrowd, .. } = *annotation;
    let subject = format!("annotation {id} of image {}", image.id);
    let Some(area) = area else {
        return Err(format!("{subject} has no `area`: the figures by size of object need the area of its outline"));
    };
    let class = categories
        .binary_search(&category_id)
        .map_err(|_| format!("{subject} has category {category_id}, which is not among the categories"))?;
    let [left, top, width, height] = bbox;
    let (right, bottom) = (f64::from(image.width) + OUTSIDE_MAX, f64::from(image.height) + OUTSIDE_MAX);
    if left < -OUTSIDE_MAX || top < -OUTSIDE_MAX || left + width > right || top + height > bottom {
        let size = format!("{}x{} pixels", image.width, image.height);
        return Err(format!("{subject}: the box {bbox:?} (left, top, width, height) is outside the {size}"));
    }
    if width < 0.0 || height < 0.0 || area < 0.0 {
        return Err(format!("{subject}: the box {bbox:?} and the area {area} must not have negative sizes"));
    }
    if iscrowd > 1 {
        return Err(format!("{subject}: `iscrowd` must be 0 or 1, not {iscrowd}"));
    }
    Ok(AnnotatedObject { bbox, area, class: class as u32, is_crowd: iscrowd == 1 })
}
