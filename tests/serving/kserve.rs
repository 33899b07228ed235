//! The engine `kserve`: a case measured at a server that speaks KServe's protocol, here our own.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::server::Server;
use crate::support::{program, results};

/// Runs the case `tiny` at the server. Returns the record and the exit code.
fn run(checkout: &Path, server: &Server, extra: &[&str]) -> (Value, Option<i32>) {
    let address = format!("kserve.base_url=http://{}", server.address);
    let own = ["--set", "compiler=kserve", "--set", &address, "--set", "kserve.model=tiny"];
    program::record(checkout, &[&own[..], extra].concat())
}

fn agreement(record: &Value) -> &Value {
    &record["phases"][1]["agreement"]["outputs"]["output"]
}

#[test]
fn the_model_of_a_result_is_measured_at_its_server() {
    let checkout = results::checkout();
    let (result, _) = results::run(checkout.path(), &[]);
    let server = Server::with(checkout.path(), &["--result", result.to_str().unwrap()]);
    // A bound that a busy machine keeps: lateness is judged by it.
    let scenario =
        "scenario={kind: server, queries_per_s: 200, min_duration_s: 1, percentile: 0.9, latency_bound_s: 30}";
    let (record, code) = run(checkout.path(), &server, &["--set", scenario]);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    assert!(agreement(&record)["max_abs"].as_f64() <= Some(1e-5), "{record}");
    let engine = &record["phases"][1]["engine"]["server"];
    assert_eq!(engine["model"], "tiny", "{engine}");
    assert!(engine["reported"][0].as_str().is_some_and(|text| text.starts_with("flagperf ")), "{engine}");
    let scenario = &record["phases"][1]["scenario"];
    let trial = &scenario["trials"][0];
    assert_eq!((&trial["overlap"], &trial["queries"]), (&Value::Bool(true), &trial["scheduled"]), "{trial}");
    assert!(trial["first_token"].is_null() && trial["queries"].as_u64() >= Some(200), "{trial}");
    assert_eq!(scenario["report"]["agreement"]["not_compared"], serde_json::json!([]), "{scenario}");
    let reasons = record["validity"]["reasons"].to_string();
    assert!(reasons.contains("computed, whose code is not in the record"), "{reasons}");
}

#[test]
fn names_of_another_server_are_mapped_and_wrong_ones_listed() {
    let checkout = results::checkout();
    let (result, _) = results::run(checkout.path(), &[]);
    let store = tempfile::tempdir().unwrap();
    let folder = store.path().join("tiny/1");
    fs::create_dir_all(&folder).unwrap();
    let onnx = fs::read_dir(&result).unwrap().flatten().find(|e| e.path().extension().is_some_and(|x| x == "onnx"));
    fs::copy(onnx.expect("an ONNX file").path(), folder.join("model.onnx")).unwrap();
    let renamed = "inputs: {INPUT_0: images}\noutputs: {OUTPUT_0: scores}\nmax_batch_size: 4\n";
    fs::write(store.path().join("tiny/model.yaml"), renamed).unwrap();
    let server = Server::with(checkout.path(), &["--model-store", store.path().to_str().unwrap()]);
    let names = ["--set", "kserve.inputs={images: INPUT_0}", "--set", "kserve.outputs={scores: OUTPUT_0}"];
    let (record, code) = run(checkout.path(), &server, &names);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    for (setting, part) in [
        ("kserve.inputs={images: INPUT_7}", "option `inputs`: `images`: the server has no `INPUT_7` (known: INPUT_0)"),
        ("kserve.model=tinny", "replied with status 404"),
        ("kserve.model=a b", "option `model`: `a b` is not a name of a model"),
    ] {
        let address = format!("kserve.base_url=http://{}", server.address);
        let set =
            ["run", "--set", "compiler=kserve", "--set", &address, "--set", "kserve.model=tiny", "--set", setting];
        let output = program::flagperf(checkout.path(), &set);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && errors.contains(part), "{errors}");
    }
}
