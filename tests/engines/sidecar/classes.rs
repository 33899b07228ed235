//! Unchanged FlagPerf engine classes: one class for each calling convention, on a stub of its library.
//!
//! The classes and the stubs are in `classes/`.

use std::fs;

use serde_json::{Value as Json, json};

use crate::support;
use crate::support::program;
use crate::support::site::Site;

/// The stubs of libraries; each class can import them.
const STUBS: [(&str, &str); 4] = [
    ("onnx_stub.py", include_str!("classes/onnx_stub.py")),
    ("tensorrt.py", include_str!("classes/tensorrt.py")),
    ("tvm.py", include_str!("classes/tvm.py")),
    ("torch_tensorrt.py", include_str!("classes/torch_tensorrt.py")),
];

/// A class that returns these outputs and seconds, without torch, which takes seconds to import.
const QUICK: &str = "import numpy

TENSORS = 'numpy'
ZEROS = numpy.zeros((4, 1000), 'float32')

class InferModel:
    takes_model = False
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs): return [OUTPUT], SECONDS
";

/// Returns why a class that returns this output and these seconds fails; `None` without a Python.
#[track_caller]
fn reason(output: &str, seconds: &str) -> Option<String> {
    let text = QUICK.replace("OUTPUT", output).replace("SECONDS", seconds);
    class_site(&text, "options: {threads: 1}").map(|site| site.inference_failure())
}

/// Returns a site whose compiler is this class, with additional fields of its entry in vendor.yaml; `None` without a
/// Python.
#[track_caller]
fn class_site(text: &str, fields: &str) -> Option<Site> {
    support::python()?;
    let own = format!("{{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], {fields}}}");
    let site = Site::new(&own).with_vendor_file("engines/own.py", text);
    Some(STUBS.iter().fold(site, |site, (name, stub)| site.with_vendor_file(&format!("engines/{name}"), stub)))
}

/// Runs a site, checks that inference agrees with validation, and returns the record of the inference phase.
#[track_caller]
fn check_agreement(site: &Site, arguments: &[&str]) -> Json {
    let mut record = site.run_successfully(arguments);
    let infer = record["phases"][1].take();
    let agreement = &infer["agreement"];
    assert!(agreement["outputs"]["output"]["max_abs"].as_f64().is_some_and(|error| error < 1e-5), "{agreement}");
    assert_eq!(agreement["samples"], 10);
    infer
}

/// Returns the text of a class with arrays in place of tensors and without the model as a module: importing torch and creating the
/// module take seconds in each process.
fn with_arrays(text: &str) -> String {
    assert!(text.contains("import torch\n") && text.contains("tensor.numpy()"), "{text}");
    let text = text.replace("import torch\n", "").replace("tensor.numpy()", "tensor").replace("torch.from_numpy(", "(");
    text + "\nInferModel.takes_model = False\nTENSORS = 'numpy'\n"
}

#[test]
fn a_class_that_follows_flagperfs_document_has_no_changes_in_the_record_and_a_module_with_the_outputs_of_the_file() {
    let Some(site) = class_site(include_str!("classes/plain.py"), "options: {threads: 1}") else { return };
    let sidecar = &check_agreement(&site, &[])["engine"]["sidecar"];
    assert_eq!((&sidecar["reshaped_outputs"], &sidecar["third_value"]), (&Json::Null, &Json::Null));
}

#[test]
fn a_class_imports_the_modules_beside_it_as_in_flagperfs_package() {
    let text = QUICK.replace("OUTPUT", "ZEROS").replace("SECONDS", "BESIDE");
    let text = format!("from .beside import SECONDS as BESIDE\n{text}");
    let Some(site) = class_site(&text, "options: {threads: 1}") else { return };
    let reason = site.with_vendor_file("engines/beside.py", "SECONDS = -7\n").inference_failure();
    assert!(reason.contains("not a valid time: `-7`"), "{reason}");
}

