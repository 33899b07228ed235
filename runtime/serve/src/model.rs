//! A model version that is served: its signature, its queue and its instances.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flagperf_config::ServedModel;
use flagperf_core::measure::{Clock, Nanos};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::info;

use super::api_error::{ApiError, ErrorKind};
use super::generation::{LanguageModel, TextModel, run_rows};
use super::instance::{LOAD_LIMIT, Shared, run_instance, wait_for_end};
use super::model_source::ModelSource;
use super::queue::{BatchPolicy, Pending, Queue, Refusal, Tensors};
use super::signature::Signature;
use super::statistics::Statistics;
use super::worker_process::{WorkerFailure, WorkerProcess};

/// What every model of a server needs.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The folder for temporary files and for the standard error of workers.
    pub scratch: PathBuf,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// A model version that is served. It ends its workers when it is unloaded.
#[derive(Debug)]
pub struct Model {
    source: ModelSource,
    signature: Signature,
    shared: Arc<Shared>,
    /// Of a language model, its text side and its requests.
    text: Option<Arc<TextModel>>,
    /// Seconds since 1970.
    loaded_at: i64,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Model {
    /// Starts the workers of a model version, and waits until all have loaded it.
    ///
    /// # Errors
    /// When a worker cannot load it, or the settings do not fit the file. The message names the model.
    pub async fn load(source: ModelSource, surroundings: &Surroundings) -> Result<Arc<Self>, String> {
        let title = format!("{} version {}", source.name, source.version);
        let failed = |reason: String| format!("model {title}: {reason}");
        let language = source.text.as_ref().map(|text| LanguageModel::load(text, &source.file));
        let language = tokio::task::block_in_place(|| language.transpose()).map_err(failed)?;
        let request = source.load_request(&surroundings.scratch);
        let log = surroundings.scratch.join(format!("{}.{}.log", source.name, source.version));
        let mut workers = Vec::new();
        for _ in 0..source.settings.instances {
            let started = WorkerProcess::start(&request, &log, LOAD_LIMIT).await;
            workers.push(started.map_err(|failure| failed(failure.to_string()))?);
        }
        let loaded = workers.first().map(|worker| worker.loaded().clone()).expect("a model has one instance or more");
        let signature = Signature::new(&loaded, &source.settings).map_err(failed)?;
        if let Some(record) = source.record.as_ref().filter(|record| record.files_sha256 != loaded.files_sha256) {
            return Err(failed(format!("its files are not those of the record `{}`", record.digest)));
        }
        let settings = &source.settings;
        if u64::from(settings.queue_delay_us) >= u64::from(settings.time_limit_s) * 1_000_000 {
            let (delay, limit) = (settings.queue_delay_us, settings.time_limit_s);
            return Err(failed(format!(
                "`queue_delay_us` is {delay}, which is not less than `time_limit_s` ({limit})"
            )));
        }
        let clock = surroundings.clock.clone();
        let shared = Arc::new(Shared {
            title,
            queue: Queue::new(batch_policy(settings), settings.queue_size as usize, clock.clone()),
            statistics: Statistics::default(),
            clock,
            ready: AtomicUsize::new(workers.len()),
            request,
            loaded,
            log,
            limit: Duration::from_secs(settings.time_limit_s.into()),
            last_failure: Mutex::default(),
        });
        info!(model = shared.title, device = %shared.loaded.device, instances = workers.len(), "loaded");
        let text = language.zip(source.text.as_ref());
        let text = text.map(|(language, files)| Arc::new(TextModel::new(language, files, settings)));
        let start = |worker| match &text {
            Some(text) => tokio::spawn(run_rows(shared.clone(), text.clone(), worker)),
            None => tokio::spawn(run_instance(shared.clone(), worker)),
        };
        let tasks = Mutex::new(workers.into_iter().map(start).collect());
        let loaded_at = jiff::Timestamp::now().as_second();
        Ok(Arc::new(Model { source, signature, shared, text, loaded_at, tasks }))
    }

    /// Where the model comes from.
    pub fn source(&self) -> &ModelSource {
        &self.source
    }

    /// The inputs and outputs.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Of a language model, its text side and its requests.
    pub fn text(&self) -> Option<&Arc<TextModel>> {
        self.text.as_ref()
    }

    /// What its instances share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// When it was loaded, in seconds since 1970.
    pub fn loaded_at(&self) -> i64 {
        self.loaded_at
    }

    /// What was served.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// The number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.text.as_ref().map_or_else(|| self.shared.queue.len(), |text| text.queue().len())
    }

