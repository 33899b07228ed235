//! Datasets in published formats beside what they are made of, in turns in one process:
//!
//! - `data::coco` beside the image folder, on the same images: resize to 256x256, normalise;
//! - `data::prompts` beside the bare crate `tokenizers`, on the same lines with the same number of threads.
//!
//!     cargo bench --bench dataset_formats -- [DIR [TOKENIZER [WORKERS [SECONDS]]]]
//!
//! DIR contains class folders of JPEG files (default: the project's drawn images), which are copied. TOKENIZER is a
//! tokenizer.json (default: a byte-level BPE of 4,000 tokens, trained on the project's Markdown files). The prompts are
//! the lines of these Markdown files. Each turn takes SECONDS for each candidate.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::tensor::DType;
use flagperf_data::{
    BadSamplePolicy, CocoOptions, Dataset, Filter, Geometry, Loader, LoaderOptions, PaddingOptions, PaddingSide,
    Pipeline, PromptOptions, SampleSource, Target, TokenizerFiles, Transform,
};
use flagperf_engine::HeapMemory;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde_json::json;
use tokenizers::Tokenizer;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const BATCH: usize = 32;
const TURNS: usize = 5;
/// Objects of each image in the annotations; COCO has 7 in the mean.
const OBJECTS: i64 = 7;
/// Tokens of a prompt; longer lines are cut.
const LENGTH: usize = 128;

fn main() -> Outcome<()> {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |place: usize, default: f64| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let (workers, seconds) = (number(2, 2.0)? as usize, number(3, 2.0)?);
    let drawn = PathBuf::from("datasets/drawn");
    let images = match arguments.first() {
        Some(directory) => PathBuf::from(directory),
        None => {
            flagperf_data::drawn::ensure(&drawn)?;
            drawn.join("generated")
        }
    };
    compare_images(&images, workers, seconds)?;
    compare_tokens(arguments.get(1).map(Path::new), workers, seconds)
}

/// Prints the rates of two candidates in turns, and their ratio.
fn compare(unit: &str, names: [&str; 2], mut candidates: [Box<dyn FnMut() -> Outcome<f64> + '_>; 2]) -> Outcome<()> {
    let mut ratios = Vec::new();
    for turn in 0..TURNS {
        let [first, second] = &mut candidates;
        let rates = [first()?, second()?];
        ratios.push(rates[0] / rates[1]);
        println!("turn {turn}: {} {:.0} {unit}/s, {} {:.0} {unit}/s", names[0], rates[0], names[1], rates[1]);
    }
    ratios.sort_by(f64::total_cmp);
    let [least, median, most] = [0, TURNS / 2, TURNS - 1].map(|at| ratios[at]);
    println!("{} / {}: median {median:.3}, {least:.3} to {most:.3}", names[0], names[1]);
    Ok(())
}

/// Repeats `pass`, which returns its number of items, for `seconds`, and returns items per second.
fn rate(seconds: f64, mut pass: impl FnMut() -> Outcome<usize>) -> Outcome<f64> {
    let clock = MonotonicClock::start();
    let (start, mut items) = (clock.now(), 0);
    loop {
        items += pass()?;
        let elapsed = clock.now().since(start).0;
        if elapsed >= seconds {
            return Ok(items as f64 / elapsed);
        }
    }
}

fn loader(dataset: Arc<dyn Dataset>, workers: usize) -> Outcome<Loader> {
    let options = LoaderOptions {
        batch_size: BATCH,
        workers,
        prefetch: 2,
        pad_last_batch: false,
        on_bad_sample: BadSamplePolicy::Fail,
        preloaded: false,
    };
    Ok(Loader::new(dataset, options, &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?)))?)
}

fn run_pass(loader: &mut Loader, samples: usize) -> Outcome<usize> {
    loader.start_pass()?;
    while let Some(batch) = loader.next() {
        loader.recycle(batch?)?;
    }
    Ok(samples)
}

/// Copies the images of class folders and writes annotations for them.
fn write_coco(from: &Path, to: &Path) -> Outcome<()> {
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for class in fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?.iter().filter(|entry| entry.path().is_dir()) {
        let folder = to.join("images").join(class.file_name());
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(class.path())? {
            let (file, id) = (file?, images.len() as i64);
            let bytes = fs::read(file.path())?;
            let decoder = libjpeg_turbo_rs::Decoder::new(&bytes)?;
            let (width, height) = (decoder.header().width, decoder.header().height);
            fs::write(folder.join(file.file_name()), &bytes)?;
            let name = format!("{}/{}", class.file_name().display(), file.file_name().display());
            images.push(json!({"id": id, "file_name": name, "width": width, "height": height}));
            annotations.extend((0..OBJECTS).map(|at| {
                json!({"id": id * OBJECTS + at, "image_id": id, "category_id": at, "area": 100.5, "iscrowd": 0,
                    "bbox": [at, at, 10.5, 12.25], "segmentation": [vec![0.5; 40]]})
            }));
        }
    }
    let categories: Vec<_> = (0..OBJECTS).map(|id| json!({"id": id, "name": "thing"})).collect();
    let file = json!({"images": images, "annotations": annotations, "categories": categories});
    Ok(fs::write(to.join("instances.json"), file.to_string())?)
}

