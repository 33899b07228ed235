//! Ten thousand malformed requests from a generator with a fixed seed: each gets a 4xx or a status of gRPC with a sentence,
//! and the server's memory does not grow.

use std::fs;
use std::io::Write;

use flagperf_serve::messages::{InferTensorContents, ModelInferRequest};
use prost::Message;
use prost::bytes::Bytes;
use serde_json::json;

use crate::grpc::{GrpcAnswer, GrpcClient, SERVICE, frame, rows as message};
use crate::server::{Answer, Server, read_answer, rows, store};

/// The requests over each protocol.
const REQUESTS: usize = 5_000;
/// After as many requests the server has all the memory that it needs.
const FIRST: usize = 100;
/// Statuses of gRPC that no client should cause.
const UNKNOWN: i32 = 2;
const INTERNAL: i32 = 13;

/// A linear congruential generator: the same numbers in every run.
struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    /// Changes, removes or repeats some bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = self.below(256) as u8,
                _ => bytes.extend_from_within(at..),
            }
        }
    }
}

/// Returns the memory of the server in KiB.
fn memory(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn start() -> Server {
    Server::of_store(store(&[("m", "max_batch_size: 4")]), &["--body-bytes-max", "65536"])
}

fn assert_memory(server: &Server, first: u64) {
    let last = memory(server);
    assert!(last < first * 2, "{first} KiB after {FIRST} requests, {last} KiB at the end");
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
}

/// Sends a malformed request over HTTP. Returns the answer, and whether a request by accident may be right.
fn send_http(server: &Server, random: &mut Generator) -> (Option<Answer>, bool) {
    let size = random.below(200) as u64 + 4;
    let input = |name: &str, shape: [u64; 2], datatype: &str, count: usize| json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": vec![1.5; count]}]});
    let begin = "POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nConnection: close\r\n";
    let valid = rows(&[[1.0, 2.0, 3.0]]).to_string();
    let post =
        |body: &[u8], headers: &[(&str, &str)]| Some(server.request("POST", "/v2/models/m/infer", headers, body));
    let answer = match random.below(11) {
        0 => post(input("x", [1, size], "FP32", size as usize).to_string().as_bytes(), &[]),
        1 => {
            post(input("x", [1, 3], ["FP64", "BYTES", "INT8", "fp32"][random.below(4)], 3).to_string().as_bytes(), &[])
        }
        2 => post(input(&format!("x{size}"), [1, 3], "FP32", 3).to_string().as_bytes(), &[]),
        3 => post(input("x", [1, 3], "FP32", size as usize).to_string().as_bytes(), &[]),
        4 => post("[".repeat(10_000).as_bytes(), &[]),
        5 => server.raw(format!("{begin}Content-Length: 2147483648\r\n\r\n").as_bytes()),
        6 => {
            let mut connection = server.connect();
            connection.write_all(format!("{begin}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
            let piece = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
            // The server answers before everything was sent.
            (0..3).for_each(|_| _ = connection.write_all(&piece));
            return (read_answer(&mut connection), true);
        }
        7 => post(valid.as_bytes(), &[("Content-Encoding", "gzip")]),
        8 => post(valid.as_bytes(), &[("Inference-Header-Content-Length", &(valid.len() + size as usize).to_string())]),
        // The same length twice would count once.
        9 => post(valid.as_bytes(), &[("Content-Length", &(valid.len() + 1).to_string())]),
        _ => {
            let mut body = valid.into_bytes();
            random.damage(&mut body);
            return (post(&body, &[]), true);
        }
    };
    (answer, false)
}

#[test]
fn malformed_requests_over_http_get_a_4xx_and_take_no_memory() {
    let (server, mut random, mut first) = (start(), Generator(1), 0);
    for at in 0..REQUESTS {
        let (answer, may_be_right) = send_http(&server, &mut random);
        match answer {
            Some(answer) if answer.status == 200 => assert!(may_be_right, "{answer:?}"),
            Some(answer) => {
                assert!((400..500).contains(&answer.status), "{answer:?}");
                assert!(answer.body.is_empty() || !answer.error().is_empty());
            }
            // The connection may be reset while the client still sends.
            None => assert!(may_be_right),
        }
        if at == FIRST {
            first = memory(&server);
        }
    }
    assert_memory(&server, first);
}

/// Sends a malformed call. Returns the answer, and whether the call may be right by accident.
fn send_grpc(client: &mut GrpcClient, random: &mut Generator) -> (Option<GrpcAnswer>, bool) {
    let path = format!("{SERVICE}ModelInfer");
    let size = random.below(200) + 4;
    let changed = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = message("m", &[[1.0, 2.0, 3.0]]);
        change(&mut request);
        request
    };
    let whole = frame(&changed(&|_| ()));
    let framed = |message: &[u8]| {
        let length = u32::try_from(message.len()).unwrap();
        Bytes::from([&[0][..], &length.to_be_bytes(), message].concat())
    };
    let (headers, body): (Vec<(&str, &str)>, Bytes) = match random.below(15) {
        0 => (vec![], frame(&changed(&|request| request.inputs[0].shape = vec![1, size as i64]))),
        1 => (vec![], frame(&changed(&|request| request.inputs[0].datatype = "BYTES".to_owned()))),
        2 => (vec![], frame(&changed(&|request| request.inputs[0].name = format!("x{size}")))),
        3 => (vec![], frame(&changed(&|request| request.raw_input_contents[0] = Bytes::from(vec![0; size * 4])))),
        4 => (vec![], whole.slice(..random.below(whole.len() - 1) + 1)),
        5 => (vec![], Bytes::from_static(&[0, 0x80, 0, 0, 0, 1, 2, 3])),
        // A field, a raw content or an input, that is longer than the message.
        6 => (vec![], framed(&[[0x0a, 0x2a, 0x3a][random.below(3)], 0xff, 0xff, 0xff, 0xff, 0x0f, 1])),
        7 => {
            (vec![("content-type", ["application/json", "text/plain", "application/grpc-web"][random.below(3)])], whole)
        }
        8 => (vec![], Bytes::from([&[1], &whole[1..]].concat())),
        9 => (vec![], Bytes::from([&[random.below(250) as u8 + 2], &whole[1..]].concat())),
        // Groups, one inside the other.
        10 => (vec![], framed(&[0x0b; 10_000])),
        11 => {
            let contents = InferTensorContents { int_contents: vec![300; size], ..Default::default() };
            let request = changed(&|request| {
                request.raw_input_contents.clear();
                request.inputs[0].contents = Some(contents.clone());
            });
            (vec![], frame(&request))
        }
        12 => (vec![("grpc-timeout", ["", "1", "x", "123456789S"][random.below(4)])], whole),
        13 => (vec![], framed(&random.bytes(size))),
        _ => {
            let mut message = changed(&|_| ()).encode_to_vec();
            random.damage(&mut message);
            let body = framed(&message);
            return (client.send(&path, &[], vec![body]), true);
        }
    };
    (client.send(&path, &headers, vec![body]), false)
}

#[test]
fn malformed_calls_over_grpc_get_a_status_with_a_sentence_and_take_no_memory() {
    let (server, mut random, mut first) = (start(), Generator(2), 0);
    let mut client = server.grpc();
    for at in 0..REQUESTS {
        let (answer, may_be_right) = send_grpc(&mut client, &mut random);
        let answer = answer.expect("a status");
        match (answer.http_status, answer.code) {
            (415, _) => {}
            (200, 0) => assert!(may_be_right, "{answer:?}"),
            (200, code) => {
                assert!(code > 0 && code != UNKNOWN && code != INTERNAL, "{answer:?}");
                assert!(!answer.message.is_empty(), "{answer:?}");
            }
            _ => panic!("{answer:?}"),
        }
        if at == FIRST {
            first = memory(&server);
        }
    }
    assert_memory(&server, first);
}
