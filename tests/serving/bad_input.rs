//! Malformed requests: each gets a 4xx with a sentence, and the server goes on.

use std::fs;
use std::io::Write;

use serde_json::json;

use crate::server::{Server, read_answer, rows};

fn assert_serves(server: &Server) {
    assert_eq!(server.infer("m", &rows(&[[1.0, 2.0, 3.0]])).status, 200);
}

#[test]
fn a_request_that_does_not_fit_the_model_is_a_4xx_with_a_sentence() {
    let server = Server::start(&[("m", "max_batch_size: 2")]);
    let input = |name: &str, shape: &[u64], datatype: &str, data: &[f64]| json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}]});
    for (body, expected) in [
        (input("z", &[1, 3], "FP32", &[1.0; 3]), "unknown input `z` (known: x"),
        (input("x", &[1, 4], "FP32", &[1.0; 4]), "input `x` has the shape [1, 4], but the model expects [-1, 3]"),
        (input("x", &[1, 3], "FP64", &[1.0; 3]), "input `x` is FP64, but the model expects FP32"),
        (input("x", &[3, 3], "FP32", &[1.0; 9]), "the inputs have 3 rows; the model computes 1 to 2 at once"),
        (input("x", &[1, 3], "FP32", &[1.0; 2]), "input `x` has 2 elements, but its shape [1, 3] needs 3"),
        (input("x", &[1, 3], "BYTES", &[]), "input `x`: unknown datatype `BYTES`"),
        (json!([]), "the request is not valid: invalid type: sequence, expected an object"),
        (json!({"inputs": {}}), "the request is not valid: invalid type: map, expected a sequence"),
    ] {
        let answer = server.infer("m", &body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.error().starts_with(expected), "{}", answer.error());
    }
    let answer = server.request("POST", "/v2/models/m/infer", &[], "[".repeat(10_000).as_bytes());
    assert_eq!((answer.status, answer.error().starts_with("the request is not valid")), (400, true));
    assert_serves(&server);
}

#[test]
fn paths_methods_and_encodings_that_the_server_lacks_are_named() {
    let server = Server::start(&[("m", "")]);
    for (method, path, status, expected) in [
        ("GET", "/v2/model/m", 404, "unknown path `/v2/model/m`"),
        ("GET", "/v2/models/n", 404, "unknown model `n` (loaded: m"),
        ("GET", "/v2/models/m/versions/x", 404, "model `m` has no version `x` (known: 1)"),
        ("GET", "/v2/models/m/infer", 405, "`/v2/models/m/infer` is not for GET"),
        ("POST", "/v2/repository/models/..%2Fetc/load", 400, "unknown model `../etc` (in the model store: m)"),
        ("GET", "/v2/models/%ff", 400, "Invalid UTF-8"),
    ] {
        let answer = server.request(method, path, &[], b"");
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.error().starts_with(expected), "{}", answer.error());
    }
    for header in ["Inference-Header-Content-Length: 2", "Content-Length: 3"] {
        let answer = server.raw(format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n{header}\r\nInference-Header-Content-Length: 2\r\n\r\n{{}}").as_bytes());
        assert_eq!(answer.unwrap().status, 400, "{header}");
    }
    let answer = server.request("POST", "/v2/models/m/infer", &[("Content-Encoding", "gzip")], b"x");
    assert_eq!(answer.status, 415);
    assert!(answer.error().starts_with("the body is encoded as \"gzip\""));
    assert_serves(&server);
}

/// Returns the most memory that the server has used, in KiB.
fn peak_memory(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_body_that_is_too_large_or_does_not_end_is_refused_while_memory_stays_small() {
    let server = Server::of_store(crate::server::store(&[("m", "")]), &["--body-bytes-max", "1048576"]);
    let begin = "POST /v2/models/m/infer HTTP/1.1\r\nHost: test\r\n";
    let answer = server.raw(format!("{begin}Content-Length: 2147483648\r\n\r\n").as_bytes()).unwrap();
    let expected = "the body is larger than 1048576 bytes (`--body-bytes-max`)";
    assert_eq!((answer.status, answer.error()), (413, expected.to_owned()));
    for _ in 0..20 {
        let mut connection = server.connect();
        connection.write_all(format!("{begin}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
        let piece = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
        // The server answers and closes the connection before everything was sent.
        let sent = (0..64).take_while(|_| connection.write_all(&piece).is_ok()).count();
        let status = read_answer(&mut connection).map(|answer| answer.status);
        assert!(sent < 64 || status == Some(413), "{sent} {status:?}");
    }
    assert_serves(&server);
    assert!(peak_memory(&server) < 400 << 10, "{} KiB", peak_memory(&server));
}

#[test]
fn thousands_of_random_and_cut_requests_never_get_a_5xx() {
    let server = Server::start(&[("m", "max_batch_size: 4")]);
    let valid = rows(&[[1.0, 2.0, 3.0]]).to_string();
    // A linear congruential generator: the same requests in every run.
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..2_000 {
        let mut body = valid.clone().into_bytes();
        for _ in 0..=next(3) {
            let at = next(body.len());
            match next(3) {
                0 => body.truncate(at.max(1)),
                1 => body[at] = b" {}[]\",:0123456789eE-+.\xff\0"[next(25)],
                _ => body.extend_from_within(at..),
            }
        }
        let length = next(2 * body.len()).to_string();
        let headers = [("Inference-Header-Content-Length", length.as_str())];
        let answer = server.request("POST", "/v2/models/m/infer", &headers[..next(2)], &body);
        assert!(answer.status == 200 || (400..500).contains(&answer.status), "{answer:?}");
        assert!(answer.status == 200 || !answer.error().is_empty());
    }
    assert_serves(&server);
}
