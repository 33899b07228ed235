//! The small configurations of the cases compute the outputs of torchvision and of Hugging Face's transformers, and the
//! standard ones have their parameters and multiply-adds.

use flagperf_onnx::{Dim, Graph, Model, Tensor, count};
use flagperf_onnx_exec::{CpuOps, Executor};
use flagperf_script::ScriptChoice;
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::networks::largest_error;
use super::{diffusion, folder, formula, read_tensors, write_tensors};
use crate::support::cases::{case_model, case_model_in, classification};

/// The largest allowed error as a share of the largest output.
const TOLERANCE: f64 = 1e-4;

/// Returns the model of a case with the formula's weights, loaded strictly by their state_dict names.
fn case_with_weights(case: &str, settings: &Value, choice: &ScriptChoice) -> Model {
    let mut model = case_model(case, settings, choice);
    for graph in model.graphs.values_mut() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_tensors(file.path(), &formula::weights(graph));
        graph.load_weights(file.path()).unwrap();
        // The file is gone when the test ends; the mapped bytes must not be needed afterwards.
        for name in graph.weights.keys().cloned().collect::<Vec<_>>() {
            let tensor = graph.tensor(&name).unwrap();
            graph.weights[&name].source = flagperf_onnx::WeightSource::Value(tensor);
        }
    }
    model
}

/// Runs a graph and returns its outputs by name.
pub fn run(graph: &Graph, inputs: &IndexMap<&str, Tensor>) -> IndexMap<String, Tensor> {
    let ordered: Vec<Tensor> = graph.inputs.iter().map(|input| inputs[input.name.as_str()].clone()).collect();
    let outputs = Executor::load(graph, CpuOps).unwrap().run_host(&ordered).unwrap();
    graph.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect()
}

/// Returns the reference's output of a case.
pub fn reference(case: &str, name: &str) -> Tensor {
    let tensors = read_tensors(&folder().join("models").join(case).with_extension("safetensors"));
    tensors.into_iter().find(|(found, _)| found == name).unwrap().1
}

#[track_caller]
pub fn assert_close(actual: &Tensor, expected: &Tensor) {
    assert_within(actual, expected, TOLERANCE);
}

#[track_caller]
fn assert_within(actual: &Tensor, expected: &Tensor, tolerance: f64) {
    let largest = expected.to_f64().into_iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let error = largest_error(actual, expected, |a, b| (a - b).abs() / largest);
    println!("largest error relative to the largest output {error:.2e}");
    assert!(error <= tolerance, "largest error relative to the largest output {error:.2e}");
}

/// Checks a case of one graph whose output is `output`.
#[track_caller]
fn check_output(case: &str, vectors: &str, settings: &Value, choice: &ScriptChoice, inputs: &IndexMap<&str, Tensor>) {
    let model = case_with_weights(case, settings, choice);
    let outputs = run(&model.graphs[Model::SINGLE], inputs);
    assert_close(&outputs["output"], &reference(vectors, "output"));
}

#[track_caller]
fn check_image_case(case: &str, image_size: usize, classes: usize, choice: &ScriptChoice) {
    let settings = json!({ "size": "tiny", "image_size": image_size, "classes": classes });
    let inputs = IndexMap::from([("images", formula::tensor("image", &[2, 3, image_size, image_size]))]);
    check_output(case, case, &settings, choice, &inputs);
}

#[test]
fn vit_l_16_has_the_logits_of_torchvision() {
    check_image_case("vit_l_16", 64, 10, &classification());
}

#[test]
fn swin_transformer_has_the_logits_of_torchvision() {
    check_image_case("swinTransformer", 56, 10, &classification());
}

#[test]
fn resnet101_has_the_logits_of_torchvision() {
    check_image_case("resnet101", 64, 10, &classification());
}

#[test]
fn resnet101_gradients_has_the_gradients_of_pytorch() {
    let settings = json!({
        "size": "tiny", "image_size": 32, "classes": 10, "batch_size": 2, "cut_second_forward": true, "cut_parameter_gradients": false
    });
    let model = case_with_weights("resnet101_gradients", &settings, &ScriptChoice::default());
    let inputs = IndexMap::from([("images", formula::tensor("image", &[2, 3, 32, 32]))]);
    let outputs = run(&model.graphs[Model::SINGLE], &inputs);
    for name in ["images_gradient", "parameters_gradient_norm"] {
        assert_close(&outputs[name], &reference("resnet101_gradients", name));
    }
}

