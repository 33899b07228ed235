//! The routes of the protocol.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::access_log::log_access;
use super::json_answer::json_answer;
use super::json_request::{JSON_LENGTH_HEADER, json_request};
use super::shared_memory;
use crate::api_error::{ApiError, ErrorKind};
use crate::body::LimitedBody;
use crate::messages::ModelStatisticsResponse;
use crate::metrics::prometheus;
use crate::model::Model;
use crate::model_description::{model_config, model_statistics};
use crate::service::{RECORD_HEADER, Service, record_header};

/// What every handler gets.
pub type Shared = State<Arc<Service>>;
/// What every handler that can fail returns.
pub type Answer = Result<Response, ApiError>;

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
pub fn router(service: Arc<Service>, openai: Router<Arc<Service>>) -> Router {
    let mut router = Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route("/v2/health/live", get(|| async { Json(json!({"live": true})) }))
        .route("/v2/health/ready", get(server_ready))
        .route("/v2/models/stats", get(all_statistics))
        .route("/v2/repository/index", post(repository_index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload))
        .route("/metrics", get(metrics))
        .merge(shared_memory::routes());
    for prefix in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(prefix, get(metadata))
            .route(&format!("{prefix}/ready"), get(model_ready))
            .route(&format!("{prefix}/config"), get(config))
            .route(&format!("{prefix}/stats"), get(model_stats))
            .route(&format!("{prefix}/infer"), post(infer));
    }
    router
        .nest("/v1", openai)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(service.clone(), log_access))
        .with_state(service)
}

/// Returns whether a path can be asked for without a token: what an orchestrator asks for.
pub fn is_open(path: &str) -> bool {
    matches!(path, "/v2/health/live" | "/v2/health/ready")
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("unknown path `{}`: the paths are those of KServe's protocol, version 2", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message =
        format!("`{}` is not for {method}: metadata is read with GET, all else is asked for with POST", uri.path());
    ApiError::new(ErrorKind::WrongMethod, message)
}

async fn server_metadata(State(service): Shared) -> Response {
    Json(service.metadata()).into_response()
}

async fn server_ready(State(service): Shared) -> Answer {
    service.check_ready()?;
    Ok(Json(json!({"ready": true})).into_response())
}

async fn metadata(State(service): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    let (model, metadata) = service.model_metadata(&model, version.as_deref())?;
    Ok(with_record(Json(metadata).into_response(), &model))
}

async fn config(State(service): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    let model = service.repository.find(&model, version.as_deref())?;
    Ok(with_record(Json(model_config(&model)).into_response(), &model))
}

async fn model_ready(State(service): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    service.check_model_ready(&model, version.as_deref())?;
    Ok(Json(json!({"name": model, "ready": true})).into_response())
}

async fn model_stats(State(service): Shared, path: NamedPath) -> Answer {
    let Named { model, version } = named(path)?;
    Ok(statistics(&service.versions(&model, version.as_deref())?))
}

async fn all_statistics(State(service): Shared) -> Response {
    statistics(&service.repository.all())
}

fn statistics(models: &[Arc<Model>]) -> Response {
    let model_stats = models.iter().map(|model| model_statistics(model)).collect();
    Json(ModelStatisticsResponse { model_stats }).into_response()
}

async fn metrics(State(service): Shared) -> Response {
    let text = prometheus(&service.repository.all(), &service.answers);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

#[derive(Default, Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

async fn repository_index(State(service): Shared, headers: HeaderMap, body: Body) -> Answer {
    let request: IndexRequest = read_json(&service, &headers, body).await?;
    Ok(Json(service.index(request.ready)).into_response())
}

/// What a client may send with a request to load a model.
#[derive(Default, Deserialize)]
struct LoadBody {
    #[serde(default)]
    parameters: serde_json::Map<String, serde_json::Value>,
}

async fn load(State(service): Shared, path: NamedPath, headers: HeaderMap, body: Body) -> Answer {
    let request: LoadBody = read_json(&service, &headers, body).await?;
    if let Some(name) = request.parameters.keys().next() {
        let message = format!("this server loads models from its store as they are, without the parameter `{name}`");
        return Err(ApiError::new(ErrorKind::Unimplemented, message));
    }
    service.load(named(path)?.model).await?;
    Ok(Json(json!({})).into_response())
}

async fn unload(State(service): Shared, path: NamedPath) -> Answer {
    service.unload(named(path)?.model).await?;
    Ok(Json(json!({})).into_response())
}

async fn infer(State(service): Shared, path: NamedPath, headers: HeaderMap, body: Body) -> Answer {
    let arrived = service.clock.now();
    let Named { model, version } = named(path)?;
    service.repository.find(&model, version.as_deref())?;
    let body = read_body(&service, &headers, body).await?;
    let given = json_request(&body.bytes, single(&headers, JSON_LENGTH_HEADER)?)?;
    let answer = service.infer(&model, version.as_deref(), &given, arrived).await?;
    Ok(with_record(json_answer(given.id.as_deref(), &answer)?, &answer.model))
}

/// Reads a body of JSON; an empty one has the default of each field.
pub async fn read_json<T: Default + serde::de::DeserializeOwned>(
    service: &Service,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ApiError> {
    let body = read_body(service, headers, body).await?;
    if body.bytes.is_empty() {
        return Ok(T::default());
    }
    // Without it, serde accepts an array of the values, too.
    if body.bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::bad_request("the request is not valid: it is not a JSON object"));
    }
    serde_json::from_slice::<T>(&body.bytes)
        .map_err(|error| ApiError::bad_request(format!("the request is not valid: {error}")))
}

/// Reads the body of a request.
///
/// # Errors
/// When it is compressed, its length is stated twice, or as for [`crate::body::BodyLimits::read`].
pub async fn read_body(service: &Service, headers: &HeaderMap, body: Body) -> Result<LimitedBody, ApiError> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let message = format!("the body is encoded as {encoding:?}; this server reads only bodies as they are");
        return Err(ApiError::new(ErrorKind::WrongForm, message));
    }
    let stated = single(headers, header::CONTENT_LENGTH.as_str())?;
    service.bodies.read(stated.and_then(|length| length.parse().ok()), body).await
}

/// Returns the value of a header that has one at most.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (_, Some(_)) => Err(ApiError::bad_request(format!("the header {name} is there more than once"))),
        (Some(Err(_)), _) => Err(ApiError::bad_request(format!("the header {name} is not a number"))),
        (Some(Ok(value)), None) => Ok(Some(value)),
        (None, None) => Ok(None),
    }
}

/// Adds the record in which the model was measured.
pub fn with_record(mut response: Response, model: &Model) -> Response {
    if let Some(digest) = record_header(model) {
        response.headers_mut().insert(HeaderName::from_static(RECORD_HEADER), digest);
    }
    response
}
