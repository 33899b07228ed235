//! Tests of mixup and cutmix.

use super::*;
use crate::augmentation::tests::{Reference, ReferenceMixture, reference};
use crate::{ArrayField, DataCheck, DataError, FieldRole, Pipeline, SampleSource};
use flagperf_core::tensor::TensorSpec;

/// Width and height of the images of the reference.
const SIZE: Size = (5, 4);

fn mixed(mixture: &Mixture, images: &[f32], labels: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut images, mut labels) = (images.to_vec(), labels.to_vec());
    let rows: Vec<&mut [u8]> = images.chunks_exact_mut(40).map(bytemuck::cast_slice_mut).collect();
    for plane in transposed(rows, 80) {
        mix_with_previous(plane, |own, other| mixture.apply(own, other, SIZE, DType::F32));
    }
    let rows = labels.chunks_exact_mut(4).map(bytemuck::cast_slice_mut).collect();
    mix_with_previous(rows, |own, other| blend(own, other, mixture.share(SIZE), DType::F32));
    (images, labels)
}

#[test]
fn mixtures_are_those_of_torchvision() {
    let Reference { mixed: batch, .. } = reference();
    let one_hot = |label: &i64| (0..4).map(|class| f32::from(u8::from(class == *label))).collect::<Vec<_>>();
    let labels: Vec<f32> = batch.labels.iter().flat_map(one_hot).collect();
    let blends = batch.mixup.iter().map(|expected| (Mixture::Blend { share: expected.share }, expected));
    let pastes = batch.cutmix.iter().map(|expected| {
        let [left, top, right, bottom] = expected.rectangle;
        (Mixture::Paste { left, top, right, bottom }, expected)
    });
    for (mixture, ReferenceMixture { images, labels: expected, .. }) in blends.chain(pastes) {
        assert_eq!(mixed(&mixture, &batch.images, &labels), (images.clone(), expected.clone()), "{mixture:?}");
    }
}

#[test]
fn a_way_is_drawn_for_each_batch_and_its_rectangle_lies_in_the_image() {
    let mix = Mix { alpha: 1.0, classes: 4 };
    for first in 0..500 {
        let random = &mut Epoch::default().stream("mixing", first);
        let Some(Mixture::Paste { left, top, right, bottom }) = Mixture::draw(&Transform::CutMix(mix), random, SIZE)
        else {
            panic!("cutmix pastes");
        };
        assert!(left <= right && right <= 5 && top <= bottom && bottom <= 4);
    }
    let mixing = Mixing { ways: vec![Transform::MixUp(mix), Transform::CutMix(mix)], images: 0, labels: 1 };
    let field = |spec: &str| Field { name: String::new(), role: FieldRole::Input, spec: spec.parse().unwrap() };
    let fields = [field("3,4,5,f32"), field("4,f32")];
    let is_blended = |number| {
        let (mut images, mut labels) = (vec![0f32; 120], vec![0f32; 8]);
        images[60..].fill(1.0);
        let rows = images.chunks_exact_mut(60).zip(labels.chunks_exact_mut(4));
        let rows = rows.map(|(image, label)| vec![bytemuck::cast_slice_mut(image), bytemuck::cast_slice_mut(label)]);
        mixing.apply(Epoch { seed: 1, number }, &[3, 8], &fields, rows.collect());
        images.iter().any(|value| *value > 0.0 && *value < 1.0)
    };
    let blended = (0..200).filter(|number| is_blended(*number)).count();
    assert!((70..130).contains(&blended), "{blended} of 200");
}

/// A folder with one image of 2x2 pixels in each of two classes.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        std::fs::create_dir(folder.path().join(class)).unwrap();
        let image = image::RgbImage::from_pixel(2, 2, image::Rgb([if class == "a" { 0 } else { 255 }; 3]));
        image.save(folder.path().join(class).join("1.png")).unwrap();
    }
    folder
}

fn pipeline(transforms: Vec<Transform>) -> Pipeline {
    let crop = Transform::Geometry(crate::Geometry::CenterCrop((2, 2)));
    let source = SampleSource::ImageFolder { images: ".".into(), classes: None };
    Pipeline { source, transforms: [vec![crop], transforms].concat() }
}

#[test]
fn labels_of_a_training_are_probabilities_if_it_mixes() {
    let folder = folder();
    let mixup = Transform::MixUp(Mix { alpha: 0.2, classes: 3 });
    let dataset = pipeline(vec![mixup.clone()]).open_for_training(folder.path(), DType::F32).unwrap();
    assert_eq!(dataset.fields()[1].spec, "3,f32".parse::<TensorSpec>().unwrap());
    let (mut image, mut label) = (vec![0; 48], vec![0; 12]);
    dataset.read(1, &mut [&mut image, &mut label]).unwrap();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&label), [0.0, 1.0, 0.0]);
    assert_eq!(dataset.facts().pipeline.last().unwrap(), "mixup alpha 0.2, 3 classes");
    let few = Transform::MixUp(Mix { alpha: 0.2, classes: 1 });
    let dataset = pipeline(vec![few]).open_for_training(folder.path(), DType::F32).unwrap();
    let error = dataset.read(1, &mut [&mut image, &mut [0; 4]]).unwrap_err();
    assert_eq!(error.to_string(), "b/1.png: its class 1 is outside the 1 classes of mixup or cutmix");
}

fn refused(pipeline: &Pipeline, folder: &tempfile::TempDir, is_training: bool) -> String {
    let opened = match is_training {
        true => pipeline.open_for_training(folder.path(), DType::F32),
        false => pipeline.open(folder.path(), DType::F32),
    };
    let error: DataError = opened.err().unwrap();
    error.to_string()
}

#[test]
fn random_transforms_and_mixing_are_refused_where_they_have_no_meaning() {
    let folder = folder();
    let mix = |classes| Mix { alpha: 0.2, classes };
    let flip = Transform::Geometry(crate::Geometry::RandomHorizontalFlip { probability: 0.5 });
    let random = pipeline(vec![flip.clone()]);
    let expected = "`random_horizontal_flip with probability 0.5` draws for each epoch, which only a training has (";
    assert!(refused(&random, &folder, false).starts_with(expected));
    assert_eq!(random.check(folder.path(), DType::F32).unwrap_err().to_string(), refused(&random, &folder, false));
    assert_eq!(random.check_for_training(folder.path(), DType::F32), Ok(DataCheck::default()));
    let different = pipeline(vec![Transform::MixUp(mix(3)), Transform::CutMix(mix(4))]);
    let expected = refused(&different, &folder, true);
    assert!(expected.starts_with("mixup and cutmix have 3 and 4 classes ("));
    assert_eq!(different.check_for_training(folder.path(), DType::F32).unwrap_err().to_string(), expected);
    let whole = pipeline(vec![Transform::To { dtype: DType::U8 }, Transform::MixUp(mix(2))]);
    assert!(refused(&whole, &folder, true).contains("mixes values, which must have a float type"));
    let late = pipeline(vec![Transform::CutMix(mix(2)), flip]);
    assert!(refused(&late, &folder, true).contains("moves pixels: place it before `cutmix alpha 0.2, 2 classes`"));
    let field = ArrayField { name: "x".into(), role: FieldRole::Input, file: "x.npy".into(), key: None };
    let arrays = Pipeline { source: SampleSource::Arrays(vec![field]), transforms: vec![Transform::CutMix(mix(2))] };
    assert!(refused(&arrays, &folder, true).starts_with("`cutmix alpha 0.2, 2 classes` does not apply to arrays"));
}
