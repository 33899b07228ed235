//! Tests of the drawn dataset.

use std::fs;
use std::path::Path;

use super::ensure;
use crate::data::{Dataset, Filter, Pipeline, SampleSource, Transform};
use crate::tensor::DType;

const DESCRIPTION: &str = include_str!("../../../datasets/drawn/dataset.yaml");

fn open(home: &Path) -> std::sync::Arc<dyn Dataset> {
    let source =
        SampleSource::ImageFolder { images: "generated".into(), classes: Some("generated/classes.txt".into()) };
    let transforms = vec![
        Transform::Resize { size: 256, filter: Filter::Bilinear },
        Transform::CenterCrop { size: (224, 224) },
        Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] },
    ];
    Pipeline { source, transforms }.open(home, DType::F32).unwrap()
}

#[test]
fn the_drawn_dataset_matches_its_description() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("dataset.yaml"), DESCRIPTION).unwrap();
    ensure(home.path()).unwrap();
    let dataset = open(home.path());
    let facts = dataset.facts();
    let line = format!("index_sha256: {}", facts.index_sha256);
    assert!(DESCRIPTION.contains(&line), "datasets/drawn/dataset.yaml should contain\n{line}");
    assert!(DESCRIPTION.contains(&format!("samples: {}\n", facts.samples)));
    assert!(facts.synthetic);
    let sizes = fs::read_dir(home.path().join("generated/disc")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    assert!(sizes.iter().all(|size| (30_000..120_000).contains(size)), "as large as photographs: {sizes:?}");
    let mut image = vec![0; 3 * 224 * 224 * 4];
    let mut label = [0; 8];
    dataset.read(63, &mut [&mut image, &mut label]).unwrap();
    assert_eq!((i64::from_ne_bytes(label), dataset.sample_name(63)), (7, "triangle/triangle_07.jpg".to_owned()));
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