#[test]
fn unet_tiny_has_the_outputs_of_the_same_network_in_pytorch() {
    let settings = json!({ "size": "tiny", "image_size": 16, "classes": 3 });
    let model = case_with_weights("unet_tiny", &settings, &ScriptChoice::default());
    let inputs = IndexMap::from([("input", formula::tensor("image", &[2, 3, 16, 16]))]);
    assert_close(&run(&model.graphs["segment"], &inputs)["output"], &reference("unet_tiny", "output"));
    assert_close(&run(&model.graphs["denoise"], &inputs)["output"], &reference("unet_tiny", "clean"));
}

fn words() -> Tensor {
    formula::integers("input", &[2, 16], 1024)
}

#[test]
fn bert_large_finds_the_token_of_transformers_with_its_logit() {
    let settings = json!({ "size": "tiny", "task": "masked_lm", "seq_length": 16 });
    let model = case_with_weights("bertLarge", &settings, &ScriptChoice::default());
    let outputs = run(&model.graphs[Model::SINGLE], &IndexMap::from([("input", words())]));
    let (tokens, scores) = (outputs["token"].as_slice::<i64>().unwrap(), outputs["score"].as_slice::<f32>().unwrap());
    let logits = reference("bertLarge", "first_token");
    for (sample, logits) in logits.as_slice::<f32>().unwrap().chunks_exact(1024).enumerate() {
        let (token, logit) = logits.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
        let (found, score) = (tokens[16 * sample], scores[16 * sample]);
        assert!(found == token as i64 && (score - logit).abs() < 1e-4, "{found} {score}, not {token} {logit}");
    }
}

#[test]
fn bert_large_answers_questions_like_transformers() {
    let settings = json!({ "size": "tiny", "task": "question_answering", "seq_length": 16 });
    let types = formula::integers("token_types", &[2, 16], 2);
    let mask = Tensor::from_vec([2, 16], (0..32i64).map(|at| i64::from(at < 27)).collect()).unwrap();
    let inputs = IndexMap::from([("input", words()), ("token_types", types), ("attention_mask", mask)]);
    check_output("bertLarge", "bertLarge_answers", &settings, &ScriptChoice::default(), &inputs);
}

/// Returns columns of a matrix of integers.
fn columns(matrix: &Tensor, from: usize, to: usize) -> Tensor {
    let (rows, width) = (matrix.shape()[0], matrix.shape()[1]);
    let values = matrix.as_slice::<i64>().unwrap().chunks_exact(width).flat_map(|row| row[from..to].to_vec());
    Tensor::from_vec([rows, to - from], values.collect()).unwrap()
}

/// The settings of smollm2_135m, greedy.
fn language_settings(size: &str, task: &str) -> Value {
    let lengths = json!({ "prompt_length": 64, "new_tokens": 64, "temperature": 0, "top_k": 0, "top_p": 1.0 });
    let mut settings = lengths.as_object().expect("a map").clone();
    settings.extend([("size".to_owned(), size.into()), ("task".to_owned(), task.into())]);
    settings.into()
}

