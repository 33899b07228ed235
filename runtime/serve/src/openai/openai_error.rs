//! An error as clients of OpenAI's protocol get it.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flagperf_core::text::{one_line, truncate};
use serde_json::{Value, json};

use crate::api_error::ApiError;

/// The most bytes of a message: it may quote what the client sent.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAiError {
    error: ApiError,
    /// The field of the request that is wrong.
    param: Option<&'static str>,
    /// A word for programs.
    code: Option<&'static str>,
}

impl OpenAiError {
    /// A field of the request is wrong.
    pub fn field(param: &'static str, message: impl Into<String>) -> Self {
        OpenAiError { param: Some(param), ..ApiError::bad_request(message).into() }
    }

    /// The prompt and the answer do not fit into the model.
    pub fn too_long(param: &'static str, message: impl Into<String>) -> Self {
        OpenAiError { code: Some("context_length_exceeded"), ..Self::field(param, message) }
    }

    /// Returns the object that describes it.
    pub fn json(&self) -> Value {
        let message = truncate(&one_line(&self.error.message), MESSAGE_BYTES_MAX).into_owned();
        let kind = match self.error.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<ApiError> for OpenAiError {
    fn from(error: ApiError) -> Self {
        let code = match error.status {
            StatusCode::NOT_FOUND => Some("model_not_found"),
            StatusCode::TOO_MANY_REQUESTS => Some("rate_limit_exceeded"),
            _ => None,
        };
        OpenAiError { error, param: None, code }
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        let mut response = (self.error.status, Json(self.json())).into_response();
        if let Some(seconds) = self.error.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
