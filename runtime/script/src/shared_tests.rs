//! Tests of shared scripts: what a script can import, and what it gets.

use std::path::Path;

use indexmap::IndexMap;
use nix::sys::stat::Mode;
use serde_json::json;

use super::case_tests::{inputs, sessions};
use super::tests::{case, services, small_limits};
use super::*;
use flagperf_core::event::Level;
use flagperf_core::tensor::Tensor;

const ROLES: &str = "const SIZE = 32;

fn images(config) {
    data::image_folder(config.images).resize(global::SIZE)
}

fn model_forward(model, batch) {
    timing::span(\"all\", || first(model.run([batch.images])))
}

private fn first(outputs) { outputs[0] }

fn evaluator(output, truth) {
    metric::top_k(output, truth.labels, [1])
}
";

/// Writes a case and shared scripts to a folder and loads the case.
fn load(
    choice: &ScriptChoice,
    scripts: &[(&str, &str)],
    shared: &[(&str, &str)],
) -> (tempfile::TempDir, Result<CaseScripts, ScriptError>) {
    let root = tempfile::tempdir().unwrap();
    case(&root.path().join("toy"), scripts);
    for (name, text) in shared {
        let file = root.path().join("lib").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let loaded = load_case(root.path(), choice);
    (root, loaded)
}

fn load_case(root: &Path, choice: &ScriptChoice) -> Result<CaseScripts, ScriptError> {
    CaseScripts::load(&root.join("toy"), choice, &small_limits(), services().0)
}

/// Loads a case whose dataloader has these lines, and returns the error.
fn dataloader_error(text: &str, shared: &[(&str, &str)]) -> ScriptError {
    load(&ScriptChoice::default(), &[("dataloader.rhai", text)], shared).1.err().expect("something is wrong")
}

#[test]
fn an_error_of_the_dataset_is_placed_at_the_call_that_describes_it() {
    let config = ScriptConfig::from([("images".to_owned(), json!("val"))]);
    let place = |dataloader: &str, shared: &[(&str, &str)]| {
        let (root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], shared);
        let scripts = scripts.unwrap();
        scripts.build_dataloader(&config).unwrap();
        let error = scripts.dataset_error("there is no `val`");
        assert_eq!(error.reason, "there is no `val`");
        let name = |file: &Path| file.strip_prefix(root.path()).unwrap().display().to_string();
        let called: Vec<_> =
            error.called_from.iter().map(|(file, line)| format!(" from {}:{line}", name(file))).collect();
        format!("{}:{}{}", name(&error.file), error.line, called.concat())
    };
    let own = "fn build_dataloader(config) {\n    log::info(\"x\");\n    data::image_folder(config.images)\n        .resize(8)\n}\n";
    assert_eq!(place(own, &[]), "toy/dataloader.rhai:3");
    let shared =
        [("one.rhai", "// One.\nfn folder(config) {\n    data::image_folder(config.images)\n        .resize(8)\n}\n")];
    let imports = "import \"lib/one\" as one;\n\nfn build_dataloader(config) {\n    log::info(\"x\");\n    one::folder(config)\n}\n";
    assert_eq!(place(imports, &shared), "lib/one.rhai:3 from toy/dataloader.rhai:5");
    let branches = "fn build_dataloader(config) {\n    if config.images == \"val\" {\n        return data::image_folder(\"val\");\n    }\n    data::image_folder(\"other\")\n}\n";
    assert_eq!(place(branches, &[]), "toy/dataloader.rhai:3");
}

#[test]
fn a_call_that_fits_no_function_and_a_wrong_value_are_placed_in_the_shared_script() {
    let dataloader =
        "import \"lib/one\" as one;\n\n// The images.\nfn build_dataloader(config) {\n    one::folder(config)\n}\n";
    let place = |body: &str| {
        let shared = format!("// One.\nfn folder(config) {{\n{body}\n}}\n");
        let (root, scripts) =
            load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], &[("one.rhai", &shared)]);
        let config = ScriptConfig::from([("images".to_owned(), json!("val"))]);
        let shown = scripts.unwrap().build_dataloader(&config).unwrap_err().to_string();
        shown.replace(&format!("{}/", root.path().display()), "")
    };
    for body in ["    data::image_folder(5)", "    log::info(\"x\"); data::image_folder(5)"] {
        let shown = place(body);
        assert!(
            shown.starts_with("lib/one.rhai:3:") && shown.ends_with("called from toy/dataloader.rhai:5"),
            "{shown}"
        );
    }
    let shown = place("    data::image_folder(\"val\");\n    data::image_folder(config.images, 5)");
    assert!(shown.starts_with("lib/one.rhai:4:"), "{shown}");
    let after = "import \"lib/one\" as one;\nfn build_dataloader(config) {\n    let a = one::folder(config);\n    data::image_folder(5)\n}\n";
    let one = [("one.rhai", "\n\n\n\n\nfn folder(config) { data::image_folder(config.images) }")];
    let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", after)], &one);
    let error =
        scripts.unwrap().build_dataloader(&ScriptConfig::from([("images".to_owned(), json!("v"))])).unwrap_err();
    assert!(error.file.ends_with("toy/dataloader.rhai") && error.line == 4, "{error}");
}