#[test]
fn a_table_of_words_that_a_checkpoint_has_twice_must_be_the_same() {
    let bert = json!({ "size": "tiny", "task": "masked_lm", "seq_length": 16 });
    let gpt2 = json!({ "size": "tiny", "seq_length": 16, "dropout": 0.0 });
    for (case, mut settings, copy, original) in [
        ("smollm2_135m", language_settings("tiny", "perplexity"), "lm_head.weight", "model.embed_tokens.weight"),
        ("gpt2", gpt2, "lm_head.weight", "wte.weight"),
        ("bertLarge", bert, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ] {
        let data = tempfile::tempdir().unwrap();
        // gpt2 is only trained, and has no scripts of inference.
        let choice = if case == "gpt2" { classification() } else { ScriptChoice::default() };
        let mut tensors = formula::weights(&case_model(case, &settings, &choice).graphs[0]);
        let table = tensors.iter().find(|(name, _)| name == original).unwrap().1.clone();
        settings["weights"] = "w.safetensors".into();
        let mut load = |copied: Tensor| {
            tensors.retain(|(name, _)| name != copy);
            tensors.push((copy.to_owned(), copied));
            write_tensors(&data.path().join("w.safetensors"), &tensors);
            case_model_in(data.path(), case, &settings, &choice)
        };
        load(table.clone()).unwrap();
        let zeros = Tensor::from_vec(table.shape(), vec![0.0f32; table.len()]).unwrap();
        let error = load(zeros).unwrap_err().reason;
        assert!(error.starts_with(&format!("the tensors `{copy}` and `{original}` in `")), "{error}");
    }
}

#[test]
fn smollm2_has_the_logits_of_transformers_for_a_prompt_and_for_the_token_after_it() {
    let mut settings = language_settings("tiny", "generation");
    settings["temperature"] = 1.into();
    let model = case_with_weights("smollm2_135m", &settings, &ScriptChoice::default());
    let tokens = formula::integers("input_ids", &[2, 8], 1024);
    // The second prompt has two tokens less, and padding in front.
    let positions = (0..8).chain([0, 0, 0, 1, 2, 3, 4, 5]).collect::<Vec<i64>>();
    let positions = Tensor::from_vec([2, 8], positions).unwrap();
    // The mask covers the cache of 128 places.
    let mask = Tensor::from_vec([2, 128], (0..256i64).map(|at| i64::from(at != 128 && at != 129)).collect()).unwrap();

    let mut caches = IndexMap::new();
    for part in ["0.key", "0.value", "1.key", "1.value"] {
        caches.insert(format!("past.{part}"), Tensor::from_vec([2, 2, 0, 8], Vec::<f32>::new()).unwrap());
    }
    for (range, stage) in [(0..7, "prefill"), (7..8, "decode")] {
        let first = Tensor::from_vec([2], vec![range.start as i64; 2]).unwrap();
        let mut inputs = IndexMap::from([
            ("first", first),
            ("input_ids", columns(&tokens, range.start, range.end)),
            ("position_ids", columns(&positions, range.start, range.end)),
            ("attention_mask", mask.clone()),
        ]);
        inputs.extend(caches.iter().map(|(name, cache)| (name.as_str(), cache.clone())));
        let outputs = run(&model.graphs["decoder"], &inputs);
        assert_close(&outputs["logits"].reshape([2, 1024]).unwrap(), &reference("smollm2_135m", stage));
        caches = outputs
            .iter()
            .filter_map(|(name, cache)| Some((format!("past.{}", name.strip_prefix("present.")?), cache.clone())))
            .collect();
        assert_eq!(caches["past.0.key"].shape(), [2, 2, 128, 8]);
    }
}

const QUESTION_MODELS: [&str; 4] = ["llama2_7b_mmlu", "llama3_8b_mmlu", "deepseek_7b_mmlu", "Aquila_7b_mmlu"];

#[test]
fn the_models_that_answer_questions_have_the_logits_of_transformers() {
    for case in QUESTION_MODELS {
        let model = case_with_weights(case, &language_settings("tiny", "mmlu"), &ScriptChoice::default());
        // The second prompt has two tokens less, and padding in front.
        let positions = (0..8).chain([0, 0, 0, 1, 2, 3, 4, 5]).collect::<Vec<i64>>();
        let mask = (0..16i64).map(|at| i64::from(at != 8 && at != 9)).collect();
        let inputs = IndexMap::from([
            ("input_ids", formula::integers("input_ids", &[2, 8], 1024)),
            ("position_ids", Tensor::from_vec([2, 8], positions).unwrap()),
            ("attention_mask", Tensor::from_vec([2, 8], mask).unwrap()),
        ]);
        let outputs = run(&model.graphs[Model::SINGLE], &inputs);
        assert_close(&outputs["logits"].reshape([2, 1024]).unwrap(), &reference(case, "logits"));
    }
}

/// Two images, the second one of 50x70 pixels with padding.
pub fn padded_images() -> IndexMap<&'static str, Tensor> {
    let is_pixel = |at: usize| at < 96 * 128 || (at / 128 % 96 < 50 && at % 128 < 70);
    let mask = (0..2 * 96 * 128).map(|at| i64::from(is_pixel(at))).collect();
    let mask = Tensor::from_vec([2, 96, 128], mask).unwrap();
    IndexMap::from([("pixel_values", formula::tensor("image", &[2, 3, 96, 128])), ("pixel_mask", mask)])
}

