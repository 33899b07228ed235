//! The routes of shared memory.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::routes::{Answer, Shared, read_json};
use crate::api_error::ApiError;
use crate::messages::system_shared_memory_status_response::RegionStatus;
use crate::service::Service;
use crate::shared_memory::no_cuda;

/// The name of a region in a path.
type RegionPath = Result<Path<String>, PathRejection>;

#[derive(Default, Deserialize)]
struct RegisterRequest {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

/// Returns the routes of shared memory.
pub fn routes() -> Router<Arc<Service>> {
    let router = Router::new()
        .route("/v2/systemsharedmemory/status", get(status_of_all))
        .route("/v2/systemsharedmemory/unregister", post(unregister_all))
        .route("/v2/systemsharedmemory/region/{region}/status", get(status))
        .route("/v2/systemsharedmemory/region/{region}/register", post(register))
        .route("/v2/systemsharedmemory/region/{region}/unregister", post(unregister));
    ["status", "unregister", "region/{region}/status", "region/{region}/register", "region/{region}/unregister"]
        .iter()
        .fold(router, |router, path| router.route(&format!("/v2/cudasharedmemory/{path}"), get(cuda).post(cuda)))
}

fn region(path: RegionPath) -> Result<String, ApiError> {
    path.map(|Path(name)| name).map_err(|error| ApiError::bad_request(error.to_string()))
}

async fn status_of_all(State(service): Shared) -> Answer {
    Ok(Json(service.regions()?.status("")?).into_response())
}

async fn status(State(service): Shared, path: RegionPath) -> Answer {
    Ok(Json(service.regions()?.status(&region(path)?)?).into_response())
}

async fn register(State(service): Shared, path: RegionPath, headers: HeaderMap, body: Body) -> Answer {
    let name = region(path)?;
    let regions = service.regions()?;
    let RegisterRequest { key, offset, byte_size } = read_json(&service, &headers, body).await?;
    regions.register(RegionStatus { name, key, offset, byte_size })?;
    Ok(Json(json!({})).into_response())
}

async fn unregister(State(service): Shared, path: RegionPath) -> Answer {
    service.regions()?.unregister(&region(path)?);
    Ok(Json(json!({})).into_response())
}

async fn unregister_all(State(service): Shared) -> Answer {
    service.regions()?.unregister("");
    Ok(Json(json!({})).into_response())
}

async fn cuda() -> ApiError {
    no_cuda()
}
