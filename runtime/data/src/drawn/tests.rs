//! Tests of the drawn dataset.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::ensure;
use crate::stored_files::check_items;
use crate::{
    CocoOptions, DataRoot, Dataset, Filter, Fit, Geometry, ImageMaskOptions, Pipeline, SampleSource, Target, Transform,
};
use flagperf_config::DatasetDescription;
use flagperf_core::tensor::DType;

const DESCRIPTION: &str = include_str!("../../../../datasets/drawn/dataset.yaml");
const DESCRIPTION_OF_BOXES: &str = include_str!("../../../../datasets/drawn_boxes/dataset.yaml");
const DESCRIPTION_OF_MASKS: &str = include_str!("../../../../datasets/drawn_masks/dataset.yaml");

/// Draws a dataset in `home` and compares its files with its description.
fn draw(home: &Path, text: &str) -> DatasetDescription {
    fs::write(home.join("dataset.yaml"), text).unwrap();
    ensure(home).unwrap();
    let description = DatasetDescription::read(&home.join("dataset.yaml"), home).unwrap();
    let items: Vec<_> = check_items(&DataRoot::open(home).unwrap(), &description).collect();
    let wrong = items.iter().filter(|item| !item.is_acceptable());
    let wrong: Vec<String> = wrong.map(|item| format!("{}: {}", item.path, item.state)).collect();
    assert!(wrong.is_empty(), "datasets/{}/dataset.yaml:\n{}", description.name, wrong.join("\n"));
    description
}

fn open(home: &Path) -> std::sync::Arc<dyn Dataset> {
    let source =
        SampleSource::ImageFolder { images: "generated".into(), classes: Some("generated/classes.txt".into()) };
    let transforms = vec![
        Transform::Geometry(Geometry::Resize { target: Target::Shorter(256), filter: Filter::Bilinear }),
        Transform::Geometry(Geometry::CenterCrop((224, 224))),
        Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] },
    ];
    Pipeline { source, transforms }.open(home, DType::F32).unwrap()
}

