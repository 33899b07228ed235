//! The file of instances of the drawn images with boxes, in COCO's format.

use serde::Serialize;

use super::picture::{DrawnObject, Picture, SHAPES};

/// For each shape an id of a category of COCO, in whose numbering some are missing. Models that know COCO's ids can
/// therefore be measured on the drawn images.
const CATEGORY_IDS: [u32; SHAPES.len()] = [1, 13, 27, 38, 53, 65, 78, 90];

/// The image ids begin with 1, as do those of annotations.
const FIRST_ID: u32 = 1;

#[derive(Serialize)]
struct InstancesFile {
    images: Vec<ImageEntry>,
    annotations: Vec<AnnotationEntry>,
    categories: Vec<CategoryEntry>,
}

#[derive(Serialize)]
struct ImageEntry {
    id: u32,
    file_name: String,
    width: usize,
    height: usize,
}

#[derive(Serialize)]
struct AnnotationEntry {
    id: u32,
    image_id: u32,
    category_id: u32,
    bbox: [usize; 4],
    area: usize,
    iscrowd: u8,
}

#[derive(Serialize)]
struct CategoryEntry {
    id: u32,
    name: &'static str,
}

/// What the file of instances says about a picture.
pub struct Instances {
    file_name: String,
    size: (usize, usize),
    /// Index of the shape.
    shape: usize,
    objects: Vec<DrawnObject>,
}

impl Instances {
    /// Finds the objects of a picture.
    pub fn of(file_name: String, picture: &Picture) -> Self {
        let shape = SHAPES.iter().position(|shape| *shape == picture.shape()).unwrap_or_default();
        Instances { file_name, size: (picture.width, picture.height), shape, objects: picture.objects() }
    }
}

/// Returns the text of the file.
pub fn instances_json(pictures: Vec<Instances>) -> String {
    let categories = CATEGORY_IDS.iter().zip(SHAPES);
    let categories = categories.map(|(id, shape)| CategoryEntry { id: *id, name: shape.name() }).collect();
    let mut file = InstancesFile { images: Vec::new(), annotations: Vec::new(), categories };
    for (id, picture) in (FIRST_ID..).zip(pictures) {
        for DrawnObject { bbox, area } in picture.objects {
            let category_id = CATEGORY_IDS[picture.shape];
            let number = FIRST_ID + file.annotations.len() as u32;
            file.annotations.push(AnnotationEntry { id: number, image_id: id, category_id, bbox, area, iscrowd: 0 });
        }
        let (width, height) = picture.size;
        file.images.push(ImageEntry { id, file_name: picture.file_name, width, height });
    }
    serde_json::to_string(&file).expect("text and numbers")
}
