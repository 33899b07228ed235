//! The answers to all calls but those of inference.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName};
use prost::Message;

use super::calls::INFERENCE;
use super::frames::{decode, encode};
use crate::api_error::{ApiError, ErrorKind};
use crate::body::LimitedBody;
use crate::messages as m;
use crate::messages::system_shared_memory_status_response::RegionStatus;
use crate::model::Model;
use crate::model_description::{model_config, model_statistics};
use crate::service::{RECORD_HEADER, Service, record_header};
use crate::shared_memory::no_cuda;

/// What a call returns: its message as a frame, and its metadata.
pub type Reply = Result<(Bytes, HeaderMap), ApiError>;

/// The request and the answer of the health service.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    /// The name of a model; empty for the server.
    #[prost(string, tag = "1")]
    service: String,
}

/// Whether the server or a model can answer.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    /// 1: it can; 2: it cannot.
    #[prost(int32, tag = "1")]
    status: i32,
}

fn reply(message: &impl Message) -> Reply {
    Ok((encode(message)?, HeaderMap::new()))
}

/// Adds the record in which the model was measured.
pub fn with_record(message: &impl Message, model: &Model) -> Reply {
    let (frame, mut headers) = reply(message)?;
    if let Some(digest) = record_header(model) {
        headers.insert(HeaderName::from_static(RECORD_HEADER), digest);
    }
    Ok((frame, headers))
}

/// Returns the version that a request names; an empty one is none.
pub fn named_version(version: &str) -> Option<&str> {
    Some(version).filter(|version| !version.is_empty())
}

pub fn check_health(service: &Service, message: &LimitedBody) -> Reply {
    let request: HealthCheckRequest = decode(message)?;
    let ready = match request.service.as_str() {
        "" | INFERENCE => service.check_ready(),
        model => service.check_model_ready(model, None),
    };
    let status = match ready {
        // Anybody may ask: the names of the models are not in the answer.
        Err(error) if error.kind == ErrorKind::NotFound => {
            return Err(ApiError::not_found(
                "there is no such service: name a model, or none for the server".to_owned(),
            ));
        }
        Err(_) => 2,
        Ok(()) => 1,
    };
    reply(&HealthCheckResponse { status })
}

/// Answers a call of the inference service; `None` if there is no such call, or it is one of inference.
pub async fn reply_to(service: &Arc<Service>, method: &str, message: &LimitedBody) -> Option<Reply> {
    Some(match method {
        "ServerLive" => reply(&m::ServerLiveResponse { live: true }),
        "ServerReady" => reply(&m::ServerReadyResponse { ready: service.check_ready().is_ok() }),
        "ServerMetadata" => reply(&service.metadata()),
        "ModelReady" => model_ready(service, message),
        "ModelMetadata" => metadata(service, message),
        "ModelConfig" => config(service, message),
        "ModelStatistics" => statistics(service, message),
        "RepositoryIndex" => index(service, message),
        "RepositoryModelLoad" => load(service, message).await,
        "RepositoryModelUnload" => unload(service, message).await,
        "SystemSharedMemoryStatus" => region_status(service, message),
        "SystemSharedMemoryRegister" => register(service, message),
        "SystemSharedMemoryUnregister" => unregister(service, message),
        "CudaSharedMemoryStatus" | "CudaSharedMemoryRegister" | "CudaSharedMemoryUnregister" => Err(no_cuda()),
        "TraceSetting" | "LogSettings" => {
            let message =
                "this server has no traces and no log settings: FLAGPERF_LOG_LEVEL sets its log when it starts";
            Err(ApiError::new(ErrorKind::Unimplemented, message))
        }
        _ => return None,
    })
}

fn model_ready(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::ModelReadyRequest = decode(message)?;
    match service.check_model_ready(&request.name, named_version(&request.version)) {
        Err(error) if error.kind == ErrorKind::NotFound => Err(error),
        ready => reply(&m::ModelReadyResponse { ready: ready.is_ok() }),
    }
}

fn metadata(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::ModelMetadataRequest = decode(message)?;
    let (model, metadata) = service.model_metadata(&request.name, named_version(&request.version))?;
    with_record(&metadata, &model)
}

fn config(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::ModelConfigRequest = decode(message)?;
    let model = service.repository.find(&request.name, named_version(&request.version))?;
    with_record(&m::ModelConfigResponse { config: Some(model_config(&model)) }, &model)
}

fn statistics(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::ModelStatisticsRequest = decode(message)?;
    let models = service.versions(&request.name, named_version(&request.version))?;
    let model_stats = models.iter().map(|model| model_statistics(model)).collect();
    reply(&m::ModelStatisticsResponse { model_stats })
}

fn index(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::RepositoryIndexRequest = decode(message)?;
    reply(&m::RepositoryIndexResponse { models: service.index(request.ready) })
}

async fn load(service: &Arc<Service>, message: &LimitedBody) -> Reply {
    let request: m::RepositoryModelLoadRequest = decode(message)?;
    service.load(request.model_name).await?;
    reply(&m::RepositoryModelLoadResponse {})
}

async fn unload(service: &Arc<Service>, message: &LimitedBody) -> Reply {
    let request: m::RepositoryModelUnloadRequest = decode(message)?;
    service.unload(request.model_name).await?;
    reply(&m::RepositoryModelUnloadResponse {})
}

fn region_status(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::SystemSharedMemoryStatusRequest = decode(message)?;
    let regions = service.regions()?.status(&request.name)?;
    let regions = regions.into_iter().map(|region| (region.name.clone(), region)).collect();
    reply(&m::SystemSharedMemoryStatusResponse { regions })
}

fn register(service: &Service, message: &LimitedBody) -> Reply {
    let m::SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = decode(message)?;
    service.regions()?.register(RegionStatus { name, key, offset, byte_size })?;
    reply(&m::SystemSharedMemoryRegisterResponse {})
}

fn unregister(service: &Service, message: &LimitedBody) -> Reply {
    let request: m::SystemSharedMemoryUnregisterRequest = decode(message)?;
    service.regions()?.unregister(&request.name);
    reply(&m::SystemSharedMemoryUnregisterResponse {})
}
