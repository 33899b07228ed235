//! The routes of the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use flagperf_core::measure::Clock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access_log::log_access;
use super::body::BodyLimits;
use crate::api_error::ApiError;
use crate::infer_request::{InferRequest, JSON_LENGTH_HEADER};
use crate::infer_response::{infer_response, model_metadata};
use crate::metrics::{AnswerCounts, prometheus, statistics};
use crate::model::Model;
use crate::repository::Repository;

/// The header of an answer that names the record in which the model was measured.
const RECORD_HEADER: HeaderName = HeaderName::from_static("flagperf-record");
/// The most times that a request is given to the model that has taken the place of another.
pub const RELOADS_MAX: usize = 8;

/// What the routes share.
#[derive(Debug)]
pub struct Server {
    /// The models.
    pub repository: Repository,
    /// The limits on bodies.
    pub bodies: BodyLimits,
    /// The answers that were sent.
    pub answers: AnswerCounts,
    /// The clock of the access log.
    pub clock: Arc<dyn Clock>,
    /// Whether the server is about to end.
    pub is_stopping: AtomicBool,
}

type Shared = State<Arc<Server>>;
type Answer = Result<Response, ApiError>;

/// The model and the version that a path names.
#[derive(Debug, Deserialize)]
struct Named {
    model: String,
    version: Option<String>,
}

/// A path that names a model; malformed escapes are an error for the client.
type NamedPath = Result<Path<Named>, PathRejection>;

fn named(path: NamedPath) -> Result<Named, ApiError> {
    path.map(|Path(named)| named).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Returns the routes. `openai` are those below `/v1`.
pub fn router(server: Arc<Server>, openai: Router<Arc<Server>>) -> Router {
    let mut router = Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route("/v2/health/live", get(|| async { Json(json!({"live": true})) }))
        .route("/v2/health/ready", get(server_ready))
        .route("/v2/models/stats", get(all_statistics))
        .route("/v2/repository/index", post(repository_index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload))
        .route("/metrics", get(metrics));
    for prefix in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(prefix, get(metadata))
            .route(&format!("{prefix}/ready"), get(model_ready))
            .route(&format!("{prefix}/stats"), get(model_stats))
            .route(&format!("{prefix}/infer"), post(infer));
    }
    router
        .nest("/v1", openai)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(server.clone(), log_access))
        .with_state(server)
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("unknown path `{}`: the paths are those of KServe's protocol, version 2", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message =
        format!("`{}` is not for {method}: metadata is read with GET, all else is asked for with POST", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn server_metadata() -> Json<Value> {
    Json(json!({
        "name": "flagperf",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data", "classification", "model_repository", "statistics"],
    }))
}

async fn server_ready(State(server): Shared) -> Answer {
    if server.is_stopping.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("the server stops"));
    }
    match server.repository.all().iter().find(|model| model.ready_instances() == 0) {
        Some(model) => Err(not_ready(model)),
        None => Ok(Json(json!({"ready": true})).into_response()),
    }
}

fn not_ready(model: &Model) -> ApiError {
    ApiError::unavailable(format!("model `{}`: {}", model.source().name, model.why_not_ready()))
}

async fn metadata(State(server): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    let versions = server.repository.versions(&model)?;
    let found = server.repository.find(&model, version.as_deref())?;
    Ok(with_record(Json(model_metadata(&found, versions.into_keys())).into_response(), &found))
}

async fn model_ready(State(server): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    let found = server.repository.find(&model, version.as_deref())?;
    if found.ready_instances() == 0 {
        return Err(not_ready(&found));
    }
    Ok(Json(json!({"name": model, "ready": true})).into_response())
}

async fn model_stats(State(server): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    let models = match version {
        Some(version) => vec![server.repository.find(&model, Some(&version))?],
        None => server.repository.versions(&model)?.into_values().collect(),
    };
    Ok(Json(statistics(&models)).into_response())
}

async fn all_statistics(State(server): Shared) -> Json<Value> {
    Json(statistics(&server.repository.all()))
}

async fn metrics(State(server): Shared) -> Response {
    let text = prometheus(&server.repository.all(), &server.answers);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

#[derive(Default, Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

async fn repository_index(State(server): Shared, headers: HeaderMap, body: Body) -> Answer {
    let body = server.bodies.read(&headers, body).await?;
    let request: IndexRequest = match body.bytes.is_empty() {
        true => IndexRequest::default(),
        false => serde_json::from_slice(&body.bytes)
            .map_err(|error| ApiError::bad_request(format!("the request is not valid: {error}")))?,
    };
    let entries = server.repository.index().into_iter().filter(|entry| entry.is_ready || !request.ready);
    let entries = entries.map(|entry| {
        let state = if entry.is_ready { "READY" } else { "UNAVAILABLE" };
        let mut line = json!({"name": entry.name, "state": state, "reason": entry.reason});
        if let Some(version) = entry.version {
            line["version"] = version.to_string().into();
        }
        line
    });
    Ok(Json(entries.collect::<Value>()).into_response())
}

async fn load(State(server): Shared, path: NamedPath) -> Answer {
    let name = named(path)?.model;
    let server = server.clone();
    // A client that leaves does not stop it half-way.
    tokio::spawn(async move { server.repository.load(&name).await }).await.map_err(task_failed)??;
    Ok(Json(json!({})).into_response())
}

async fn unload(State(server): Shared, path: NamedPath) -> Answer {
    let name = named(path)?.model;
    let server = server.clone();
    tokio::spawn(async move { server.repository.unload(&name).await }).await.map_err(task_failed)??;
    Ok(Json(json!({})).into_response())
}

fn task_failed(error: tokio::task::JoinError) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

async fn infer(State(server): Shared, path: NamedPath, headers: HeaderMap, body: Body) -> Answer {
    let arrived = server.clock.now();
    let Named { model: name, version } = named(path)?;
    server.repository.find(&name, version.as_deref())?;
    let body = server.bodies.read(&headers, body).await?;
    let json_length = match headers.get(JSON_LENGTH_HEADER).map(HeaderValue::to_str) {
        Some(Ok(length)) => Some(length),
        Some(Err(_)) => return Err(ApiError::bad_request(format!("{JSON_LENGTH_HEADER} is not a number"))),
        None => None,
    };
    for _ in 0..RELOADS_MAX {
        let model = server.repository.find(&name, version.as_deref())?;
        let request = InferRequest::parse(&body.bytes, json_length, model.signature())?;
        match model.infer(request.inputs, request.deadline, arrived).await {
            Ok(outputs) => {
                let response = infer_response(&model, request.id.as_deref(), &outputs, &request.outputs)?;
                return Ok(with_record(response, &model));
            }
            Err(Some(error)) => return Err(error),
            // The model was loaded again in the meantime: its successor answers.
            Err(None) => {}
        }
    }
    Err(ApiError::unavailable(format!("model `{name}` is loaded again and again")))
}

/// Adds the record in which the model was measured.
pub fn with_record(mut response: Response, model: &Model) -> Response {
    let digest = model.source().record.as_ref().and_then(|record| HeaderValue::from_str(&record.digest).ok());
    digest.into_iter().for_each(|digest| _ = response.headers_mut().insert(RECORD_HEADER, digest));
    response
}
