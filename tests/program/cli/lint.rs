//! What `lint` finds in a checkout, for each pair of a case and a vendor.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{checkout, flagperf, insert_into_create_model};

/// Runs `lint` and returns its standard output and its exit code.
fn lint(checkout: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let output = flagperf(checkout, &[&["lint"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).replace(&*checkout.to_string_lossy(), "[CHECKOUT]");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    (text, output.status.code())
}

/// Runs `lint --json` and returns what it printed, and the exit code.
fn lint_json(checkout: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let (text, code) = lint(checkout, &[arguments, &["--json"]].concat());
    (serde_json::from_str(&text).expect("JSON"), code)
}

/// Replaces a part of a file of the checkout.
fn change(checkout: &Path, path: &str, from: &str, to: &str) {
    let path = checkout.join(path);
    let text = fs::read_to_string(&path).expect("a file");
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).expect("a file");
}

/// Returns the errors and the warnings of `plan` for the case `tiny`, one after the other.
fn plan(checkout: &Path) -> String {
    let output = flagperf(checkout, &["plan", "--case", "tiny"]);
    String::from_utf8_lossy(&output.stderr).replace(&*checkout.to_string_lossy(), "[CHECKOUT]")
}

#[test]
fn every_case_of_the_repository_is_free_of_findings_with_every_vendor() {
    let checkout = checkout();
    let (report, code) = lint_json(checkout.path(), &[]);
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.iter().all(|finding| finding["level"] == "note"), "{findings:?}");
    assert_eq!(code, Some(0));
    let pairs = report["pairs"].as_array().expect("a list");
    for (case, vendor, framework) in [
        ("tiny", Value::Null, Value::Null),
        ("tiny", json!("mock"), json!("mock")),
        ("resnet50", Value::Null, Value::Null),
        ("resnet50", json!("nvidia"), json!("pytorch")),
        ("resnet50", json!("cpu"), json!("interpreter")),
        ("resnet50", json!("cpu"), json!("pytorch")),
    ] {
        let key = [json!(case), vendor.clone(), framework.clone(), json!(false)];
        let is_it = |pair: &&Value| ["case", "vendor", "framework", "training"].map(|name| pair[name].clone()) == key;
        assert_eq!(pairs.iter().filter(is_it).count(), 1, "{case} {vendor} {framework}");
    }
    assert!(!checkout.path().join("result").exists());
    assert!(!checkout.path().join("datasets/drawn/generated").exists(), "no dataset is drawn");
}

#[test]
fn a_mistake_in_any_file_of_a_case_is_found_by_lint_and_by_plan() {
    let overlay = "configs/tiny/vendor_config/mock_configurations.yaml";
    for (path, from, to, found) in [
        (
            "configs/tiny/parameters.yaml",
            "samples",
            "sampels",
            "error: scripts/tiny/dataloader.rhai:3:25: unknown property `samples`; did you mean `sampels`?",
        ),
        (
            overlay,
            "compiler: mock",
            "compiler: mock\nbatch_siez: 2",
            "warning: configs/tiny/vendor_config/mock_configurations.yaml:2: ",
        ),
        (overlay, "compiler: mock", "compiler: [mock", "error: configs/tiny/vendor_config/mock_configurations.yaml:"),
        (
            overlay,
            "compiler: mock",
            "compiler: moc",
            "error: configs/tiny/vendor_config/mock_configurations.yaml:1: vendor `mock` has no compiler `moc`",
        ),
        (
            "scripts/tiny/model.rhai",
            "fn create_model",
            "fn create_modle",
            "error: scripts/tiny/model.rhai: the function `create_model(config)` is missing",
        ),
        (
            "scripts/tiny/forward.rhai",
            "model.run(",
            "model.rnu(",
            "error: scripts/tiny/forward.rhai:2:11: unknown function `rnu`; did you mean `run`?",
        ),
        (
            "vendors/mock/vendor.yaml",
            "mock: {engine: \"null\"",
            "mock: {engine: \"nul\"",
            "error: vendors/mock/vendor.yaml:",
        ),
    ] {
        let checkout = checkout();
        change(checkout.path(), path, from, to);
        let (text, code) = lint(checkout.path(), &["tiny"]);
        assert!(text.contains(&format!("\n{found}")), "{found}\n{text}");
        assert_eq!(code, Some(if found.starts_with("error") { 2 } else { 0 }), "{text}");
        let planned = plan(checkout.path());
        assert!(planned.lines().any(|line| line.starts_with(found)), "{found}\n{planned}");
    }
    let checkout = checkout();
    fs::remove_file(checkout.path().join("scripts/tiny/evaluator.rhai")).expect("it was there");
    let (text, code) = lint(checkout.path(), &["tiny"]);
    let missing = "error: configs/tiny/parameters.yaml: case `tiny` has neither scripts/tiny/evaluator.rhai nor ";
    assert!(text.contains(missing) && code == Some(2), "{text}");
    assert!(plan(checkout.path()).contains(missing));
}

