//! Tests that call the stages of a case as the worker does, with the null engine.

use std::path::Path;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use serde_json::json;

use super::tests::{case, services, small_limits};
use super::*;
use flagperf_core::precision::Precision;
use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, Value, find};
use flagperf_onnx::TrainingBatches;

pub(super) fn load(replaced: &[(&str, &str)]) -> (tempfile::TempDir, CaseScripts) {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), replaced);
    let scripts = CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).unwrap();
    (dir, scripts)
}

/// Returns sessions of the null engine: `N,3,f32` to `N,10,f32`.
pub(super) fn sessions(names: &[&str]) -> Sessions {
    let session = |name: &&str| {
        let extra = IndexMap::from([
            ("inputs".to_owned(), json!({"input": "N,3,f32"})),
            ("outputs".to_owned(), json!({"output": "N,10,f32"})),
        ]);
        let options = LoadOptions { batch_size: 2, extra, ..LoadOptions::default() };
        let session = find("null").unwrap().load(Artifact::Onnx(Path::new("foo")), &options).unwrap();
        ((*name).to_owned(), Arc::new(Mutex::new(session)))
    };
    names.iter().map(session).collect()
}

pub(super) fn inputs() -> IndexMap<String, Tensor> {
    let images = Tensor::from_vec([2, 3], vec![1.0f32; 6]).unwrap();
    IndexMap::from([("images".to_owned(), images)])
}

fn step(text: &str) -> Result<StepOutput<Value>, ScriptError> {
    let (_dir, scripts) = load(&[("forward.rhai", text)]);
    scripts.forward(ForwardKind::Model, sessions(&["model"])).call(&inputs())
}

#[test]
fn a_step_returns_one_tensor_several_or_named_ones() {
    let one = step("fn model_forward(model, batch) { model.run([batch.images])[0] }").unwrap();
    assert!(matches!(&one, StepOutput::One(value) if value.spec().to_string() == "2,10,f32"));
    let many = step("fn model_forward(model, batch) { model.run([batch.images]) }").unwrap();
    assert!(matches!(&many, StepOutput::Many(values) if values.len() == 1));
    let named = step("fn model_forward(model, batch) { model.run(#{input: batch.images}) }").unwrap();
    assert_eq!(named.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["output"]);
    let none = step("fn model_forward(model, batch) { 5 }").unwrap_err();
    assert_eq!(none.reason, "the function must return a tensor, an array of tensors or a map of tensors, not int");
}

#[test]
fn an_input_of_the_batch_is_not_an_output() {
    for returned in ["batch.images", "[batch.images]", "#{pixels: batch.images}"] {
        let text = format!("fn model_forward(model, batch) {{ let y = model.run([batch.images]); {returned} }}");
        let error = step(&text).unwrap_err();
        let expected = "`model_forward` returned the input `images` of the batch as an output: return a new tensor";
        assert_eq!((error.reason.as_str(), error.line), (expected, 1), "{returned}");
    }
    assert!(step("fn model_forward(model, batch) { batch.images * 1 }").is_ok());
}

#[test]
fn a_step_cannot_read_the_truth() {
    let error = step("fn model_forward(model, batch) { batch.labels }").unwrap_err();
    assert_eq!(error.reason, "unknown property `labels` (known: images)");
}

#[test]
fn an_error_of_the_engine_shows_the_line() {
    let error = step("fn model_forward(model, batch) {\n    model.run([batch.images, batch.images])\n}").unwrap_err();
    assert_eq!((error.line, error.reason.as_str()), (2, "the model expects 1 input, got 2"));
    let error = step("fn model_forward(model, batch) { model.run(#{inputs: batch.images}) }").unwrap_err();
    assert_eq!(error.reason, "the model has no input `inputs`; did you mean `input`?");
}

