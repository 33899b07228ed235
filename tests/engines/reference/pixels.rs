//! Decoding, resizing and cropping produce torchvision's pixels.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::tensor::{DType, Tensor};
use flagperf_data::{Dataset, Filter, Geometry, Pipeline, SampleSource, Target, Transform};

use super::{folder, write_tensors};
use crate::support;

/// Width and height of a crop in pixels.
const SIDE: usize = 224;

/// Opens the images under `root/images` with torchvision's usual transform; values stay in 0..1.
fn dataset(root: &Path, images: &str) -> Arc<dyn Dataset> {
    let source = SampleSource::ImageFolder { images: PathBuf::from(images), classes: None };
    let transforms = vec![
        Transform::Geometry(Geometry::Resize { target: Target::Shorter(256), filter: Filter::Bilinear }),
        Transform::Geometry(Geometry::CenterCrop((SIDE, SIDE))),
        Transform::Normalize { mean: [0.0; 3], std: [1.0; 3] },
    ];
    Pipeline { source, transforms }.open(root, DType::F32).unwrap()
}

/// Returns the crop of one image as `224,224,3,u8`.
fn crop(dataset: &dyn Dataset, index: usize) -> Vec<u8> {
    let mut fields: Vec<Vec<u8>> = dataset
        .fields()
        .iter()
        .map(|f| vec![0; f.spec.fixed_shape().unwrap().iter().product::<usize>() * f.spec.dtype.size()])
        .collect();
    let mut slices: Vec<&mut [u8]> = fields.iter_mut().map(Vec::as_mut_slice).collect();
    dataset.read(index, &mut slices).unwrap();
    let planes: Vec<f32> = fields[0].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    (0..SIDE * SIDE).flat_map(|at| [0, 1, 2].map(|c| (planes[c * SIDE * SIDE + at] * 255.0).round() as u8)).collect()
}

/// Passes every crop of a dataset to `pixels.py`, which compares it with torchvision's crop.
fn compare_with_torchvision(python: &Path, root: &Path, images: &str) {
    let dataset = dataset(root, images);
    let crop = |index| Tensor::from_vec([SIDE, SIDE, 3], crop(dataset.as_ref(), index)).unwrap();
    let path = |index| root.join(images).join(dataset.sample_name(index)).to_str().unwrap().to_owned();
    let crops: Vec<(String, Tensor)> = (0..dataset.len()).map(|index| (path(index), crop(index))).collect();
    let written = tempfile::NamedTempFile::new().unwrap();
    write_tensors(written.path(), &crops);
    support::run_script(python, "pixels.py", &[written.path().to_str().unwrap()]);
}

#[test]
fn drawn_files_have_the_stored_pixels_of_torchvision() {
    let dataset = dataset(&folder(), "images");
    assert_eq!(dataset.len(), fs::read_dir(folder().join("crops")).unwrap().count());
    for index in 0..dataset.len() {
        let actual = crop(dataset.as_ref(), index);
        let name = Path::new(&dataset.sample_name(index)).file_stem().unwrap().to_owned();
        let expected = image::open(folder().join("crops").join(&name).with_extension("png")).unwrap().to_rgb8();
        let differing = expected.enumerate_pixels().filter(|(x, y, pixel)| {
            let at = 3 * (4 * *y as usize * SIDE + 4 * *x as usize);
            actual[at..at + 3] != pixel.0
        });
        assert_eq!((expected.dimensions(), differing.count()), ((56, 56), 0), "{name:?}");
    }
}

#[test]
fn drawn_files_have_the_pixels_of_torchvision() {
    let Some(python) = support::python() else { return };
    compare_with_torchvision(&python, &folder(), "images");
}

#[test]
fn photographs_have_the_pixels_of_torchvision() {
    let Some(python) = support::python() else { return };
    let Some(shared) = support::shared_data() else { return };
    compare_with_torchvision(&python, &shared, "imagenet-samples");
}

#[test]
fn files_of_other_formats_have_the_pixels_of_pillow() {
    let Some(python) = support::python() else { return };
    let root = tempfile::tempdir().unwrap();
    let images = root.path().join("images/all");
    fs::create_dir_all(&images).unwrap();
    support::run_script(&python, "make_formats.py", &[images.to_str().unwrap()]);
    compare_with_torchvision(&python, root.path(), "images");
}
