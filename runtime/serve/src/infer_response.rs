//! The answer to a request for inference: JSON, and the bytes of tensors behind it.

use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::api_error::ApiError;
use super::classification::{Classes, classify};
use super::datatype::protocol_name;
use super::elements::write_elements;
use super::frame::TensorHead;
use super::infer_request::{JSON_LENGTH_HEADER, WantedOutput};
use super::model::Model;
use super::queue::Tensors;

/// An answer that is being written.
#[derive(Default)]
struct Writer {
    json: Vec<u8>,
    binary: Vec<Bytes>,
}

impl Writer {
    fn text(&mut self, text: &str) {
        self.json.extend_from_slice(text.as_bytes());
    }

    fn value(&mut self, value: &impl serde::Serialize) {
        serde_json::to_writer(&mut self.json, value).expect("the value is plain data");
    }

    /// Begins an output: its name, type and shape.
    fn output(&mut self, name: &str, datatype: &str, shape: &[usize]) {
        self.text("{\"name\":");
        self.value(&name);
        self.text(",\"datatype\":");
        self.value(&datatype);
        self.text(",\"shape\":");
        self.value(&shape);
    }

    /// Ends an output whose bytes follow the JSON.
    fn binary(&mut self, bytes: Bytes) {
        self.text(",\"parameters\":{\"binary_data_size\":");
        self.value(&bytes.len());
        self.text("}}");
        self.binary.push(bytes);
    }

    fn tensor(&mut self, name: &str, (head, bytes): &(TensorHead, Bytes), is_binary: bool) -> Result<(), String> {
        self.output(name, protocol_name(head.dtype), &head.shape);
        if is_binary {
            self.binary(bytes.clone());
            return Ok(());
        }
        self.text(",\"data\":");
        write_elements(head.dtype, bytes, &mut self.json)
            .map_err(|reason| format!("output `{name}`: {reason}: request it with `binary_data`"))?;
        self.text("}");
        Ok(())
    }

    fn classes(&mut self, name: &str, classes: &Classes, is_binary: bool) {
        self.output(name, "BYTES", &classes.shape);
        if is_binary {
            let length = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
            let bytes: Vec<u8> =
                classes.texts.iter().flat_map(|text| length(text).into_iter().chain(text.bytes())).collect();
            self.binary(Bytes::from(bytes));
        } else {
            self.text(",\"data\":");
            self.value(&classes.texts);
            self.text("}");
        }
    }

    fn finish(mut self) -> Response {
        let length = self.json.len();
        let mut body = std::mem::take(&mut self.json);
        let has_binary = !self.binary.is_empty();
        body.reserve_exact(self.binary.iter().map(Bytes::len).sum());
        self.binary.iter().for_each(|bytes| body.extend_from_slice(bytes));
        let mut response = body.into_response();
        let kind = if has_binary { "application/octet-stream" } else { "application/json" };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if has_binary {
            response.headers_mut().insert(JSON_LENGTH_HEADER, HeaderValue::from(length));
        }
        response
    }
}

/// Returns the answer with the outputs that the client wants.
///
/// # Errors
/// When JSON has no form for an output.
pub fn infer_response(
    model: &Model,
    id: Option<&str>,
    outputs: &Tensors,
    wanted: &[WantedOutput],
) -> Result<Response, ApiError> {
    let mut writer = Writer::default();
    writer.text("{\"model_name\":");
    writer.value(&model.source().name);
    writer.text(",\"model_version\":");
    writer.value(&model.source().version.to_string());
    if let Some(id) = id {
        writer.text(",\"id\":");
        writer.value(&id);
    }
    writer.text(",\"outputs\":[");
    for (at, WantedOutput { index, is_binary, class_count }) in wanted.iter().enumerate() {
        if at > 0 {
            writer.text(",");
        }
        let (name, output) = (&model.signature().outputs[*index].name, &outputs[*index]);
        if *class_count > 0 {
            let has_rows = model.signature().rows_max > 0;
            let classes = classify(&output.0, &output.1, *class_count, has_rows, &model.source().labels);
            let classes = classes.map_err(|error| ApiError::bad_request(format!("output `{name}`: {error}")))?;
            writer.classes(name, &classes, *is_binary);
        } else {
            writer.tensor(name, output, *is_binary).map_err(ApiError::bad_request)?;
        }
    }
    writer.text("]}");
    Ok(writer.finish())
}

/// Returns the metadata of a model.
pub fn model_metadata(model: &Model, versions: impl Iterator<Item = u64>) -> serde_json::Value {
    let ports = |ports: &[super::signature::Port]| {
        let port = |port: &super::signature::Port| json!({"name": port.name, "datatype": protocol_name(port.spec.dtype), "shape": port.protocol_shape()});
        ports.iter().map(port).collect::<serde_json::Value>()
    };
    json!({
        "name": model.source().name,
        "versions": versions.map(|version| version.to_string()).collect::<Vec<_>>(),
        "platform": format!("{}_onnx", model.source().engine.engine),
        "inputs": ports(&model.signature().inputs),
        "outputs": ports(&model.signature().outputs),
    })
}
