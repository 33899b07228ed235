//! The routes of the protocol.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::answer_reader::AnswerReader;
use super::completion_request::{CompletionRequest, Kind};
use super::completion_response::ResponseHead;
use super::event_stream::event_stream;
use super::openai_error::OpenAiError;
use super::prompt::{submit, text_model};
use crate::api_error::{ApiError, ErrorKind};
use crate::http::{read_body, with_record};
use crate::model::Model;
use crate::service::{RELOADS_MAX, Service};

type Shared = State<Arc<Service>>;
type Reply = Result<Response, OpenAiError>;

/// Returns the routes below `/v1`.
pub fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/models", get(models))
        .route("/models/{model}", get(model))
        .route("/completions", post(completions))
        .route("/chat/completions", post(chat_completions))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
}

async fn unknown_path(uri: Uri) -> OpenAiError {
    let known = "`models`, `completions` and `chat/completions`";
    ApiError::not_found(format!("unknown path `{}`: below `/v1` are {known}", uri.path())).into()
}

async fn wrong_method(method: Method, uri: Uri) -> OpenAiError {
    let message = format!("`{}` is not for {method}: models are read with GET, all else is sent with POST", uri.path());
    ApiError::new(ErrorKind::WrongMethod, message).into()
}

/// Returns the description of a language model; `max_model_len` is a field of vLLM.
fn description(model: &Model) -> Option<Value> {
    let text = model.text()?;
    Some(json!({
        "id": model.source().name,
        "object": "model",
        "created": model.loaded_at(),
        "owned_by": "flagperf",
        "max_model_len": text.language().graph().length,
    }))
}

async fn models(State(service): Shared) -> Json<Value> {
    let names: std::collections::BTreeSet<String> =
        service.repository.all().iter().map(|model| model.source().name.clone()).collect();
    let newest = names.iter().filter_map(|name| service.repository.find(name, None).ok());
    let list: Vec<Value> = newest.filter_map(|model| description(&model)).collect();
    Json(json!({"object": "list", "data": list}))
}

async fn model(State(service): Shared, path: Result<Path<String>, PathRejection>) -> Reply {
    let Path(name) = path.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let model = service.repository.find(&name, None)?;
    text_model(&model)?;
    Ok(with_record(Json(description(&model)).into_response(), &model))
}

async fn completions(service: Shared, headers: HeaderMap, body: Body) -> Reply {
    complete(service, &headers, body, Kind::Completion).await
}

async fn chat_completions(service: Shared, headers: HeaderMap, body: Body) -> Reply {
    complete(service, &headers, body, Kind::Chat).await
}

async fn complete(State(service): Shared, headers: &HeaderMap, body: Body, kind: Kind) -> Reply {
    let arrived = service.clock.now();
    let body = read_body(&service, headers, body).await?;
    let request = CompletionRequest::parse(kind, &body.bytes)?;
    // Its memory is free while the answer is written.
    drop(body);
    for _ in 0..RELOADS_MAX {
        let model = service.repository.find(&request.model, None)?;
        // Otherwise the model was loaded again in the meantime: its successor answers.
        if let Some(reader) = submit(&model, &request, arrived)? {
            let response = match request.streams {
                true => streamed(reader, &request).await?,
                false => whole(reader, &request).await?,
            };
            return Ok(with_record(response, &model));
        }
    }
    Err(ApiError::unavailable(format!("model `{}` is loaded again and again", request.model)).into())
}

/// Answers when the first token is there, so that an error before it has a status of its own.
async fn streamed(mut reader: AnswerReader, request: &CompletionRequest) -> Reply {
    let first = reader.next().await.unwrap_or_else(|| Err(no_token()))?;
    let body = event_stream(reader, ResponseHead::new(request), &first);
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, body).into_response())
}

async fn whole(mut reader: AnswerReader, request: &CompletionRequest) -> Reply {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    while let Some(part) = reader.next().await {
        let part = part?;
        text += &part.text;
        tokens.push(part.token);
        if let Some(finish) = part.finish {
            let answer = ResponseHead::new(request).whole(&text, &tokens, finish, reader.usage());
            return Ok(Json(answer).into_response());
        }
    }
    Err(no_token().into())
}

fn no_token() -> ApiError {
    ApiError::unavailable("the answer has no token")
}
