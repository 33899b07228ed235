//! The answer to a request for inference as JSON, with the bytes of tensors behind it.

use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::json_request::JSON_LENGTH_HEADER;
use crate::answer::{AnswerContent, AnswerOutput, InferAnswer, text_bytes};
use crate::api_error::ApiError;
use crate::elements::write_elements;

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

    /// Writes the number of the bytes that follow the JSON.
    fn binary(&mut self, bytes: Bytes) {
        self.text(",\"parameters\":{\"binary_data_size\":");
        self.value(&bytes.len());
        self.text("}}");
        self.binary.push(bytes);
    }

    fn output(&mut self, name: &str, output: &AnswerOutput) -> Result<(), String> {
        self.text("{\"name\":");
        self.value(&name);
        self.text(",\"datatype\":");
        self.value(&output.datatype());
        self.text(",\"shape\":");
        self.value(&output.shape);
        match &output.content {
            AnswerContent::Tensor(_, bytes) if output.is_binary => self.binary(bytes.clone()),
            AnswerContent::Texts(texts) if output.is_binary => self.binary(text_bytes(texts)),
            AnswerContent::Tensor(dtype, bytes) => {
                self.text(",\"data\":");
                write_elements(*dtype, bytes, &mut self.json)
                    .map_err(|reason| format!("output `{name}`: {reason}: request it with `binary_data`"))?;
                self.text("}");
            }
            AnswerContent::Texts(texts) => {
                self.text(",\"data\":");
                self.value(texts);
                self.text("}");
            }
            AnswerContent::Region(_, range, size) => {
                self.text(",\"parameters\":{\"shared_memory_region\":");
                self.value(&range.region);
                self.text(",\"shared_memory_byte_size\":");
                self.value(size);
                if range.offset > 0 {
                    self.text(",\"shared_memory_offset\":");
                    self.value(&range.offset);
                }
                self.text("}}");
            }
        }
        Ok(())
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

/// Returns an answer as JSON.
///
/// # Errors
/// When JSON has no form for an output.
pub fn json_answer(id: Option<&str>, answer: &InferAnswer) -> Result<Response, ApiError> {
    let source = answer.model.source();
    let mut writer = Writer::default();
    writer.text("{\"model_name\":");
    writer.value(&source.name);
    writer.text(",\"model_version\":");
    writer.value(&source.version.to_string());
    if let Some(id) = id {
        writer.text(",\"id\":");
        writer.value(&id);
    }
    writer.text(",\"outputs\":[");
    for (at, output) in answer.outputs.iter().enumerate() {
        if at > 0 {
            writer.text(",");
        }
        writer.output(answer.name(output), output).map_err(ApiError::bad_request)?;
    }
    writer.text("]}");
    Ok(writer.finish())
}
