//! A request for inference, as JSON with binary data or as a message of gRPC.

#![no_main]

mod support;

use flagperf_serve::messages::model_infer_request::InferInputTensor;
use flagperf_serve::messages::{InferTensorContents, ModelInferRequest};
use flagperf_serve::{json_request, read_request};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use prost::bytes::Bytes;

/// Requests in JSON: with its elements, with binary data behind it, and with shared memory.
const JSON: &str = r#"{"id": "7", "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [[1, 2.5, -3]]}]}"#;
const BINARY: &str = r#"{"inputs": [{"name": "x", "shape": [3], "datatype": "UINT8", "parameters": {"binary_data_size": 3}}], "outputs": [{"name": "y", "parameters": {"classification": 2}}], "parameters": {"timeout": 5}}"#;
const REGION: &str = r#"{"inputs": [{"name": "x", "shape": [3], "datatype": "UINT8", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 3, "shared_memory_offset": 1}}]}"#;

fn seeds() -> Vec<Vec<u8>> {
    let input = InferInputTensor {
        name: "x".to_owned(),
        datatype: "INT8".to_owned(),
        shape: vec![2],
        contents: Some(InferTensorContents { int_contents: vec![1, -2], ..Default::default() }),
        ..Default::default()
    };
    let typed = ModelInferRequest { model_name: "m".to_owned(), inputs: vec![input], ..Default::default() };
    let mut raw = typed.clone();
    raw.inputs[0].contents = None;
    raw.raw_input_contents = vec![Bytes::from_static(&[1, 2])];
    let json = |json: &str, binary: &str| support::seed_of_kind(0, format!("{}\n{json}{binary}", json.len()));
    vec![
        json(JSON, ""),
        json(BINARY, "abc"),
        json(REGION, ""),
        support::seed_of_kind(1, typed.encode_to_vec()),
        support::seed_of_kind(1, raw.encode_to_vec()),
    ]
}

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, rest)) = support::split_kind(input, 2) else { return };
    let given = match kind {
        // The first line is the length of the JSON.
        0 => {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(0);
            let (length, body) = rest.split_at(end);
            let length = std::str::from_utf8(length).ok().filter(|length| !length.is_empty());
            json_request(&Bytes::copy_from_slice(body.get(1..).unwrap_or_default()), length)
        }
        _ => read_request(&Bytes::copy_from_slice(rest)).map(|request| request.given),
    };
    match given {
        // What a request refers to is not larger than the request.
        Ok(given) => assert!(given.inputs.len() + given.outputs.len() <= input.len()),
        Err(error) => assert!(!error.message.is_empty()),
    }
});
