//! Measures a request to `flagperf serve`, from its first byte to the last of its answer, on an engine that computes nothing,
//! beside a server of axum that only reads the request and answers.
//!
//! `cargo build --release && cargo bench --bench serve` prints quantiles and requests per second for 1, 8 and 64 connections
//! over HTTP and gRPC, with three numbers and with an image of 602 kB as binary data, without and with joined requests. The
//! client is in another process than the server and its worker, and the three share the processors.

#![expect(clippy::unwrap_used, reason = "the server of tests may panic")]

#[path = "../tests/serving/grpc.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod grpc;
#[path = "support/http2.rs"]
mod http2;
#[path = "../tests/serving/server.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod server;
#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use axum::body::Bytes as Body;
use axum::{Router, routing};
use flagperf_core::measure::{Clock, Latency, MonotonicClock};
use flagperf_core::units::Seconds;
use flagperf_serve::messages::ModelInferRequest;
use http2::Http2;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prost::Message;
use prost::bytes::Bytes;
use serde_json::json;
use server::{Server, read_answer, rows};

/// The number of requests that all connections send together.
const REQUESTS: usize = 8_000;
/// The bytes of an image.
const IMAGE_BYTES: usize = 3 * 224 * 224 * size_of::<f32>();

fn main() {
    let options = "compiler: \"null\"\nqueue_size: 256";
    let image = "options: {inputs: {x: \"N,3,224,224,f32\"}, outputs: {y: \"N,1000,f32\"}}";
    let server = Server::start(&[
        ("small", options),
        ("joined", &format!("{options}\nmax_batch_size: 64")),
        ("image", &format!("{options}\n{image}")),
    ]);
    let small = http_request("small", None, rows(&[[1.0; 3]]).to_string().as_bytes());
    let joined = http_request("joined", None, rows(&[[1.0; 3]]).to_string().as_bytes());
    let image = http_image();
    let bare = bare_server();
    for connections in [1, 8, 64] {
        measure_http("three numbers, axum alone", &bare, &small, connections);
        measure_http("three numbers, HTTP", &server.address, &small, connections);
        measure_grpc("three numbers, gRPC", &server, &grpc::rows("small", &[[1.0; 3]]), connections);
        measure_http("joined, HTTP", &server.address, &joined, connections);
        measure_grpc("joined, gRPC", &server, &grpc::rows("joined", &[[1.0; 3]]), connections);
        measure_http("an image, axum alone", &bare, &image, connections);
        measure_http("an image, HTTP", &server.address, &image, connections);
        measure_grpc("an image, gRPC", &server, &grpc_image(), connections);
    }
}

fn http_request(model: &str, json_length: Option<usize>, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut head = format!("POST /v2/models/{model}/infer HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n");
    if let Some(length) = json_length {
        head += &format!("Inference-Header-Content-Length: {length}\r\n");
    }
    [format!("{head}\r\n").as_bytes(), body].concat()
}

fn http_image() -> Vec<u8> {
    let parameters = json!({"binary_data_size": IMAGE_BYTES});
    let json = json!({
        "inputs": [{"name": "x", "shape": [1, 3, 224, 224], "datatype": "FP32", "parameters": parameters}],
        "parameters": {"binary_data_output": true},
    });
    let json = json.to_string();
    http_request("image", Some(json.len()), &[json.as_bytes(), &vec![0; IMAGE_BYTES]].concat())
}

fn grpc_image() -> ModelInferRequest {
    let mut request = grpc::rows("image", &[]);
    request.inputs[0].shape = vec![1, 3, 224, 224];
    request.raw_input_contents = vec![Bytes::from(vec![0; IMAGE_BYTES])];
    request
}

/// Starts a server of axum that reads each body and answers with a short text. Returns its address.
fn bare_server() -> String {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = |body: Body| async move { format!("{{\"outputs\":[{}]}}", body.len()) };
    let router = Router::new().route("/v2/models/{model}/infer", routing::post(answer));
    let router = router.layer(axum::extract::DefaultBodyLimit::disable());
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
                tokio::spawn(connection);
            }
        });
    });
    address
}

fn measure_http(name: &str, address: &str, request: &[u8], connections: usize) {
    measure(name, connections, || {
        let mut connection = TcpStream::connect(address).expect("the server listens");
        connection.set_nodelay(true).expect("a socket");
        move || {
            connection.write_all(request).expect("the server reads");
            let answer = read_answer(&mut connection).expect("an answer");
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    });
}

fn measure_grpc(name: &str, server: &Server, request: &ModelInferRequest, connections: usize) {
    let message = request.encode_to_vec();
    measure(name, connections, || {
        let connection = TcpStream::connect(&server.grpc_address).expect("the server listens");
        let mut client = Http2::new(connection, "/inference.GRPCInferenceService/ModelInfer", &message);
        // An error has no message.
        move || assert!(client.call() > 20, "the call failed")
    });
}

/// Sends requests on connections, each in a thread, and prints their times.
fn measure<C: FnMut()>(name: &str, connections: usize, connect: impl Fn() -> C + Sync) {
    let clock = MonotonicClock::start();
    let run = || {
        let mut send = connect();
        // The first request also pays for the connection.
        send();
        let mut times = Vec::new();
        for _ in 0..REQUESTS / connections {
            let begin = clock.now();
            send();
            times.push(clock.now().since(begin));
        }
        times
    };
    let begin = clock.now();
    let times: Vec<Seconds> = thread::scope(|scope| {
        let running: Vec<_> = (0..connections).map(|_| scope.spawn(run)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    let rate = times.len() as f64 / clock.now().since(begin).0;
    let latency = Latency::of(&times).expect("at least one request");
    let us = |time: Seconds| time.0 * 1e6;
    let (p50, p99) = (us(latency.p50_s), us(latency.p99_s));
    println!("{name:<26} {connections:>3} connections  {rate:>8.0} requests/s  p50 {p50:>8.1} us  p99 {p99:>8.1} us");
}
