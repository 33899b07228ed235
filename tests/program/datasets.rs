//! Small cases on datasets in their published formats, end to end: the loader, a model on two engines, and the evaluator.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, program};

const CONFIGURATIONS: &str = "batch_size: 2\nflops: 1e3\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 2\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";

/// A checkout with the case `published`, made of these scripts and data.
struct Case {
    checkout: TempDir,
}

impl Case {
    fn new(dataloader: &str, model: &str, evaluator: &str) -> Self {
        let case = Case { checkout: support::checkout() };
        case.write("configs/published/configurations.yaml", CONFIGURATIONS.as_bytes());
        case.write("configs/published/parameters.yaml", b"weights: null\n");
        let model = format!(
            "fn create_model(config) {{\n    let graph = nn::graph(\"published\");\n{model}    graph.weights((), 0);\n    graph\n}}\n"
        );
        let forward = "fn model_forward(model, batch) {\n    if \"input_ids\" in batch { log::info(`shape ${batch.input_ids.spec}`); }\n    model.run(batch).y\n}\n";
        let scripts = [
            ("dataloader", format!("fn build_dataloader(config) {{\n    {dataloader}\n}}\n")),
            ("model", model),
            ("forward", forward.to_owned()),
            ("evaluator", format!("fn evaluator(output, truth) {{\n{evaluator}}}\n")),
        ];
        for (name, text) in scripts {
            case.write(&format!("scripts/published/{name}.rhai"), text.as_bytes());
        }
        case
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.checkout.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    /// Runs the case, which must succeed, and returns the accuracy of both phases.
    fn accuracies(&self) -> Vec<Value> {
        self.run().0
    }

    /// Runs the case, which must succeed, and returns the accuracy of both phases and the log.
    fn run(&self) -> (Vec<Value>, String) {
        let arguments = ["--case", "published", "--vendor", "cpu", "--data", "data"];
        let (record, code) = program::record(self.checkout.path(), &arguments);
        assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
        let phases = record["phases"].as_array().expect("phases");
        let accuracies = phases.iter().map(|phase| phase["measured"][0]["accuracy"].clone()).collect();
        let run = fs::read_dir(self.checkout.path().join("result")).expect("results").flatten().next().expect("a run");
        let case = fs::read_dir(run.path()).expect("a run").flatten().find(|entry| entry.path().is_dir());
        let host = fs::read_dir(case.expect("a case").path()).expect("a case").flatten().next().expect("a host");
        (accuracies, fs::read_to_string(host.path().join("container.out.log")).expect("a log"))
    }

    /// Runs the case, which must be refused before anything runs, and returns the error.
    fn refusal(&self) -> String {
        let arguments = ["run", "--case", "published", "--vendor", "cpu", "--data", "data"];
        let output = program::flagperf(self.checkout.path(), &arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        errors.lines().find(|line| line.starts_with("error: ")).expect("an error").to_owned()
    }
}

/// Returns a case with three images of 4x2 pixels, each with the same box, whose left side is `left` after the transforms.
fn coco_case(transforms: &str, left: usize) -> Case {
    let evaluator = r#"    let rows = truth.counts.shape[0];
    let boxes = tensor::from([LEFT, 3, 4, 2], "1,1,4,f64").tile([rows, 1, 1]);
    let found = #{boxes: boxes::restore(boxes, truth.placements, "coco"), counts: truth.counts};
    found.scores = tensor::full(`${rows},1,f32`, 0.9);
    found.classes = tensor::full(`${rows},1,i64`, 1);
    metric::coco_map(found, truth)
"#;
    let case = Case::new(
        &format!("data::coco(\"images\", \"instances.json\"){transforms}.scale(1.0 / 255.0)"),
        "    graph.output(\"y\", graph.input(\"images\", \"N,3,8,8,f32\") * 2.0);\n",
        &evaluator.replace("LEFT", &left.to_string()),
    );
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(4, 2).write_to(&mut png, image::ImageFormat::Png).expect("it encodes");
    let ids = [30, 10, 20];
    for id in ids {
        case.write(&format!("data/images/{id}.png"), png.get_ref());
    }
    let annotation = |id: i64| json!({"id": id, "image_id": id, "category_id": 7, "bbox": [0.5, 0.5, 2, 1], "area": 2, "iscrowd": 0});
    let image = |id: i64| json!({"id": id, "file_name": format!("{id}.png"), "width": 4, "height": 2});
    let file =
        json!({"images": ids.map(image), "annotations": ids.map(annotation), "categories": [{"id": 7}, {"id": 3}]});
    case.write("data/instances.json", file.to_string().as_bytes());
    case
}

/// Returns a tokenizer of words with `[CLS]` and `[SEP]`.
fn tokenizer(words: &[&str]) -> String {
    let vocabulary: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}})
    .to_string()
}

