//! What clients can ask of the server, whatever their protocol: a protocol only reads requests and writes answers.

use std::sync::Arc;

use axum::http::HeaderValue;
use flagperf_core::measure::{Clock, Nanos};
use tokio::sync::watch;

use super::answer::InferAnswer;
use super::api_error::{ApiError, ErrorKind};
use super::body::BodyLimits;
use super::messages::repository_index_response::ModelIndex;
use super::messages::{ModelMetadataResponse, ServerMetadataResponse};
use super::metrics::AnswerCounts;
use super::model::Model;
use super::model_description::model_metadata;
use super::repository::{IndexEntry, Repository};
use super::request::{GivenRequest, InferRequest, allowed};
use super::shared_memory::SharedRegions;
use super::tokens::Tokens;

/// The header, or metadata, of an answer that names the record in which the model was measured.
pub const RECORD_HEADER: &str = "flagperf-record";
/// The most times that a request is given to the model that has taken the place of another.
pub const RELOADS_MAX: usize = 8;

/// What the server consists of.
#[derive(Debug)]
pub struct Service {
    /// The models.
    pub repository: Repository,
    /// The limits on bodies.
    pub bodies: BodyLimits,
    /// The regions of shared memory, if the server uses any.
    pub regions: Option<SharedRegions>,
    /// The tokens, if clients need one.
    pub tokens: Option<Tokens>,
    /// The answers that were sent.
    pub answers: AnswerCounts,
    /// The clock of the access log.
    pub clock: Arc<dyn Clock>,
    /// Whether the server is about to end.
    pub stop: watch::Sender<bool>,
}

impl Service {
    /// Describes the server.
    pub fn metadata(&self) -> ServerMetadataResponse {
        let own = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"];
        let memory = self.regions.as_ref().map(|_| "system_shared_memory");
        ServerMetadataResponse {
            name: "flagperf".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: own.into_iter().chain(memory).map(str::to_owned).collect(),
        }
    }

    /// Checks that every model can answer.
    ///
    /// # Errors
    /// When the server stops, or a model has no worker: the message says why.
    pub fn check_ready(&self) -> Result<(), ApiError> {
        if *self.stop.borrow() {
            return Err(ApiError::unavailable("the server stops"));
        }
        self.repository.all().iter().try_for_each(|model| check_worker(model))
    }

    /// Checks that a model can answer.
    ///
    /// # Errors
    /// When it is not loaded or has no worker.
    pub fn check_model_ready(&self, name: &str, version: Option<&str>) -> Result<(), ApiError> {
        check_worker(&*self.repository.find(name, version)?)
    }

    /// Describes the inputs and outputs of a model.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn model_metadata(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(Arc<Model>, ModelMetadataResponse), ApiError> {
        let versions = self.repository.versions(name)?;
        let model = self.repository.find(name, version)?;
        let metadata = model_metadata(&model, versions.into_keys());
        Ok((model, metadata))
    }

    /// Returns the versions that a name stands for: all models if it is empty, and all versions unless one is named.
    ///
    /// # Errors
    /// When the model is not loaded.
    pub fn versions(&self, name: &str, version: Option<&str>) -> Result<Vec<Arc<Model>>, ApiError> {
        match version.filter(|version| !version.is_empty()) {
            _ if name.is_empty() => Ok(self.repository.all()),
            Some(version) => Ok(vec![self.repository.find(name, Some(version))?]),
            None => Ok(self.repository.versions(name)?.into_values().collect()),
        }
    }

    /// Lists the models of the store; only those that can answer if `only_ready`.
    pub fn index(&self, only_ready: bool) -> Vec<ModelIndex> {
        let line = |entry: IndexEntry| ModelIndex {
            name: entry.name,
            version: entry.version.map(|version| version.to_string()).unwrap_or_default(),
            state: if entry.is_ready { "READY" } else { "UNAVAILABLE" }.to_owned(),
            reason: entry.reason,
        };
        self.repository.index().into_iter().filter(|entry| entry.is_ready || !only_ready).map(line).collect()
    }

    /// Loads a model of the store. A client that leaves does not stop it half-way.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub async fn load(self: &Arc<Self>, name: String) -> Result<(), ApiError> {
        let service = self.clone();
        tokio::spawn(async move { service.repository.load(&name).await }).await.map_err(task_failed)?
    }

    /// Unloads a model. A client that leaves does not stop it half-way.
    ///
    /// # Errors
    /// When it is not loaded.
    pub async fn unload(self: &Arc<Self>, name: String) -> Result<(), ApiError> {
        let service = self.clone();
        tokio::spawn(async move { service.repository.unload(&name).await }).await.map_err(task_failed)?
    }

    /// Returns the regions of shared memory.
    ///
    /// # Errors
    /// When the server was started without.
    pub fn regions(&self) -> Result<&SharedRegions, ApiError> {
        allowed(self.regions.as_ref())
    }

    /// Runs a model on a request that arrived at `arrived`.
    ///
    /// # Errors
    /// When the request does not fit the model, or the model cannot answer.
    pub async fn infer(
        &self,
        name: &str,
        version: Option<&str>,
        given: &GivenRequest,
        arrived: Nanos,
    ) -> Result<InferAnswer, ApiError> {
        let regions = self.regions.as_ref();
        for _ in 0..RELOADS_MAX {
            let model = self.repository.find(name, version)?;
            let InferRequest { inputs, outputs, memory: _memory } =
                InferRequest::new(given, model.signature(), regions)?;
            match model.infer(inputs, given.deadline, arrived).await {
                Ok(computed) => return InferAnswer::new(model, &computed, &outputs, regions),
                Err(Some(error)) => return Err(error),
                // The model was loaded again in the meantime: its successor answers.
                Err(None) => {}
            }
        }
        Err(ApiError::unavailable(format!("model `{name}` is loaded again and again")))
    }
}

fn check_worker(model: &Model) -> Result<(), ApiError> {
    match model.ready_instances() {
        0 => Err(ApiError::unavailable(format!("model `{}`: {}", model.source().name, model.why_not_ready()))),
        _ => Ok(()),
    }
}

fn task_failed(error: tokio::task::JoinError) -> ApiError {
    ApiError::new(ErrorKind::Engine, error.to_string())
}

/// Returns the digest of the record in which a model was measured, as a header.
pub fn record_header(model: &Model) -> Option<HeaderValue> {
    model.source().record.as_ref().and_then(|record| HeaderValue::from_str(&record.digest).ok())
}
