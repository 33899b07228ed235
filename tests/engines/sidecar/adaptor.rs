//! FlagPerf's engine classes run unchanged on the adaptor, and their failures have clear messages.

use std::fs;

use flagperf_core::hash::hash_bytes;
use serde_json::json;

use crate::support;
use crate::support::site::Site;

pub const OWN: &str =
    "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1, level: 3}}";

/// A class that computes with ONNX Runtime; the tests change it.
const GOOD: &str = "import sys
import onnxruntime

class InferModel:
    def __init__(self, config, onnx_path, model):
        print('printed on', file=sys.stdout)
        self.session = onnxruntime.InferenceSession(onnx_path, providers=['CPUExecutionProvider'])

    def __call__(self, model_inputs):
        print('called')
        return self.session.run(None, {'images': model_inputs[0].numpy()}), 0
";

/// Returns a site where `text` is the engine; `None` without a Python to run it.
pub fn engine(text: &str) -> Option<Site> {
    support::python()?;
    Some(Site::new(OWN).with_vendor_file("engines/own.py", text))
}

/// Returns [`GOOD`] with one change.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    GOOD.replace(from, to)
}

/// Returns [`GOOD`] with one change, without the model as a module, which takes seconds to create, and without torch, which
/// takes seconds to import.
pub fn quick(from: &str, to: &str) -> String {
    changed(from, to).replace("[0].numpy()", "[0]") + "\nInferModel.takes_model = False\nTENSORS = 'numpy'\n"
}

#[test]
fn an_unchanged_class_agrees_with_the_interpreter() {
    let Some(site) = engine(GOOD) else { return };
    let record = site.run_successfully(&[]);
    let infer = &record["phases"][1];
    assert!(
        infer["agreement"]["outputs"]["output"]["max_abs"].as_f64().is_some_and(|error| error < 1e-5),
        "{}",
        infer["agreement"]
    );
    assert_eq!(infer["agreement"]["samples"], 10);
    assert_eq!((&infer["engine"]["name"], &infer["engine"]["device"]), (&json!("sidecar"), &json!("not told")));
    assert_eq!(infer["engine"]["sidecar"]["files_sha256"]["engines/own.py"], hash_bytes(GOOD.as_bytes()));
    assert_eq!(infer["engine"]["version"], "not told");
    let folder =
        fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run").path();
    let errors =
        fs::read_to_string(folder.join("tiny_interpreter/localhost_noderank0/stdout_err.out.log")).expect("a log");
    assert!(errors.contains("printed on\n") && errors.contains("called\n"), "{errors}");
}

#[test]
fn a_class_with_other_arguments_and_a_missing_package_are_named_with_the_file() {
    let Some(site) = engine(
        "TENSORS = 'numpy'\n\nclass InferModel:\n    takes_model = False\n    def __init__(self, config): pass\n",
    ) else {
        return;
    };
    let reason = site.inference_failure();
    assert!(reason.contains("`engines/own.py`: TypeError: ") && reason.contains("__init__() takes 2"), "{reason}");
    let site = Site::new(OWN).with_vendor_file("engines/own.py", "import no_such_package\n");
    let reason = site.refusal();
    let expected = "`engines/own.py:1`: ModuleNotFoundError: No module named 'no_such_package' (`";
    assert!(reason.contains(expected), "{reason}");
    assert!(reason.ends_with("does not have it: install it, or activate an environment that has it)"), "{reason}");
}

#[test]
fn the_memory_of_a_process_that_the_class_starts_counts() {
    let child = "self.child = subprocess.Popen([sys.executable, '-c', 'kept = bytearray(b\"x\") * (700 << 20); \
                 print(len(kept), flush=True); import time; time.sleep(60)'], stdout=subprocess.PIPE)
        self.child.stdout.readline()
        self.session";
    let text = quick("import sys", "import subprocess, sys").replace("self.session =", &format!("{child} ="));
    let Some(site) = engine(&text) else { return };
    let record = site.run_successfully(&[]);
    let memory = record["phases"][1]["measured"][0]["memory_bytes_max"].as_u64();
    assert!(memory.is_some_and(|bytes| bytes > 700 << 20), "{memory:?}");
}

