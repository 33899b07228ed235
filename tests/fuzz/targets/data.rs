//! The files of datasets, one of which the input replaces: opened, and their first samples read.

#![no_main]

mod support;

use std::io::Cursor;
use std::path::PathBuf;

use flagperf_core::tensor::DType;
use flagperf_data::{
    ArrayField, CocoOptions, FieldRole, Filter, Geometry, Hdf5Field, Hdf5Options, ImageMaskOptions, NumberList,
    PaddingOptions, PaddingSide, Pipeline, PromptOptions, QuestionOptions, SampleSource, SquadOptions, StoredType,
    Target, TokenStreamOptions, TokenizerFiles, Transform,
};
use flagperf_onnx::byte_count;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Samples that are read of each dataset.
const SAMPLES_MAX: usize = 3;
/// Largest size of a sample that is read.
const SAMPLE_BYTES_MAX: usize = 1 << 24;

/// A file of a dataset, its content, and the dataset.
struct Kind {
    file: &'static str,
    content: fn() -> Vec<u8>,
    source: fn() -> SampleSource,
}

/// The kinds of input.
const KINDS: &[Kind] = &[
    Kind { file: "images/a/1.jpg", content: jpeg, source: folder },
    Kind { file: "images/a/2.png", content: png, source: folder },
    Kind { file: "images/a/3", content: || picture(image::ImageFormat::Bmp), source: folder },
    Kind { file: "images/a/4", content: || picture(image::ImageFormat::Gif), source: folder },
    Kind { file: "images/a/5", content: || picture(image::ImageFormat::WebP), source: folder },
    Kind { file: "pictures/2.png", content: png, source: boxes },
    Kind { file: "masks/2.png", content: mask, source: masks },
    Kind { file: "instances.json", content: instances, source: boxes },
    Kind { file: "numbers.npy", content: npy, source: || array("numbers.npy") },
    Kind { file: "numbers.safetensors", content: safetensors, source: || array("numbers.safetensors") },
    Kind { file: "tokens.bin", content: || (0..64).collect(), source: tokens },
    Kind { file: "tokenizer.json", content: tokenizer, source: prompts },
    Kind { file: "prompts.jsonl", content: || b"{\"text\": \"a b\", \"seed\": [1]}\n".to_vec(), source: prompts },
    Kind { file: "dev.json", content: squad, source: spans },
    Kind { file: "mmlu/test/art_test.csv", content: || b"\"Why?\",1,2,3,4,A\n".to_vec(), source: questions },
    Kind { file: "mmlu/dev/art_dev.csv", content: || b"What?,1,2,3,4,B\n".to_vec(), source: questions },
    Kind { file: "images/classes.txt", content: || b"a\n".to_vec(), source: folder },
    Kind { file: "numbers.hdf5", content: || shard("b.hdf5"), source: || shards("numbers.hdf5") },
    Kind { file: "latest.h5", content: || shard("c.h5"), source: || shards("latest.h5") },
];

fuzz_target!(init: begin(), |input: &[u8]| {
    let Some((kind, content)) = support::split_kind(input, KINDS.len()) else { return };
    let Kind { file, content: before, source } = &KINDS[kind];
    support::write(&format!("data/{file}"), content);
    read(source());
    support::write(&format!("data/{file}"), before());
});

fn begin() {
    for Kind { file, content, .. } in KINDS {
        support::write(&format!("data/{file}"), content());
    }
    support::write_seeds(|| {
        KINDS.iter().enumerate().map(|(kind, k)| support::seed_of_kind(kind, (k.content)())).collect()
    });
}

/// Opens a dataset and reads its first samples. A sample is complete, or an error names it.
fn read(source: SampleSource) {
    let resize = Geometry::Resize { target: Target::Exactly((8, 8)), filter: Filter::Bilinear };
    let transforms = match source {
        SampleSource::ImageFolder { .. } | SampleSource::ImageMasks(_) | SampleSource::Coco(_) => {
            vec![Transform::Geometry(resize), Transform::Normalize { mean: [0.5; 3], std: [0.5; 3] }]
        }
        _ => Vec::new(),
    };
    let pipeline = Pipeline { source, transforms };
    let root = support::FOLDER.join("data");
    let _ = pipeline.check(&root, DType::F32);
    let dataset = match pipeline.open(&root, DType::F32) {
        Ok(dataset) => dataset,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(!dataset.is_empty() && dataset.facts().samples == dataset.len() as u64);
    let sizes = dataset.fields().iter().map(|field| byte_count(&field.spec.fixed_shape()?, field.spec.dtype));
    let Some(sizes) = sizes.collect::<Option<Vec<usize>>>() else { return };
    if sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size)) > SAMPLE_BYTES_MAX {
        return;
    }
    for index in 0..dataset.len().min(SAMPLES_MAX) {
        let mut fields: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
        let mut slices: Vec<&mut [u8]> = fields.iter_mut().map(Vec::as_mut_slice).collect();
        if let Err(error) = dataset.read(index, &mut slices) {
            assert!(!error.sample.is_empty() && !error.reason.is_empty());
        }
    }
}

fn folder() -> SampleSource {
    SampleSource::ImageFolder { images: "images".into(), classes: Some("images/classes.txt".into()) }
}

fn masks() -> SampleSource {
    SampleSource::ImageMasks(ImageMaskOptions {
        images: "pictures".into(),
        masks: "masks".into(),
        classes: 3,
        points: 1,
    })
}