#[test]
fn flat_outputs_take_the_declared_shape_and_the_record_lists_both_shapes() {
    let text = with_arrays(include_str!("classes/flat.py"));
    let Some(site) = class_site(&text, "options: {threads: 1, plan_tmp_path: own.plan}") else { return };
    let infer = check_agreement(&site, &[]);
    let reshaped = json!({"scores": {"from": "4000,f32", "to": "4,1000,f32"}});
    assert_eq!(infer["engine"]["sidecar"]["reshaped_outputs"], reshaped);
}

#[test]
fn outputs_stacked_in_one_tensor_lose_the_additional_dimension_and_the_record_lists_both_shapes() {
    let Some(site) = class_site(&with_arrays(include_str!("classes/stacked.py")), "options: {threads: 1}") else {
        return;
    };
    let infer = check_agreement(&site, &[]);
    let reshaped = json!({"scores": {"from": "1,4,1000,f32", "to": "4,1000,f32"}});
    assert_eq!(infer["engine"]["sidecar"]["reshaped_outputs"], reshaped);
}

#[test]
fn the_config_is_a_named_tuple_whose_keys_may_be_any_text() {
    let options = "options: {vm_enable: true, build_config: {pattern_match: [a, b]}, \"wide-blocks\": 3, class: 1, \
                   count: 7, index: 9, _fields: no, __class__: no, _asdict: no}";
    let Some(site) = class_site(&with_arrays(include_str!("classes/named_tuple.py")), options) else { return };
    let infer = check_agreement(&site, &[]);
    assert!(infer["measured"][0]["vendor_time"]["sum_s"].as_f64().is_some_and(|sum| sum >= 0.0), "{infer}");
}

#[test]
fn an_unknown_key_of_the_config_is_an_error_that_lists_the_known_keys() {
    // `config.resnet50_fuse` is an error of the plan.
    let unset = "getattr(config, 'resnet50_fuse')";
    let text = QUICK.replace("model): pass", &format!("model): {unset}"));
    let Some(site) = class_site(&text, "options: {threads: 1}") else { return };
    let reason = site.inference_failure();
    let line = reason.lines().next().expect("a line");
    assert!(
        line.starts_with(
            "`engines/own.py:8`: AttributeError: `config` has no key `resnet50_fuse` (known: no_validation, fp16, "
        ),
        "{line}"
    );
    assert!(line.contains(", log_dir, ") && line.ends_with(", input_specs, output_specs)"), "{line}");
}

/// A class that configures its builder as NVIDIA's documents do, in a variable that hides the argument `config`.
const BUILDER: &str = "TENSORS = 'numpy'

class Builder:
    def create_builder_config(self): return self
    def set_memory_pool_limit(self, pool, size): pass

class InferModel:
    takes_model = False
    def __init__(self, config, onnx_path, model):
        self.batch = config.batch_size
        config = Builder().create_builder_config()
        config.set_memory_pool_limit(0, 1 << 30)
    def __call__(self, model_inputs): return [], 0
";

/// Plans the case with a class, and returns the exit code and what is printed; `None` without a Python.
#[track_caller]
fn planned(text: &str) -> Option<(Option<i32>, String)> {
    let site = class_site(text, "options: {threads: 1}")?;
    let output = program::flagperf(site.path(), &["plan"]);
    let printed = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&printed).into_owned()))
}

#[test]
fn a_variable_that_hides_the_config_is_not_read_for_its_keys() {
    let Some((code, printed)) = planned(BUILDER) else { return };
    assert!(code == Some(0) && !printed.contains("set_memory_pool_limit"), "{printed}");
}

#[test]
fn a_key_of_the_config_that_nothing_sets_is_an_error_of_the_plan() {
    let Some((code, printed)) = planned(&BUILDER.replace("config.batch_size", "config.batches")) else { return };
    let place =
        "vendors/side/engines/own.py:10:22: the class of `own` reads `config.batches`, which neither the case nor";
    assert!(code == Some(2) && printed.contains(place), "{printed}");
}