#[test]
fn the_drawn_dataset_matches_its_description() {
    let home = tempfile::tempdir().unwrap();
    let description = draw(home.path(), DESCRIPTION);
    let dataset = open(home.path());
    let facts = dataset.facts();
    assert_eq!((Some(facts.samples), facts.synthetic), (description.samples, true));
    let sizes = fs::read_dir(home.path().join("generated/disc")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    assert!(sizes.iter().all(|size| (30_000..120_000).contains(size)), "as large as photographs: {sizes:?}");
    let mut image = vec![0; 3 * 224 * 224 * 4];
    let mut label = [0; 8];
    dataset.read(63, &mut [&mut image, &mut label]).unwrap();
    assert_eq!((i64::from_ne_bytes(label), dataset.sample_name(63)), (7, "triangle/triangle_07.jpg".to_owned()));
}

#[test]
fn a_folder_that_cannot_be_replaced_has_a_hint_for_its_reason() {
    let error = |kind| super::DrawError { folder: "generated".into(), reason: String::new(), kind };
    assert!(error(ErrorKind::ResourceBusy).hint().contains("must not be a mount point"));
    assert!(error(ErrorKind::StorageFull).hint().starts_with("the disk is full"));
}

#[test]
fn drawn_masks_match_their_description_and_have_every_class() {
    let home = tempfile::tempdir().unwrap();
    let description = draw(home.path(), DESCRIPTION_OF_MASKS);
    let options = ImageMaskOptions { images: "images".into(), masks: "masks".into(), classes: 3, points: 0 };
    let transforms =
        vec![Transform::Geometry(Geometry::Resize { target: Target::Exactly((64, 48)), filter: Filter::Bilinear })];
    let dataset = Pipeline { source: SampleSource::ImageMasks(options), transforms };
    let dataset = dataset.open(&home.path().join("generated"), DType::F32).unwrap();
    assert_eq!((Some(dataset.facts().samples), dataset.facts().synthetic), (description.samples, true));
    for index in 0..dataset.len() {
        let (mut image, mut mask) = (vec![0; 3 * 64 * 48 * 4], vec![0; 64 * 48]);
        dataset.read(index, &mut [&mut image, &mut mask]).unwrap();
        let pixels = [0, 1, 2].map(|class| mask.iter().filter(|label| **label == class).count());
        assert!(pixels.iter().all(|pixels| *pixels > 10), "{}: {pixels:?}", dataset.sample_name(index));
        assert_eq!(pixels.iter().sum::<usize>(), 64 * 48);
    }
}

#[test]
fn drawn_boxes_match_their_description_and_have_several_sizes_and_classes() {
    let home = tempfile::tempdir().unwrap();
    let description = draw(home.path(), DESCRIPTION_OF_BOXES);
    let options = CocoOptions {
        images: "images".into(),
        annotations: "instances.json".into(),
        category_ids: true,
        model_classes: Some(91),
        move_boxes: false,
        pixel_mask: true,
    };
    let transforms = vec![Transform::Geometry(Geometry::Fit(Fit { size: (64, 48), shorter: None }))];
    let dataset = Pipeline { source: SampleSource::Coco(options), transforms };
    let dataset = dataset.open(&home.path().join("generated"), DType::F32).unwrap();
    assert_eq!((Some(dataset.facts().samples), dataset.facts().synthetic), (description.samples, true));
    let bytes = dataset
        .fields()
        .iter()
        .map(|field| field.spec.fixed_shape().unwrap().iter().product::<usize>() * field.spec.dtype.size());
    let mut sample: Vec<Vec<u8>> = bytes.map(|bytes| vec![0; bytes]).collect();
    let (mut sizes, mut classes) = (BTreeSet::new(), BTreeSet::<i64>::new());
    for index in 0..dataset.len() {
        let mut fields: Vec<&mut [u8]> = sample.iter_mut().map(Vec::as_mut_slice).collect();
        dataset.read(index, &mut fields).unwrap();
        let numbers = |field: usize| bytemuck::pod_collect_to_vec::<u8, i64>(&sample[field]);
        let boxes = bytemuck::pod_collect_to_vec::<u8, f64>(&sample[2]);
        let count = numbers(6)[0] as usize;
        assert!(
            (2..=3).contains(&count) && boxes[..4 * count].chunks(4).all(|b| b[2] >= 1.0 && b[3] >= 1.0),
            "{boxes:?}"
        );
        classes.extend(&numbers(3)[..count]);
        sizes.insert(numbers(9));
    }
    assert_eq!(classes.into_iter().collect::<Vec<_>>(), [1, 13, 27, 38, 53, 65, 78, 90]);
    assert_eq!(sizes.len(), 4, "{sizes:?}");
}

#[test]
fn two_concurrent_generators_both_find_the_complete_dataset() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("dataset.yaml"), DESCRIPTION).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                ensure(home.path()).unwrap();
                assert_eq!(open(home.path()).len(), 64);
            });
        }
    });
    let files: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "only the description and the folder remain: {files:?}");
}

#[test]
fn a_larger_folder_has_the_number_of_pictures_in_its_name_and_the_same_ones_each_time() {
    let names_and_sizes = || {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("dataset.yaml"), DESCRIPTION).unwrap();
        let folder = home.path().join("generated-80");
        assert!(super::preview(&folder).unwrap().is_some());
        ensure(&folder).unwrap();
        assert!(super::preview(&folder).unwrap().is_none() && !home.path().join("generated").exists());
        let source = SampleSource::ImageFolder { images: ".".into(), classes: Some("classes.txt".into()) };
        let transforms = vec![Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] }];
        let transforms = [vec![Transform::Geometry(Geometry::CenterCrop((224, 224)))], transforms].concat();
        Pipeline { source, transforms }.open(&folder, DType::F32).unwrap().facts().clone()
    };
    let facts = names_and_sizes();
    assert_eq!((facts.samples, facts.synthetic), (80, true));
    assert_eq!(facts.index_sha256, names_and_sizes().index_sha256);
}

#[test]
fn files_of_another_version_are_replaced() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("dataset.yaml"), DESCRIPTION).unwrap();
    fs::create_dir_all(home.path().join("generated/old")).unwrap();
    fs::write(home.path().join("generated/SAMPLE.txt"), "recipe 0").unwrap();
    ensure(&home.path().join("generated")).unwrap();
    assert!(!home.path().join("generated/old").exists());
    assert_eq!(open(home.path()).len(), 64);
}

#[test]
fn a_directory_without_the_description_is_left_unchanged() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("dataset.yaml"), "source: elsewhere\n").unwrap();
    ensure(home.path()).unwrap();
    assert!(!home.path().join("generated").exists());
}