fn boxes() -> SampleSource {
    let (images, annotations) = ("pictures".into(), "instances.json".into());
    SampleSource::Coco(CocoOptions { images, annotations, category_ids: false, move_boxes: false, pixel_mask: false })
}

fn array(file: &str) -> SampleSource {
    let (name, file) = ("numbers".to_owned(), PathBuf::from(file));
    SampleSource::Arrays(vec![ArrayField { name, role: FieldRole::Input, file, key: None }])
}

fn shards(file: &str) -> SampleSource {
    let field = |name: &str| {
        let (name, dataset) = (name.to_owned(), name.to_owned());
        Hdf5Field { name, role: FieldRole::Input, dataset, dtype: None }
    };
    SampleSource::Hdf5(Hdf5Options {
        path: PathBuf::from(file),
        fields: ["ids", "weights", "labels"].map(field).into(),
    })
}

fn shard(name: &str) -> Vec<u8> {
    std::fs::read(support::root().join("tests/reference/hdf5").join(name)).expect("a file of the repository")
}

fn tokens() -> SampleSource {
    SampleSource::Tokens(TokenStreamOptions {
        file: "tokens.bin".into(),
        stored: Some(StoredType::U16),
        key: None,
        length: 8,
        stride: 3,
        vocabulary: Some(40_000),
        masking: None,
        id_type: DType::I64,
    })
}

fn padding() -> PaddingOptions {
    PaddingOptions { buckets: vec![64, 256], to_batch: false, pad: 0, side: PaddingSide::Left, truncate: false }
}

fn tokenizer_file() -> TokenizerFiles {
    TokenizerFiles::Json("tokenizer.json".into())
}

fn prompts() -> SampleSource {
    SampleSource::Prompts(PromptOptions {
        file: "prompts.jsonl".into(),
        key: Some("text".to_owned()),
        template: Some("say {}".to_owned()),
        tokenizer: tokenizer_file(),
        vocabulary: None,
        special_tokens: true,
        padding: padding(),
        texts: vec![("text".to_owned(), 64)],
        lists: vec![NumberList { name: "seed".to_owned(), length: 1, dtype: DType::I64, role: FieldRole::Truth }],
    })
}

fn spans() -> SampleSource {
    let (file, tokenizer) = ("dev.json".into(), tokenizer_file());
    let (length, stride, question_length) = (32, 4, 8);
    SampleSource::Squad(SquadOptions { file, tokenizer, vocabulary: None, length, stride, question_length, pad: 0 })
}

fn questions() -> SampleSource {
    SampleSource::Questions(QuestionOptions {
        folder: "mmlu".into(),
        split: "test".to_owned(),
        subjects: Vec::new(),
        shots: 1,
        tokenizer: tokenizer_file(),
        vocabulary: None,
        special_tokens: false,
        padding: padding(),
    })
}

fn jpeg() -> Vec<u8> {
    std::fs::read(support::root().join("tests/reference/images/drawn/grey.jpg")).expect("a file of the repository")
}

fn png() -> Vec<u8> {
    encoded(image::DynamicImage::new_rgb8(5, 4))
}

fn mask() -> Vec<u8> {
    encoded(image::DynamicImage::new_luma8(5, 4))
}

fn picture(format: image::ImageFormat) -> Vec<u8> {
    let levels = (0..9 * 7 * 3).collect();
    let picture = image::RgbImage::from_raw(9, 7, levels).expect("as many levels");
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, format).expect("a picture");
    file.into_inner()
}

fn encoded(picture: image::DynamicImage) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, image::ImageFormat::Png).expect("a picture");
    file.into_inner()
}

fn instances() -> Vec<u8> {
    let annotation =
        json!({"id": 1, "image_id": 2, "category_id": 7, "bbox": [0.5, 0.5, 2, 1], "area": 2, "iscrowd": 0});
    let image = json!({"id": 2, "file_name": "2.png", "width": 5, "height": 4});
    json!({"images": [image], "annotations": [annotation], "categories": [{"id": 7}]}).to_string().into_bytes()
}

fn npy() -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }");
    let numbers: Vec<u8> = [5i64, 6, 7].iter().flat_map(|number| number.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &numbers].concat()
}

fn safetensors() -> Vec<u8> {
    let numbers = safetensors::tensor::TensorView::new(safetensors::tensor::Dtype::F32, vec![2, 3], &[1; 24]);
    safetensors::serialize([("numbers", numbers.expect("a tensor"))], None).expect("a file")
}

fn tokenizer() -> Vec<u8> {
    let merges = ["a b", "s a", "sa y"];
    let words = ["[UNK]", "a", "b", "s", "y", "w", "h", "?", "ab", "sa", "say"];
    let vocabulary: serde_json::Map<_, _> =
        words.iter().zip(0..).map(|(word, id)| ((*word).to_owned(), json!(id))).collect();
    json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "BPE", "dropout": 0.1, "unk_token": "[UNK]", "vocab": vocabulary, "merges": merges}})
    .to_string()
    .into_bytes()
}

fn squad() -> Vec<u8> {
    let question = json!({"id": "1", "question": "why?", "answers": [{"text": "b"}]});
    json!({"data": [{"paragraphs": [{"context": "a b say", "qas": [question]}]}]}).to_string().into_bytes()
}