/// Returns the keys that a class reads, each with `!` if it always reads it; `None` without a Python.
#[track_caller]
fn config_reads(body: &str, rest: &str) -> Option<String> {
    let lines: String = body.lines().map(|line| format!("        {line}\n")).collect();
    let class = format!("class InferModel:\n    def __init__(self, config, onnx_path, model):\n{lines}{rest}");
    let program = "import ast, sys, flagperf_sidecar as f
print(*[read['key'] + '!' * read['is_certain'] for read in f.config_reads(ast.parse(sys.argv[1]))])";
    let mut command = assert_cmd::Command::new(support::python()?);
    command.env("PYTHONPATH", support::root().join("runtime/sidecar")).args(["-c", program, &class]);
    let output = command.assert().success().get_output().stdout.clone();
    Some(String::from_utf8(output).expect("text").trim_end().to_owned())
}

#[test]
fn the_reads_of_the_config_are_followed_through_functions_and_attributes() {
    let methods = "    def build(self, settings):
        settings.inner
        settings = Builder()
        settings.hidden
    def unused(self, config): config.foreign
    def __call__(self, x):
        if x: self.own.sometimes
        return self.own.step + self.other.hidden

def helper(path, config): config.outer
";
    let body =
        "self.own = config\nself.build(config)\nhelper(onnx_path, config)\nself.other = Builder()\nself.other = config";
    let Some(reads) = config_reads(body, methods) else { return };
    assert_eq!(reads, "inner! sometimes step! outer!");
}

#[test]
fn a_read_that_may_be_left_out_is_not_certain() {
    for (body, expected) in [
        ("if config.a:\n    config.b\nelif config.c: pass\nconfig.d", "a! b c d!"),
        ("for x in config.a:\n    config.b\nwith open(config.c):\n    config.d", "a! b c! d!"),
        ("try:\n    config.a\nexcept AttributeError: pass\nfinally:\n    config.b", "a b!"),
        ("x = config.a if config.b else config.c\nconfig.d and config.e", "a b! c d! e"),
        ("[config.a for x in config.b]\nlambda: config.c\nlambda config: config.d", "a b! c"),
        ("if onnx_path: return\nconfig.a", "a"),
        ("def inner(): config.a\ndef own(config): config.b", "a"),
        ("config = config._replace(x=config.a)\nconfig.b", "a!"),
        ("if hasattr(config, 'a'): config.a\nconfig.b; config._fields; config.index(3)", "b!"),
    ] {
        let Some(reads) = config_reads(body, "") else { return };
        assert_eq!(reads, expected, "{body}");
    }
}

#[test]
fn a_third_value_is_recorded_and_the_seconds_with_it_are_not_subtracted() {
    let Some(site) = class_site(&with_arrays(include_str!("classes/three_values.py")), "options: {threads: 1}") else {
        return;
    };
    let infer = check_agreement(&site, &[]);
    assert_eq!(infer["engine"]["sidecar"]["third_value"], json!({"type": "int", "repr": "2048"}));
    assert_eq!(infer["measured"][0]["vendor_time"], json!({"sum_s": 6003.0, "max_s": 1000.5}));
    let core = infer["measured"][0]["passes"].as_array().expect("passes").iter().map(|p| p["core_s"].as_f64());
    assert!(core.map(|seconds| seconds.expect("seconds")).sum::<f64>() > 0.0, "{infer}");
}

#[test]
fn a_hostile_third_value_is_truncated_and_escaped() {
    let hostile = "type('Odd\\x1b[2J', (), {'__repr__': lambda self: '\\x1b[2J\\n' + '\\udc80' + 'x' * 10**6})()";
    let text = with_arrays(include_str!("classes/three_values.py")).replace("2048", hostile);
    let Some(site) = class_site(&text, "options: {threads: 1}") else { return };
    let third = check_agreement(&site, &[])["engine"]["sidecar"]["third_value"].take();
    let (name, shown) = (third["type"].as_str().expect("a name"), third["repr"].as_str().expect("a text"));
    assert_eq!(name, "Odd\\u{1b}[2J");
    assert!(shown.starts_with("\\u{1b}[2J\\n?xxx") && shown.ends_with("xxx") && shown.len() < 400, "{shown}");
}

