//! Tests of what scripts may and may not do, with small cases in a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use serde_json::json;

use super::*;
use flagperf_config::find_root;
use flagperf_core::event::Level;
use flagperf_core::limits::Limits;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::units::{Bytes, Seconds};

type Lines = Arc<Mutex<Vec<(Level, String, String)>>>;

pub(super) fn services() -> (HostServices, Lines) {
    let lines = Lines::default();
    let kept = lines.clone();
    let log = move |level, place, text| kept.lock().unwrap().push((level, place, text));
    (HostServices { log: Arc::new(log), clock: Arc::new(MonotonicClock::start()) }, lines)
}

/// Writes a case of minimal scripts to `dir`, with some of the scripts replaced.
pub(super) fn case(dir: &Path, replaced: &[(&str, &str)]) {
    let minimal = [
        ("dataloader.rhai", "fn build_dataloader(config) { data::image_folder(\"images\") }"),
        ("model.rhai", "fn create_model(config) { () }"),
        ("forward.rhai", "fn model_forward(model, batch) { model.run([batch.images])[0] }"),
        ("evaluator.rhai", "fn evaluator(output, truth) { metric::top_k(output, truth.labels, [1]) }"),
    ];
    for (file, text) in minimal.iter().chain(replaced) {
        let file = dir.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

pub(super) fn small_limits() -> Limits {
    Limits {
        script_operations: 5_000_000,
        script_time_s: Seconds(600.0),
        script_memory_bytes: Bytes(64 << 20),
        ..Limits::default()
    }
}

fn load(replaced: &[(&str, &str)]) -> Result<CaseScripts, ScriptError> {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), replaced);
    CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0)
}

/// Runs `body` as a dataloader and returns the reason for its failure.
fn reason(body: &str) -> String {
    let text = format!("fn build_dataloader(config) {{\n{body}\n}}");
    let scripts = match load(&[("dataloader.rhai", &text)]) {
        Ok(scripts) => scripts,
        Err(error) => return error.reason,
    };
    scripts.build_dataloader(&ScriptConfig::new()).unwrap_err().reason
}

#[test]
fn an_endless_loop_is_stopped_at_the_operation_limit() {
    assert_eq!(reason("loop { }"), "the script ran more than 5000000 operations (`script_operations`)");
}

#[test]
fn a_slow_script_is_stopped_at_the_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), &[("dataloader.rhai", "fn build_dataloader(config) { loop { } }")]);
    let limits = Limits { script_operations: 0, script_time_s: Seconds(0.05), ..small_limits() };
    let error = CaseScripts::load(dir.path(), &ScriptChoice::default(), &limits, services().0)
        .unwrap()
        .build_dataloader(&ScriptConfig::new())
        .unwrap_err();
    assert_eq!(error.reason, "the script ran longer than 0.05 s (`script_time_s`)");
}

#[test]
fn an_infinite_recursion_is_stopped_before_the_stack_overflows() {
    let nested = format!("fn deep(x) {{ {}deep(x + 1){} }}", "(1 + ".repeat(12), ")".repeat(12));
    let text = format!("{nested} fn build_dataloader(config) {{ deep(0) }}");
    let error = load(&[("dataloader.rhai", &text)]).unwrap().build_dataloader(&ScriptConfig::new()).unwrap_err();
    assert!(error.reason.contains("recursion"), "{error}");
}

#[test]
fn growing_values_are_stopped_at_their_size_limit() {
    for (body, expected) in [
        ("let s = \"a\"; loop { s += s; }", "a string is too large (at most 1048576 bytes are supported)"),
        (
            "let s = \"aaaaaaaaaa\"; for i in 0..5 { s.replace(\"a\", \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"); }",
            "a string is too large (at most 1048576 bytes are supported)",
        ),
        ("let a = [1]; loop { a += a; }", "an array is too large (at most 262144 elements are supported)"),
        ("let a = [1]; loop { a = [a, a]; }", "too large"),
        ("let a = []; a.pad(1000000000, 0);", "an array is too large (at most 262144 elements are supported)"),
        ("let m = #{}; let i = 0; loop { m[`k${i}`] = i; i += 1; }", "(`script_"),
        ("let a = [1]; loop { a = a.map(|x| [x, x]); }", "too large"),
        ("let s = \"ab\"; loop { s = s + s; let b = s.to_blob(); }", "too large"),
    ] {
        let reason = reason(body);
        assert!(reason.contains(expected), "{body}: {reason}");
    }
}

#[test]
fn many_values_below_their_size_limits_are_stopped_at_the_memory_limit() {
    let arrays: String = (0..200).map(|i| format!("let v{i} = []; v{i}.pad(200000, {i});\n")).collect();
    let closures = "let all = []; let big = []; big.pad(100000, 1); \
                    for i in 0..1000 { all.push(|x| x); let f = |x| x; let c = f.curry(big); all.push(c); }";
    let strings = "let m = []; for i in 0..250 { let s = \"a\"; for k in 0..12 { s += s; } m.push(|| s); }";
    for body in [arrays.as_str(), closures] {
        let reason = reason(body);
        assert!(reason.contains("`script_memory_bytes`"), "{reason}");
    }
    // Strings are shared, not copied: this script stays small, and fails because it returns no pipeline.
    assert!(reason(strings).contains("must return a pipeline"), "{}", reason(strings));
}

