//! ONNX Runtime's execution providers by name: what it registers, and what it must refuse.
//!
//! All tests need ONNX Runtime's library (`flagperf backend install onnxruntime`) and are left out without it.

use std::path::Path;

use flagperf_engine::{Artifact, EngineError, LoadOptions, Session, find};
use flagperf_onnx::write_onnx;
use serde_json::json;

use crate::support::{self, graphs};

/// Loads a model of one linear layer with these options; `None` without the library.
fn load(extra: serde_json::Value) -> Option<Result<Box<dyn Session>, EngineError>> {
    if !support::has_engine("onnxruntime") {
        return None;
    }
    let graph = graphs::linear(4);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    write_onnx(&graph, &path).expect("a file");
    let extra = serde_json::from_value(extra).expect("a map");
    let options = LoadOptions { threads: 1, extra, ..LoadOptions::default() };
    Some(find("onnxruntime").expect("a row of the table").load(Artifact::Onnx(&path), &options))
}

/// Returns the error of a load with these options; `None` without the library.
fn refusal(extra: serde_json::Value) -> Option<String> {
    Some(load(extra)?.err().expect("it is refused").to_string())
}

#[test]
fn a_provider_that_the_library_lacks_lists_those_that_it_has() {
    for name in ["AbsentExecutionProvider", "cuda"] {
        let Some(error) = refusal(json!({"provider": name})) else { return };
        let expected = format!("this build of ONNX Runtime has no provider `{name}` (available: ");
        assert!(error.starts_with(&expected) && error.contains("cpu"), "{error}");
        // The provider of a cloud service is part of every wheel and has no short name.
        assert!(error.contains("AzureExecutionProvider"), "{error}");
    }
}

#[test]
fn a_provider_without_a_short_name_registers_and_is_refused_when_it_runs_no_node() {
    let Some(error) = refusal(json!({"provider": "AzureExecutionProvider"})) else { return };
    let expected = "no node of the model runs on provider `AzureExecutionProvider` (nodes: CPUExecutionProvider ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_provider_is_selected_by_one_of_its_devices() {
    let Some(session) = load(json!({"provider": "cpu", "provider_device": 0})) else { return };
    let session = session.unwrap_or_else(|error| panic!("{error}"));
    let facts = session.facts();
    assert!(facts.device.starts_with("cpu:0 ") && facts.device.ends_with("CPU"), "{}", facts.device);
    assert!(facts.nodes_by_provider["CPUExecutionProvider"] > 0);
    let error = refusal(json!({"provider": "cpu", "provider_device": 99})).expect("the library is there");
    assert!(error.starts_with("option `provider_device`: no device 99 (known from 0: "), "{error}");
}

#[test]
fn the_full_name_of_a_known_provider_has_the_rules_of_its_short_name() {
    let Some(session) = load(json!({"provider": "CPUExecutionProvider"})) else { return };
    assert_eq!(session.unwrap_or_else(|error| panic!("{error}")).facts().device, "cpu");
}

#[test]
fn a_library_that_brings_no_provider_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("provider.so");
    std::fs::write(&text, "no library").expect("a file");
    for path in [Path::new("/no/such/provider.so"), &text] {
        let Some(error) = refusal(json!({"provider": "any", "provider_library": path})) else { return };
        assert!(error.starts_with("engine `onnxruntime`: option `provider_library`: "), "{error}");
        assert!(error.contains(path.to_str().expect("a path that is text")), "{error}");
    }
    let error = refusal(json!({"provider": "any", "provider_library": "libc.so.6"})).expect("the library is there");
    assert!(error.starts_with("option `provider_library`: ONNX Runtime cannot register `libc.so.6`: "), "{error}");
    let error = refusal(json!({"provider_library": "libc.so.6"})).expect("the library is there");
    assert!(error.ends_with("the option `provider` must name the provider that this library brings"), "{error}");
}

#[test]
fn the_check_of_the_machine_asks_the_library_for_the_provider() {
    if !support::has_engine("onnxruntime") {
        return;
    }
    let check = |extra: serde_json::Value| {
        let options = LoadOptions { extra: serde_json::from_value(extra).expect("a map"), ..LoadOptions::default() };
        find("onnxruntime").expect("a row of the table").check_with(&options).map_err(|error| error.to_string())
    };
    check(json!({"provider": "cpu"})).expect("every build has this provider");
    let error = check(json!({"provider": "AbsentExecutionProvider"})).expect_err("no build has this provider");
    assert!(error.starts_with("this build of ONNX Runtime has no provider `AbsentExecutionProvider` ("), "{error}");
}
