//! The connections of a protocol: their number, their time and their encryption, and their end when the server stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::grpc::{self, UnreadAnswers};
use super::http;
use super::limited_stream::LimitedStream;
use super::service::Service;
use super::tls::Tls;

/// The time in which a client must send the header of a request, also of the next one on the same connection.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bytes of a header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The time in which a client must begin encryption.
const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// After this time without a sign of the client, a connection of gRPC is tried, and closed if there is no answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIME_MAX: Duration = Duration::from_secs(20);
/// The most calls at the same time on a connection of gRPC.
const CALLS_MAX: u32 = 256;
/// The most bytes that a client may send before they are read: of a call, and of all calls of a connection.
const WINDOW_BYTES: u32 = 1 << 20;
/// How long accepted requests may take after the server was told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The most connections that the system accepts before the server does: that of tokio's listeners.
const BACKLOG: usize = 1024;
/// The time in which the first request may arrive on a connection that was accepted just before the server stops.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(100);
/// How long to wait after an error of the listener, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A protocol of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl Protocol {
    /// Returns the name of the version of HTTP, as TLS names it.
    fn of_tls(self) -> &'static str {
        match self {
            Protocol::Http => "http/1.1",
            Protocol::Grpc => "h2",
        }
    }
}

/// An address at which a protocol is spoken.
pub struct Endpoint {
    protocol: Protocol,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Endpoint {
    /// Listens at an address.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn bind(protocol: Protocol, address: SocketAddr, tls: Option<&Tls>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Endpoint { protocol, listener, tls: tls.map(|tls| tls.acceptor(protocol.of_tls())) })
    }

    /// Returns the URL of the endpoint.
    ///
    /// # Errors
    /// When the system does not say which port it chose.
    pub fn url(&self) -> io::Result<String> {
        let scheme = match (self.protocol, self.tls.is_some()) {
            (Protocol::Http, false) => "http",
            (Protocol::Http, true) => "https",
            (Protocol::Grpc, false) => "grpc",
            (Protocol::Grpc, true) => "grpcs",
        };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }
}

/// The connections of an endpoint.
pub struct Connections {
    endpoint: Endpoint,
    service: Arc<Service>,
    router: axum::Router,
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    /// Creates the connections of an endpoint, at most `connections_max`.
    pub fn new(endpoint: Endpoint, service: Arc<Service>, connections_max: usize) -> Self {
        Connections {
            endpoint,
            router: http::router(service.clone()),
            service,
            permits: Arc::new(Semaphore::new(connections_max)),
            graceful: GracefulShutdown::new(),
        }
    }

    /// Accepts connections until the server stops, and waits for the requests of all of them.
    pub async fn serve(self) {
        let mut stop = self.service.stop.subscribe();
        let stopped = stop.wait_for(|is_stopping| *is_stopping);
        tokio::pin!(stopped);
        loop {
            let next = async {
                // It is never closed.
                let permit = self.permits.clone().acquire_owned().await.ok()?;
                Some((permit, self.endpoint.listener.accept().await))
            };
            let (permit, accepted) = tokio::select! {
                biased;
                _ = &mut stopped => break,
                next = next => match next { Some(next) => next, None => break },
            };
            match accepted {
                Ok((stream, _)) => self.begin(stream, permit),
                Err(error) => {
                    warn!("cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        self.finish().await;
    }

    /// Begins to serve a connection.
    fn begin(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        // Without it, small answers wait for the client's acknowledgement; a failure costs only that time.
        let _ = stream.set_nodelay(true);
        let speaker =
            Speaker { service: self.service.clone(), router: self.router.clone(), protocol: self.endpoint.protocol };
        let (tls, watcher) = (self.endpoint.tls.clone(), self.graceful.watcher());
        tokio::spawn(async move {
            let ended = match tls {
                None => speaker.speak(stream, watcher).await,
                Some(tls) => match timeout(TLS_TIME_MAX, tls.accept(stream)).await {
                    Ok(Ok(stream)) => speaker.speak(stream, watcher).await,
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err("the client did not begin encryption".to_owned()),
                },
            };
            if let Err(reason) = ended {
                debug!("a connection ended: {reason}");
            }
            drop(permit);
        });
    }

    /// Serves the connections that the system has accepted already, and waits for the requests of all.
    async fn finish(self) {
        for _ in 0..BACKLOG {
            let Ok(permit) = self.permits.clone().try_acquire_owned() else { break };
            let Ok(Ok((stream, _))) = timeout(Duration::ZERO, self.endpoint.listener.accept()).await else { break };
            self.begin(stream, permit);
        }
        drop(self.endpoint);
        // A connection on which nothing has arrived is closed at once.
        sleep(FIRST_REQUEST_TIME).await;
        if timeout(STOP_LIMIT, self.graceful.shutdown()).await.is_err() {
            warn!("requests that took longer than {} s were given up", STOP_LIMIT.as_secs());
        }
    }
}

/// What answers the requests of a connection.
struct Speaker {
    service: Arc<Service>,
    router: axum::Router,
    protocol: Protocol,
}

impl Speaker {
    async fn speak<S>(self, stream: S, watcher: Watcher) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(LimitedStream::new(stream));
        match self.protocol {
            Protocol::Http => {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIME_MAX)
                    .max_buf_size(HEADER_BYTES_MAX)
                    .serve_connection(stream, TowerToHyperService::new(self.router));
                end(connection, watcher).await
            }
            Protocol::Grpc => {
                let (service, unread) = (self.service, UnreadAnswers::default());
                let watched = unread.clone();
                let answer = service_fn(move |request| {
                    let (service, watched) = (service.clone(), watched.clone());
                    async move { Ok::<_, Infallible>(watched.watch(grpc::answer(service, request).await)) }
                });
                let connection = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .keep_alive_interval(PING_INTERVAL)
                    .keep_alive_timeout(PING_TIME_MAX)
                    .max_concurrent_streams(CALLS_MAX)
                    .max_header_list_size(HEADER_BYTES_MAX as u32)
                    .initial_stream_window_size(WINDOW_BYTES)
                    .initial_connection_window_size(WINDOW_BYTES)
                    .serve_connection(stream, answer);
                tokio::select! {
                    ended = end(connection, watcher) => ended,
                    () = unread.overdue() => Err("the client does not read its answers".to_owned()),
                }
            }
        }
    }
}

/// Waits for the end of a connection.
async fn end<C>(connection: C, watcher: Watcher) -> Result<(), String>
where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    watcher.watch(connection).await.map_err(|error| error.to_string())
}