#[test]
fn an_unknown_property_of_config_says_where_it_is_set() {
    let text = "fn build_dataloader(config) { data::image_folder(config.weather) }";
    let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", text)], &[]);
    let config = ScriptConfig::from([("case".to_owned(), json!("toy")), ("size".to_owned(), json!(8))]);
    let error = scripts.unwrap().build_dataloader(&config).unwrap_err();
    let expected = "unknown property `weather` (known: case, size): `config` has what configs/toy/parameters.yaml sets";
    assert_eq!(error.reason, expected);
}

fn importing(name: &str) -> String {
    format!("{name}\nfn build_dataloader(config) {{ data::image_folder(\"images\") }}")
}

fn roles() -> ScriptChoice {
    let shared = || Some("lib/roles".to_owned());
    ScriptChoice { forward: shared(), evaluator: shared(), without_model: true }
}

#[test]
fn one_shared_script_serves_several_stages() {
    let dataloader = "import \"lib/roles\" as r;\nfn build_dataloader(config) { r::images(config) }";
    let (root, loaded) = load(&roles(), &[("dataloader.rhai", dataloader)], &[("roles.rhai", ROLES)]);
    for own in ["forward.rhai", "evaluator.rhai", "model.rhai"] {
        std::fs::remove_file(root.path().join("toy").join(own)).unwrap();
    }
    loaded.map(drop).unwrap_or_else(|error| panic!("{error}"));
    let scripts = load_case(root.path(), &roles()).unwrap_or_else(|error| panic!("{error}"));
    let config = ScriptConfig::from([("images".to_owned(), json!("val"))]);
    scripts.build_dataloader(&config).unwrap_or_else(|error| panic!("{error}"));
    let mut forward = scripts.forward(ForwardKind::Model, sessions(&["model"]));
    assert!(matches!(forward.call(&inputs()), Ok(StepOutput::One(_))));
    assert_eq!(forward.take_spans().len(), 1);
    let output = StepOutput::One(Tensor::from_vec([1, 2], vec![0.1f32, 0.9]).unwrap());
    let truth = IndexMap::from([("labels".to_owned(), Tensor::from_vec([1], vec![1i64]).unwrap())]);
    assert_eq!(scripts.evaluator().call(&output, &truth).unwrap().finish()["top1"], 1.0);
    let error = scripts.create_model(&config, root.path()).err().unwrap();
    assert!(error.file.ends_with("toy/model.rhai"), "{error}");
}

#[test]
fn a_case_that_builds_a_model_needs_its_script() {
    let (root, _) = load(&ScriptChoice::default(), &[], &[]);
    std::fs::remove_file(root.path().join("toy/model.rhai")).unwrap();
    assert!(load_case(root.path(), &ScriptChoice::default()).err().unwrap().file.ends_with("model.rhai"));
    let without = ScriptChoice { without_model: true, ..ScriptChoice::default() };
    assert!(load_case(root.path(), &without).is_ok());
}

#[test]
fn a_function_that_needs_a_package_of_another_stage_cannot_be_called() {
    let dataloader = "import \"lib/roles\" as r;\nfn build_dataloader(config) {\n    r::evaluator(1, 2)\n}";
    let error = dataloader_error(dataloader, &[("roles.rhai", ROLES)]);
    let expected =
        "`r::evaluator` calls `metric::top_k`, which is not granted to dataloader.rhai (granted: data, image, log)";
    assert_eq!((error.line, error.reason.as_str()), (3, expected));
    // A closure belongs to the function in which it is written, and the reason is passed on.
    let nested = "fn outer() { inner() } private fn inner() { [1].map(|x| tensor::zeros(\"1,f32\")) }";
    let error =
        dataloader_error("import \"lib/n\" as n;\nfn build_dataloader(config) { n::outer() }", &[("n.rhai", nested)]);
    assert!(error.reason.starts_with("`n::outer` calls `tensor::zeros`, which is not granted"), "{error}");
    let choice = ScriptChoice { forward: Some("lib/only".to_owned()), ..ScriptChoice::default() };
    let only = "fn model_forward(model, batch) { metric::mean(\"m\", 1.0, 1) }";
    let error = load(&choice, &[], &[("only.rhai", only)]).1.err().unwrap();
    assert!(error.reason.starts_with("`model_forward` calls `metric::mean`, which is not granted to forward.rhai"));
    assert!(error.file.ends_with("lib/only.rhai"), "{error}");
}

