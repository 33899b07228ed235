//! An error as a client gets it: a status and a sentence.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flagperf_core::text::{one_line, truncate};
use serde_json::json;

/// The most bytes of a message: it may quote what the client sent.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status.
    pub status: StatusCode,
    /// A sentence.
    pub message: String,
    /// After how many seconds the request may succeed.
    pub retry_after_s: Option<u32>,
}

impl ApiError {
    /// Creates an error with a status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), retry_after_s: None }
    }

    /// The request is malformed or does not fit the model.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// What the request names does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// The server cannot answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        ApiError { retry_after_s: Some(1), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// Too many requests wait.
    pub fn too_many(message: impl Into<String>) -> Self {
        ApiError { retry_after_s: Some(1), ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let message = truncate(&one_line(&self.message), MESSAGE_BYTES_MAX).into_owned();
        let mut response = (self.status, Json(json!({ "error": message }))).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
