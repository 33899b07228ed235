//! Every case of the repository runs end to end in its small size, on the data that it reads when none are given.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{self, program};

/// Cases that classify images, by the size at which they are quick. The weights and the class list of EfficientNet-Lite0
/// may not be redistributed.
const CONVOLUTIONS: [&str; 3] = ["resnet50", "resnet101", "efficientnet_lite0"];
const TRANSFORMERS: [&str; 2] = ["vit_l_16", "swinTransformer"];
const LANGUAGE_MODELS: [&str; 4] = ["Aquila_7b_mmlu", "deepseek_7b_mmlu", "llama2_7b_mmlu", "llama3_8b_mmlu"];
const DRAWN: [&str; 4] = ["weights=null", "class_list=null", "image_dir=.", "default_data=datasets/drawn/generated"];

/// Runs cases with `size=tiny` and more settings on the framework `interpreter` and the compiler `rten`, and returns the
/// records.
fn run(checkout: &Path, cases: &[&str], settings: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["run", "--json", "--vendor", "cpu", "--set", "size=tiny"];
    let named: Vec<String> = cases.iter().map(|case| format!("{case}:interpreter")).collect();
    arguments.extend(named.iter().flat_map(|case| ["--case", case.as_str()]));
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = program::flagperf(checkout, &arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let records = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let records: Vec<Value> = records.map(|record| record.expect("a record")).collect();
    assert_eq!(records.len(), cases.len(), "{errors}");
    records
}

/// Checks that a run succeeded, and that its record says that it is neither the benchmark nor accurate.
fn check(record: &Value) {
    let case = &record["case"];
    assert_eq!(record["status"], "ok", "{case}: {}", record["failures"]);
    let engines: Vec<&Value> =
        record["phases"].as_array().expect("phases").iter().map(|phase| &phase["engine"]["name"]).collect();
    assert_eq!(engines, ["interpreter", "rten"], "{case}");
    assert_eq!(record["agreement"]["verdict"], "met", "{case}: {}", record["agreement"]);
    let departures = record["departures"].as_array().expect("departures");
    assert!(departures.contains(&json!("size=tiny")), "{case}: {departures:?}");
    check_batches(record);
    let accuracy = &record["accuracy"];
    let synthetic = "random weights, synthetic data";
    assert_eq!((&accuracy["verdict"], &accuracy["unknown"]), (&json!("unknown"), &json!(synthetic)), "{case}");
}

/// Checks that a pass of each phase had at least eight full batches, and at most 10 % of padding.
fn check_batches(record: &Value) {
    for phase in record["phases"].as_array().expect("phases") {
        let measured = &phase["measured"][0];
        let [batch, samples, padded] =
            ["batch_size", "samples", "padded_samples"].map(|key| measured[key].as_u64().expect("a count"));
        let passes = measured["passes"].as_array().expect("passes").len() as u64;
        assert!(samples >= 8 * batch * passes && 9 * padded <= samples, "{}: {samples}, {padded}", record["case"]);
    }
}

/// Returns the names of the metrics that the evaluator computed, although their values mean nothing.
fn metrics(record: &Value) -> BTreeSet<&str> {
    let measured = &record["phases"][0]["measured"][0];
    let counted = measured["counted"].as_object().expect("observations by metric");
    counted.keys().map(String::as_str).collect()
}

#[test]
fn every_case_of_the_repository_is_in_a_test_below() {
    let entries = fs::read_dir(support::root().join("configs")).expect("configs").flatten();
    // A case that is only trained has a test of its own.
    let folders = entries.filter(|entry| entry.path().join("configurations.yaml").is_file());
    let cases: BTreeSet<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for (case, vendor) in cases.iter().flat_map(|case| [(case, "cpu"), (case, "nvidia")]) {
        let overlay = format!("configs/{case}/vendor_config/{vendor}_configurations.yaml");
        assert!(support::root().join(&overlay).is_file(), "{overlay}");
    }
    let others = [
        "resnet101_gradients",
        "unet_tiny",
        "dab_detr_r50",
        "sam_h",
        "yolov5",
        "bertLarge",
        "smollm2_135m",
        "stable_diffusion_v1_4",
    ];
    let tested = CONVOLUTIONS.iter().chain(&TRANSFORMERS).chain(&others).chain(&LANGUAGE_MODELS);
    assert_eq!(cases, tested.map(|case| (*case).to_owned()).collect());
}

#[test]
fn the_cases_that_classify_images_run_on_drawn_images() {
    let checkout = support::checkout();
    let convolutions = [&DRAWN[..], &["image_size=32", "resize=32"]].concat();
    let transformers = [&DRAWN[..], &["image_size=56", "resize=56"]].concat();
    let records = run(checkout.path(), &CONVOLUTIONS, &convolutions);
    for record in records.into_iter().chain(run(checkout.path(), &TRANSFORMERS, &transformers)) {
        check(&record);
        assert_eq!(metrics(&record), BTreeSet::from(["top1", "top5"]), "{}", record["case"]);
    }
}

#[test]
fn resnet101_gradients_leaves_out_what_only_a_training_needs() {
    let checkout = support::checkout();
    let settings = |cut: bool| ["cut_parameter_gradients", "cut_second_forward"].map(|key| format!("{key}={cut}"));
    for cut in [true, false] {
        let settings = settings(cut);
        let settings = [&["image_size=32", "resize=32"][..], &settings.each_ref().map(String::as_str)].concat();
        let record = run(checkout.path(), &["resnet101_gradients"], &settings).remove(0);
        check(&record);
        let phase = |index: usize| &record["phases"][index];
        let graphs = phase(0)["rewrites"].as_array().expect("a list");
        assert_eq!(graphs.len(), if cut { 1 } else { 2 }, "{graphs:?}");
        let nodes = &graphs.last().expect("a graph")["nodes"];
        assert_eq!(nodes[1].as_u64() < nodes[0].as_u64(), cut, "{nodes}");
        let outputs = phase(1)["agreement"]["outputs"].as_object().expect("outputs");
        assert_eq!(outputs.keys().collect::<Vec<_>>(), ["images_gradient", "output"]);
    }
}

#[test]
fn unet_tiny_runs_two_graphs_as_spans_on_drawn_masks() {
    let checkout = support::checkout();
    let record = run(checkout.path(), &["unet_tiny"], &["image_size=32"]).remove(0);
    check(&record);
    assert_eq!(metrics(&record), BTreeSet::from(["mean_iou", "pixel_accuracy"]));
    for phase in record["phases"].as_array().expect("phases") {
        let spans = phase["measured"][0]["spans"].as_object().expect("spans");
        let items: Vec<_> = spans.iter().map(|(name, span)| (name.as_str(), span["items"].as_u64())).collect();
        assert_eq!(items, [("denoise", Some(32)), ("segment", Some(32))]);
    }
}

#[test]
fn dab_detr_r50_finds_boxes_on_drawn_images() {
    let checkout = support::checkout();
    let record = run(checkout.path(), &["dab_detr_r50"], &["image_size=[64,96]"]).remove(0);
    check(&record);
    assert_eq!(metrics(&record), BTreeSet::from(["map"]));
}

#[test]
fn sam_h_finds_masks_at_points_of_drawn_images() {
    let checkout = support::checkout();
    let record = run(checkout.path(), &["sam_h"], &["image_size=64", "points=2"]).remove(0);
    check(&record);
    assert_eq!(metrics(&record), BTreeSet::from(["mask_iou"]));
    for phase in record["phases"].as_array().expect("phases") {
        let measured = &phase["measured"][0];
        let items = ["encoder", "decoder"].map(|graph| measured["spans"][graph]["items"].as_u64());
        assert_eq!(items, [Some(32), Some(64)]);
        assert_eq!(measured["counted"]["mask_iou"], 64);
    }
}

#[test]
fn yolov5_finds_boxes_on_drawn_images() {
    let checkout = support::checkout();
    let record = run(checkout.path(), &["yolov5"], &["image_size=64"]).remove(0);
    check(&record);
    assert_eq!(metrics(&record), BTreeSet::from(["map"]));
}

#[test]
fn bert_large_runs_both_tasks() {
    let checkout = support::checkout();
    for (task, metric) in [("task=masked_lm", "token_accuracy"), ("task=question_answering", "exact_match")] {
        let record = run(checkout.path(), &["bertLarge"], &["seq_length=64", task]).remove(0);
        check(&record);
        assert_eq!(metrics(&record), BTreeSet::from([metric]), "{task}");
        // The logits of all tokens do not leave the device: at most a number and an index of each of two sequences do.
        let bytes = record["phases"][0]["measured"][0]["output_copy"]["bytes"].as_u64().expect("bytes");
        assert!(bytes <= 2 * 64 * (8 + 4), "{task}: {bytes}");
    }
}

#[test]
fn without_data_a_pass_grows_with_the_batch() {
    let checkout = support::checkout();
    let images = [&DRAWN[..], &["image_size=32", "resize=32", "batch_size=12"]].concat();
    let record = run(checkout.path(), &["resnet50"], &images).remove(0);
    check(&record);
    let location = record["phases"][0]["dataset"]["location"].as_str().expect("a folder");
    assert!(location.ends_with("datasets/drawn/generated-96"), "{location}");
    for (task, samples) in [("task=masked_lm", 48), ("task=question_answering", 48)] {
        let record = run(checkout.path(), &["bertLarge"], &["seq_length=64", task, "batch_size=6"]).remove(0);
        check(&record);
        assert_eq!(record["phases"][0]["dataset"]["samples"], samples, "{task}");
    }
}

#[test]
fn smollm2_135m_generates_tokens() {
    let checkout = support::checkout();
    let record = run(checkout.path(), &["smollm2_135m"], &["prompt_length=8", "new_tokens=4"]).remove(0);
    check(&record);
    assert_eq!(metrics(&record), BTreeSet::from(["equal_answers", "equal_tokens"]));
    // Framework and compiler draw the same tokens from the same seed.
    let sampled = ["prompt_length=8", "new_tokens=4", "temperature=0.8", "top_p=0.9"];
    check(&run(checkout.path(), &["smollm2_135m"], &sampled).remove(0));
    let perplexity = run(checkout.path(), &["smollm2_135m"], &["prompt_length=8", "task=perplexity"]).remove(0);
    check(&perplexity);
    assert_eq!(metrics(&perplexity), BTreeSet::from(["perplexity"]));
}

#[test]
fn stable_diffusion_makes_images_with_each_sampler() {
    let checkout = support::checkout();
    for (scheduler, runs) in [("scheduler=ddim", 24), ("scheduler=pndm", 32), ("scheduler=euler", 24)] {
        let settings = ["image_size=64", "num_inference_steps=3", scheduler];
        let record = run(checkout.path(), &["stable_diffusion_v1_4"], &settings).remove(0);
        check(&record);
        assert_eq!(metrics(&record), BTreeSet::from(["finite_values"]));
        let spans = record["phases"][0]["measured"][0]["spans"].as_object().expect("spans");
        let items: Vec<_> = spans.iter().map(|(name, span)| (name.as_str(), span["items"].as_u64())).collect();
        assert_eq!(items, [("decoder", Some(8)), ("text_encoder", Some(8)), ("unet", Some(runs))]);
    }
}

#[test]
fn the_language_models_score_and_continue_prompts() {
    let checkout = support::checkout();
    for (task, spans) in [("task=mmlu", 1), ("task=generation", 2)] {
        for record in run(checkout.path(), &LANGUAGE_MODELS, &["prompt_length=8", "new_tokens=4", task]) {
            check(&record);
            assert_eq!(metrics(&record), BTreeSet::from(["accuracy"]), "{task}");
            let measured = record["phases"][0]["measured"][0]["spans"].as_object().expect("spans");
            assert_eq!(measured.len(), spans, "{task}");
        }
    }
}

#[test]
fn the_language_models_run_with_weights_in_int8() {
    let checkout = support::checkout();
    let bytes_of_model = |record: &Value| {
        let graphs = record["phases"][1]["model"]["files"].as_object().expect("graphs").clone();
        graphs
            .values()
            .flat_map(|files| files.as_array().expect("files"))
            .map(|file| file["size_bytes"].as_u64().expect("a size"))
            .sum::<u64>()
    };
    for task in ["task=mmlu", "task=generation"] {
        let settings = ["prompt_length=8", "new_tokens=4", task];
        let plain = run(checkout.path(), &["llama3_8b_mmlu"], &settings).remove(0);
        let int8 =
            run(checkout.path(), &["llama3_8b_mmlu"], &[&settings[..], &["weight_type=int8"]].concat()).remove(0);
        check(&int8);
        let departures = int8["departures"].as_array().expect("departures");
        assert!(departures.contains(&json!("weight_type=int8")), "{departures:?}");
        // The small size has 18,432 numbers in the matrices of its two layers.
        let saved = bytes_of_model(&plain) - bytes_of_model(&int8);
        assert!((2 * 18_432..3 * 18_432).contains(&saved), "{saved}");
        assert_eq!(int8["phases"][0]["model"]["parameters"], plain["phases"][0]["model"]["parameters"]);
    }
    let refused = ["plan", "--case", "llama3_8b_mmlu", "--set", "size=tiny", "--set", "weight_type=int4"];
    let output = program::flagperf(checkout.path(), &refused);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("weight_type is int4, but must be int8 or null"), "{errors}");
}

