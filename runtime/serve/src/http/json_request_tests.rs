//! Tests of what requests may contain.

use super::*;
use crate::request::{InferRequest, WantedOutput};
use crate::signature::{Port, Signature};

fn signature() -> Signature {
    let port = |name: &str, spec: &str| Port { name: name.to_owned(), spec: spec.parse().unwrap() };
    Signature { inputs: vec![port("x", "2,2,f32")], outputs: vec![port("y", "2,f32"), port("z", "2,i64")], rows_max: 0 }
}

fn parse(json: &str, binary: &[u8], has_binary: bool) -> Result<(GivenRequest, InferRequest), String> {
    let body = Bytes::from([json.as_bytes(), binary].concat());
    let length = has_binary.then(|| json.len().to_string());
    let read = || {
        let given = json_request(&body, length.as_deref())?;
        let request = InferRequest::new(&given, &signature(), None)?;
        Ok((given, request))
    };
    read().map_err(|error: ApiError| {
        assert_eq!(error.kind, ErrorKind::Malformed);
        error.message
    })
}

#[test]
fn json_and_binary_data_are_the_same_tensor() {
    let json =
        r#"{"id": "7", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}]}"#;
    let (given, of_json) = parse(json, &[], false).unwrap();
    assert_eq!((given.id.as_deref(), of_json.outputs.len()), (Some("7"), 2));
    let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let json = r#"{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}],
                   "outputs": [{"name": "z", "parameters": {"binary_data": true, "classification": 3}}],
                   "parameters": {"timeout": 5000}}"#;
    let (given, of_binary) = parse(json, &bytes, true).unwrap();
    assert_eq!(of_json.inputs, of_binary.inputs);
    assert_eq!(of_binary.outputs, [WantedOutput { index: 1, is_binary: true, class_count: 3, region: None }]);
    assert_eq!(given.deadline, Some(Duration::from_millis(5)));
}

#[test]
fn every_malformed_request_is_an_error_that_says_what_is_wrong() {
    let input = |rest: &str| format!("{{\"inputs\": [{{\"name\": \"x\", {rest}}}]}}");
    let shape = "\"shape\": [2, 2], \"datatype\": \"FP32\"";
    for (json, binary, expected) in [
        ("".to_owned(), 0, "the request is not valid: EOF while parsing"),
        ("{}".to_owned(), 0, "the request is not valid: missing field `inputs`"),
        ("{\"inputs\": []}".to_owned(), 0, "input `x` is missing"),
        ("[".repeat(10_000), 0, "the request is not valid: "),
        (input(&format!("{shape}, \"data\": {}", "[".repeat(10_000))), 0, "the request is not valid: recursion limit"),
        (input(&format!("{shape}, \"data\": [1]")), 0, "input `x` has 1 elements, but its shape [2, 2] needs 4"),
        (input(shape), 0, "input `x` has neither `data` nor `binary_data_size`"),
        (input("\"shape\": [2, 2], \"datatype\": \"FLOAT\", \"data\": []"), 0, "input `x`: unknown datatype `FLOAT`"),
        (
            input("\"shape\": [4], \"datatype\": \"FP32\", \"data\": [1, 2, 3, 4]"),
            0,
            "input `x` has the shape [4], but",
        ),
        (
            input("\"shape\": [-1], \"datatype\": \"FP32\", \"data\": []"),
            0,
            "input `x`: its shape [-1] has a negative size",
        ),
        (
            input("\"shape\": [4294967296, 4294967296], \"datatype\": \"FP32\", \"data\": []"),
            0,
            "input `x`: its shape stands for more than 4 GiB",
        ),
        (
            input(&format!("{shape}, \"parameters\": {{\"binary_data_size\": 8}}")),
            8,
            "input `x` has 8 bytes, but [2, 2] of FP32 needs 16",
        ),
        (
            input(&format!("{shape}, \"parameters\": {{\"binary_data_size\": 16}}")),
            15,
            "input `x`: 16 bytes of binary data were announced, 15 are there",
        ),
        (
            input(&format!("{shape}, \"parameters\": {{\"binary_data_size\": 16}}")),
            17,
            "1 bytes follow the binary data of the last input",
        ),
        (
            input(&format!("{shape}, \"parameters\": {{\"shared_memory_region\": \"a\"}}")),
            0,
            "input `x`: `shared_memory_byte_size` is missing",
        ),
        (
            input(&format!(
                "{shape}, \"parameters\": {{\"shared_memory_region\": \"a\", \"shared_memory_byte_size\": 16}}"
            )),
            0,
            "input `x`: this server does not use shared memory: start it with `--shared-memory`",
        ),
        ("[[]]".to_owned(), 0, "the request is not valid: invalid type: sequence, expected an object"),
        (
            "{\"inputs\": [[\"x\", [2, 2], \"FP32\", {}, [1, 2, 3, 4]]]}".to_owned(),
            0,
            "the request is not valid: invalid type: sequence, expected an object",
        ),
        (
            input(&format!("{shape}, \"data\": {{}}")),
            0,
            "the request is not valid: invalid type: map, expected numbers",
        ),
    ] {
        let error = parse(&json, &vec![0; binary], true).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let twice = format!("{{\"name\": \"x\", {shape}, \"data\": [1, 2, 3, 4]}}");
    let error = parse(&format!("{{\"inputs\": [{twice}, {twice}]}}"), &[], false).unwrap_err();
    assert_eq!(error, "input `x` is given twice");
    let error =
        parse(&format!("{{\"inputs\": [{twice}], \"outputs\": [{{\"name\": \"Y\"}}]}}"), &[], false).unwrap_err();
    assert_eq!(error, "unknown output `Y` (known: y, z; nearest: y)");
}

#[test]
fn json_that_is_too_large_is_an_error() {
    let body = Bytes::from(vec![b' '; JSON_BYTES_MAX + 1]);
    let error = json_request(&body, None).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    assert_eq!(error.message, "the JSON has 16777217 bytes (at most 16777216): send tensors as binary data");
}

#[test]
fn a_length_of_json_beyond_the_body_is_an_error() {
    let body = Bytes::from_static(b"{}");
    for length in ["3", "-1", "x", ""] {
        let error = json_request(&body, Some(length)).unwrap_err().message;
        assert_eq!(error, format!("inference-header-content-length is `{length}`, but the body has 2 bytes"));
    }
}
