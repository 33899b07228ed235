//! Loads images in batches as fast as the loader's workers can: decode, resize to 256, crop to 224, normalise.
//!
//!     cargo bench --bench loading -- [DIR [WORKERS [BATCH [SECONDS [TRANSFORMS]]]]]   images per second, one line per pass
//!     cargo bench --bench loading -- --dump OUT.safetensors DIR          writes the crops, `224,224,3,u8` by path
//!
//! DIR contains class folders; by default the project's drawn images are loaded. TRANSFORMS are `validation` (by default),
//! `training` (a random resized crop and a random flip in place of resize and crop), or `training+rand_augment`, with
//! mixup. `loading_torchvision.py` in this folder does the same with torchvision, and `loading_side_by_side.py` alternates
//! the two.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::tensor::DType;
use flagperf_data::{
    BadSamplePolicy, CropRange, Dataset, Filter, Geometry, Loader, LoaderOptions, Mix, Outside, Pipeline, Policy,
    PolicyKind, SampleSource, Target, TrainingSampler, Transform,
};
use flagperf_engine::HeapMemory;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

type Outcome<T> = Result<T, Box<dyn Error>>;

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

fn main() -> Outcome<()> {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--dump", out, directory] => write_crops(Path::new(out), Path::new(directory)),
        [] => {
            let drawn = PathBuf::from("datasets/drawn");
            flagperf_data::drawn::ensure(&drawn)?;
            time_passes(&drawn.join("generated"), 2, 32, 5.0, "validation")
        }
        [directory, ref rest @ ..] => {
            let number = |place: usize, default: f64| rest.get(place).map_or(Ok(default), |text| text.parse());
            let transforms = rest.get(3).copied().unwrap_or("validation");
            let (workers, batch) = (number(0, 2.0)? as usize, number(1, 32.0)? as usize);
            time_passes(Path::new(directory), workers, batch, number(2, 5.0)?, transforms)
        }
    }
}

fn image_folder(transforms: Vec<Transform>) -> Pipeline {
    Pipeline { source: SampleSource::ImageFolder { images: PathBuf::from("."), classes: None }, transforms }
}

fn open_dataset(directory: &Path, mean: [f32; 3], std: [f32; 3]) -> Outcome<Arc<dyn Dataset>> {
    let transforms = vec![
        Transform::Geometry(Geometry::Resize { target: Target::Shorter(256), filter: Filter::Bilinear }),
        Transform::Geometry(Geometry::CenterCrop((224, 224))),
        Transform::Normalize { mean, std },
    ];
    Ok(image_folder(transforms).open(directory, DType::F32)?)
}

/// Opens the images with the random transforms that torchvision's training scripts use for ImageNet.
fn open_for_training(directory: &Path, is_augmented: bool) -> Outcome<Arc<dyn Dataset>> {
    let range = CropRange { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };
    let kind = PolicyKind::RandAugment { operations: 2, magnitude: 9, bins: 31 };
    let mut transforms = vec![
        Transform::Geometry(Geometry::RandomResizedCrop { size: (224, 224), range, filter: Filter::Bilinear }),
        Transform::Geometry(Geometry::RandomHorizontalFlip { probability: 0.5 }),
        Transform::Normalize { mean: MEAN, std: STD },
    ];
    if is_augmented {
        transforms.insert(2, Transform::Policy(Policy { kind, outside: Outside::default() }));
        transforms.push(Transform::MixUp(Mix { alpha: 0.2, classes: 1000 }));
    }
    Ok(image_folder(transforms).open_for_training(directory, DType::F32)?)
}

fn loader(dataset: Arc<dyn Dataset>, workers: usize, batch_size: usize) -> Outcome<Loader> {
    let options = LoaderOptions {
        batch_size,
        workers,
        prefetch: 2,
        pad_last_batch: false,
        on_bad_sample: BadSamplePolicy::Fail,
        preloaded: false,
    };
    Ok(Loader::new(dataset, options, &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?)))?)
}

/// Runs passes over the dataset for `seconds`, each from an empty prefetch queue, and prints the rate of each.
fn time_passes(directory: &Path, workers: usize, batch_size: usize, seconds: f64, transforms: &str) -> Outcome<()> {
    let dataset = match transforms {
        "validation" => open_dataset(directory, MEAN, STD)?,
        "training" => open_for_training(directory, false)?,
        "training+rand_augment" => open_for_training(directory, true)?,
        other => return Err(format!("unknown transforms `{other}`").into()),
    };
    let samples = dataset.len();
    let sampler = TrainingSampler { seed: 0, samples, batch: batch_size, rank: 0, world: 1, drop_last: false };
    let mut loader = loader(dataset, workers, batch_size)?;
    let clock = MonotonicClock::start();
    let begin = clock.now();
    for number in 0.. {
        let start = clock.now();
        if start.since(begin).0 >= seconds {
            break;
        }
        match transforms {
            "validation" => loader.start_pass()?,
            _ => loader.start_epoch(&sampler, number, 0..sampler.batches()),
        }
        while let Some(batch) = loader.next() {
            loader.recycle(batch?)?;
        }
        println!("{:.0}", samples as f64 / clock.now().since(start).0);
    }
    Ok(())
}

/// Writes the crop of every image as `224,224,3,u8`, keyed by its path.
fn write_crops(out: &Path, directory: &Path) -> Outcome<()> {
    let dataset = open_dataset(directory, [0.0; 3], [1.0; 3])?;
    let mut loader = loader(Arc::clone(&dataset), 2, 1)?;
    loader.start_pass()?;
    let mut crops = Vec::new();
    for batch in loader {
        let batch = batch?;
        let path = directory.join(dataset.sample_name(batch.sample_indices[0] as usize));
        let planes = batch.inputs["images"].as_slice::<f32>()?;
        let side = planes.len() / 3;
        let level = |at: usize| (planes[at % 3 * side + at / 3] * 255.0).round() as u8;
        crops.push((path.display().to_string(), (0..planes.len()).map(level).collect::<Vec<u8>>()));
    }
    let views = crops.iter().map(|(path, crop)| Ok((path, TensorView::new(Dtype::U8, vec![224, 224, 3], crop)?)));
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(safetensors::serialize_to_file(views, None, out)?)
}