#[test]
fn several_models_are_passed_by_name_and_spans_are_recorded() {
    let text = "fn model_forward(model, batch) {
        timing::span(\"encode\", || model.encoder.run([batch.images]));
        timing::span(\"decode\", || model.decoder.run([batch.images])[0])
    }";
    let (_dir, scripts) = load(&[("forward.rhai", text)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["encoder", "decoder"]));
    forward.call(&inputs()).unwrap();
    let names: Vec<String> = forward.take_spans().into_iter().map(|span| span.name.to_string()).collect();
    assert_eq!(names, ["encode", "decode"]);
    assert!(forward.take_spans().is_empty());
}

#[test]
fn an_adapter_takes_precedence_over_engine_forward_and_that_over_model_forward() {
    let rows = |text: &[(&str, &str)]| {
        let (_dir, scripts) = load(text);
        let scripts = scripts.for_vendor("mock").unwrap();
        let mut forward = scripts.forward(ForwardKind::Engine, sessions(&["model"]));
        let StepOutput::One(value) = forward.call(&inputs()).unwrap() else { panic!("one tensor") };
        value.spec().to_string()
    };
    let own = "fn model_forward(model, batch) { model.run([batch.images])[0] }
               fn engine_forward(engine, batch) { engine.run([batch.images])[0].rows(1) }";
    let adapter = "fn engine_forward(engine, batch) { batch.images * 2 }";
    assert_eq!(rows(&[]), "2,10,f32");
    assert_eq!(rows(&[("forward.rhai", own)]), "1,10,f32");
    assert_eq!(rows(&[("forward.rhai", own), ("mock/forward.rhai", adapter)]), "2,3,f32");
}

#[test]
fn an_evaluator_receives_outputs_and_truth() {
    let (_dir, scripts) = load(&[]);
    let output = StepOutput::One(Tensor::from_vec([2, 2], vec![0.1f32, 0.9, 0.8, 0.2]).unwrap());
    let truth = IndexMap::from([("labels".to_owned(), Tensor::from_vec([2], vec![1i64, 1]).unwrap())]);
    assert_eq!(scripts.evaluator().call(&output, &truth).unwrap().finish()["top1"], 0.5);
    let truth = IndexMap::from([("labels".to_owned(), Tensor::from_vec([2], vec![1i64, 7]).unwrap())]);
    let error = scripts.evaluator().call(&output, &truth).unwrap_err();
    assert_eq!(
        error.reason,
        "label 7 is out of range: the model has 2 classes, 0 to 1; does the class list match the model?"
    );
    assert_eq!(error.line, 1);
}

const MODEL: &str = "fn create_model(config) {
    let graph = nn::graph(\"small\");
    graph.output(\"y\", graph.input(\"x\", \"N,4,f32\").linear(\"fc\", 2));
    graph.weights(config.weights, 0);
    graph
}";

fn create(text: &str, data_dir: &Path, weights: serde_json::Value) -> Result<flagperf_onnx::Model, ScriptError> {
    let (_dir, scripts) = load(&[("model.rhai", text)]);
    scripts.create_model(&ScriptConfig::from([("weights".to_owned(), weights)]), data_dir)
}

fn write_weights(file: &Path) {
    let bytes = [0u8; 40];
    let view =
        |shape: Vec<usize>, data| safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, data).unwrap();
    let tensors = [("fc.weight", view(vec![2, 4], &bytes[..32])), ("fc.bias", view(vec![2], &bytes[32..]))];
    safetensors::serialize_to_file(tensors, None, file).unwrap();
}

#[test]
fn the_index_of_a_folder_belongs_to_the_files_of_a_model_and_no_file_may_lie_outside() {
    let (data, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = data.path().join("small");
    let (index, shard) = (folder.join("model.safetensors.index.json"), folder.join("a.safetensors"));
    std::fs::create_dir(&folder).unwrap();
    write_weights(&shard);
    std::fs::write(&index, r#"{"weight_map": {"fc.weight": "a.safetensors", "fc.bias": "a.safetensors"}}"#).unwrap();
    let (_dir, scripts) = load(&[("model.rhai", MODEL)]);
    let config = ScriptConfig::from([("weights".to_owned(), json!("small"))]);
    let model = scripts.create_model(&config, data.path()).unwrap();
    assert_eq!(scripts.model_files(), [index]);
    assert!(model.graphs["model"].weights.values().all(|weight| weight.source.path() == Some(shard.as_path())));

    std::fs::rename(&shard, outside.path().join("a")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("a"), &shard).unwrap();
    let error = scripts.create_model(&config, data.path()).unwrap_err();
    assert!(error.reason.contains("a.safetensors` leaves the data directory through a link to"), "{error}");
}

#[test]
fn weights_are_read_from_a_file_in_the_data_directory() {
    let data = tempfile::tempdir().unwrap();
    write_weights(&data.path().join("w.safetensors"));
    assert!(!create(MODEL, data.path(), json!("w.safetensors")).unwrap().graphs["model"].weights_are_random());
    assert!(create(MODEL, data.path(), json!(null)).unwrap().graphs["model"].weights_are_random());

    let outside = tempfile::tempdir().unwrap();
    write_weights(&outside.path().join("w.safetensors"));
    std::os::unix::fs::symlink(outside.path(), data.path().join("link")).unwrap();
    for path in ["link/w.safetensors", "../w.safetensors", outside.path().join("w.safetensors").to_str().unwrap()] {
        let error = create(MODEL, data.path(), json!(path)).unwrap_err();
        assert!(error.reason.contains("leaves the data directory"), "{error}");
        assert_eq!(error.line, 4);
    }
    let missing = create(MODEL, data.path(), json!("none.safetensors")).unwrap_err();
    assert!(missing.reason.contains("none.safetensors"), "{missing}");
}

#[test]
fn a_pattern_of_ignored_weights_ends_with_its_star() {
    for (pattern, is_accepted) in [("head.*", true), ("*", true), ("*.freq", false), ("head.*.*", false)] {
        let weights = format!("graph.weights((), 0, #{{ignore: [\"{pattern}\"]}});");
        let text = MODEL.replace("graph.weights(config.weights, 0);", &weights);
        let error = create(&text, Path::new("."), json!(null)).err().map(|error| error.reason);
        let expected = format!("`weights`: `ignore` contains `{pattern}`: `*` may only be the last character");
        assert_eq!(error, (!is_accepted).then_some(expected));
    }
}

#[test]
fn a_tensor_that_must_equal_another_is_compared_with_it() {
    let data = tempfile::tempdir().unwrap();
    write_weights(&data.path().join("w.safetensors"));
    let create = |equal: &str| {
        let weights = format!("graph.weights(config.weights, 0, #{{equal: #{{{equal}}}}});");
        let text = MODEL.replace("graph.weights(config.weights, 0);", &weights);
        create(&text, data.path(), json!("w.safetensors")).err().map(|error| error.reason)
    };
    assert_eq!(create("\"head.weight\": \"fc.weight\""), None);
    let error = create("\"fc.weight\": \"fc.bias\"").unwrap();
    assert!(error.contains("`fc.weight` and `fc.bias`") && error.contains("they are `2,4,f32` and `2,f32`"), "{error}");
    let error = create("\"head.weight\": 5").unwrap();
    assert_eq!(error, "`weights`: `equal` must name a tensor for `head.weight`, not int");
}

#[test]
fn a_model_that_cannot_be_built_shows_the_line_and_the_layer() {
    let options = MODEL.replace(".linear(\"fc\", 2)", ".linear(\"fc\", 2, #{biass: true})");
    let error = create(&options, Path::new("."), json!(null)).unwrap_err();
    let expected = "`linear` of layer `fc` has no option `biass`; did you mean `bias`?";
    assert_eq!((error.line, error.reason.as_str()), (3, expected));
    let shape = MODEL.replace(".linear(\"fc\", 2)", ".reshape([3, 3]).conv2d(\"conv\", #{out: 2, kernel: 1})");
    let error = create(&shape, Path::new("."), json!(null)).unwrap_err();
    assert!(error.line == 3 && error.reason.contains("conv"), "{error}");
    let unfinished = MODEL.replace("graph.weights(config.weights, 0);", "");
    let error = create(&unfinished, Path::new("."), json!(null)).unwrap_err();
    assert_eq!(error.reason, "graph `small` has no weights: complete it with `graph.weights(file, seed)`");
    let constant =
        "fn create_model(config) { let g = nn::graph(\"g\"); g.output(\"y\", g.input(\"x\", \"N,f32\") * 2); g }";
    assert!(create(constant, Path::new("."), json!(null)).is_ok(), "a graph without weights is complete");
    let other = create("fn create_model(config) { 5 }", Path::new("."), json!(null)).unwrap_err();
    assert_eq!(other.reason, "the function must return a graph (`nn::graph`) or a map of graphs, not int");
}

#[test]
fn several_graphs_are_one_model_and_export_may_change_it() {
    let two = format!(
        "{} fn create_model(config) {{ #{{first: one(config), second: one(config)}} }}",
        MODEL.replace("create_model", "one")
    );
    let export = "fn export_model(model, config) { model.first }";
    let (_dir, scripts) = load(&[("model.rhai", &two), ("export.rhai", export)]);
    let config = ScriptConfig::from([("weights".to_owned(), json!(null))]);
    let model = scripts.create_model(&config, Path::new(".")).unwrap();
    assert_eq!(model.graphs.keys().collect::<Vec<_>>(), ["first", "second"]);
    let exported =
        scripts.export_model(model, &config, Some(flagperf_onnx_exec::ProofLimits::default())).unwrap().model;
    assert_eq!(exported.graphs.keys().collect::<Vec<_>>(), ["model"]);
}

#[test]
fn a_misspelled_optional_function_is_an_error_and_a_function_that_the_script_calls_is_none() {
    let text = |schedule: &str| {
        format!(
            "fn build_dataloader(config) {{ 5 }} fn compute_loss(model, config) {{ model }} \
             fn create_optimizer(config) {{ {schedule} }} fn create_schedule(config) {{ [] }}"
        )
    };
    let (dir, _) = load(&[("model.rhai", MODEL)]);
    let load = |text: String| {
        std::fs::write(dir.path().join("training.rhai"), text).unwrap();
        CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0)
    };
    let Err(error) = load(text("1")) else { panic!("it is misspelled") };
    let error = error.to_string();
    assert!(
        error.contains("the host does not call `create_schedule`; did you mean `fn create_scheduler(config)`?"),
        "{error}"
    );
    load(text("create_schedule(config)")).unwrap();
}

#[test]
fn a_training_script_that_returns_something_else_is_told_so_in_the_words_of_scripts() {
    let text = "fn build_dataloader(config) { 5 } fn compute_loss(model, config) { model }
        fn create_optimizer(config) { 1 } fn create_scheduler(config) { [] }";
    let (_dir, scripts) = load(&[("model.rhai", MODEL), ("training.rhai", text)]);
    let config = ScriptConfig::from([("weights".to_owned(), json!(null))]);
    let graph = scripts.create_model(&config, Path::new(".")).unwrap().graphs[0].clone();
    let reasons = [
        scripts.build_training_dataloader(&config).unwrap_err().reason,
        scripts.compute_loss(graph, &config).unwrap_err().reason,
        scripts.create_optimizer(&config).unwrap_err().reason,
        scripts.create_scheduler(&config).unwrap_err().reason,
    ];
    let expected = [
        "`build_dataloader` must return a pipeline (`data::...`), not int",
        "`compute_loss` must return a value of the model's graph, not graph",
        "`create_optimizer` must return an optimizer (`optim::...`), not int",
        "`create_scheduler` must return a schedule (`optim::...`), not array",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn an_operator_without_a_derivative_is_an_error_at_its_line() {
    let model = |operator: &str| {
        format!(
            r#"fn create_model(config) {{
                let graph = nn::graph("m");
                let x = graph.input("x", "4,2,f32").linear("fc", 3);
                {operator}
                graph.output("y", x);
                graph.weights((), 0);
                graph
            }}"#
        )
    };
    let training = |loss: &str| {
        format!(
            r#"fn build_dataloader(config) {{ 5 }}
            fn compute_loss(model, config) {{
                let y = model.value("y");
                {loss}
            }}
            fn create_optimizer(config) {{ optim::sgd(#{{momentum: 0.9}}) }}
            fn create_scheduler(config) {{ optim::cosine(#{{length: 2}}) }}"#
        )
    };
    let config = ScriptConfig::from([("weights".to_owned(), json!(null))]);
    let batches = TrainingBatches { size: 4, accumulated: 1, processes: 1, sync_batch_norm: false, shard: None };
    let error = |operator: &str, loss: &str| {
        let (_dir, scripts) = load(&[("model.rhai", &model(operator)), ("training.rhai", &training(loss))]);
        let model = scripts.create_model(&config, Path::new(".")).unwrap();
        let built = scripts.build_training(&model, &config, Precision::Fp32, &batches);
        let Err(error) = built else { panic!("`Mod` has no derivative") };
        error
    };
    let modulo = r#"graph.node("Mod", [x, x], #{fmod: 1});"#;
    let error_in_model = error(&format!("x = {modulo}"), "y.mean([0, 1], false)");
    assert_eq!((error_in_model.file.file_name().unwrap(), error_in_model.line), ("model.rhai".as_ref(), 4));
    assert!(error_in_model.reason.contains("`Mod` has no derivative (operators with one: Abs, "), "{error_in_model}");
    assert!(error_in_model.reason.contains("LayerNormalization"), "composite ones are named: {error_in_model}");
    let error_in_loss = error("", "model.node(\"Mod\", [y, y], #{fmod: 1}).mean([0, 1], false)");
    assert_eq!((error_in_loss.file.file_name().unwrap(), error_in_loss.line), ("training.rhai".as_ref(), 4));
}
