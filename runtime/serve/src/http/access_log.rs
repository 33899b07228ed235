//! What happens around every request: the check of its token, the count of its answer, and the line of the access log.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::routes::is_open;
use crate::access_log::Access;
use crate::service::Service;

/// Answers a request, counts the answer and logs it.
pub async fn log_access(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let access = Access::begin(&service, request.method(), request.uri());
    let allowed = match &service.tokens {
        Some(tokens) if !is_open(request.uri().path()) => tokens.check(request.headers()),
        _ => Ok(()),
    };
    let response = match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let status = response.status().as_u16();
    service.answers.add_http(status);
    access.end(&status);
    response
}