#[test]
fn boxes_are_found_in_the_pixels_of_the_original_images() {
    for (transforms, left) in [(".letterbox(8, 8)", 1), (".letterbox(8, 8).flip(1.0, 0)", 3)] {
        for accuracy in coco_case(transforms, left).accuracies() {
            assert_eq!((accuracy["map"].as_f64(), accuracy["ar100"].as_f64()), (Some(1.0), Some(1.0)), "{accuracy}");
        }
    }
}

#[test]
fn a_missing_image_is_refused_before_anything_runs() {
    let case = coco_case(".letterbox(8, 8)", 1);
    fs::remove_file(case.checkout.path().join("data/images/20.png")).expect("the file existed");
    let error = case.refusal();
    assert!(error.contains("`instances.json`: image 20: there is no `images/20.png`"), "{error}");
}

#[test]
fn questions_are_padded_to_their_batch_and_counted_by_subject() {
    let case = Case::new(
        r#"data::questions("mmlu", #{
        tokenizer: "t.json", length: "batch", max_length: 64, side: "left", shots: 1, special_tokens: false})"#,
        "    graph.input(\"attention_mask\", \"N,L,i64\");\n    graph.input(\"lengths\", \"N,i64\");\n    \
         graph.output(\"y\", graph.input(\"input_ids\", \"N,L,i64\").cast(\"f32\") * 1.0);\n",
        r#"    let found = metric::accuracy_by_group(truth.answers, truth.answers, truth.subjects);
    // The last token of every prompt is the colon of `Answer:`.
    let colons = output.index(1, -1).equal(4).cast("f64").sum().item();
    found + metric::mean("colons", colons, output.shape[0]) + metric::mean("length", output.shape[1].to_float(), 1)
"#,
    );
    case.write("data/t.json", tokenizer(&["[UNK]", "[CLS]", "[SEP]", "Answer", ":", "A", "B", "C", "D"]).as_bytes());
    for (subject, questions) in
        [("art", "Short?,1,2,3,4,A\nShort?,1,2,3,4,B\n"), ("law", "A long question?,1,2,3,4,C\n")]
    {
        case.write(&format!("data/mmlu/test/{subject}_test.csv"), questions.as_bytes());
        case.write(&format!("data/mmlu/dev/{subject}_dev.csv"), b"Why?,1,2,3,4,D\n");
    }
    let (accuracies, log) = case.run();
    let shapes: Vec<&str> = log.lines().filter_map(|line| line.split_once("shape ")).map(|(_, spec)| spec).collect();
    let mut distinct = shapes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 2, "{shapes:?}");
    // Two passes and one step of warm-up, in each of the two phases; steps of the audit come on top.
    for shape in distinct {
        assert!(shapes.iter().filter(|found| **found == shape).count() >= 2 * 3, "{shapes:?}");
    }
    for accuracy in accuracies {
        assert_eq!((accuracy["accuracy[law]"].as_f64(), accuracy["colons"].as_f64()), (Some(1.0), Some(1.0)));
        // Of the two batches, the second is two tokens longer.
        let length = accuracy["length"].as_f64().expect("a length");
        assert_eq!((length * 2.0) as i64 % 2, 0, "{accuracy}");
        assert!(length < 60.0, "{accuracy}");
    }
}

#[test]
fn answers_are_found_in_the_windows_of_their_context() {
    let case = Case::new(
        r#"data::squad("dev.json", #{tokenizer: "t.json", length: 8, stride: 2})"#,
        "    graph.input(\"token_type_ids\", \"N,8,i64\");\n    graph.input(\"attention_mask\", \"N,8,i64\");\n    \
         graph.output(\"y\", graph.input(\"input_ids\", \"N,8,i64\").cast(\"f32\") * 1.0);\n",
        "    metric::spans(output, output, truth)\n",
    );
    case.write("data/t.json", tokenizer(&["[UNK]", "[CLS]", "[SEP]", "who", "the", "cat", "sat", "Zoë"]).as_bytes());
    let question =
        |id: &str, answer: &str| json!({"id": id, "question": "who", "answers": [{"text": answer, "answer_start": 0}]});
    // The token with the largest id is the answer, and it is in the last of three windows.
    let context = "the cat the cat sat the cat the Zoë";
    let file =
        json!({"data": [{"paragraphs": [{"context": context, "qas": [question("1", "Zoë"), question("2", "cat")]}]}]});
    case.write("data/dev.json", file.to_string().as_bytes());
    for accuracy in case.accuracies() {
        assert_eq!((accuracy["exact_match"].as_f64(), accuracy["f1"].as_f64()), (Some(0.5), Some(0.5)), "{accuracy}");
    }
}

#[test]
fn data_with_the_mark_of_a_sample_give_no_accuracy() {
    let case = coco_case(".letterbox(8, 8)", 1);
    case.write("data/SAMPLE.txt", b"drawn\n");
    let (record, _) =
        program::record(case.checkout.path(), &["--case", "published", "--vendor", "cpu", "--data", "data"]);
    assert_eq!(record["accuracy"]["unknown"], "synthetic data", "{}", record["accuracy"]);
}
