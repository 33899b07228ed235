//! The calls of the protocol.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use flagperf_core::measure::Nanos;
use hyper::body::Incoming;
use tonic::Code;

use super::answers::{failed, one};
use super::frames::Frames;
use super::infer::infer;
use super::replies::{check_health, reply_to};
use super::stream::stream_infer;
use crate::access_log::Access;
use crate::api_error::{ApiError, ErrorKind};
use crate::service::Service;

/// The services, as paths begin with them.
pub const INFERENCE: &str = "inference.GRPCInferenceService";
const HEALTH: &str = "grpc.health.v1.Health";
/// How long a client may take to begin the message of a call.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Answers a call, counts the answer and logs it.
pub async fn answer(service: Arc<Service>, request: axum::http::Request<Incoming>) -> Response {
    let access = Access::begin(&service, request.method(), request.uri());
    let arrived = service.clock.now();
    let (parts, body) = request.into_parts();
    if !is_grpc(&parts.headers) {
        let message = "this is the port of gRPC: the content type is `application/grpc`, and HTTP has another port";
        let response = ApiError::new(ErrorKind::WrongForm, message).into_response();
        access.end(&response.status().as_u16());
        return response;
    }
    let answered = call(&service, &parts, Body::new(body), arrived).await;
    let code = answered.as_ref().map_or_else(ApiError::code, |_| Code::Ok);
    service.answers.add_grpc(code);
    access.end(&format_args!("{code:?}"));
    answered.unwrap_or_else(|error| failed(&error))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

async fn call(service: &Arc<Service>, parts: &Parts, body: Body, arrived: Nanos) -> Result<Response, ApiError> {
    let path = parts.uri.path();
    let (name, method) = path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or((path, ""));
    let is_open = name == HEALTH || (name == INFERENCE && matches!(method, "ServerLive" | "ServerReady"));
    if let Some(tokens) = service.tokens.as_ref().filter(|_| !is_open) {
        tokens.check(&parts.headers)?;
    }
    if !matches!(name, INFERENCE | HEALTH) {
        return Err(unknown(path));
    }
    let deadline = deadline(&parts.headers)?;
    let frames = Frames::new(body, service.bodies.clone());
    if (name, method) == (INFERENCE, "ModelStreamInfer") {
        return Ok(stream_infer(service.clone(), frames, deadline));
    }
    let message = frames.only(SILENCE_MAX).await?;
    let (frame, headers) = match (name, method) {
        (HEALTH, "Check") => check_health(service, &message),
        (INFERENCE, "ModelInfer") => infer(service, &message, deadline, arrived).await,
        (INFERENCE, method) => reply_to(service, method, &message).await.unwrap_or_else(|| Err(unknown(path))),
        _ => Err(unknown(path)),
    }?;
    Ok(one(frame, headers))
}

fn unknown(path: &str) -> ApiError {
    let message = format!("unknown call `{path}`: calls are those of `{INFERENCE}`, and `Check` of `{HEALTH}`");
    ApiError::new(ErrorKind::Unimplemented, message)
}

/// Returns how long the client waits: `grpc-timeout` has up to eight digits and a unit.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let text = value.to_str().unwrap_or("");
    let parse = || {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let count = digits.parse::<u64>().ok().filter(|_| digits.len() <= 8)?;
        Some(match unit {
            "H" => Duration::from_secs(count * 3600),
            "M" => Duration::from_secs(count * 60),
            "S" => Duration::from_secs(count),
            "m" => Duration::from_millis(count),
            "u" => Duration::from_micros(count),
            "n" => Duration::from_nanos(count),
            _ => return None,
        })
    };
    let deadline = parse().ok_or_else(|| ApiError::bad_request(format!("grpc-timeout is {value:?}")))?;
    Ok(Some(deadline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    #[test]
    fn the_time_of_a_call_has_digits_and_a_unit() {
        let read = |text: &str| {
            deadline(&HeaderMap::from_iter([(HeaderName::from_static("grpc-timeout"), text.parse().unwrap())]))
        };
        assert_eq!(read("100m"), Ok(Some(Duration::from_millis(100))));
        assert_eq!(read("99999999H"), Ok(Some(Duration::from_secs(99_999_999 * 3600))));
        for text in ["", "m", "1", "1x", "123456789S", "-1S"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_content_types_of_grpc_are_read() {
        let check =
            |kind: &'static str| is_grpc(&HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]));
        assert!(check("application/grpc") && check("application/grpc+proto"));
        assert!(!check("application/grpc-web") && !check("application/json") && !is_grpc(&HeaderMap::new()));
    }
}
