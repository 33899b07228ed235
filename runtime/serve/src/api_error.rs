//! An error as a client gets it: a kind, which each protocol has a status for, and a sentence.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flagperf_core::text::{one_line, truncate};
use serde_json::json;
use tonic::Code;

/// The most bytes of a message: it may quote what the client sent.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed or does not fit the model.
    Malformed,
    /// The token is missing or unknown.
    NoToken,
    /// What the request names does not exist.
    NotFound,
    /// The path exists, but not for this method.
    WrongMethod,
    /// The client sends too slowly.
    TooSlow,
    /// The request is too large.
    TooLarge,
    /// The body is in a form that the server does not read.
    WrongForm,
    /// Too many requests wait.
    TooMany,
    /// The engine failed.
    Engine,
    /// The server has no such function.
    Unimplemented,
    /// The server cannot answer now.
    Unavailable,
    /// The deadline passed.
    Deadline,
}

/// Each kind with its statuses in HTTP and in gRPC.
const STATUSES: [(ErrorKind, StatusCode, Code); 12] = [
    (ErrorKind::Malformed, StatusCode::BAD_REQUEST, Code::InvalidArgument),
    (ErrorKind::NoToken, StatusCode::UNAUTHORIZED, Code::Unauthenticated),
    (ErrorKind::NotFound, StatusCode::NOT_FOUND, Code::NotFound),
    (ErrorKind::WrongMethod, StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented),
    (ErrorKind::TooSlow, StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded),
    (ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
    (ErrorKind::WrongForm, StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented),
    (ErrorKind::TooMany, StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
    (ErrorKind::Engine, StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
    (ErrorKind::Unimplemented, StatusCode::NOT_IMPLEMENTED, Code::Unimplemented),
    (ErrorKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
    (ErrorKind::Deadline, StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded),
];

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// A sentence.
    pub message: String,
}

impl ApiError {
    /// Creates an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ApiError { kind, message: message.into() }
    }

    /// The request is malformed or does not fit the model.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::Malformed, message)
    }

    /// What the request names does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::NotFound, message)
    }

    /// The server cannot answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::Unavailable, message)
    }

    /// Too many requests wait.
    pub fn too_many(message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::TooMany, message)
    }

    /// Returns the statuses in HTTP and in gRPC.
    fn statuses(&self) -> (StatusCode, Code) {
        let row = STATUSES.iter().find(|(kind, ..)| *kind == self.kind);
        row.map_or((StatusCode::INTERNAL_SERVER_ERROR, Code::Internal), |(_, status, code)| (*status, *code))
    }

    /// Returns the status in HTTP.
    pub fn status(&self) -> StatusCode {
        self.statuses().0
    }

    /// Returns the status in gRPC.
    pub fn code(&self) -> Code {
        self.statuses().1
    }

    /// Returns an answer with its status and the headers that belong to it.
    pub fn response(&self, body: serde_json::Value) -> Response {
        let mut response = (self.status(), Json(body)).into_response();
        match self.kind {
            // The request may succeed after a second.
            ErrorKind::TooMany | ErrorKind::Unavailable => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
            }
            ErrorKind::NoToken => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }

    /// Returns the sentence as one line of limited length.
    pub fn sentence(&self) -> String {
        truncate(&one_line(&self.message), MESSAGE_BYTES_MAX).into_owned()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(json!({ "error": self.sentence() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row() {
        let kinds: Vec<String> = STATUSES.iter().map(|(kind, ..)| format!("{kind:?}")).collect();
        let names: std::collections::BTreeSet<&String> = kinds.iter().collect();
        assert_eq!(names.len(), kinds.len());
        assert_eq!(ApiError::unavailable("").code(), Code::Unavailable);
    }
}
