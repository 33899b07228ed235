//! What clients get: metadata, inference in JSON and binary, classification, versions, statistics, and the real clients.

use serde_json::{Value, json};

use crate::server::{Answer, Server, add_model, rows, store};
use crate::support;

fn numbers(answer: &Answer) -> Vec<f64> {
    let data = &answer.json()["outputs"][0]["data"];
    data.as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().filter_map(Value::as_f64).collect()
}

#[test]
fn json_and_binary_requests_get_the_same_numbers() {
    let server = Server::start(&[("m", "")]);
    let mut request = rows(&[[1.0, 2.0, 3.0]]);
    request["id"] = "seven".into();
    let answer = server.infer("m", &request);
    assert_eq!((answer.status, &answer.json()["id"]), (200, &json!("seven")), "{answer:?}");
    assert_eq!(answer.json()["outputs"][0]["shape"], json!([1, 5]));
    let expected = numbers(&answer);
    let json = json!({
        "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}],
        "parameters": {"binary_data_output": true},
    });
    let json = json.to_string();
    let body: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let length = json.len().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let answer = server.request("POST", "/v2/models/m/infer", &headers, &[json.as_bytes(), &body].concat());
    assert_eq!(answer.status, 200, "{answer:?}");
    let length = answer.headers.lines().find_map(|line| line.strip_prefix("inference-header-content-length: "));
    let (head, bytes) = answer.body.split_at(length.unwrap().trim().parse().unwrap());
    let head: Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 20);
    let (found, _) = bytes.as_chunks::<4>();
    let found: Vec<f32> = found.iter().map(|number| f32::from_le_bytes(*number)).collect();
    assert_eq!(found, expected.iter().map(|number| *number as f32).collect::<Vec<_>>());
}

#[test]
fn metadata_has_the_names_of_clients_and_open_dimensions() {
    let server = Server::start(&[("m", "inputs: {INPUT_0: x}\noutputs: {OUTPUT_0: y}")]);
    for path in ["/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let expected = json!({
        "name": "m",
        "versions": ["1"],
        "platform": "rten_onnx",
        "inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "OUTPUT_0", "datatype": "FP32", "shape": [-1, 5]}],
    });
    assert_eq!(server.get("/v2/models/m").json(), expected);
}

#[test]
fn the_configuration_of_a_model_has_the_form_of_triton() {
    let settings = "max_batch_size: 8\npreferred_batch_sizes: [4]\nqueue_delay_us: 100\ninstances: 2";
    let server = Server::start(&[("m", settings), ("plain", "")]);
    let expected = json!({
        "name": "m",
        "platform": "rten_onnx",
        "backend": "rten",
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [5], "label_filename": ""}],
        "instance_group": [{"name": "m", "count": 2, "kind": "KIND_AUTO"}],
        "default_model_filename": "model.onnx",
        "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
    });
    assert_eq!(server.get("/v2/models/m/config").json(), expected);
    assert_eq!(server.get("/v2/models/m/versions/1/config").json(), expected);
    let plain = server.get("/v2/models/plain/config").json();
    assert_eq!((&plain["input"][0]["dims"], plain.get("dynamic_batching")), (&json!([-1, 3]), None));
}

#[test]
fn the_largest_values_have_their_labels() {
    let store = store(&[("m", "labels: labels.txt\nmax_batch_size: 4")]);
    std::fs::write(store.path().join("m/labels.txt"), "a\nb\nc\nd\ne\n").unwrap();
    let server = Server::of_store(store, &[]);
    let mut request = rows(&[[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]]);
    let all = numbers(&server.infer("m", &request));
    request["outputs"] = json!([{"name": "y", "parameters": {"classification": 1}}]);
    let output = server.infer("m", &request).json()["outputs"][0].clone();
    assert_eq!((&output["datatype"], &output["shape"]), (&json!("BYTES"), &json!([2, 1])));
    for (row, text) in all.chunks(5).zip(output["data"].as_array().unwrap()) {
        let largest = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        let label = ["a", "b", "c", "d", "e"][largest.0];
        assert_eq!(text, &json!(format!("{:.6}:{}:{label}", largest.1, largest.0)));
    }
}