#[test]
fn a_comparator_that_allocates_is_stopped_at_the_memory_limit() {
    let body = "let a = [1, 2, 3]; let kept = []; \
                a.sort(|x, y| { for i in 0..100 { let big = []; big.pad(100000, x); kept.push(|| big); } x - y }); kept";
    let reason = reason(body);
    assert!(reason.contains("`script_memory_bytes`"), "{reason}");
}

#[test]
fn the_memory_of_a_tensor_is_checked_before_it_is_allocated() {
    let text = "fn evaluator(output, truth) {\n    tensor::zeros(\"1000000,1000000,f32\")\n}";
    let mut evaluator = load(&[("evaluator.rhai", text)]).unwrap().evaluator();
    let output = StepOutput::Many(Vec::new());
    let error = evaluator.call(&output, &IndexMap::new()).unwrap_err();
    assert!(error.reason.contains("bytes, but may hold only 67108864 in total"), "{error}");
    assert_eq!((error.line, error.column), (2, 13));
}

#[test]
fn tensors_count_against_the_memory_limit_until_they_are_dropped() {
    let kept = "fn evaluator(output, truth) { let all = []; loop { all.push(tensor::zeros(\"1000000,u8\")); } }";
    let mut evaluator = load(&[("evaluator.rhai", kept)]).unwrap().evaluator();
    let error = evaluator.call(&StepOutput::Many(Vec::new()), &IndexMap::new()).unwrap_err();
    assert!(error.reason.contains("`script_memory_bytes`"), "{error}");

    let dropped = "fn evaluator(output, truth) { for i in 0..500 { tensor::zeros(\"1000000,u8\"); } metric::mean(\"m\", 1.0, 1) }";
    let mut evaluator = load(&[("evaluator.rhai", dropped)]).unwrap().evaluator();
    assert_eq!(evaluator.call(&StepOutput::Many(Vec::new()), &IndexMap::new()).unwrap().finish()["m"], 1.0);
}

#[test]
fn a_script_cannot_catch_an_exceeded_limit() {
    assert!(reason("try { loop { } } catch { } loop { }").contains("operations"));
}

#[test]
fn functions_and_packages_that_are_not_granted_are_unknown() {
    for (call, name) in
        [("sleep(1)", "sleep"), ("exit()", "exit"), ("timestamp()", "timestamp"), ("parse_json(\"1\")", "parse_json")]
    {
        let reason = reason(&format!("{call};"));
        assert!(reason.starts_with(&format!("unknown function `{name}`")), "{reason}");
    }
    for package in ["metric", "nn", "tensor", "session", "timing"] {
        let reason = reason(&format!("{package}::x(1);"));
        assert_eq!(reason, format!("unknown package `{package}` (known: data, image, log)"));
    }
    for keyword in ["eval(\"1\")", "import \"other\" as other", "export config"] {
        let reason = reason(&format!("{keyword};"));
        let word = keyword.split(['(', ' ']).next().unwrap();
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn paths_that_leave_the_data_directory_are_refused() {
    for path in ["../other", "/etc", "a/../../b", ""] {
        let reason = reason(&format!("data::image_folder(\"{path}\")"));
        assert_eq!(reason, format!("path `{path}` leaves the data directory: use a path inside it, without `..`"));
    }
}

#[test]
fn a_required_option_with_a_misspelled_name_is_named() {
    assert_eq!(
        reason("data::prompts(\"p.txt\", #{tokenizer: \"t.json\", lenght: 8})"),
        "`prompts` has no option `lenght`; did you mean `length`?"
    );
    assert_eq!(reason("data::prompts(\"p.txt\", #{lenght: 8})"), "`prompts` requires the option `tokenizer`");
    assert_eq!(
        reason("data::synthetic(#{sample: 8, inputs: #{}})"),
        "`synthetic` has no option `sample`; did you mean `samples`?"
    );
}

#[test]
fn an_error_shows_its_line_and_its_callers() {
    let dir = tempfile::tempdir().unwrap();
    let text = "fn folder(config) {\n    data::image_folder(config.image_dirs)\n}\n\nfn build_dataloader(config) {\n    folder(config)\n}\n";
    case(dir.path(), &[("dataloader.rhai", text)]);
    let scripts = CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).unwrap();
    let config = ScriptConfig::from([("image_dir".to_owned(), json!("val"))]);
    let shown = scripts.build_dataloader(&config).unwrap_err().to_string();
    let shown = shown.replace(&format!("{}/", dir.path().display()), "");
    insta::assert_snapshot!(shown, @r"
    dataloader.rhai:2:31: unknown property `image_dirs`; did you mean `image_dir`?
            data::image_folder(config.image_dirs)
                                      ^
        called from dataloader.rhai:6
    ");
}

#[test]
fn unknown_functions_are_refused_before_a_script_runs() {
    let error = load(&[(
        "evaluator.rhai",
        "fn evaluator(output, truth) {\n    if false { metric::topk(output, truth.labels, [1]) }\n}",
    )]);
    let error = error.err().unwrap();
    assert_eq!(error.reason, "unknown function `metric::topk`; did you mean `metric::top_k`?");
    assert_eq!(error.line, 2);
}

#[test]
fn a_call_with_wrong_arguments_shows_the_signature() {
    let text = "fn evaluator(output, truth) { metric::top_k(output, 5) }";
    let mut evaluator = load(&[("evaluator.rhai", text)]).unwrap().evaluator();
    let error = evaluator.call(&StepOutput::Many(Vec::new()), &IndexMap::new()).unwrap_err();
    assert_eq!(
        error.reason,
        "`metric::top_k` does not accept (array, int); expected \
         `metric::top_k(scores: tensor, labels: tensor, ks: array)`"
    );
}

#[test]
fn a_missing_or_wrong_function_shows_the_expected_signature() {
    let missing = load(&[("evaluator.rhai", "fn evaluate(output, truth) { 1 }")]).err().unwrap();
    assert_eq!(
        missing.reason,
        "the function `evaluator(output, truth[, config])` is missing; did you mean `evaluate`?"
    );
    let arity = load(&[("forward.rhai", "\nfn model_forward(model) { 1 }")]).err().unwrap();
    assert_eq!(arity.reason, "`model_forward` has 1 parameter, expected `fn model_forward(model, batch[, config])`");
    assert_eq!(arity.line, 2);
}

#[test]
fn a_missing_script_and_a_syntax_error_show_the_file() {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), &[]);
    std::fs::remove_file(dir.path().join("model.rhai")).unwrap();
    let error = CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).err().unwrap();
    assert!(error.file.ends_with("model.rhai") && error.reason.starts_with("cannot be read"), "{error}");
    let error = load(&[("model.rhai", "fn create_model(config) {\n    let x = ;\n}")]).err().unwrap();
    assert_eq!((error.line, error.column), (2, 13));
}

