//! Tensors in shared memory: over both protocols, by the clients of Triton, and when a client takes the memory away.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use flagperf_serve::messages as m;
use flagperf_serve::messages::InferParameter;
use flagperf_serve::messages::infer_parameter::ParameterChoice;
use flagperf_serve::messages::model_infer_request::InferRequestedOutputTensor;
use serde_json::{Value, json};

use crate::grpc::rows as message;
use crate::server::{Answer, Server, rows, store};
use crate::support;

/// A file of shared memory, which is removed at the end of the test.
struct Shared(PathBuf);

impl Shared {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = PathBuf::from(format!("/dev/shm/flagperf-test-{name}-{}", std::process::id()));
        fs::write(&path, content).unwrap();
        Shared(path)
    }

    fn key(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The test may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

fn server() -> Server {
    Server::of_store(store(&[("m", "")]), &["--shared-memory"])
}

fn register(server: &Server, region: &str, body: &Value) -> Answer {
    server.post(&format!("/v2/systemsharedmemory/region/{region}/register"), body)
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn part(offset: u64, size: u64) -> Value {
    json!({"shared_memory_region": "r", "shared_memory_offset": offset, "shared_memory_byte_size": size})
}

/// Returns a request whose input begins at byte 4 of the region, and whose output is written to byte 16.
fn request(output_bytes: u64) -> Value {
    json!({
        "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": part(4, 12)}],
        "outputs": [{"name": "y", "parameters": part(16, output_bytes)}],
    })
}

#[test]
fn inputs_are_read_from_shared_memory_and_outputs_written_there() {
    let server = server();
    let shared = Shared::new("http", &bytes(&[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
    let registered = register(&server, "r", &json!({"key": shared.key(), "offset": 0, "byte_size": 36}));
    assert_eq!(registered.status, 200, "{registered:?}");
    let status = server.get("/v2/systemsharedmemory/status").json();
    assert_eq!(status, json!([{"name": "r", "key": shared.key(), "offset": 0, "byte_size": 36}]));
    let answer = server.infer("m", &request(20));
    assert_eq!(answer.status, 200, "{answer:?}");
    let output = &answer.json()["outputs"][0];
    assert_eq!((&output["parameters"]["shared_memory_byte_size"], output.get("data")), (&json!(20), None));
    let expected = server.infer("m", &rows(&[[1.0, 2.0, 3.0]])).json()["outputs"][0]["data"].clone();
    let expected: Vec<f32> =
        expected.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect();
    assert_eq!(fs::read(&shared.0).unwrap()[16..], bytes(&expected));

    let mut client = server.grpc();
    fs::write(&shared.0, bytes(&[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0])).unwrap();
    let mut request = message("m", &[[0.0; 3]]);
    request.raw_input_contents.clear();
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let part = |offset, size| {
        [
            ("shared_memory_region".to_owned(), parameter(ParameterChoice::StringParam("r".to_owned()))),
            ("shared_memory_offset".to_owned(), parameter(ParameterChoice::Int64Param(offset))),
            ("shared_memory_byte_size".to_owned(), parameter(ParameterChoice::Int64Param(size))),
        ]
        .into()
    };
    request.inputs[0].parameters = part(4, 12);
    request.outputs = vec![InferRequestedOutputTensor { name: "y".to_owned(), parameters: part(16, 20) }];
    let response: m::ModelInferResponse = client.infer(&request).read();
    assert!(response.raw_output_contents[0].is_empty(), "{response:?}");
    assert_eq!(fs::read(&shared.0).unwrap()[16..], bytes(&expected));
    let unregister = m::SystemSharedMemoryUnregisterRequest { name: "r".to_owned() };
    client.call("SystemSharedMemoryUnregister", &unregister).read::<m::SystemSharedMemoryUnregisterResponse>();
    assert_eq!(server.get("/v2/systemsharedmemory/region/r/status").status, 404);
}

#[test]
fn memory_that_a_client_takes_away_is_an_error_and_not_the_end_of_the_server() {
    let server = server();
    let shared = Shared::new("taken", &[0; 36]);
    assert_eq!(register(&server, "r", &json!({"key": shared.key(), "byte_size": 36})).status, 200);
    let file = OpenOptions::new().write(true).open(&shared.0).unwrap();
    for size in [0, 15, 30] {
        file.set_len(size).unwrap();
        let answer = server.infer("m", &request(20));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.error().contains("has become smaller"), "{}", answer.error());
    }
    file.set_len(36).unwrap();
    fs::remove_file(&shared.0).unwrap();
    assert_eq!(server.infer("m", &request(20)).status, 200, "a file that was unlinked is still there for the server");
    let answer = server.infer("m", &request(19));
    assert!(answer.error().contains("the tensor has 20 bytes, but its part of region `r` has 19"), "{answer:?}");
}

#[test]
fn what_is_not_shared_memory_is_refused_and_without_the_option_everything_is() {
    let server = server();
    for (body, expected) in [
        (json!({"key": "/../../etc/passwd", "byte_size": 1}), "cannot be the name of shared memory"),
        (json!({"key": "/flagperf-test-nothing", "byte_size": 1}), "cannot be opened"),
        (json!({"key": "/a"}), "missing field `byte_size`"),
        (json!([]), "it is not a JSON object"),
    ] {
        let answer = register(&server, "r", &body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.error().contains(expected), "{}", answer.error());
    }
    assert_eq!(server.get("/v2/cudasharedmemory/status").status, 501);
    assert!(server.infer("m", &request(20)).error().contains("unknown region `r`"));
    let server = Server::start(&[("m", "")]);
    for answer in [register(&server, "r", &json!({"key": "/a", "byte_size": 1})), server.infer("m", &request(20))] {
        assert_eq!(answer.status, 400);
        assert!(answer.error().ends_with("start it with `--shared-memory`"), "{}", answer.error());
    }
}

#[test]
fn the_clients_of_triton_use_shared_memory() {
    let Some(python) = support::python() else { return };
    let server = server();
    support::run_script(&python, "triton_client_memory.py", &[&server.address, &server.grpc_address]);
}