#[test]
fn several_outputs_stacked_in_one_tensor_are_split() {
    let text = format!("{}\nInferModel.takes_model = False\n", include_str!("classes/stacked.py"));
    let Some(site) = class_site(&text, "options: {threads: 1}") else { return };
    let model = fs::read_to_string(site.path().join("scripts/tiny/model.rhai")).expect("the model");
    let output = "graph.output(\"scores\", x);";
    assert!(model.contains(output), "{model}");
    let second = format!("{output} graph.output(\"positive\", x.relu());");
    site.write("scripts/tiny/model.rhai", &model.replace(output, &second));
    site.write("scripts/tiny/forward.rhai", "fn model_forward(model, batch) { model.run([batch.images])[1] }");
    let infer = check_agreement(&site, &[]);
    assert_eq!(infer["engine"]["sidecar"]["reshaped_outputs"], Json::Null);
}

#[test]
fn four_values_are_refused() {
    let Some(reason) = reason("ZEROS", "0, 2048, None") else { return };
    let expected = "`engines/own.py`: `InferModel.__call__` must return (outputs, foo_time) or (outputs, foo_time, more), but \
                    returned 4 values";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn seconds_that_are_not_a_valid_number_are_refused() {
    for (seconds, shown) in
        [("float('nan')", "nan"), ("float('inf')", "inf"), ("10**400", "1000"), ("'0.5'", "'0.5'"), ("1e308", "1e+308")]
    {
        let Some(reason) = reason("ZEROS", seconds) else { return };
        let expected =
            format!("`engines/own.py`: `InferModel.__call__` returned a foo_time that is not a valid time: `{shown}");
        assert!(reason.contains(&expected), "{seconds}: {reason}");
    }
}

/// A class that computes with two others, so that torch is imported once for both.
const BOTH: &str = "import torch

from .compiled import InferModel as Compiled
from .traced import InferModel as Traced

class InferModel:
    def __init__(self, config, onnx_path, model):
        self.classes = [own(config, onnx_path, model) for own in (Compiled, Traced)]
    def __call__(self, model_inputs):
        ([compiled], _), ([traced], seconds) = [own(model_inputs) for own in self.classes]
        assert torch.allclose(compiled, traced, atol=1e-5)
        return [compiled], seconds
";

#[test]
fn with_validation_and_a_placeholder_onnx_file_the_module_is_that_of_the_exported_graph() {
    let fields = "opens_onnx: false, options: {torchtrt_full_compile: true, dynamo_warmups: 2, dynamo_backend: eager, \
                  dynamo_dynamic: false}";
    let Some(site) = class_site(BOTH, fields) else { return };
    let site = site.with_vendor_file("engines/traced.py", include_str!("classes/traced.py"));
    let site = site.with_vendor_file("engines/compiled.py", include_str!("classes/compiled.py"));
    let infer = check_agreement(&site, &["--set", "exist_onnx_path=foo"]);
    let weights = infer["model"]["weights"].as_str().unwrap_or_default();
    assert!(weights.starts_with("seeded random values from "), "{weights}");
    assert_eq!(infer["model"]["inputs"], json!({"images": "N,3,8,8,f32"}));
}

#[test]
fn the_same_number_of_elements_in_another_order_is_refused_with_both_shapes() {
    let Some(transposed) = reason("ZEROS.T", "0") else { return };
    let both = "the sidecar returned output `scores` as `1000,4,f32`, the model declares `N,1000,f32`, N = 4";
    assert!(transposed.contains(both) && transposed.contains("but not their order"), "{transposed}");
    let short = reason("ZEROS.reshape(-1)[:3999]", "0").expect("a reason");
    assert!(short.contains("output `scores` as `3999,f32`, the model declares `N,1000,f32`, N = 4"), "{short}");
    let other = reason("ZEROS.reshape(-1).astype('float64')", "0").expect("a reason");
    assert!(other.contains("output `scores` as `4000,f64`, the model declares `N,1000,f32`, N = 4"), "{other}");
}
