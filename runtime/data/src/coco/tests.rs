//! Tests of COCO images with boxes.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::{Fit, Geometry, Transform};

/// Two images, two categories, three objects; in the file, ids are in no order.
fn instances() -> Value {
    json!({
        "info": {"description": "test"},
        "licenses": [],
        "images": [
            {"id": 9, "file_name": "b.png", "width": 4, "height": 2, "coco_url": "none"},
            {"id": 3, "file_name": "a.png", "width": 2, "height": 4}
        ],
        "annotations": [
            {"id": 70, "image_id": 9, "category_id": 90, "bbox": [1, 0.5, 2.25, 1], "area": 2.0, "iscrowd": 0,
             "segmentation": [[1, 2, 3, 4]]},
            {"id": 71, "image_id": 3, "category_id": 1, "bbox": [0, 0, 2, 4], "area": 8, "iscrowd": 1,
             "segmentation": {"counts": [1, 2], "size": [2, 4]}},
            {"id": 8, "image_id": 9, "category_id": 1, "bbox": [0, 0, 4.5, 2], "area": 7.5}
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}]
    })
}

fn open_text(text: &str, options: CocoOptions) -> Result<(tempfile::TempDir, Coco), String> {
    let letterbox = Geometry::Letterbox { size: (8, 8), level: 114, filter: crate::Filter::Bilinear };
    open_with(text, options, &[letterbox, Geometry::Flip { probability: 1.0, seed: 0 }])
}

fn open_with(text: &str, options: CocoOptions, transforms: &[Geometry]) -> Result<(tempfile::TempDir, Coco), String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("images")).unwrap();
    image::RgbImage::new(2, 4).save(folder.path().join("images/a.png")).unwrap();
    image::RgbImage::new(4, 2).save(folder.path().join("images/b.png")).unwrap();
    std::fs::write(folder.path().join("instances.json"), text).unwrap();
    let transforms: Vec<Transform> = transforms.iter().cloned().map(Transform::Geometry).collect();
    let transforms = ImageTransforms::new(&transforms, DType::F32).unwrap();
    let coco = Coco::open(&DataRoot::open(folder.path()).unwrap(), &options, transforms);
    coco.map(|coco| (folder, coco)).map_err(|error| error.to_string())
}

fn options() -> CocoOptions {
    CocoOptions {
        images: "images".into(),
        annotations: "instances.json".into(),
        category_ids: false,
        model_classes: None,
        move_boxes: false,
        pixel_mask: false,
    }
}

/// Returns the values of every field of the truth.
fn read(coco: &Coco, index: usize) -> Result<Vec<Vec<f64>>, String> {
    let sizes = coco
        .fields()
        .iter()
        .map(|field| field.spec.fixed_shape().unwrap().iter().product::<usize>() * field.spec.dtype.size());
    let mut memory: Vec<Vec<u8>> = sizes.map(|size| vec![7; size]).collect();
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    coco.read(index, &mut slices).map_err(|error| error.to_string())?;
    let numbers = |(field, bytes): (&Field, &Vec<u8>)| {
        let shape = field.spec.fixed_shape().unwrap();
        flagperf_core::tensor::Tensor::from_bytes(shape, field.spec.dtype, bytes).unwrap().to_f64()
    };
    Ok(coco.fields().iter().zip(&memory).skip(1).map(numbers).collect())
}

