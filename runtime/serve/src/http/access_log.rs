//! The access log: one event of `tracing` for each answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use flagperf_core::text::{one_line, truncate};
use tracing::info;

use super::routes::Server;

/// The most bytes of a path in the log.
const PATH_BYTES_MAX: usize = 200;

/// Answers a request, counts the answer and logs it.
pub async fn log_access(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let begin = server.clock.now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    server.answers.add(status);
    let micros = server.clock.now().0.saturating_sub(begin.0) / 1_000;
    info!(target: "access", %method, path = %truncate(&one_line(&path), PATH_BYTES_MAX), status, micros);
    response
}
