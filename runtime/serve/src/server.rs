//! The server: loads the models, accepts connections, and ends after the requests that it has accepted.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flagperf_core::measure::MonotonicClock;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::http::{BodyLimits, LimitedStream, Server, router};
use super::metrics::AnswerCounts;
use super::model::Surroundings;
use super::model_source::ModelSource;
use super::openai;
use super::repository::Repository;
use super::store::ModelStore;

/// The time in which a client must send the header of a request, also of the next one on the same connection.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bytes of a header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long accepted requests may take after the server was told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The most connections that the system accepts before the server does: that of tokio's listeners.
const BACKLOG: usize = 1024;
/// The time in which the first request may arrive on a connection that was accepted just before the server stops.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(100);
/// How long to wait after an error of the listener, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How models are served.
#[derive(Debug)]
pub struct ServeOptions {
    /// The address of HTTP.
    pub http: SocketAddr,
    /// The most bytes of the body of a request.
    pub body_bytes_max: usize,
    /// The most connections; further clients wait.
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
    /// Models cannot be loaded: a message for each.
    #[error("{}", .0.join("\n"))]
    Models(Vec<String>),
    /// The operating system refuses something that a server needs.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Serves until the process is told to stop by SIGTERM or SIGINT. `ready` is called with the address when every model is
/// loaded.
///
/// # Errors
/// When the address cannot be used, or a model cannot be loaded.
pub fn serve(
    options: &ServeOptions,
    served: Served,
    ready: impl FnOnce(SocketAddr, usize) -> io::Result<()>,
) -> Result<(), ServeError> {
    let scratch = tempfile::Builder::new().prefix("flagperf-serve-").tempdir()?;
    // At least two: one of them may wait for a worker to start.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 16));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let result = runtime.block_on(run(options, served, scratch.path().to_owned(), ready));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(
    options: &ServeOptions,
    served: Served,
    scratch: PathBuf,
    ready: impl FnOnce(SocketAddr, usize) -> io::Result<()>,
) -> Result<(), ServeError> {
    let mut stop = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let listen_failed = |source| ServeError::Listen { address: options.http, source };
    let listener = TcpListener::bind(options.http).await.map_err(listen_failed)?;
    let address = listener.local_addr()?;
    let [terminate, interrupt] = &mut stop;
    let stopped = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tokio::pin!(stopped);
    let server = tokio::select! {
        server = start(options, served, scratch) => server?,
        () = &mut stopped => return Ok(()),
    };
    ready(address, server.repository.all().len())?;
    let connections = Connections::new(server.clone(), options.connections_max);
    connections.accept_until(&listener, stopped).await;
    info!("stopping: no further connection is accepted");
    server.is_stopping.store(true, Ordering::Relaxed);
    connections.finish(listener).await;
    server.repository.unload_all().await;
    Ok(())
}

/// Loads what is served.
async fn start(options: &ServeOptions, served: Served, scratch: PathBuf) -> Result<Arc<Server>, ServeError> {
    let clock = Arc::new(MonotonicClock::start());
    let surroundings = Surroundings { scratch, clock: clock.clone() };
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
    Ok(Arc::new(Server {
        repository,
        bodies: BodyLimits::new(options.body_bytes_max),
        answers: AnswerCounts::default(),
        clock,
        is_stopping: AtomicBool::new(false),
    }))
}

/// The open connections.
struct Connections {
    service: TowerToHyperService<axum::Router>,
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    fn new(server: Arc<Server>, connections_max: usize) -> Self {
        Connections {
            service: TowerToHyperService::new(router(server, openai::routes())),
            permits: Arc::new(Semaphore::new(connections_max)),
            graceful: GracefulShutdown::new(),
        }
    }

    /// Accepts connections until `stopped` is done.
    async fn accept_until(&self, listener: &TcpListener, stopped: impl Future<Output = ()>) {
        tokio::pin!(stopped);
        loop {
            let next = async {
                // It is never closed.
                let permit = self.permits.clone().acquire_owned().await.ok()?;
                Some((permit, listener.accept().await))
            };
            let (permit, accepted) = tokio::select! {
                biased;
                () = &mut stopped => return,
                next = next => match next { Some(next) => next, None => return },
            };
            match accepted {
                Ok((stream, _)) => self.serve(stream, permit),
                Err(error) => {
                    warn!("cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        // Without it, small answers wait for the client's acknowledgement; a failure costs only that time.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(LimitedStream::new(stream)), self.service.clone());
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }

    /// Serves the connections that the system has accepted already, and waits for the requests of all.
    async fn finish(self, listener: TcpListener) {
        for _ in 0..BACKLOG {
            let Ok(permit) = self.permits.clone().try_acquire_owned() else { break };
            let Ok(Ok((stream, _))) = timeout(Duration::ZERO, listener.accept()).await else { break };
            self.serve(stream, permit);
        }
        drop(listener);
        // A connection on which nothing has arrived is closed at once.
        sleep(FIRST_REQUEST_TIME).await;
        if timeout(STOP_LIMIT, self.graceful.shutdown()).await.is_err() {
            warn!("requests that took longer than {} s were given up", STOP_LIMIT.as_secs());
        }
    }
}
