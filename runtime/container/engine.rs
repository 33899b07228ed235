//! The connection to a container engine: synchronous requests, each with a time limit.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::ContainerError;
use super::socket::candidates;
use crate::text::truncate;

/// Time limit of a request that the engine answers at once.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of the first request to a socket, which may be that of an engine that hangs.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Bollard's own limit in seconds, which must not end a request before the limit that its caller gives.
const LIBRARY_LIMIT: u64 = 48 * 3600;
/// Largest part of an engine's message that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// A connection to a container engine on this machine.
#[derive(Debug)]
pub struct ContainerEngine {
    runtime: Runtime,
    docker: Docker,
    facts: EngineFacts,
}

/// What an engine tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFacts {
    /// The name: `Docker`, `Podman`.
    pub name: String,
    /// The version: `20.10.24`.
    pub version: String,
    /// Its socket.
    pub socket: PathBuf,
    /// Whether it runs without root rights: user 0 in a container is then the user of this process.
    pub is_rootless: bool,
    /// Whether it keeps the limits of a container's memory.
    pub limits_memory: bool,
}

impl ContainerEngine {
    /// Connects to the engine that `DOCKER_HOST` names, or else to the first one that answers: Docker, then Docker and
    /// Podman of this user, then Podman.
    ///
    /// # Errors
    /// When no engine answers, with what was tried.
    pub fn connect() -> Result<Self, ContainerError> {
        let mut tried = Vec::new();
        for socket in candidates()? {
            match Self::connect_to(&socket) {
                Ok(engine) => return Ok(engine),
                Err(ContainerError::Unreachable { reason, .. }) => {
                    tried.push(format!("{}: {reason}", socket.display()))
                }
                Err(error) => return Err(error),
            }
        }
        Err(ContainerError::NoEngine { tried: tried.join("; ") })
    }

    fn connect_to(socket: &Path) -> Result<Self, ContainerError> {
        const REQUEST: &str = "connect";
        let unreachable = |reason: String| ContainerError::Unreachable { request: REQUEST, reason };
        if !socket.exists() {
            return Err(unreachable("no such file".to_owned()));
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable(error.to_string()))?;
        let address = socket.to_string_lossy();
        let docker = Docker::connect_with_unix(&address, LIBRARY_LIMIT, API_DEFAULT_VERSION);
        let docker = docker.map_err(|error| unreachable(message(&error)))?;
        let docker = limited(&runtime, REQUEST, CONNECT_LIMIT, docker.negotiate_version())?;
        let version = limited(&runtime, REQUEST, CONNECT_LIMIT, docker.version())?;
        let info = limited(&runtime, REQUEST, CONNECT_LIMIT, docker.info())?;
        let security = info.security_options.unwrap_or_default();
        let facts = EngineFacts {
            name: engine_name(&version),
            version: version.version.unwrap_or_default(),
            socket: socket.to_owned(),
            limits_memory: info.memory_limit.unwrap_or(true),
            is_rootless: security.iter().any(|option| option.contains("name=rootless")),
        };
        Ok(ContainerEngine { runtime, docker, facts })
    }

    /// Returns what the engine tells about itself.
    pub const fn facts(&self) -> &EngineFacts {
        &self.facts
    }

    /// Sends a request and waits for its result, at most `limit`. `request` describes it in an error: `start a container`.
    pub(super) fn request<T>(
        &self,
        request: &'static str,
        limit: Duration,
        send: impl AsyncFnOnce(&Docker) -> Result<T, Error>,
    ) -> Result<T, ContainerError> {
        limited(&self.runtime, request, limit, send(&self.docker))
    }

    /// Runs work that sets its own limits.
    pub(super) fn run<T>(&self, work: impl AsyncFnOnce(&Docker) -> T) -> T {
        self.runtime.block_on(work(&self.docker))
    }
}

/// Returns the engine's name: Podman lists itself as a component.
fn engine_name(version: &SystemVersion) -> String {
    let components = version.components.iter().flatten();
    let is_podman = components.into_iter().any(|component| component.name.contains("Podman"));
    if is_podman { "Podman" } else { "Docker" }.to_owned()
}

fn limited<T>(
    runtime: &Runtime,
    request: &'static str,
    limit: Duration,
    reply: impl Future<Output = Result<T, Error>>,
) -> Result<T, ContainerError> {
    match runtime.block_on(async { timeout(limit, reply).await }) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(classify(request, &error)),
        Err(_) => {
            Err(ContainerError::Unreachable { request, reason: format!("no answer within {} s", limit.as_secs()) })
        }
    }
}

/// Tells a refusal from a failed connection.
pub(super) fn classify(request: &'static str, error: &Error) -> ContainerError {
    match error {
        Error::DockerResponseServerError { status_code, .. } => {
            ContainerError::Refused { request, status: *status_code, message: message(error) }
        }
        _ => ContainerError::Unreachable { request, reason: message(error) },
    }
}

/// Returns an engine's message without the library's own words.
pub(super) fn message(error: &Error) -> String {
    let text = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        error => {
            let sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
            std::iter::once(error.to_string()).chain(sources.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
        }
    };
    truncate(text.trim(), MESSAGE_BYTES_MAX).into_owned()
}
