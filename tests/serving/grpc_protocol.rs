//! What clients of gRPC get: the same as those of HTTP.

use std::thread;
use std::time::Duration;

use flagperf_serve::messages as m;
use flagperf_serve::messages::InferTensorContents;
use flagperf_serve::messages::infer_parameter::ParameterChoice;
use flagperf_serve::messages::model_infer_request::InferRequestedOutputTensor;
use nix::sys::signal::{Signal, kill};
use prost::Message;
use prost::bytes::Bytes;
use serde_json::json;

use crate::grpc::{SERVICE, frame, numbers, rows};
use crate::server::{Server, add_graph, add_model, rows as json_rows, store};
use crate::support::graphs;

/// The statuses of gRPC.
const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

fn parameter(choice: ParameterChoice) -> m::InferParameter {
    m::InferParameter { parameter_choice: Some(choice) }
}

#[test]
fn grpc_and_http_get_the_same_numbers() {
    let server = Server::start(&[("m", "")]);
    let mut client = server.grpc();
    let mut request = rows("m", &[[1.0, 2.0, 3.0]]);
    request.id = "seven".to_owned();
    let response: m::ModelInferResponse = client.infer(&request).read();
    assert_eq!((response.id.as_str(), response.model_version.as_str()), ("seven", "1"));
    assert_eq!((response.outputs[0].datatype.as_str(), &response.outputs[0].shape), ("FP32", &vec![1, 5]));
    let json = server.infer("m", &json_rows(&[[1.0, 2.0, 3.0]])).json();
    let expected: Vec<f32> =
        json["outputs"][0]["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect();
    assert_eq!(numbers(&response), expected);
    request.raw_input_contents.clear();
    request.inputs[0].contents = Some(InferTensorContents { fp32_contents: vec![1.0, 2.0, 3.0], ..Default::default() });
    assert_eq!(numbers(&client.infer(&request).read()), expected);
}

#[test]
fn every_description_of_the_protocol_is_answered() {
    let server = Server::start(&[("m", "max_batch_size: 4")]);
    let mut client = server.grpc();
    assert!(client.call("ServerLive", &m::ServerLiveRequest {}).read::<m::ServerLiveResponse>().live);
    assert!(client.call("ServerReady", &m::ServerReadyRequest {}).read::<m::ServerReadyResponse>().ready);
    let ready = m::ModelReadyRequest { name: "m".to_owned(), version: "1".to_owned() };
    assert!(client.call("ModelReady", &ready).read::<m::ModelReadyResponse>().ready);
    let metadata: m::ServerMetadataResponse = client.call("ServerMetadata", &m::ServerMetadataRequest {}).read();
    assert_eq!(json!(metadata.extensions), server.get("/v2").json()["extensions"]);
    let request = m::ModelMetadataRequest { name: "m".to_owned(), version: String::new() };
    let metadata: m::ModelMetadataResponse = client.call("ModelMetadata", &request).read();
    assert_eq!(json!(metadata), server.get("/v2/models/m").json());
    let request = m::ModelConfigRequest { name: "m".to_owned(), version: String::new() };
    let config: m::ModelConfigResponse = client.call("ModelConfig", &request).read();
    assert_eq!(json!(config.config.unwrap()), server.get("/v2/models/m/config").json());
    client.infer(&rows("m", &[[1.0; 3]; 3])).read::<m::ModelInferResponse>();
    let request = m::ModelStatisticsRequest { name: "m".to_owned(), version: String::new() };
    let statistics: m::ModelStatisticsResponse = client.call("ModelStatistics", &request).read();
    assert_eq!(json!(statistics), server.get("/v2/models/m/stats").json());
    assert_eq!(statistics.model_stats[0].inference_count, 3);
}

#[test]
fn models_are_loaded_and_unloaded() {
    let server = Server::start(&[("m", "")]);
    let mut client = server.grpc();
    add_model(server.store.path(), "other", "1", 6, "");
    let index = |client: &mut crate::grpc::GrpcClient| {
        let index: m::RepositoryIndexResponse =
            client.call("RepositoryIndex", &m::RepositoryIndexRequest::default()).read();
        index
            .models
            .into_iter()
            .map(|model| format!("{} {} {}", model.name, model.version, model.state))
            .collect::<Vec<_>>()
    };
    assert_eq!(index(&mut client), ["m 1 READY", "other  UNAVAILABLE"]);
    let load = m::RepositoryModelLoadRequest { model_name: "other".to_owned(), ..Default::default() };
    client.call("RepositoryModelLoad", &load).read::<m::RepositoryModelLoadResponse>();
    assert_eq!(index(&mut client), ["m 1 READY", "other 1 READY"]);
    let unload = m::RepositoryModelUnloadRequest { model_name: "m".to_owned(), ..Default::default() };
    client.call("RepositoryModelUnload", &unload).read::<m::RepositoryModelUnloadResponse>();
    assert_eq!(client.infer(&rows("m", &[[1.0; 3]])).code, NOT_FOUND);
}

#[test]
fn the_largest_values_have_their_labels() {
    let store = store(&[("m", "labels: labels.txt")]);
    std::fs::write(store.path().join("m/labels.txt"), "a\nb\nc\nd\ne\n").unwrap();
    let server = Server::of_store(store, &[]);
    let mut request = rows("m", &[[1.0, 2.0, 3.0]]);
    let all = numbers(&server.grpc().infer(&request).read());
    let parameters = [("classification".to_owned(), parameter(ParameterChoice::Int64Param(1)))].into();
    request.outputs = vec![InferRequestedOutputTensor { name: "y".to_owned(), parameters }];
    let response: m::ModelInferResponse = server.grpc().infer(&request).read();
    let largest = all.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    let expected = format!("{:.6}:{}:{}", largest.1, largest.0, ["a", "b", "c", "d", "e"][largest.0]);
    assert_eq!((response.outputs[0].datatype.as_str(), &response.outputs[0].shape), ("BYTES", &vec![1]));
    assert_eq!(&response.raw_output_contents[0][4..], expected.as_bytes());
}

#[test]
fn errors_have_the_status_of_their_kind_and_a_sentence() {
    let slow = "compiler: \"null\"\noptions: {sleep_ms: 1000}\ntime_limit_s: 3\nqueue_size: 1";
    let server = Server::start(&[("m", ""), ("slow", slow)]);
    let mut client = server.grpc();
    let mut wrong = rows("m", &[[1.0; 3]]);
    wrong.inputs[0].shape = vec![1, 4];
    for (request, code, expected) in [
        (wrong, INVALID_ARGUMENT, "input `x` has the shape [1, 4], but the model expects [-1, 3]"),
        (rows("n", &[[1.0; 3]]), NOT_FOUND, "unknown model `n` (loaded: m, slow"),
    ] {
        let answer = client.infer(&request);
        assert_eq!(answer.code, code, "{answer:?}");
        assert!(answer.message.starts_with(expected), "{}", answer.message);
    }
    for method in ["CudaSharedMemoryStatus", "TraceSetting", "LogSettings", "Nothing"] {
        let answer = client.call(method, &m::ServerLiveRequest {});
        assert_eq!((answer.code, answer.message.is_empty()), (UNIMPLEMENTED, false), "{answer:?}");
    }
    let path = format!("{SERVICE}ModelInfer");
    let request = frame(&rows("slow", &[[1.0; 3]]));
    let answer = client.send(&path, &[("grpc-timeout", "100m")], vec![request]).unwrap();
    assert_eq!((answer.code, answer.message.as_str()), (DEADLINE_EXCEEDED, "slow version 1: no answer within 0.1 s"));
    let answer = client.call("SystemSharedMemoryStatus", &m::SystemSharedMemoryStatusRequest::default());
    assert_eq!(answer.code, INVALID_ARGUMENT);
    assert!(answer.message.ends_with("start it with `--shared-memory`"), "{}", answer.message);
}

#[test]
fn a_full_queue_a_lost_worker_and_a_failing_engine_have_statuses_of_their_own() {
    let slow = "compiler: \"null\"\noptions: {sleep_ms: 1000}\nqueue_size: 1";
    let stuck = "compiler: \"null\"\noptions: {sleep_ms: 30000}\ntime_limit_s: 1";
    let store = store(&[("slow", slow), ("stuck", stuck)]);
    add_graph(store.path(), "failing", &graphs::failing());
    let server = Server::of_store(store, &[]);
    let codes: Vec<i32> = thread::scope(|scope| {
        let running: Vec<_> =
            (0..6).map(|_| scope.spawn(|| server.grpc().infer(&rows("slow", &[[1.0; 3]])).code)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(codes.contains(&RESOURCE_EXHAUSTED) && codes.contains(&0), "{codes:?}");
    let answer = server.grpc().infer(&rows("stuck", &[[1.0; 3]]));
    assert_eq!(answer.code, UNAVAILABLE, "{answer:?}");
    for _ in 0..3 {
        let answer = server.grpc().infer(&rows("failing", &[[1.0; 3]]));
        assert_eq!(answer.code, INTERNAL, "{answer:?}");
        assert!(answer.message.starts_with("failing version 1: the engine failed: "), "{}", answer.message);
    }
}

#[test]
fn each_request_of_a_stream_has_its_answer_in_order_and_an_error_does_not_end_it() {
    let server = Server::start(&[("m", "max_batch_size: 4")]);
    let mut client = server.grpc();
    let mut call = client.open(&format!("{SERVICE}ModelStreamInfer"), &[]);
    for at in 0..20u8 {
        let mut request = rows(if at == 7 { "n" } else { "m" }, &[[f32::from(at), 1.0, 2.0]]);
        request.id = at.to_string();
        client.piece(&mut call, frame(&request), at == 19).unwrap();
    }
    for at in 0..20 {
        let message = client.message(&mut call).unwrap();
        let answer = m::ModelStreamInferResponse::decode(&message[..]).unwrap();
        match answer.infer_response {
            Some(response) => assert_eq!(response.id, at.to_string()),
            None => assert!(at == 7 && answer.error_message.starts_with("unknown model `n`"), "{answer:?}"),
        }
    }
    assert!(client.message(&mut call).is_none());
}

#[test]
fn a_call_that_is_cancelled_frees_its_place() {
    let server = Server::start(&[("m", "compiler: \"null\"\noptions: {sleep_ms: 700}\nqueue_size: 3")]);
    let mut client = server.grpc();
    for _ in 0..4 {
        let mut call = client.open(&format!("{SERVICE}ModelInfer"), &[]);
        client.piece(&mut call, frame(&rows("m", &[[1.0; 3]])), true).unwrap();
        thread::sleep(Duration::from_millis(50));
        call.body.send_reset(h2::Reason::CANCEL);
        drop(call);
    }
    server.wait_until("the calls are counted", |server| {
        let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
        metrics.contains("flagperf_cancelled_requests_total{model=\"m\",version=\"1\"} 4\n")
    });
    assert_eq!(client.infer(&rows("m", &[[1.0; 3]])).code, 0);
}

#[test]
fn the_standard_service_of_health_is_answered() {
    let server = Server::start(&[("m", "")]);
    let mut client = server.grpc();
    for (name, expected) in [("", Some(1)), ("m", Some(1)), ("n", None)] {
        // A message with the name as its first field.
        let request = Bytes::from([&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat());
        let length = u8::try_from(request.len()).unwrap();
        let request = Bytes::from([&[0, 0, 0, 0, length], &request[..]].concat());
        let answer = client.send("/grpc.health.v1.Health/Check", &[], vec![request]).unwrap();
        match expected {
            Some(status) => assert_eq!(answer.messages[0], [0x08, status], "{answer:?}"),
            None => assert_eq!(answer.code, NOT_FOUND),
        }
    }
}

#[test]
fn what_was_accepted_is_answered_after_sigterm() {
    let mut server = Server::start(&[("m", "compiler: \"null\"\noptions: {sleep_ms: 300}")]);
    let mut client = server.grpc();
    let mut calls = Vec::new();
    for _ in 0..8 {
        let mut call = client.open(&format!("{SERVICE}ModelInfer"), &[]);
        client.piece(&mut call, frame(&rows("m", &[[1.0; 3]])), true).unwrap();
        calls.push(call);
    }
    let mut idle = client.open(&format!("{SERVICE}ModelStreamInfer"), &[]);
    client.piece(&mut idle, frame(&rows("m", &[[1.0; 3]])), false).unwrap();
    thread::sleep(Duration::from_millis(400));
    kill(server.pid(), Signal::SIGTERM).unwrap();
    for call in calls {
        assert_eq!(client.finish(call).unwrap().code, 0);
    }
    let answer = client.finish(idle).unwrap();
    assert_eq!((answer.messages.len(), answer.code), (1, UNAVAILABLE), "{answer:?}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn either_protocol_can_be_turned_off() {
    let server = Server::of_store(store(&[("m", "")]), &["--http", "none"]);
    assert_eq!((server.address.as_str(), server.grpc().infer(&rows("m", &[[1.0; 3]])).code), ("", 0));
    let server = Server::of_store(store(&[("m", "")]), &["--grpc", "none"]);
    assert_eq!((server.grpc_address.as_str(), server.get("/v2/health/ready").status), ("", 200));
}