/// The settings of dab_detr_r50.
pub fn detection_settings(size: &str, image_size: [usize; 2]) -> Value {
    json!({ "size": size, "image_size": image_size, "classes": 91, "box_weights": "model.decoder.bbox_embed", "onnx": null })
}

#[test]
fn dab_detr_has_the_logits_and_the_boxes_of_transformers_for_images_with_padding() {
    let model = case_with_weights("dab_detr_r50", &detection_settings("tiny", [96, 128]), &ScriptChoice::default());
    let outputs = run(&model.graphs[Model::SINGLE], &padded_images());
    for name in ["logits", "pred_boxes"] {
        assert_close(&outputs[name], &reference("dab_detr_r50", name));
    }
}

/// The settings of sam_h.
fn mask_settings(size: &str, image_size: usize) -> Value {
    json!({ "size": size, "image_size": image_size })
}

#[test]
fn sam_h_has_the_embedding_the_masks_and_the_scores_of_transformers() {
    let model = case_with_weights("sam_h", &mask_settings("tiny", 64), &ScriptChoice::default());
    let pixels = formula::tensor("image", &[2, 3, 64, 64]);
    let mut outputs = run(&model.graphs["encoder"], &IndexMap::from([("pixel_values", pixels)]));
    let points = Tensor::from_vec([2, 1, 2], vec![20.0f32, 30.0, 63.0, 5.0]).unwrap();
    let prompt = IndexMap::from([("image_embeddings", outputs["image_embeddings"].clone()), ("points", points)]);
    outputs.extend(run(&model.graphs["decoder"], &prompt));
    for name in ["image_embeddings", "pred_masks", "iou_scores"] {
        assert_close(&outputs[name], &reference("sam_h", name));
    }
}

#[test]
fn stable_diffusion_has_the_outputs_of_transformers_and_diffusers() {
    let model = case_with_weights("stable_diffusion_v1_4", &diffusion::settings("tiny", 64), &ScriptChoice::default());
    let words = formula::integers("input_ids", &[2, 77], 1000);
    let embeddings = run(&model.graphs["text_encoder"], &IndexMap::from([("input_ids", words)]));
    assert_close(&embeddings["embeddings"], &reference("stable_diffusion_v1_4", "embeddings"));
    let latents = |rows: usize| {
        let uniform = formula::tensor("latents", &[rows, 4, 8, 8]);
        let scaled = uniform.as_slice::<f32>().unwrap().iter().map(|value| value * 3.0_f32.sqrt());
        Tensor::from_vec([rows, 4, 8, 8], scaled.collect()).unwrap()
    };
    let noise = IndexMap::from([
        ("sample", latents(2)),
        ("timestep", Tensor::from_vec([2], vec![981i64, 21]).unwrap()),
        ("encoder_hidden_states", reference("stable_diffusion_v1_4", "embeddings")),
    ]);
    let noise = run(&model.graphs["unet"], &noise);
    assert_close(&noise["noise"], &reference("stable_diffusion_v1_4", "noise"));
    let images = run(&model.graphs["decoder"], &IndexMap::from([("latents", latents(1))]));
    assert_close(&images["images"], &reference("stable_diffusion_v1_4", "decoded"));
}

/// The settings of yolov5.
fn yolo_settings(size: &str, image_size: usize, classes: usize) -> Value {
    json!({ "size": size, "image_size": image_size, "classes": classes })
}