#[test]
fn errors_and_log_lines_name_the_shared_script_and_its_line() {
    let shared = "// One.\nfn folder(config) {\n    log::info(\"here\");\n    data::image_folder(config.imags)\n}\n";
    let dataloader = "import \"lib/one\" as one;\n\nfn build_dataloader(config) {\n    one::folder(config)\n}\n";
    let root = load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], &[("one.rhai", shared)]).0;
    let (services, lines) = services();
    let scripts =
        CaseScripts::load(&root.path().join("toy"), &ScriptChoice::default(), &small_limits(), services).unwrap();
    let config = ScriptConfig::from([("images".to_owned(), json!("val"))]);
    let shown = scripts.build_dataloader(&config).unwrap_err().to_string();
    insta::assert_snapshot!(shown.replace(&format!("{}/", root.path().display()), ""), @r"
    lib/one.rhai:4:31: unknown property `imags`; did you mean `images`?
            data::image_folder(config.imags)
                                      ^
        called from toy/dataloader.rhai:4
    ");
    let logged = lines.lock().unwrap().clone();
    assert_eq!(logged, [(Level::Info, "script lib/one.rhai:3".to_owned(), "here".to_owned())]);
    let syntax = dataloader_error(&importing("import \"lib/one\" as one;"), &[("one.rhai", "\nfn broken( {}")]);
    assert!(syntax.file.ends_with("lib/one.rhai") && syntax.line == 2, "{syntax}");
    let native = "fn folder() {\n    data::image_folder(\"../up\")\n}";
    let text = "import \"lib/one\" as one;\nfn build_dataloader(config) { one::folder() }";
    let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", text)], &[("one.rhai", native)]);
    let error = scripts.unwrap().build_dataloader(&ScriptConfig::new()).unwrap_err();
    assert!(error.file.ends_with("lib/one.rhai") && error.line == 2, "{error}");
}

#[test]
fn only_shared_scripts_can_be_imported_and_only_by_name() {
    let refused = |import: &str| dataloader_error(&importing(import), &[("one.rhai", "fn f() { 1 }")]);
    for name in ["one", "../lib/one", "lib/../toy/model", "/etc/passwd", "lib/", "lib/one.rhai", "lib/sub/one", ""] {
        let error = refused(&format!("import \"{name}\" as x;"));
        assert!(error.reason.starts_with("`import` accepts only a shared script by its name"), "{name}: {error}");
        assert_eq!(error.line, 1);
    }
    let computed = refused("const NAME = \"lib/one\"; import NAME as x;");
    assert!(computed.reason.ends_with("(not an expression)"), "{computed}");
    assert_eq!(refused("import \"lib/one\";").reason, "the import needs a name: `import \"lib/one\" as NAME;`");
    for package in ["data", "metric"] {
        let error = refused(&format!("import \"lib/one\" as {package};"));
        assert_eq!(error.reason, format!("`{package}` is the name of a package: give the import another name"));
    }
    let unknown = refused("import \"lib/on\" as x;");
    assert!(unknown.reason.starts_with("shared script `lib/on`: scripts/lib/on.rhai cannot be read: "), "{unknown}");
    assert!(unknown.reason.ends_with("; did you mean `lib/one`?"), "{unknown}");
    let inside = "fn build_dataloader(config) {\n    import \"lib/nothing\" as x;\n    x::f()\n}";
    assert_eq!(dataloader_error(inside, &[]).line, 2);
    assert!(refused("import \"lib/one\" as x; fn g(y) { y.f() }").reason.starts_with("unknown function `f`"));
    assert!(refused("import \"lib/one\" as x; fn g() { x::h() }").reason.starts_with("unknown function `x::h`"));
}

#[test]
fn a_shared_script_must_be_a_regular_file_of_bounded_size() {
    let root = load(
        &ScriptChoice::default(),
        &[("dataloader.rhai", &importing("import \"lib/one\" as x;"))],
        &[("two.rhai", "")],
    )
    .0;
    let file = root.path().join("lib/one.rhai");
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    let reason = load_case(root.path(), &ScriptChoice::default()).err().unwrap().reason;
    assert!(reason.contains("lib/one.rhai cannot be read: is a FIFO, not a regular file"), "{reason}");
    std::fs::remove_file(&file).unwrap();
    std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let reason = load_case(root.path(), &ScriptChoice::default()).err().unwrap().reason;
    assert!(reason.contains("lib/one.rhai cannot be read: "), "{reason}");
    std::fs::write(&file, "\n".repeat(70_000)).unwrap();
    let reason = load_case(root.path(), &ScriptChoice::default()).err().unwrap().reason;
    assert_eq!(reason, "the script and those before it have more than 65535 lines");
}