#[test]
fn a_finding_of_several_pairs_is_reported_once_with_all_of_them() {
    let checkout = checkout();
    insert_into_create_model(checkout.path(), "nn::grph(\"a\");");
    let (report, code) = lint_json(checkout.path(), &["tiny"]);
    assert_eq!(code, Some(2));
    let findings = report["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = &findings[0];
    assert_eq!((&finding["level"], &finding["file"]), (&json!("error"), &json!("scripts/tiny/model.rhai")));
    assert_eq!((&finding["line"], &finding["column"]), (&json!(2), &json!(5)));
    let pairs = json!([
        {"case": "tiny", "vendor": null, "framework": null, "training": false},
        {"case": "tiny", "vendor": "mock", "framework": "mock", "training": false}
    ]);
    assert_eq!(finding["pairs"], pairs);
    assert_eq!(report["pairs"].as_array().map(Vec::len), Some(2));
    let (text, _) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains("  in: tiny without a vendor, tiny:mock with mock\n"), "{text}");
    assert!(text.ends_with("2 pairs checked: 1 error, 0 warnings, 0 notes\n"), "{text}");
    let (text, _) = lint(checkout.path(), &["tiny", "--vendor", "mock"]);
    assert!(text.ends_with("1 pair checked: 1 error, 0 warnings, 0 notes\n"), "{text}");
}

#[test]
fn what_a_machine_lacks_is_a_note_and_hides_no_mistake() {
    let checkout = checkout();
    change(checkout.path(), "configs/tiny/parameters.yaml", "weights: null", "weights: gone.safetensors");
    let vendor = "    lib: {engine: plugin, library: engines/libgone.so}\n";
    change(checkout.path(), "vendors/mock/vendor.yaml", "frameworks:\n", &format!("frameworks:\n{vendor}"));
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("\nnote: configs/tiny/parameters.yaml:2: weights file `gone.safetensors` does not exist"),
        "{text}"
    );
    assert!(text.contains("/engines/libgone.so"), "{text}");
    insert_into_create_model(checkout.path(), "throw \"no model\";");
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains("\nerror: scripts/tiny/model.rhai:2:1: no model\n") && code == Some(2), "{text}");
    assert!(text.contains("  in: tiny without a vendor, tiny:lib with mock, tiny:mock with mock\n"), "{text}");
    let planned = plan(checkout.path());
    assert!(planned.contains("error: scripts/tiny/model.rhai:2:1: no model"), "{planned}");
}

#[test]
fn the_adapter_of_a_vendor_is_checked_with_this_vendor_only() {
    let checkout = checkout();
    fs::create_dir_all(checkout.path().join("scripts/tiny/mock")).expect("a folder");
    let adapter = "fn engine_forward(engine, batch) { engine.rnu() }\n";
    fs::write(checkout.path().join("scripts/tiny/mock/forward.rhai"), adapter).expect("a file");
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains("\nerror: scripts/tiny/mock/forward.rhai:1:43: unknown function `rnu`"), "{text}");
    assert!(text.contains("  in: tiny:mock with mock\n") && code == Some(2), "{text}");
}

