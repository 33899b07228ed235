//! An error as clients of OpenAI's protocol get it.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api_error::ApiError;

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
        let message = self.error.sentence();
        let kind = match self.error.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<ApiError> for OpenAiError {
    fn from(error: ApiError) -> Self {
        let code = match error.status() {
            StatusCode::NOT_FOUND => Some("model_not_found"),
            StatusCode::TOO_MANY_REQUESTS => Some("rate_limit_exceeded"),
            _ => None,
        };
        OpenAiError { error, param: None, code }
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        self.error.response(self.json())
    }
}