    /// The number of workers that can run a request.
    pub fn ready_instances(&self) -> usize {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Runs the model on inputs in the engine's order, which fit its signature, for a request that arrived at `arrived`.
    ///
    /// # Errors
    /// When the queue is full or closed, the engine fails, or the deadline passes: `None` stands for a model that was
    /// unloaded in the meantime.
    pub async fn infer(
        &self,
        inputs: Tensors,
        deadline: Option<Duration>,
        arrived: Nanos,
    ) -> Result<Tensors, Option<ApiError>> {
        if self.text.is_some() {
            let reason = "it is a language model: ask it at `/v1/completions` or `/v1/chat/completions`";
            return Err(Some(ApiError::bad_request(format!("{}: {reason}", self.shared.title))));
        }
        if self.ready_instances() == 0 {
            return Err(Some(ApiError::unavailable(format!("{}: {}", self.shared.title, self.why_not_ready()))));
        }
        let (reply, answer) = oneshot::channel();
        let ticket = match self.shared.queue.push(Pending { inputs, reply, arrived: self.shared.clock.now() }) {
            Ok(ticket) => ticket,
            Err(Refusal::Closed) => return Err(None),
            Err(Refusal::Full) => {
                self.shared.statistics.add_refused();
                let size = self.source.settings.queue_size;
                return Err(Some(ApiError::too_many(format!("{}: {size} requests wait already", self.shared.title))));
            }
        };
        let mut place = Place { shared: &self.shared, ticket, arrived, is_answered: false };
        // A request may wait as long as a run may take.
        let limit = deadline.unwrap_or(self.shared.limit * 2).min(self.shared.limit * 2);
        let rest = limit.saturating_sub(Duration::from_nanos(place.age()));
        let result = match timeout(rest, answer).await {
            Ok(Ok(result)) => result.map_err(|failure| self.failed(&failure)),
            Ok(Err(_)) => Err(ApiError::unavailable(format!("{}: the server stops", self.shared.title))),
            Err(_) => {
                self.shared.queue.remove(ticket);
                let message = format!("{}: no answer within {} s", self.shared.title, limit.as_secs_f64());
                Err(ApiError::new(ErrorKind::Deadline, message))
            }
        };
        place.is_answered = true;
        let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        self.shared.statistics.add_request(result.is_ok(), place.age(), now_ms);
        result.map_err(Some)
    }

    /// Returns why no instance can run a request, with how the last worker was lost or could not be started.
    pub fn why_not_ready(&self) -> String {
        let failure = self.shared.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        format!("its worker is being started again: {failure}")
    }

    fn failed(&self, failure: &WorkerFailure) -> ApiError {
        let message = format!("{}: {failure}", self.shared.title);
        match failure {
            WorkerFailure::Engine(_) => ApiError::new(ErrorKind::Engine, message),
            WorkerFailure::Lost(_) => ApiError::unavailable(message),
        }
    }

    /// Accepts no more requests, answers those that wait, and ends the workers. Returns whether they ended within `limit`.
    pub async fn unload(&self, limit: Duration) -> bool {
        self.shared.queue.close();
        self.text.iter().for_each(|text| text.queue().close());
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        wait_for_end(tasks, limit).await
    }
}

/// The place of an accepted request. It is given up when the deadline passes, and when the client leaves: the future that
/// owns it is then dropped.
struct Place<'s> {
    shared: &'s Shared,
    ticket: u64,
    arrived: Nanos,
    is_answered: bool,
}

impl Place<'_> {
    /// Returns the nanoseconds since the request arrived.
    fn age(&self) -> u64 {
        self.shared.clock.now().0.saturating_sub(self.arrived.0)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.queue.remove(self.ticket);
            self.shared.statistics.add_cancelled(self.age());
        }
    }
}

fn batch_policy(settings: &ServedModel) -> BatchPolicy {
    BatchPolicy {
        rows_max: settings.max_batch_size.into(),
        preferred: settings.preferred_batch_sizes.iter().copied().map(u64::from).collect(),
        delay: Duration::from_micros(settings.queue_delay_us.into()),
    }
}
