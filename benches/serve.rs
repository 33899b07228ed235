//! Measures a request to `flagperf serve`, from its first byte to the last of its answer, on an engine that computes nothing.
//!
//! `cargo build --release && cargo bench --bench serve` prints quantiles and requests per second for 1, 8 and 64 connections,
//! with three numbers as JSON and with an image of 602 kB as binary data, without and with joined requests. The client is in
//! another process than the server and its worker, and the three share the processors.

#![expect(clippy::unwrap_used, reason = "the server of tests may panic")]

#[path = "../tests/serving/server.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod server;
#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write;
use std::thread;

use flagperf_core::measure::{Clock, Latency, MonotonicClock};
use flagperf_core::units::Seconds;
use serde_json::json;
use server::{Server, read_answer, rows};

/// The number of requests that all connections send together.
const REQUESTS: usize = 8_000;

fn main() {
    let options = "compiler: \"null\"\nqueue_size: 256";
    let image = "options: {inputs: {x: \"N,3,224,224,f32\"}, outputs: {y: \"N,1000,f32\"}}";
    let server = Server::start(&[
        ("small", options),
        ("joined", &format!("{options}\nmax_batch_size: 64")),
        ("image", &format!("{options}\n{image}")),
    ]);
    let small = request("small", None, rows(&[[1.0; 3]]).to_string().as_bytes());
    let joined = request("joined", None, rows(&[[1.0; 3]]).to_string().as_bytes());
    let bytes = 3 * 224 * 224 * size_of::<f32>();
    let json = json!({
        "inputs": [{"name": "x", "shape": [1, 3, 224, 224], "datatype": "FP32", "parameters": {"binary_data_size": bytes}}],
        "parameters": {"binary_data_output": true},
    });
    let json = json.to_string();
    let image = request("image", Some(json.len()), &[json.as_bytes(), &vec![0; bytes]].concat());
    for (name, request) in [("three numbers", small), ("the same, joined", joined), ("an image", image)] {
        for connections in [1, 8, 64] {
            measure(&server, name, &request, connections);
        }
    }
}

fn request(model: &str, json_length: Option<usize>, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut head = format!("POST /v2/models/{model}/infer HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n");
    if let Some(length) = json_length {
        head += &format!("Inference-Header-Content-Length: {length}\r\n");
    }
    [format!("{head}\r\n").as_bytes(), body].concat()
}

fn measure(server: &Server, name: &str, request: &[u8], connections: usize) {
    let clock = MonotonicClock::start();
    let send = || {
        let mut connection = server.connect();
        connection.set_nodelay(true).expect("a socket");
        let mut times = Vec::new();
        for _ in 0..REQUESTS / connections {
            let begin = clock.now();
            connection.write_all(request).expect("the server reads");
            let answer = read_answer(&mut connection).expect("an answer");
            assert_eq!(answer.status, 200, "{answer:?}");
            times.push(clock.now().since(begin));
        }
        times
    };
    let begin = clock.now();
    let times: Vec<Seconds> = thread::scope(|scope| {
        let running: Vec<_> = (0..connections).map(|_| scope.spawn(send)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    let rate = times.len() as f64 / clock.now().since(begin).0;
    let latency = Latency::of(&times).expect("at least one request");
    let us = |time: Seconds| time.0 * 1e6;
    let (p50, p99) = (us(latency.p50_s), us(latency.p99_s));
    println!("{name:<18} {connections:>3} connections  {rate:>8.0} requests/s  p50 {p50:>8.1} us  p99 {p99:>8.1} us");
}