fn compare_images(directory: &Path, workers: usize, seconds: f64) -> Outcome<()> {
    let data = tempfile::tempdir()?;
    write_coco(directory, data.path())?;
    let open = |source| -> Outcome<(Loader, usize)> {
        let transforms = vec![
            Transform::Geometry(Geometry::Resize { target: Target::Exactly((256, 256)), filter: Filter::Bilinear }),
            Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] },
        ];
        let dataset = Pipeline { source, transforms }.open(data.path(), DType::F32)?;
        let samples = dataset.len();
        Ok((loader(dataset, workers)?, samples))
    };
    let images = PathBuf::from("images");
    let annotations = PathBuf::from("instances.json");
    let options = CocoOptions {
        images: images.clone(),
        annotations,
        category_ids: false,
        model_classes: None,
        move_boxes: false,
        pixel_mask: false,
    };
    let (mut coco, samples) = open(SampleSource::Coco(options))?;
    let (mut folder, _) = open(SampleSource::ImageFolder { images, classes: None })?;
    println!("{samples} images, {workers} workers");
    let coco = move || rate(seconds, || run_pass(&mut coco, samples));
    let folder = move || rate(seconds, || run_pass(&mut folder, samples));
    compare("images", ["coco", "image_folder"], [Box::new(coco), Box::new(folder)])
}

/// Returns the lines of the project's Markdown files.
fn markdown_lines() -> Outcome<(Vec<PathBuf>, Vec<String>)> {
    let (mut folders, mut files) = (vec![PathBuf::from(".")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()? {
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".") || entry.file_name() == "target";
            match entry.file_type()? {
                kind if kind.is_dir() && !hidden => folders.push(entry.path()),
                kind if kind.is_file() && entry.path().extension().is_some_and(|e| e == "md") => {
                    files.push(entry.path())
                }
                _ => {}
            }
        }
    }
    files.sort();
    let texts = files.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    Ok((files.clone(), lines.map(str::to_owned).collect()))
}

fn train(files: &[PathBuf]) -> Outcome<String> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    let alphabet = ByteLevel::alphabet().into_iter().collect();
    let trainer = BpeTrainer::builder().vocab_size(4000).show_progress(false).initial_alphabet(alphabet).build();
    let names = files.iter().map(|file| file.display().to_string()).collect();
    tokenizer.train_from_files(&mut TrainerWrapper::from(trainer), names)?;
    tokenizer.to_string(false)
}

fn compare_tokens(tokenizer: Option<&Path>, workers: usize, seconds: f64) -> Outcome<()> {
    let data = tempfile::tempdir()?;
    let (files, lines) = markdown_lines()?;
    fs::write(data.path().join("prompts.txt"), lines.join("\n"))?;
    let text = tokenizer.map_or_else(|| train(&files), |path| Ok(fs::read_to_string(path)?))?;
    fs::write(data.path().join("tokenizer.json"), &text)?;
    let padding =
        PaddingOptions { buckets: vec![LENGTH], to_batch: false, pad: 0, side: PaddingSide::Right, truncate: true };
    let options = PromptOptions {
        file: "prompts.txt".into(),
        key: None,
        template: None,
        tokenizer: TokenizerFiles::Json("tokenizer.json".into()),
        vocabulary: None,
        special_tokens: true,
        padding,
        texts: Vec::new(),
        lists: Vec::new(),
    };
    let source = SampleSource::Prompts(options);
    let dataset = Pipeline { source, transforms: Vec::new() }.open(data.path(), DType::F32)?;
    let mut prompts = loader(dataset, workers)?;
    let mut bare: Tokenizer = text.parse()?;
    bare.with_padding(None).with_truncation(None)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build()?;
    let samples = lines.len();
    println!("{samples} lines of {} bytes, {workers} workers", lines.iter().map(String::len).sum::<usize>());
    let prompts = move || rate(seconds, || run_pass(&mut prompts, samples));
    let encode = |line: &String| Ok::<_, Box<dyn Error + Send + Sync>>(bare.encode_fast(line.as_str(), true)?.len());
    let tokenize = || -> Outcome<usize> {
        let tokens: usize = pool.install(|| lines.par_iter().map(encode).sum::<Outcome<usize>>())?;
        Ok(if tokens > 0 { samples } else { 0 })
    };
    let bare = || rate(seconds, tokenize);
    compare("prompts", ["prompts", "tokenizers"], [Box::new(prompts), Box::new(bare)])
}
