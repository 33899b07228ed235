//! Tests of the passes of a training.

use std::ops::Range;

use super::*;
use crate::{Epoch, Filter, Geometry, Mix, Pipeline, SampleSource, TrainingSampler, Transform};

fn sampler(samples: usize, batch: usize) -> TrainingSampler {
    TrainingSampler { seed: 5, samples, batch, rank: 0, world: 1, drop_last: false }
}

#[test]
fn an_epoch_reads_the_batches_of_its_sampler_and_inference_the_usual_ones() {
    for preloaded in [false, true] {
        let mut loader = loader(Numbers::new(7), LoaderOptions { preloaded, pad_last_batch: false, ..options(2) });
        for number in 0..3 {
            loader.start_epoch(&sampler(7, 2), number, 0..4);
            let read: Vec<Vec<i64>> = loader.by_ref().map(|batch| values(&batch.unwrap())).collect();
            let drawn = sampler(7, 2).epoch(number);
            assert_eq!(read, drawn.iter().map(|s| s.iter().map(|i| *i as i64).collect()).collect::<Vec<Vec<_>>>());
            loader.start_pass().unwrap();
            assert_eq!(loader.by_ref().flat_map(|b| values(&b.unwrap())).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        }
    }
}

/// A folder of two classes with four images each.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for class in 0..2u32 {
        let path = folder.path().join(class.to_string());
        std::fs::create_dir(&path).unwrap();
        for file in 0..4u32 {
            let pixel = |x: u32, y: u32| image::Rgb([(x * 9 + file) as u8, (y * 8 + class) as u8, (file * 60) as u8]);
            image::RgbImage::from_fn(24, 18, pixel).save(path.join(format!("{file}.png"))).unwrap();
        }
    }
    folder
}

/// Returns the bytes of some batches of an epoch.
fn bytes_of(loader: &mut Loader, number: u64, batches: Range<usize>) -> Vec<Vec<u8>> {
    loader.start_epoch(&sampler(8, 4), number, batches);
    let bytes = |batch: Result<Batch, LoadError>| {
        let batch = batch.unwrap();
        assert!(batch.failed.is_empty(), "{:?}", batch.failed);
        [batch.inputs["images"].bytes(), batch.truth["labels"].bytes()].concat()
    };
    loader.by_ref().map(bytes).collect()
}

#[test]
fn augmented_samples_are_the_same_for_any_number_of_workers_and_differ_by_epoch() {
    let folder = folder();
    let range = crate::CropRange { scale: (0.2, 1.0), ratio: (0.75, 1.33) };
    let crop = Geometry::RandomResizedCrop { size: (8, 8), range, filter: Filter::Bilinear };
    let jitter = crate::ColorJitter { brightness: Some((0.5, 1.5)), hue: Some((-0.2, 0.2)), ..Default::default() };
    let kind = crate::PolicyKind::RandAugment { operations: 2, magnitude: 9, bins: 31 };
    let erased = crate::RandomErasing { probability: 0.9, range, value: crate::ErasedValue::Normal };
    let mix = Mix { alpha: 1.0, classes: 2 };
    let transforms = vec![
        Transform::Geometry(crop),
        Transform::Geometry(Geometry::RandomHorizontalFlip { probability: 0.5 }),
        Transform::ColorJitter(jitter),
        Transform::Policy(crate::Policy { kind, outside: Default::default() }),
        Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] },
        Transform::RandomErasing(erased),
        Transform::MixUp(mix),
        Transform::CutMix(mix),
    ];
    let source = SampleSource::ImageFolder { images: ".".into(), classes: None };
    let dataset = Pipeline { source, transforms }.open_for_training(folder.path(), DType::F32).unwrap();
    let run = |workers| {
        let options = LoaderOptions { workers, pad_last_batch: false, ..options(4) };
        let lend: MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
        let mut loader = Loader::new(Arc::clone(&dataset), options, lend).unwrap();
        let mut bytes = |number, batches| bytes_of(&mut loader, number, batches);
        [bytes(0, 0..2), [bytes(1, 0..1), bytes(1, 1..2)].concat(), bytes(0, 0..2), bytes(1, 0..2)]
    };
    let alone = run(0);
    assert_eq!(alone[0], alone[2], "an epoch can be read again");
    assert_eq!(alone[1], alone[3], "the parts of an epoch are the epoch");
    assert_ne!(alone[0], alone[1]);
    assert_eq!(run(1), alone);
    assert_eq!(run(3), alone);
    let sample = |number| {
        let (mut image, mut label) = (vec![0; 3 * 8 * 8 * 4], vec![0; 8]);
        dataset.read_in_epoch(2, Epoch { seed: 5, number }, &mut [&mut image, &mut label]).unwrap();
        image
    };
    assert!(sample(0) != sample(1) && sample(1) == sample(1));
}
