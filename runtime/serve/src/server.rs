//! The server: loads the models, accepts connections, and ends after the requests that it has accepted.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flagperf_core::measure::MonotonicClock;
use futures_util::future::join_all;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

use super::body::BodyLimits;
use super::connections::{Connections, Endpoint, Protocol};
use super::metrics::AnswerCounts;
use super::model::Surroundings;
use super::model_source::ModelSource;
use super::repository::Repository;
use super::secret_file::SecretError;
use super::service::Service;
use super::shared_memory::SharedRegions;
use super::store::ModelStore;
use super::tls::{Tls, TlsFiles};
use super::tokens::Tokens;

/// How models are served.
#[derive(Debug)]
pub struct ServeOptions {
    /// The address of HTTP, if it is spoken.
    pub http: Option<SocketAddr>,
    /// The address of gRPC, if it is spoken.
    pub grpc: Option<SocketAddr>,
    /// The certificate and the key, if connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// A file with the tokens, if clients need one.
    pub token_file: Option<PathBuf>,
    /// Whether clients may register shared memory of this machine.
    pub shared_memory: bool,
    /// The most bytes of the body of a request.
    pub body_bytes_max: usize,
    /// The most connections of each protocol; further clients wait.
    pub connections_max: usize,
}

/// What is served.
#[derive(Debug)]
pub enum Served {
    /// Every model of a store.
    Store(Box<ModelStore>),
    /// The model of a result.
    Result(Box<ModelSource>),
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A file with tokens, a key or a certificate cannot be used.
    #[error("{0}")]
    Secret(#[from] SecretError),
    /// Models cannot be loaded: a message for each.
    #[error("{}", .0.join("\n"))]
    Models(Vec<String>),
    /// The operating system refuses something that a server needs.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Serves until the process is told to stop by SIGTERM, SIGINT or SIGHUP. `ready` is called with the URLs, and the number of the
/// model versions, when every model is loaded.
///
/// # Errors
/// When an address, a key or the tokens cannot be used, or a model cannot be loaded.
pub fn serve(
    options: &ServeOptions,
    served: Served,
    ready: impl FnOnce(&[String], usize) -> io::Result<()>,
) -> Result<(), ServeError> {
    flagperf_host::allow_open_files();
    let scratch = tempfile::Builder::new().prefix("flagperf-serve-").tempdir()?;
    // At least two: one of them may wait for a worker to start.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 16));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let result = runtime.block_on(run(options, served, scratch.path(), ready));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(
    options: &ServeOptions,
    served: Served,
    scratch: &Path,
    ready: impl FnOnce(&[String], usize) -> io::Result<()>,
) -> Result<(), ServeError> {
    let mut stop = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let tokens = options.token_file.as_deref().map(Tokens::read).transpose()?;
    let endpoints = bind(options).await?;
    let [terminate, interrupt, hangup] = &mut stop;
    let stopped = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {}, _ = hangup.recv() => {} }
    };
    tokio::pin!(stopped);
    let service = tokio::select! {
        service = start(options, served, tokens, scratch) => service?,
        () = &mut stopped => return Ok(()),
    };
    let urls = endpoints.iter().map(Endpoint::url).collect::<io::Result<Vec<_>>>()?;
    ready(&urls, service.repository.all().len())?;
    let serve = |endpoint| Connections::new(endpoint, service.clone(), options.connections_max).serve();
    let serving = join_all(endpoints.into_iter().map(serve));
    let stopping = async {
        stopped.await;
        info!("stopping: no further connection is accepted");
        service.stop.send_replace(true);
    };
    tokio::join!(serving, stopping);
    service.repository.unload_all().await;
    Ok(())
}

/// Listens at the address of each protocol.
async fn bind(options: &ServeOptions) -> Result<Vec<Endpoint>, ServeError> {
    let tls = options.tls.as_ref().map(Tls::read).transpose()?;
    let mut endpoints = Vec::new();
    for (protocol, address) in [(Protocol::Http, options.http), (Protocol::Grpc, options.grpc)] {
        let Some(address) = address else { continue };
        let endpoint = Endpoint::bind(protocol, address, tls.as_ref()).await;
        endpoints.push(endpoint.map_err(|source| ServeError::Listen { address, source })?);
    }
    Ok(endpoints)
}

/// Loads what is served.
async fn start(
    options: &ServeOptions,
    served: Served,
    tokens: Option<Tokens>,
    scratch: &Path,
) -> Result<Arc<Service>, ServeError> {
    let clock = Arc::new(MonotonicClock::start());
    let surroundings = Surroundings { scratch: scratch.to_owned(), clock: clock.clone() };
    let repository = match served {
        Served::Store(store) => {
            let repository = Repository::new(Some(*store), surroundings);
            repository.load_all().await.map_err(ServeError::Models)?;
            repository
        }
        Served::Result(source) => {
            let repository = Repository::new(None, surroundings);
            repository.replace(vec![*source]).await.map_err(|message| ServeError::Models(vec![message]))?;
            repository
        }
    };
    let bodies = BodyLimits::new(options.body_bytes_max);
    Ok(Arc::new(Service {
        repository,
        regions: options.shared_memory.then(|| SharedRegions::new(bodies.clone())),
        bodies,
        tokens,
        answers: AnswerCounts::default(),
        clock,
        stop: watch::Sender::new(false),
    }))
}