#[test]
fn the_site_and_vendors_without_an_overlay_are_checked() {
    let checkout = checkout();
    change(checkout.path(), "configs/host.yaml", "VENDOR: mock", "VENDOR: mok");
    fs::create_dir_all(checkout.path().join("vendors/broken")).expect("a folder");
    fs::write(checkout.path().join("vendors/broken/vendor.yaml"), "name: [\n").expect("a file");
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains("\nerror: configs/host.yaml:1: ") && text.contains("did you mean `mock`?"), "{text}");
    assert!(text.contains("\nerror: vendors/broken/vendor.yaml:"), "{text}");
    assert_eq!(code, Some(2));
}

#[test]
fn an_unknown_case_or_vendor_is_refused_with_the_nearest_name() {
    let checkout = checkout();
    let refused = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["lint"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["tyni"]).contains("did you mean `tiny`?"));
    assert!(refused(&["--vendor", "mok"]).contains("did you mean `mock`?"));
}

#[test]
fn a_parameter_that_nobody_reads_is_a_warning_of_lint_and_plan() {
    let checkout = checkout();
    change(checkout.path(), "configs/tiny/parameters.yaml", "seed: 0\n", "seed: 0\ncolour: red\n");
    let found = "warning: configs/tiny/parameters.yaml:4: parameter `colour` has no effect: no script of the case reads \
                 it, and neither does the host";
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains(found) && code == Some(0), "{text}");
    assert!(text.contains("  in: tiny without a vendor, tiny:mock with mock\n"), "{text}");
    assert!(plan(checkout.path()).contains(found));
    // The script of a vendor reads it, which is the same case with another vendor.
    fs::create_dir_all(checkout.path().join("scripts/tiny/cpu")).expect("a folder");
    let adapter = "fn engine_forward(engine, batch, config) {\n    if config.colour == \"red\" { return 1; }\n    engine.run([batch.images])[0]\n}\n";
    fs::write(checkout.path().join("scripts/tiny/cpu/forward.rhai"), adapter).expect("a file");
    assert!(lint(checkout.path(), &["tiny"]).0.ends_with(": 0 errors, 0 warnings, 0 notes\n"));
    // A name close to one of the host's keys has one warning.
    change(checkout.path(), "configs/tiny/parameters.yaml", "colour: red\n", "colour: red\nseeds: 1\n");
    let (text, _) = lint(checkout.path(), &["tiny"]);
    assert_eq!(text.matches("warning: configs/tiny/parameters.yaml:5: ").count(), 1, "{text}");
}

#[test]
fn a_key_that_no_file_sets_is_an_error_at_its_position_also_where_the_script_has_not_run() {
    let checkout = checkout();
    let evaluator = "fn evaluator(output, truth, config) {\n    if config.seed == 7 { throw config.colour; }\n    metric::top_k(output, truth.labels, [1])\n}\n";
    fs::write(checkout.path().join("scripts/tiny/evaluator.rhai"), evaluator).expect("a file");
    let found = "error: scripts/tiny/evaluator.rhai:2:40: unknown property `colour`: `config` has what \
                 configs/tiny/parameters.yaml sets";
    let (text, code) = lint(checkout.path(), &["tiny"]);
    assert!(text.contains(found) && code == Some(2), "{text}");
    assert!(plan(checkout.path()).contains(found), "{}", plan(checkout.path()));
    // With another vendor it is set: the script may know with which.
    let overlay = "configs/tiny/vendor_config/cpu_configurations.yaml";
    fs::write(checkout.path().join(overlay), "colour: red\n").expect("a file");
    assert_eq!(lint(checkout.path(), &["tiny"]).1, Some(0));
}