#[test]
fn images_are_in_the_order_of_their_ids_with_their_boxes_in_original_pixels() {
    let (_folder, coco) = open_text(&instances().to_string(), options()).unwrap();
    assert_eq!((coco.len(), coco.sample_name(0).as_str()), (2, "images/a.png"));
    let specs: Vec<_> = coco.fields().iter().map(|field| format!("{} {}", field.name, field.spec)).collect();
    let expected = [
        "images 3,8,8,f32",
        "boxes 2,4,f64",
        "classes 2,i64",
        "areas 2,f64",
        "crowds 2,bool",
        "counts i64",
        "image_ids i64",
        "placements 4,f64",
        "sizes 2,i64",
    ];
    assert_eq!(specs, expected);
    let truth = read(&coco, 0).unwrap();
    assert_eq!(truth[0], [0.0, 0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(truth[1..5], [vec![0.0, 0.0], vec![8.0, 0.0], vec![1.0, 0.0], vec![1.0]]);
    assert_eq!(truth[7], [4.0, 2.0]);
    let truth = read(&coco, 1).unwrap();
    assert_eq!(truth[0], [1.0, 0.5, 2.25, 1.0, 0.0, 0.0, 4.5, 2.0]);
    assert_eq!(truth[1..6], [vec![1.0, 0.0], vec![2.0, 7.5], vec![0.0, 0.0], vec![2.0], vec![9.0]]);
}

#[test]
fn the_placement_maps_original_pixels_to_transformed_ones() {
    let (_folder, coco) = open_text(&instances().to_string(), options()).unwrap();
    // 2x4 becomes 4x8 in the middle of 8x8, then left and right are exchanged.
    assert_eq!(read(&coco, 0).unwrap()[6], [-2.0, 2.0, 6.0, 0.0]);
    assert_eq!(read(&coco, 1).unwrap()[6], [-2.0, 2.0, 8.0, 2.0]);
}

#[test]
fn images_that_fit_have_a_mask_of_their_pixels_and_a_placement_at_the_top_left() {
    let options = || CocoOptions { pixel_mask: true, ..options() };
    let fit = [Geometry::Fit(Fit { size: (8, 6), shorter: None })];
    let (_folder, coco) = open_with(&instances().to_string(), options(), &fit).unwrap();
    let field = &coco.fields()[1];
    assert_eq!(
        (field.name.as_str(), field.spec.to_string(), field.role),
        ("pixel_mask", "6,8,i64".into(), FieldRole::Input)
    );
    // 2x4 becomes 3x6, 4x2 becomes 8x4.
    let (portrait, landscape) = (read(&coco, 0).unwrap(), read(&coco, 1).unwrap());
    assert!(portrait[0].chunks(8).all(|row| *row == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
    assert_eq!(landscape[0], [vec![1.0; 32], vec![0.0; 16]].concat());
    assert_eq!((&portrait[7], &landscape[7]), (&vec![1.5, 1.5, 0.0, 0.0], &vec![2.0, 2.0, 0.0, 0.0]));
    assert_eq!((&portrait[8], &landscape[8]), (&vec![4.0, 2.0], &vec![2.0, 4.0]));
    let reason = open_text(&instances().to_string(), options()).err().unwrap();
    assert!(
        reason.contains(
            "`letterbox 8x8 with 114, antialiased bilinear` pads images, but a pixel mask has only the padding of `fit`"
        ),
        "{reason}"
    );
}

#[test]
fn classes_can_be_the_ids_of_the_categories() {
    let (_folder, coco) = open_text(&instances().to_string(), CocoOptions { category_ids: true, ..options() }).unwrap();
    assert_eq!(read(&coco, 1).unwrap()[1], [90.0, 1.0]);
}

#[test]
fn the_hash_depends_on_images_and_boxes_but_not_on_the_order_of_the_file() {
    let hash = |instances: Value| open_text(&instances.to_string(), options()).unwrap().1.facts().index_sha256.clone();
    let mut swapped = instances();
    swapped["images"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(hash(instances()), hash(swapped));
    let mut moved = instances();
    moved["annotations"][0]["bbox"][0] = json!(1.5);
    assert_ne!(hash(instances()), hash(moved));
}

/// Returns the error after a change of the file.
fn refused(change: impl Fn(&mut Value)) -> String {
    let mut file = instances();
    change(&mut file);
    open_text(&file.to_string(), options()).err().unwrap()
}

#[test]
fn a_category_that_is_not_a_class_of_the_model_is_named() {
    let open = |classes: usize, category_ids: bool| {
        let options = CocoOptions { model_classes: Some(classes), category_ids, ..options() };
        open_text(&instances().to_string(), options).err()
    };
    assert_eq!((open(2, false), open(91, true)), (None, None));
    let hint = "set `classes` to that of the weights, or use the annotations with which the model was trained";
    let by_rank = "`instances.json`: category 90 (`toothbrush`), which is number 1 from 0, is not a class of the model, whose \
                   1 classes count from 0: ";
    assert_eq!(open(1, false), Some(format!("{by_rank}{hint}")));
    let by_id =
        "`instances.json`: category 90 (`toothbrush`) is not a class of the model, whose 90 classes count from 0: ";
    assert_eq!(open(90, true), Some(format!("{by_id}{hint}")));
}

#[test]
fn bad_annotations_are_named_with_their_file_and_id() {
    let cases: [(&str, Value, &str); 10] = [
        ("/annotations/0/image_id", json!(4), "annotation 70 is of image 4, which is not among the images"),
        ("/annotations/0/image_id", json!(1), "annotation 70 is of image 1, which is not among the images"),
        ("/annotations/0/image_id", json!(10), "annotation 70 is of image 10, which is not among the images"),
        (
            "/annotations/0/category_id",
            json!(5),
            "annotation 70 of image 9 has category 5, which is not among the categories",
        ),
        (
            "/annotations/0/bbox/0",
            json!(3),
            "annotation 70 of image 9: the box [3.0, 0.5, 2.25, 1.0] (left, top, width, height) is outside the 4x2 pixels",
        ),
        (
            "/annotations/0/bbox/2",
            json!(-0.5),
            "annotation 70 of image 9: the box [1.0, 0.5, -0.5, 1.0] and the area 2 must not have negative sizes",
        ),
        (
            "/annotations/0/area",
            json!(null),
            "annotation 70 of image 9 has no `area`: the figures by size of object need the area of its outline",
        ),
        ("/annotations/0/iscrowd", json!(2), "annotation 70 of image 9: `iscrowd` must be 0 or 1, not 2"),
        ("/annotations/0/id", json!(8), "has two entries for annotation 8: each id must be unique"),
        ("/categories/0/id", json!(1), "has two entries for category 1: each id must be unique"),
    ];
    for (place, value, expected) in cases {
        let reason = refused(|file| *file.pointer_mut(place).unwrap() = value.clone());
        assert_eq!(reason, format!("`instances.json`: {expected}"), "{place}");
    }
    let reason = refused(|file| drop(file["annotations"][1].as_object_mut().unwrap().remove("area")));
    assert!(reason.starts_with("`instances.json`: annotation 71 of image 3 has no `area`"), "{reason}");
    assert!(open_text("[]", options()).err().unwrap().contains("invalid type: sequence, expected an object at line 1"));
    let reason = refused(|file| file["images"][1]["id"] = json!(9));
    assert_eq!(reason, "`instances.json`: has two entries for image 9: each id must be unique");
}

#[test]
fn a_missing_image_and_one_outside_the_data_directory_are_named_with_their_id() {
    let reason = refused(|file| file["images"][0]["file_name"] = json!("c.png"));
    assert!(
        reason.starts_with("`instances.json`: image 9: there is no `images/c.png` in the data directory"),
        "{reason}"
    );
    let reason = refused(|file| file["images"][0]["file_name"] = json!("../../c.png"));
    assert!(reason.starts_with("`instances.json`: image 9: `images/../../c.png` is outside the data dir"), "{reason}");
    let reason = refused(|file| file["images"][0]["file_name"] = json!(""));
    assert_eq!(reason, "`instances.json`: image 9: `images/` is not a regular file");
}

#[test]
fn a_file_that_is_truncated_or_of_another_format_is_refused_with_the_position() {
    let text = instances().to_string();
    let reason = open_text(&text[..text.len() / 2], options()).err().unwrap();
    assert!(reason.starts_with("`instances.json`: is not a file of COCO instances: EOF while parsing"), "{reason}");
    assert!(reason.contains("line 1 column"), "{reason}");
    let reason = refused(|file| drop(file.as_object_mut().unwrap().remove("annotations")));
    assert!(reason.contains("missing field `annotations`"), "{reason}");
    let reason = refused(|file| file["images"] = json!([]));
    assert_eq!(reason, "`instances.json`: has no images");
    let reason = refused(|file| file["annotations"][0]["bbox"] = json!([1, 2, 3]));
    assert!(reason.contains("invalid length 3, expected an array of length 4"), "{reason}");
}

#[test]
fn a_file_of_another_size_than_annotated_is_refused() {
    let mut file = instances();
    file["images"][0]["width"] = json!(5);
    let (_folder, coco) = open_text(&file.to_string(), options()).unwrap();
    let expected = "images/b.png: the file has 4x2 pixels, but image 9 in `instances.json` has 5x2";
    assert_eq!(read(&coco, 1).unwrap_err(), expected);
}

#[test]
fn a_fifo_in_place_of_the_annotations_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&folder.path().join("a.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = Annotations::read(&DataRoot::open(folder.path()).unwrap(), Path::new("a.json")).err().unwrap();
    assert_eq!(error.to_string(), "cannot read `a.json`: is a FIFO, not a regular file");
}

#[test]
fn boxes_of_a_training_move_with_their_image_and_are_clipped_to_it() {
    let folder = tempfile::tempdir().unwrap();
    image::RgbImage::new(8, 4).save(folder.path().join("a.png")).unwrap();
    let object = |id: u32, bbox: [f64; 4]| json!({"id": id, "image_id": 1, "category_id": id, "bbox": bbox, "area": 4});
    let instances = json!({
        "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 4}],
        "annotations": [object(1, [2.0, 1.0, 4.0, 2.0]), object(2, [0.0, 0.0, 2.0, 2.0]), object(3, [3.0, 0.0, 2.0, 1.0])],
        "categories": [{"id": 1}, {"id": 2}, {"id": 3}]
    });
    std::fs::write(folder.path().join("instances.json"), instances.to_string()).unwrap();
    // The part from column 3 on, twice as large, then left and right are exchanged.
    let transforms = [
        Geometry::Crop { left: 3, top: 1, size: (5, 3) },
        Geometry::Resize { target: crate::Target::Exactly((10, 6)), filter: crate::Filter::Bilinear },
        Geometry::Flip { probability: 1.0, seed: 0 },
    ];
    let transforms = ImageTransforms::new(&transforms.map(Transform::Geometry), DType::F32).unwrap();
    let options = CocoOptions { images: ".".into(), move_boxes: true, ..options() };
    let coco = Coco::open(&DataRoot::open(folder.path()).unwrap(), &options, transforms).unwrap();
    let truth = read(&coco, 0).unwrap();
    // Only the first box has a part in the image: three of its four columns.
    assert_eq!(truth[0], [[4.0, 0.0, 6.0, 4.0], [0.0; 4], [0.0; 4]].concat());
    assert_eq!((truth[2][0], truth[4][0]), (4.0 * 24.0 / 8.0, 1.0));
}
