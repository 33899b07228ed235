//! Requests for inference in a stream: each has an answer, in their order, and an error is an answer, too.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tonic::Code;

use super::answers::many;
use super::frames::{Frames, encode};
use super::infer::{infer_response, run};
use crate::api_error::ApiError;
use crate::body::LimitedBody;
use crate::messages::ModelStreamInferResponse;
use crate::service::Service;

/// How long a client may wait before its next request.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// The most requests of a stream that are answered at the same time.
const RUNNING_MAX: usize = 64;

/// Answers a stream of requests, whose client waits until `deadline` for the end.
pub fn stream_infer(service: Arc<Service>, frames: Frames, deadline: Option<Duration>) -> Response {
    let messages = stream::unfold(Some((service.clone(), frames)), |state| async move {
        let (service, mut frames) = state?;
        match next(&service, &mut frames).await {
            Ok(Some(message)) => Some((Ok(message), Some((service, frames)))),
            Ok(None) => None,
            // What follows a malformed frame cannot be found.
            Err(error) => Some((Err(error), None)),
        }
    });
    let begin = service.clock.now();
    let answers = messages.map(move |message| {
        let service = service.clone();
        async move {
            let age = Duration::from_nanos(service.clock.now().0.saturating_sub(begin.0));
            answer(&service, message?, deadline.map(|deadline| deadline.saturating_sub(age))).await
        }
    });
    many(Box::pin(answers.buffered(RUNNING_MAX)))
}

/// Returns the next request; `None` at the end, and an error when the server stops.
async fn next(service: &Service, frames: &mut Frames) -> Result<Option<LimitedBody>, ApiError> {
    let mut stop = service.stop.subscribe();
    tokio::select! {
        biased;
        message = frames.next(IDLE_MAX) => message,
        _ = stop.wait_for(|is_stopping| *is_stopping) => Err(ApiError::unavailable("the server stops")),
    }
}

/// Returns the answer to a request as a frame.
async fn answer(service: &Service, message: LimitedBody, deadline: Option<Duration>) -> Result<Bytes, ApiError> {
    let result = run(service, &message, deadline, service.clock.now()).await;
    service.answers.add_grpc(result.as_ref().map_or_else(ApiError::code, |_| Code::Ok));
    let response = match result {
        Ok((id, answer)) => {
            let infer_response = Some(infer_response(id, &answer));
            ModelStreamInferResponse { error_message: String::new(), infer_response }
        }
        Err(error) => ModelStreamInferResponse { error_message: error.sentence(), infer_response: None },
    };
    encode(&response)
}