#[test]
fn the_memory_of_a_process_that_left_the_worker_and_ended_early_counts() {
    // It is in a session of its own, its parent has ended, and it ends before the first pass begins.
    let left = "kept = \"kept = bytearray(b'x') * (500 << 20); import time; time.sleep(1.5)\"
        subprocess.run(['sh', '-c', '\"$0\" -c \"$1\" >/dev/null 2>&1 &', sys.executable, kept], start_new_session=True)
        import time
        time.sleep(3)
        self.session";
    let text = quick("import sys", "import subprocess, sys").replace("self.session =", &format!("{left} ="));
    let Some(site) = engine(&format!("{text}InferModel.device = 'cpu'\n")) else { return };
    let record = site.run_successfully(&[]);
    let phase = &record["phases"][1];
    let memory = phase["observed_memory_bytes_max"].as_u64();
    assert!(memory.is_some_and(|bytes| bytes > 500 << 20 && bytes < 1500 << 20), "{phase}");
    let used = record["hosts"][0]["devices"][1]["memory_bytes_max"].as_u64();
    assert!(used.is_some_and(|bytes| bytes > 500 << 20), "{}", record["hosts"]);
}

#[test]
fn a_class_can_also_be_the_framework() {
    let Some(site) = engine(&quick("called", "called")) else { return };
    let record = site.run_successfully(&["--case", "tiny:own", "--set", "compiler=rten"]);
    assert_eq!(record["phases"][0]["engine"]["name"], "sidecar");
    let reference = &record["phases"][0]["agreement"];
    assert_eq!((&reference["samples"], &reference["not_compared"]), (&4.into(), &serde_json::json!([])));
    assert!(reference["outputs"]["output"]["relative_l2"].as_f64().is_some_and(|error| error < 1e-5), "{reference}");
    assert!(
        record["phases"][1]["agreement"]["outputs"]["output"]["max_abs"].as_f64().is_some_and(|error| error < 1e-5),
        "{record}"
    );
}

#[test]
fn the_config_has_the_keys_of_flagperf_and_of_the_vendor() {
    let checks = "class InferModel:
    def __init__(self, config, onnx_path, model):
        assert (config.batch_size, config.fp16, config.repeat, config.compiler) == (4, False, 2, 'own'), config
        assert (config.vendor, config.case, config.framework) == ('side', 'tiny', 'interpreter'), config
        assert (config.seed, config.level, config.threads) == (0, 3, 1), config
        assert config.exist_compiler_path is None and config.no_validation is False, config
        assert all([config.log_dir, config.perf_dir]), config
        assert not any(hasattr(config, key) for key in ('data_dir', 'weights', 'default_data')), config
        assert config.input_specs == {'images': 'N,3,8,8,f32'}, config
        assert onnx_path.endswith('.onnx'), onnx_path
";
    let Some(site) = engine(&quick("class InferModel:\n    def __init__(self, config, onnx_path, model):\n", checks))
    else {
        return;
    };
    site.run_successfully(&[]);
}

#[test]
fn an_option_that_is_null_is_a_key_of_the_config() {
    let checks = "class InferModel:
    def __init__(self, config, onnx_path, model):
        assert (config.level, config.style, config.threads) == (None, None, 0), config
";
    let text = quick("class InferModel:\n    def __init__(self, config, onnx_path, model):\n", checks);
    let Some(_) = support::python() else { return };
    let own = OWN.replace("threads: 1, level: 3", "threads: null, level: null, style: null");
    let site = Site::new(&own).with_vendor_file("engines/own.py", &text);
    let options = site.run_successfully(&[])["phases"][1]["engine"]["options"].clone();
    assert_eq!(options, json!({"level": null, "style": null}));
}

#[test]
fn without_validation_there_is_no_model() {
    let text = changed("        print('printed", "        assert model is None\n        print('printed");
    let Some(site) = engine(&(text.replace("[0].numpy()", "[0]") + "\nTENSORS = 'numpy'\n")) else { return };
    let exported = Site::exported(&site.run_successfully(&["--set", "compiler=rten"]));
    let existing = format!("exist_onnx_path={}", exported.display());
    site.run_successfully(&["--set", "no_validation=true", "--set", &existing]);
}

#[test]
fn seconds_that_a_class_asks_to_subtract_are_recorded_with_a_warning_and_not_subtracted() {
    let Some(site) = engine(&quick("[0].numpy()}), 0", "[0].numpy()}), 1000.5")) else { return };
    let record = site.run_successfully(&[]);
    let measured = &record["phases"][1]["measured"][0];
    assert_eq!(measured["steps"], 6);
    assert_eq!(measured["vendor_time"], json!({"sum_s": 6003.0, "max_s": 1000.5}));
    let core = measured["passes"].as_array().expect("passes").iter().map(|p| p["core_s"].as_f64().expect("seconds"));
    assert!(core.sum::<f64>() > 0.0, "{measured}");
    let is_warning = |text: &serde_json::Value| {
        text == "inference: the engine asked for up to 1000.5000 s per step (6003.0000 s in total) to be subtracted; nothing was"
    };
    assert!(record["warnings"].as_array().expect("warnings").iter().any(is_warning), "{}", record["warnings"]);
}