#[test]
fn yolov5_has_the_boxes_and_the_scores_of_ultralytics() {
    let model = case_with_weights("yolov5", &yolo_settings("tiny", 128, 3), &ScriptChoice::default());
    let outputs =
        run(&model.graphs[Model::SINGLE], &IndexMap::from([("images", formula::tensor("image", &[2, 3, 128, 128]))]));
    let expected = reference("yolov5", "output");
    // Boxes are in pixels, scores are below one. With pools of 3 pixels in place of 5, they would differ by 6e-6.
    for range in [0..4, 4..8] {
        let part = |output: &Tensor| {
            let rows = output.as_slice::<f32>().unwrap().chunks_exact(8);
            let values: Vec<f32> = rows.flat_map(|row| row[range.clone()].to_vec()).collect();
            Tensor::from_vec([values.len()], values).unwrap()
        };
        assert_within(&part(&outputs["output"]), &part(&expected), 3e-6);
    }
}

/// Checks the parameters and the multiply-adds of a standard configuration.
#[track_caller]
fn check_counts(graph: &Graph, case: &str) {
    let text = std::fs::read_to_string(folder().join("models/counts.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let counts = count(graph);
    assert_eq!(Some(counts.parameters), expected[case]["parameters"].as_u64(), "parameters of {case}");
    assert_eq!(counts.multiply_adds_per_sample, expected[case]["multiply_adds"].as_u64(), "multiply-adds of {case}");
}

#[test]
fn the_image_networks_have_the_parameters_and_multiply_adds_of_torchvision() {
    let settings = json!({ "size": "full", "image_size": 224, "classes": 1000 });
    for case in ["vit_l_16", "swinTransformer", "resnet101"] {
        check_counts(&case_model(case, &settings, &classification()).graphs[Model::SINGLE], case);
    }
    let settings = json!({ "size": "full", "image_size": 128, "classes": 3 });
    let model = case_model("unet_tiny", &settings, &ScriptChoice::default());
    check_counts(&model.graphs["segment"], "unet_tiny");
    check_counts(&model.graphs["denoise"], "unet_tiny_denoise");
}

#[test]
fn dab_detr_has_the_parameters_and_the_multiply_adds_of_transformers() {
    let model = case_model("dab_detr_r50", &detection_settings("full", [800, 1066]), &ScriptChoice::default());
    check_counts(&model.graphs[Model::SINGLE], "dab_detr_r50");
}

#[test]
fn sam_h_has_the_parameters_and_the_multiply_adds_of_transformers() {
    let model = case_model("sam_h", &mask_settings("full", 1024), &ScriptChoice::default());
    check_counts(&model.graphs["encoder"], "sam_h_encoder");
    check_counts(&model.graphs["decoder"], "sam_h_decoder");
}

#[test]
fn stable_diffusion_has_the_parameters_and_the_multiply_adds_of_transformers_and_diffusers() {
    let model = case_model("stable_diffusion_v1_4", &diffusion::settings("full", 512), &ScriptChoice::default());
    for graph in ["text_encoder", "unet", "decoder"] {
        check_counts(&model.graphs[graph], &format!("stable_diffusion_v1_4_{graph}"));
    }
}

#[test]
fn yolov5_has_the_parameters_and_the_multiply_adds_of_ultralytics() {
    let model = case_model("yolov5", &yolo_settings("full", 640, 80), &ScriptChoice::default());
    check_counts(&model.graphs[Model::SINGLE], "yolov5");
}

#[test]
fn the_language_models_have_the_parameters_and_multiply_adds_of_transformers() {
    for (task, case) in [("masked_lm", "bertLarge"), ("question_answering", "bertLarge_answers")] {
        let settings = json!({ "size": "full", "task": task, "seq_length": 512 });
        check_counts(&case_model("bertLarge", &settings, &ScriptChoice::default()).graphs[Model::SINGLE], case);
    }
    let questions = QUESTION_MODELS.iter().map(|case| (*case, "mmlu"));
    for (case, task) in [("smollm2_135m", "perplexity")].into_iter().chain(questions) {
        let mut model = case_model(case, &language_settings("full", task), &ScriptChoice::default());
        let graph = &mut model.graphs[Model::SINGLE];
        for dim in graph.inputs.iter_mut().flat_map(|input| &mut input.spec.dims) {
            if *dim == Dim::Named("S".to_owned()) {
                *dim = Dim::Fixed(64);
            }
        }
        check_counts(graph, case);
    }
}