#[test]
fn log_lines_show_the_script_and_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = "fn build_dataloader(config) {\n    log::warn(\"careful\");\n    data::image_folder(\"images\")\n}";
    case(dir.path(), &[("dataloader.rhai", text)]);
    let (services, lines) = services();
    CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services)
        .unwrap()
        .build_dataloader(&ScriptConfig::new())
        .unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].0, lines[0].2.as_str()), (Level::Warning, "careful"));
    assert!(lines[0].1.starts_with("script ") && lines[0].1.ends_with("/dataloader.rhai:2"), "{}", lines[0].1);
}

fn checkout() -> PathBuf {
    find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Loads a case of the checkout.
fn shipped(name: &str) -> CaseScripts {
    let dir = checkout().join("scripts").join(name);
    let shared = || Some("lib/classification".to_owned());
    let choice = ScriptChoice { forward: shared(), evaluator: shared(), without_model: false };
    CaseScripts::load(&dir, &choice, &Limits::default(), services().0).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads the settings of a case from its configuration files, without weights.
fn config(case: &str) -> ScriptConfig {
    let file = checkout().join("configs").join(case).join("parameters.yaml");
    let mut config: ScriptConfig = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    config.insert("weights".to_owned(), json!(null));
    // The host draws the seed of a training.
    config.entry("seed".to_owned()).or_insert(json!(0));
    config
}

fn parameters(model: &flagperf_onnx::Model) -> usize {
    let weights = model.graphs.values().flat_map(|graph| graph.weights.values());
    let parameters = weights.filter(|weight| weight.role == flagperf_onnx::WeightRole::Parameter);
    parameters.map(|weight| weight.spec.fixed_shape().unwrap().iter().product::<usize>()).sum()
}

#[test]
fn resnet50_has_the_parameters_and_names_of_torchvision() {
    let model = shipped("resnet50").create_model(&config("resnet50"), Path::new("/nonexistent")).unwrap();
    let graph = &model.graphs[flagperf_onnx::Model::SINGLE];
    assert_eq!(parameters(&model), 25_557_032);
    assert_eq!(graph.inputs[0].spec.to_string(), "N,3,224,224,f32");
    assert_eq!(graph.outputs[0].spec.to_string(), "N,1000,f32");
    for name in ["conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.conv3.weight", "fc.bias"] {
        assert!(graph.weights.contains_key(name), "{name}");
    }
    assert!(graph.weights_are_random());
}

#[test]
fn efficientnet_lite0_has_the_parameters_of_its_source() {
    let model =
        shipped("efficientnet_lite0").create_model(&config("efficientnet_lite0"), Path::new("/nonexistent")).unwrap();
    // Computed from the shapes in the published state_dict.
    assert_eq!(parameters(&model), 4_652_008);
    assert_eq!(model.graphs[flagperf_onnx::Model::SINGLE].outputs[0].spec.to_string(), "N,1000,f32");
}

#[test]
fn a_dataloader_returns_a_pipeline() {
    let pipeline = shipped("resnet50").build_dataloader(&config("resnet50")).unwrap();
    assert_eq!(pipeline.transforms.len(), 3);
}