#[test]
fn shared_scripts_that_import_each_other_in_a_circle_are_refused() {
    let imports = |name: &str| format!("import \"lib/{name}\" as x;\nfn f() {{ 1 }}");
    let shared = [("one.rhai", imports("two")), ("two.rhai", imports("one")), ("own.rhai", imports("own"))];
    let shared: Vec<(&str, &str)> = shared.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let error = dataloader_error(&importing("import \"lib/one\" as x;"), &shared);
    let expected = "shared scripts import each other in a circle: `lib/one` imports `lib/two` imports `lib/one`";
    assert_eq!(error.reason, expected);
    assert!(error.file.ends_with("lib/two.rhai"), "{error}");
    let choice = ScriptChoice { forward: Some("lib/own".to_owned()), ..ScriptChoice::default() };
    let error = load(&choice, &[], &shared).1.err().unwrap();
    assert!(error.reason.ends_with("`lib/own` imports `lib/own`"), "{error}");
    let chain: Vec<(String, String)> =
        (0..30).map(|i| (format!("n{i}.rhai"), imports(&format!("n{}", i + 1)))).collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let error = dataloader_error(&importing("import \"lib/n0\" as x;"), &chain);
    assert_eq!(error.reason, "a script imports at most 16 shared scripts, also through others");
}

#[test]
fn a_shared_script_may_import_another() {
    let one = "import \"lib/two\" as two;\nfn folder() { two::images() }\nfn count(o) { two::score(o) }";
    let two = "fn images() { data::image_folder(\"val\") }\nfn score(o) { metric::mean(\"m\", o, 1) }";
    let dataloader = "import \"lib/one\" as one;\nfn build_dataloader(config) { one::folder() }";
    let shared = [("one.rhai", one), ("two.rhai", two)];
    let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], &shared);
    scripts.unwrap().build_dataloader(&ScriptConfig::new()).unwrap_or_else(|error| panic!("{error}"));
    let wrong = dataloader.replace("one::folder()", "one::count(1.0)");
    let reason = dataloader_error(&wrong, &shared).reason;
    assert!(reason.starts_with("`one::count` calls `two::score`, which is not granted"), "{reason}");
}

#[test]
fn a_shared_script_cannot_redefine_a_granted_name_and_has_no_unknown_names() {
    for (text, expected) in [
        ("fn run(m, i) { 1 }", "`run` is a function of the package `session` and cannot be redefined"),
        ("fn metric(x) { 1 }", "`metric` is the name of a package"),
        ("fn trim(x) { 1 }", "`trim` is a function of the language"),
        ("fn f() { metric::topk(1) }", "unknown function `metric::topk`; did you mean `metric::top_k`?"),
        ("fn f() { missing }", "unknown variable `missing`"),
        ("fn f() { eval(\"1\") }", "'eval'"),
        ("export let x = 1;", "'export'"),
        ("metric::mean(\"m\", 1.0, 1);", "unknown function `metric::mean`"),
    ] {
        let error = dataloader_error(&importing("import \"lib/one\" as x;"), &[("one.rhai", text)]);
        assert!(error.reason.contains(expected), "{text}: {error}");
        assert!(error.file.ends_with("lib/one.rhai") && error.line == 1, "{text}: {error}");
    }
}

#[test]
fn the_limits_of_the_importing_script_apply_to_shared_scripts() {
    let endless = dataloader_error(&importing("import \"lib/one\" as x;"), &[("one.rhai", "loop { }")]);
    assert!(endless.reason.contains("more than 5000000 operations"), "{endless}");
    for body in ["loop { }", "let a = []; loop { let b = []; b.pad(100000, 1); a.push(|| b); }", "spin()"] {
        let text = format!("fn spin() {{ {body} }}");
        let dataloader = "import \"lib/one\" as x;\nfn build_dataloader(config) { x::spin() }";
        let shared = [("one.rhai", text.as_str())];
        let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], &shared);
        let reason = scripts.unwrap().build_dataloader(&ScriptConfig::new()).unwrap_err().reason;
        assert!(reason.contains("`script_") || reason.contains("recursion"), "{body}: {reason}");
    }
    let dataloader = "fn build_dataloader(config) { loop { import \"lib/one\" as x; } }";
    let shared = [("one.rhai", "fn f() { 1 }")];
    let (_root, scripts) = load(&ScriptChoice::default(), &[("dataloader.rhai", dataloader)], &shared);
    let reason = scripts.unwrap().build_dataloader(&ScriptConfig::new()).unwrap_err().reason;
    assert!(reason.contains("too many modules") || reason.contains("`script_"), "{reason}");
}
