//! The connection to a container engine: synchronous requests, each with a time limit.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::ContainerError;
use super::labels::remove;
use super::socket::candidates;
use flagperf_core::text::truncate;

/// Time limit of a request that the engine answers at once.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of the first requests to a socket, because the engine may hang.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Pause before a request to an engine that does not answer is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Bollard's own time limit in seconds. It must be longer than all limits that callers set.
const LIBRARY_LIMIT: u64 = 48 * 3600;
/// Largest number of bytes of an engine's message that are kept.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// A connection to a container engine on this machine.
#[derive(Debug)]
pub struct ContainerEngine {
    runtime: Runtime,
    docker: Docker,
    facts: EngineFacts,
    /// Ids of containers that could not be removed because the engine did not answer.
    unremoved: Mutex<Vec<String>>,
    /// Whether the engine has refused to raise the limit of locked memory, so that containers keep the default limit.
    keeps_locked_memory: AtomicBool,
}

/// Facts that an engine reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFacts {
    /// The name: `Docker`, `Podman`.
    pub name: String,
    /// The version: `20.10.24`.
    pub version: String,
    pub socket: PathBuf,
    /// Whether the engine runs without root privileges: user 0 in a container is then the user of this process.
    pub is_rootless: bool,
    /// Whether the engine enforces memory limits of containers.
    pub limits_memory: bool,
}

/// The name of Podman in [`EngineFacts::name`].
const PODMAN: &str = "Podman";

impl EngineFacts {
    /// Whether the engine is Podman, whose interface differs from Docker's in a few places.
    pub(super) fn is_podman(&self) -> bool {
        self.name == PODMAN
    }
}

impl ContainerEngine {
    /// Connects to the engine that `DOCKER_HOST` names, or else to the first one that answers: Docker, then Docker and
    /// Podman of this user, then Podman.
    ///
    /// # Errors
    /// When no engine answers; the error lists the sockets that were tried.
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

    pub(super) fn connect_to(socket: &Path) -> Result<Self, ContainerError> {
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
        Ok(ContainerEngine {
            runtime,
            docker,
            facts,
            unremoved: Mutex::default(),
            keeps_locked_memory: AtomicBool::default(),
        })
    }

    /// Returns the facts that the engine reports about itself.
    pub const fn facts(&self) -> &EngineFacts {
        &self.facts
    }

    /// Waits until the engine answers, at most `limit`: the engine may be restarting. Then removes the containers that
    /// could not be removed before. Stops when `keep_going` returns false. `show_progress` gets a line if this has to wait.
    ///
    /// # Errors
    /// When the engine does not answer in time.
    pub fn wait_until_reachable(
        &self,
        limit: Duration,
        keep_going: &dyn Fn() -> bool,
        show_progress: &mut dyn FnMut(&str),
    ) -> Result<(), ContainerError> {
        let mut last = None;
        let ask = async {
            loop {
                let reason = match timeout(CONNECT_LIMIT, self.docker.ping()).await {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(error)) => message(&error),
                    Err(_) => format!("no answer within {} s", CONNECT_LIMIT.as_secs()),
                };
                if !keep_going() {
                    return Err(ContainerError::Interrupted);
                }
                if last.replace(reason).is_none() {
                    show_progress(&format!(
                        "the container engine does not answer; waiting for it, at most {} s",
                        limit.as_secs()
                    ));
                }
                sleep(RETRY_INTERVAL).await;
            }
        };
        // tokio's timers can only be created inside the runtime.
        let asked = self.runtime.block_on(async { timeout(limit, ask).await });
        let limit = limit.as_secs();
        let late = |_| ContainerError::Unreachable {
            request: "connect",
            reason: format!("{} (retried for {limit} s)", last.unwrap_or_default()),
        };
        asked.unwrap_or_else(|elapsed| Err(late(elapsed)))?;
        let unremoved = std::mem::take(&mut *self.unremoved.lock().unwrap_or_else(PoisonError::into_inner));
        unremoved.iter().for_each(|id| self.remove_container(id));
        Ok(())
    }

    /// Removes a container. If the engine does not answer, the container is removed when the engine answers again.
    pub(super) fn remove_container(&self, id: &str) {
        if let Err(error) = remove(self, id) {
            debug!(%error, id, "the container was not removed yet");
            self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        }
    }

    /// Returns whether there are containers that could not be removed yet.
    pub fn has_unremoved(&self) -> bool {
        !self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns whether the engine has refused to raise the limit of locked memory.
    pub(super) fn keeps_locked_memory(&self) -> bool {
        self.keeps_locked_memory.load(Ordering::Relaxed)
    }

    /// Notes that the engine has refused to raise the limit of locked memory, so that this is not requested again.
    pub(super) fn keep_locked_memory(&self) {
        self.keeps_locked_memory.store(true, Ordering::Relaxed);
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

    /// Runs requests that have their own time limits.
    pub(super) fn run<T>(&self, work: impl AsyncFnOnce(&Docker) -> T) -> T {
        self.runtime.block_on(work(&self.docker))
    }
}

/// Returns the engine's name: Podman lists itself as a component.
fn engine_name(version: &SystemVersion) -> String {
    let components = version.components.iter().flatten();
    let is_podman = components.into_iter().any(|component| component.name.contains(PODMAN));
    if is_podman { PODMAN } else { "Docker" }.to_owned()
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

/// Distinguishes a request that the engine refused from a connection that failed.
pub(super) fn classify(request: &'static str, error: &Error) -> ContainerError {
    match error {
        Error::DockerResponseServerError { status_code, .. } => {
            ContainerError::Refused { request, status: *status_code, message: message(error) }
        }
        _ => ContainerError::Unreachable { request, reason: message(error) },
    }
}

/// Returns the engine's message without the text that the library adds.
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