#[test]
fn the_language_models_answer_the_questions_of_the_sample() {
    let checkout = support::checkout();
    let settings = ["questions=mmlu", "default_data=datasets/sample_tokens", "max_length=256"];
    for record in run(checkout.path(), &LANGUAGE_MODELS, &settings) {
        check(&record);
        let phase = &record["phases"][0];
        assert_eq!(phase["measured"][0]["counted"]["accuracy"], 12);
        let made_from = phase["dataset"]["pipeline"].to_string();
        assert!(made_from.contains("questions mmlu, test of 3 subjects, 5 shots"), "{made_from}");
    }
}

#[test]
fn settings_without_meaning_are_refused_before_anything_runs() {
    let checkout = support::checkout();
    for (setting, reason) in [
        ("top_p=0", "top_p is 0, but must be above 0 and at most 1"),
        ("temperature=-1", "temperature is -1 and top_k is 50, but both must be at least 0"),
        (
            "prompt_length=2000",
            "prompt_length is 2000 and new_tokens is 64, but each must be at least 1, and their sum at most 1024",
        ),
        ("task=translate", "task is translate, but must be generation or perplexity"),
    ] {
        let arguments = ["plan", "--case", "smollm2_135m", "--set", "size=tiny", "--set", setting];
        let output = program::flagperf(checkout.path(), &arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{setting}: {stderr}");
        assert!(stderr.contains(reason), "{setting}: {stderr}");
    }
}
