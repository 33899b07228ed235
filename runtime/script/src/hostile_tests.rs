//! Tests with malicious scripts and with files that are not scripts: each must result in an error with the script's
//! name.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use nix::sys::stat::Mode;

use super::case_tests::{inputs, load, sessions};
use super::tests::{case, services, small_limits};
use super::*;
use flagperf_core::event::Level;
use flagperf_core::limits::Limits;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::{Bytes, Seconds};

fn load_error(replaced: &[(&str, &str)]) -> ScriptError {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), replaced);
    CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).err().unwrap()
}

fn forward(text: &str) -> (tempfile::TempDir, ForwardFn) {
    let (dir, scripts) = load(&[("forward.rhai", text)]);
    let forward = scripts.forward(ForwardKind::Model, sessions(&["model"]));
    (dir, forward)
}

#[test]
fn a_script_cannot_redefine_a_function_that_it_is_granted() {
    let model = "fn model_forward(model, batch) { model.run([batch.images])[0] }";
    let script = format!("\nfn run(m, i) {{ [tensor::zeros(\"2,10,f32\")] }}\n{model}");
    let error = load_error(&[("forward.rhai", &script)]);
    let expected =
        "`run` is a function of the package `session` and cannot be redefined: give the function another name";
    assert_eq!((error.line, error.reason.as_str()), (2, expected));
    for (file, function, what) in [
        ("forward.rhai", "private fn  wait(m)", "`wait` is a function of the package `session`"),
        ("forward.rhai", "fn span(name, part)", "`span` is a function of the package `timing`"),
        ("forward.rhai", "fn session(x)", "`session` is the name of a package"),
        ("forward.rhai", "fn trim(x)", "`trim` is a function of the language"),
        ("model.rhai", "fn relu(x)", "`relu` is a function of the package `nn`"),
        ("evaluator.rhai", "fn top_k(a, b, c)", "`top_k` is a function of the package `metric`"),
        ("dataloader.rhai", "fn resize(a, b)", "`resize` is a function of the package `image`"),
    ] {
        let error = load_error(&[(file, &format!("// A function.\n{function} {{ 1 }}\n"))]);
        assert!(error.reason.starts_with(what), "{function}: {error}");
        assert_eq!(error.line, 2, "{function}: {error}");
    }
}

#[test]
fn a_byte_order_mark_at_the_start_of_a_script_is_ignored() {
    let (_dir, mut forward) = forward("\u{feff}fn model_forward(model, batch) { model.run([batch.images])[0] }");
    assert!(forward.call(&inputs()).is_ok());
}

#[test]
fn a_script_that_is_not_a_regular_file_is_refused() {
    for file in ["model.rhai", "export.rhai"] {
        let dir = tempfile::tempdir().unwrap();
        case(dir.path(), &[]);
        let path = dir.path().join(file);
        let _ = std::fs::remove_file(&path);
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let error =
            CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).err().unwrap();
        assert_eq!(error.reason, "cannot be read: is a FIFO, not a regular file");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let error =
            CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).err().unwrap();
        assert!(error.file == path && error.reason.starts_with("cannot be read: "), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), &[]);
    std::fs::create_dir_all(dir.path().join("mock/forward.rhai")).unwrap();
    let scripts = CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services().0).unwrap();
    let error = scripts.for_vendor("mock").err().unwrap();
    assert_eq!(error.reason, "cannot be read: is a folder, not a regular file");
}

#[test]
fn a_closure_that_captures_its_container_leaks_until_the_memory_limit() {
    let text = "fn model_forward(model, batch) {
        let map = #{data: []};
        map.data.pad(100000, 1);
        map.own = || map;
        model.run([batch.images])[0]
    }";
    let (_dir, mut forward) = forward(text);
    let error = (0..1000).find_map(|_| forward.call(&inputs()).err()).expect("the limit is reached");
    let expected = "since earlier calls: does a closure capture the array or map that it is stored in?";
    assert!(error.reason.starts_with("the script holds ") && error.reason.ends_with(expected), "{error}");
    assert!(error.reason.contains("the limit is 67108864 (`script_memory_bytes`)"), "{error}");
}

#[test]
fn a_closure_that_captures_tensors_leaks_them_until_the_memory_limit() {
    let text = "fn evaluator(output, truth) {
        let map = #{data: tensor::zeros(\"1000000,u8\")};
        map.own = || map;
        metric::mean(\"m\", 1.0, 1)
    }";
    let (_dir, scripts) = load(&[("evaluator.rhai", text)]);
    let mut evaluator = scripts.evaluator();
    let mut call = || evaluator.call(&StepOutput::Many(Vec::new()), &IndexMap::new()).err();
    let error = (0..100).find_map(|_| call()).expect("the limit is reached");
    assert!(error.reason.contains("`script_memory_bytes`"), "{error}");
}