#[test]
fn a_class_that_raises_is_named_with_its_line_and_the_end_of_the_traceback() {
    let Some(site) = engine(&quick("        print('called')\n", "        raise ValueError('no such chip')\n")) else {
        return;
    };
    let reason = site.inference_failure();
    assert!(reason.contains("`engines/own.py:10`: ValueError: no such chip\n"), "{reason}");
    assert!(reason.contains("raise ValueError('no such chip')"), "{reason}");
    let Some(site) =
        engine(&quick("        print('printed", "        getattr(config, 'no_such_key')\n        print('printed"))
    else {
        return;
    };
    let reason = site.inference_failure();
    assert!(reason.contains("`engines/own.py:6`: AttributeError: ") && reason.contains("no_such_key"), "{reason}");
}

/// Returns a site whose engine function is `body` and whose class has the additional members `more`.
fn engine_with_forward(body: &str, more: &str) -> Option<Site> {
    let site = engine(&format!("{}{more}\n", quick("called", "called")))?;
    let forward = "fn model_forward(model, batch) { model.run([batch.images])[0] }\nfn engine_forward(engine, batch) ";
    site.write("scripts/tiny/forward.rhai", &format!("{forward}{{ {body} }}"));
    Some(site)
}

#[test]
fn a_script_can_ask_and_tune_its_class() {
    let body = "engine.tune(\"level\", 4);
        let answer = engine.ask(\"level\", #{of: [1, ()]});
        if answer != [\"level\", #{of: [1, ()]}, 4] { throw answer }
        engine.run([batch.images])[0]";
    let more = "InferModel.ask = lambda self, question, argument: [question, argument, self.level]
InferModel.tune = lambda self, setting, value: setattr(self, setting, value)";
    let Some(site) = engine_with_forward(body, more) else { return };
    site.run_successfully(&[]);
}

#[test]
fn an_unanswered_question_and_an_answer_that_is_not_json_are_errors() {
    let Some(site) = engine_with_forward("engine.ask(\"layers\")", "") else { return };
    let reason = site.inference_failure();
    assert!(reason.contains("question `layers`: unknown (this engine supports no questions)"), "{reason}");
    let Some(site) = engine_with_forward("engine.tune(\"level\", 4)", "") else { return };
    let reason = site.inference_failure();
    assert!(reason.contains("setting `level`: unknown (this engine has no settings)"), "{reason}");
    let Some(site) = engine_with_forward("engine.ask(\"layers\")", "InferModel.ask = lambda self, *_: {1, 2}") else {
        return;
    };
    let reason = site.inference_failure();
    assert!(reason.contains("TypeError: Object of type set is not JSON serializable"), "{reason}");
    let Some(site) = engine_with_forward("engine.ask(\"layers\")", "InferModel.ask = lambda self, *_: [float('nan')]")
    else {
        return;
    };
    let reason = site.inference_failure();
    assert!(reason.contains("ValueError: Out of range float values are not JSON compliant"), "{reason}");
}

#[test]
fn a_class_that_exits_is_an_error_of_the_case() {
    let Some(site) = engine(&quick("        print('called')\n", "        sys.exit('no licence')\n")) else { return };
    let reason = site.inference_failure();
    assert!(reason.contains("`engines/own.py:10`: SystemExit: no licence"), "{reason}");
}

#[test]
fn a_file_that_is_not_an_engine_module_is_an_error() {
    let Some(site) = engine("class Infer: pass\n") else { return };
    assert_eq!(site.refusal(), "`engines/own.py` has no class `InferModel`");
    let Some(site) = engine("class InferModel:\n    def\n") else { return };
    let reason = site.refusal();
    assert!(reason.starts_with("`engines/own.py:2`: SyntaxError: "), "{reason}");
    let Some(site) = engine("import no_such_package\n") else { return };
    let reason = site.refusal();
    assert!(
        reason.starts_with("`engines/own.py:1`: ModuleNotFoundError: No module named 'no_such_package'"),
        "{reason}"
    );
}

#[test]
fn a_result_that_is_not_outputs_and_seconds_is_refused() {
    let Some(site) = engine(&quick("[0].numpy()}), 0", "[0].numpy()})")) else { return };
    let reason = site.inference_failure();
    let expected = "`engines/own.py`: `InferModel.__call__` must return (outputs, foo_time) or (outputs, foo_time, more), but returned `list`";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn outputs_that_do_not_match_the_model_are_refused() {
    let reason = |outputs: &str| {
        let text = quick("self.session.run(None, {'images': model_inputs[0].numpy()})", outputs);
        engine(&text).map(|site| site.inference_failure())
    };
    let check = |reason: Option<String>, expected: &str| {
        assert!(reason.as_ref().is_none_or(|reason| reason.contains(expected)), "{reason:?}");
    };
    check(
        reason("[model_inputs[0]]"),
        "returned output `scores` as `4,3,8,8,f32`, the model declares `N,1000,f32`, N = 4",
    );
    check(reason("[model_inputs[0].astype('float64').reshape(4, -1)]"), "as `4,192,f64`");
    check(reason("[model_inputs[0]] * 2"), "number of outputs is 2, the model declares 1");
    check(reason("['scores']"), "output 0 is not a tensor of a supported type: `str`");
}

#[test]
fn a_package_that_the_class_surely_imports_is_missed_before_validation() {
    let lazy = quick(
        "        self.session =",
        "        if False:\n            import no_such_optional\n        self.session =",
    );
    let Some(site) = engine(&lazy) else { return };
    site.run_successfully(&[]);
    let Some(site) = engine(&quick("        print('called')\n", "        import no_such.package\n")) else { return };
    let reason = site.refusal();
    assert!(reason.starts_with("`engines/own.py:10` imports `no_such`, which `"), "{reason}");
}

#[test]
fn a_python_without_torch_and_numpy_and_a_missing_converter_are_named() {
    // `-S` hides installed packages; `-P` would hide nothing here.
    let own = "{engine: sidecar, command: [python3, -S, -m, flagperf_sidecar, engines/own.py]}";
    if support::python().is_none() {
        return;
    }
    let reason = Site::new(own).with_vendor_file("engines/own.py", "class InferModel: pass\n").refusal();
    assert!(reason.contains("has neither torch nor numpy: install one of them"), "{reason}");
    let hidden = "import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == 'onnx2torch' else found(name, *more)

class InferModel:
    def __init__(self, config, onnx_path, model):
        self.model = model.eval()
";
    let Some(site) = engine(hidden) else { return };
    let reason = site.refusal();
    assert!(reason.starts_with("`engines/own.py:7`: the model as an `nn.Module` needs onnx2torch: `"), "{reason}");
    assert!(reason.contains("-m pip install onnx2torch`"), "{reason}");
}

#[test]
fn the_class_itself_loads_a_file_that_was_compiled_earlier() {
    if support::python().is_none() {
        return;
    }
    let text = quick("InferenceSession(onnx_path,", "InferenceSession(open(config.exist_compiler_path, 'rb').read(),");
    let text = text
        .replace("        print('printed", "        assert (onnx_path, model) == (None, None)\n        print('printed");
    let compiled = |options: &str| {
        let own = OWN.replace("level: 3", options);
        let site = Site::new(&own).with_vendor_file("engines/own.py", &text);
        let exported = Site::exported(&site.run_successfully(&["--set", "compiler=rten"]));
        fs::rename(exported, site.path().join("tiny.engine")).expect("a file");
        site.run(&["--set", "exist_compiler_path=tiny.engine"])
    };
    let specs = "inputs: {images: \"N,3,8,8,f32\"}, outputs: {scores: \"N,1000,f32\"}";
    let (record, code) = compiled(specs);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let agreement = &record["phases"][1]["agreement"];
    assert!(agreement["outputs"]["output"]["max_abs"].as_f64().is_some_and(|error| error < 1e-5), "{agreement}");
    let (record, _) = compiled("level: 3");
    let reason = record["failures"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("the inputs and outputs of this file are unknown: "), "{reason}");
}

#[test]
fn a_file_may_have_the_name_of_a_package_that_it_imports() {
    if support::python().is_none() {
        return;
    }
    let own = OWN.replace("own.py", "onnxruntime.py");
    let text = quick("import sys\n", "import beside\nimport sys\n");
    Site::new(&own)
        .with_vendor_file("engines/onnxruntime.py", &text)
        .with_vendor_file("engines/beside.py", "")
        .run_successfully(&[]);
}

#[test]
fn a_single_output_with_another_memory_layout_reaches_the_host() {
    let same = changed(
        "return self.session.run(None, {'images': model_inputs[0].numpy()}), 0",
        "scores = self.session.run(None, {'images': model_inputs[0].numpy()})[0]
        import torch
        return torch.from_numpy(scores).t().contiguous().t(), 0",
    );
    let Some(site) = engine(&format!("{same}\nInferModel.takes_model = False\n")) else { return };
    let record = site.run_successfully(&[]);
    let agreement = &record["phases"][1]["agreement"];
    assert!(agreement["outputs"]["output"]["max_abs"].as_f64().is_some_and(|error| error < 1e-5), "{agreement}");
}