#[test]
fn the_highest_version_answers_unless_one_is_named_and_a_new_one_is_loaded_while_serving() {
    let server = Server::start(&[("m", "")]);
    add_model(server.store.path(), "m", "10", 7, "");
    add_model(server.store.path(), "m", "9", 6, "");
    assert_eq!(server.post("/v2/repository/models/m/load", &json!({})).status, 200);
    let request = rows(&[[1.0, 2.0, 3.0]]);
    assert_eq!(numbers(&server.infer("m", &request)).len(), 7);
    assert_eq!(numbers(&server.infer("m/versions/9", &request)).len(), 6);
    let error = server.infer("m/versions/8", &request);
    assert_eq!((error.status, error.error()), (404, "model `m` has no version `8` (known: 1, 9, 10)".to_owned()));
}

#[test]
fn the_index_lists_models_that_are_not_loaded_and_statistics_count_rows() {
    let server = Server::start(&[("m", "max_batch_size: 4"), ("other", "")]);
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]; 3])).status, 200);
    let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(3), &json!(1)));
    assert_eq!(stats["batch_stats"][0]["batch_size"], 3);
    assert_eq!(server.post("/v2/repository/models/other/unload", &json!({})).status, 200);
    let index = server.post("/v2/repository/index", &json!({})).json();
    assert_eq!(index[0], json!({"name": "m", "version": "1", "state": "READY", "reason": ""}));
    assert_eq!(index[1], json!({"name": "other", "state": "UNAVAILABLE", "reason": "not loaded"}));
    assert_eq!(server.post("/v2/repository/index", &json!({"ready": true})).json().as_array().unwrap().len(), 1);
    let error = server.infer("other", &rows(&[[1.0; 3]]));
    assert_eq!((error.status, error.error()), (404, "unknown model `other` (loaded: m)".to_owned()));
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(metrics.contains("flagperf_rows_total{model=\"m\",version=\"1\"} 3\n"), "{metrics}");
}

#[test]
fn compilers_of_a_vendor_have_the_names_of_its_vendor_yaml() {
    let server = Server::of_store(store(&[("m", "compiler: rten\nthreads: 1")]), &["--vendor", "cpu"]);
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
    std::fs::write(server.store.path().join("m/model.yaml"), "compiler: rtn").unwrap();
    let error = server.post("/v2/repository/models/m/load", &json!({})).error();
    assert!(error.starts_with("m/model.yaml:1: unknown compiler `rtn` (known in vendors/cpu/vendor.yaml: "), "{error}");
}

#[test]
fn the_client_of_triton_works_unchanged() {
    let Some(python) = support::python() else { return };
    let settings = "inputs: {INPUT_0: x}\noutputs: {OUTPUT_0: y}";
    let server = Server::start(&[("resnet101", settings), ("batched", "max_batch_size: 8\nqueue_delay_us: 1000")]);
    support::run_script(&python, "triton_client.py", &[&server.address]);
}

#[test]
fn the_client_of_triton_over_grpc_works_unchanged() {
    let Some(python) = support::python() else { return };
    let slow = "compiler: \"null\"\noptions: {sleep_ms: 1000}";
    let server = Server::start(&[("batched", "max_batch_size: 8\nqueue_delay_us: 1000"), ("slow", slow)]);
    support::run_script(&python, "triton_client_grpc.py", &[&server.grpc_address]);
}

#[test]
fn the_script_with_which_oneflow_shows_its_server_works_unchanged() {
    let Some(python) = support::python() else { return };
    let ports = "options: {inputs: {x: \"N,3,224,224,f32\"}, outputs: {y: \"N,1000,f32\"}}";
    let names = "inputs: {INPUT_0: x}\noutputs: {OUTPUT_0: y}";
    let server = Server::start(&[("resnet101", &format!("compiler: \"null\"\n{ports}\n{names}"))]);
    support::run_script(&python, "triton_client_image.py", &[&server.address]);
}