#[test]
fn a_script_that_keeps_nothing_leaks_nothing() {
    let step = "fn model_forward(model, batch) {
        let outputs = timing::span(`span ${1 + 1}`, || model.run([batch.images]));
        let named = model.run(#{input: batch.images});
        let t = tensor::from([1, 2, 3, 4], \"2,2,f32\") * 2 + tensor::full(\"2,2,f32\", 1.5);
        let u = t.reshape([4]).cast(\"f16\").rows(2);
        let first = outputs[0].reshape([10, 2]).argmax().to_array();
        let texts = [u.spec, model.inputs()[0].name, batch.images.spec, `${first.len()}`];
        let map = #{text: texts, more: #{x: [1, 2.5, \"y\"]}};
        let seconds = model.ask(\"sleep_ms\") + model.ask(\"sleep_ms\", #{of: \"sync\"});
        model.tune(\"sleep_ms\", 0);
        model.wait();
        let sum = first.map(|x| x + map.more.x.len()).reduce(|a, b| a + b, 0);
        log::info(`sum ${sum} ${seconds}`);
        #{a: outputs[0], b: named.output, c: t}
    }";
    let evaluator = "fn evaluator(output, truth) {
        let scores = output.a.rows(2) / 2.0;
        metric::top_k(scores, truth.labels, [1, 5]) + metric::mean(`m${1}`, 1.0, 1)
    }";
    let (_dir, scripts) = load(&[("forward.rhai", step), ("evaluator.rhai", evaluator)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["model"]));
    let mut evaluator = scripts.evaluator();
    let truth = IndexMap::from([("labels".to_owned(), Tensor::from_vec([2], vec![1i64, 2]).unwrap())]);
    let mut leaked = Vec::new();
    for _ in 0..40 {
        let output = forward.call(&inputs()).unwrap_or_else(|error| panic!("{error}"));
        let output = output.try_map(|value| value.to_host()).unwrap();
        evaluator.call(&output, &truth).unwrap_or_else(|error| panic!("{error}"));
        leaked.push((forward.leaked_bytes(), evaluator.leaked_bytes()));
    }
    assert_eq!(forward.take_spans().len(), 1);
    // The first calls fill caches of the script engine; every later call frees all that it allocates.
    assert_eq!(leaked[20], leaked[39], "{leaked:?}");
    assert!(leaked[39].0 < 4096 && leaked[39].1 < 4096, "{leaked:?}");
}

#[test]
fn a_panic_of_the_host_is_an_error_at_the_line_with_its_full_text() {
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), &[("dataloader.rhai", "fn build_dataloader(config) {\n    let x = 1;\n    log::info(\"x\");\n}")]);
    let panics = move |_: Level, place: String, text: String| panic!("no place for `{text}` of {place}");
    let services = HostServices { log: Arc::new(panics), ..services().0 };
    let scripts = CaseScripts::load(dir.path(), &ScriptChoice::default(), &small_limits(), services).unwrap();
    let error = scripts.build_dataloader(&ScriptConfig::new()).unwrap_err();
    assert_eq!((error.line, error.file.file_name().unwrap().to_str().unwrap()), (3, "dataloader.rhai"));
    assert!(error.reason.starts_with("panicked here or later: no place for `x` of script "), "{error}");
}

#[test]
fn values_beyond_a_limit_are_refused_with_the_limit() {
    let graph = "let g = nn::graph(\"g\"); let x = g.input(\"x\", \"N,3,f32\");";
    for (body, expected) in [
        ("let a = []; a.pad(20000, x); nn::concat(a, 1)", "`concat` accepts at most 1024 values, not 20000"),
        (
            "g.parameter(\"w\", \"1000000,1000000,f32\", 1.0)",
            "weight `w` of `1000000,1000000,f32` has too many elements (at most 2147483648)",
        ),
        (
            "x.linear(\"fc\", 1000000000000)",
            "weight `fc.weight` of `1000000000000,3,f32` has too many elements (at most 2147483648)",
        ),
    ] {
        let text = format!("fn create_model(config) {{\n{graph}\n{body}\n}}");
        let (_dir, scripts) = load(&[("model.rhai", &text)]);
        let error = scripts.create_model(&ScriptConfig::new(), Path::new(".")).unwrap_err();
        assert_eq!((error.line, error.reason.as_str()), (3, expected));
    }
    let text =
        "fn build_dataloader(config) {\n data::synthetic(#{samples: 1, inputs: #{x: \"1000000,1000000,f32\"}}) }";
    let (_dir, scripts) = load(&[("dataloader.rhai", text)]);
    let error = scripts.build_dataloader(&ScriptConfig::new()).unwrap_err();
    let expected = "field `x` of `1000000,1000000,f32` is too large: a sample may have at most 1073741824 bytes";
    assert_eq!((error.line, error.reason.as_str()), (2, expected));
}

#[test]
fn names_of_spans_and_metrics_are_limited_in_length_and_number() {
    let span = |name: &str| {
        let (_dir, mut forward) =
            forward(&format!("fn model_forward(model, batch) {{ timing::span({name}, || batch.images * 1) }}"));
        (0..1001).find_map(|_| forward.call(&inputs()).err()).map(|error| error.reason).unwrap_or_default()
    };
    assert_eq!(span("\"a\\n\""), "a span's name must be one line of at most 200 bytes");
    assert_eq!(span(&format!("\"{}\"", "a".repeat(201))), "a span's name must be one line of at most 200 bytes");
    assert_eq!(span("batch.images.spec"), "");
    let evaluate = |metric: &str| {
        let text = format!("fn evaluator(output, truth) {{ {metric} }}");
        let (_dir, scripts) = load(&[("evaluator.rhai", &text)]);
        let mut evaluator = scripts.evaluator();
        let call = |n: usize| {
            let rows = StepOutput::One(Tensor::from_vec([n], vec![0.0f32; n]).unwrap());
            evaluator.call(&rows, &IndexMap::new()).err()
        };
        (1..200).find_map(call).map(|error| error.reason).unwrap_or_default()
    };
    assert_eq!(evaluate("metric::mean(output.spec, 1.0, 1)"), "`evaluator` returns more than 100 different metrics");
    assert_eq!(evaluate("metric::mean(\"\\u001b[2J\", 1.0, 1)"), "a metric's name must be one line of 1 to 200 bytes");
    assert_eq!(evaluate("metric::mean(\"m\", 1.0, 0)"), "the mean `m` has a sum of 1 but no observations");
    let doubled = "let m = metric::mean(\"m\", 1.0, 1); loop { m = m + m; }";
    assert_eq!(evaluate(doubled), "the metrics have 8589934592 observations (at most 4294967296 per call)");
}

#[test]
fn parsing_is_stopped_at_the_time_limit() {
    let parameters: Vec<String> = (0..100_000).map(|number| format!("a{number}")).collect();
    let dir = tempfile::tempdir().unwrap();
    case(dir.path(), &[("evaluator.rhai", &format!("fn f({}) {{}}", parameters.join(",")))]);
    let limits = Limits { script_time_s: Seconds(0.2), ..small_limits() };
    let error = CaseScripts::load(dir.path(), &ScriptChoice::default(), &limits, services().0).err().unwrap();
    assert_eq!(error.reason, "the script ran longer than 0.2 s (`script_time_s`)");
}

/// Builds a chain of closures, each of which captures the previous one, until a limit stops it.
fn chain(limits: Limits) -> ScriptError {
    let dir = tempfile::tempdir().unwrap();
    let text = "fn build_dataloader(config) {\n let f = || 0;\n loop { let g = f; f = || g; log::detail(\"\"); }\n}";
    case(dir.path(), &[("dataloader.rhai", text)]);
    let scripts = CaseScripts::load(dir.path(), &ScriptChoice::default(), &limits, services_without_log()).unwrap();
    scripts.build_dataloader(&ScriptConfig::new()).unwrap_err()
}

fn services_without_log() -> HostServices {
    HostServices { log: Arc::new(|_, _, _| {}), ..services().0 }
}

#[test]
fn values_nested_a_hundred_thousand_deep_are_dropped_on_the_script_stack() {
    let limits = Limits { script_memory_bytes: Bytes(16 << 20), ..small_limits() };
    let error = run_on_script_stack(limits.script_memory_bytes.0, || chain(limits)).unwrap();
    assert!(error.reason.contains("`script_memory_bytes`"), "{error}");
}

#[test]
#[ignore = "exits its process: run by `a_stack_overflow_exits_the_process_with_one_line`"]
fn nests_deeper_than_its_stack() {
    let limits = Limits { script_memory_bytes: Bytes(1 << 30), script_operations: 20_000_000, ..Limits::default() };
    let error = run_on_script_stack(0, || chain(limits));
    panic!("the script returned: {error:?}");
}

#[test]
fn a_stack_overflow_exits_the_process_with_one_line() {
    let name = "hostile_tests::nests_deeper_than_its_stack";
    let program = std::env::current_exe().unwrap();
    let output =
        assert_cmd::Command::new(program).args(["--ignored", "--exact", name, "--nocapture"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(STACK_EXIT_STATUS), "{stderr}");
    let line = stderr.lines().find(|line| line.starts_with("out of stack: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(line.contains("values are nested too deeply") && line.ends_with("/dataloader.rhai:3"), "{line}");
}

#[test]
fn a_panic_on_the_script_stack_is_an_error() {
    assert_eq!(run_on_script_stack(0, || panic!("{} left", 3)).map(|()| 1), Err("panicked: 3 left".to_owned()));
    assert_eq!(run_on_script_stack(0, || 7), Ok(7));
}
