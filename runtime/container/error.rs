//! What can go wrong between this program and a container engine.

use std::io;
use std::path::PathBuf;

use crate::host::ProcessError;

/// Why a container engine, an image or a container cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// No socket of an engine was found.
    #[error("no container engine answers (tried: {tried})")]
    NoEngine {
        /// The sockets, each with the reason.
        tried: String,
    },
    /// The engine is not one of this machine.
    #[error("`DOCKER_HOST` names `{address}`, but only an engine of this machine can mount its folders")]
    NotLocal {
        /// The address.
        address: String,
    },
    /// The engine did not answer in time, or the connection failed.
    #[error("the container engine did not answer ({request}): {reason}")]
    Unreachable {
        /// What was requested: `start a container`.
        request: &'static str,
        /// The cause.
        reason: String,
    },
    /// The engine refused a request.
    #[error("the container engine refused to {request}: {message}")]
    Refused {
        /// What was requested.
        request: &'static str,
        /// The status of the reply: 404 for an unknown image or container.
        status: u16,
        /// The engine's message.
        message: String,
    },
    /// A recipe cannot be read.
    #[error("cannot read the recipe `{path}`: {source}")]
    Recipe {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The requirements of a case, or a file that sets variables for their installation, cannot be read.
    #[error("cannot read {source}")]
    Requirements {
        /// The file and the cause.
        source: io::Error,
    },
    /// An image could not be built.
    #[error("image `{image}` was not built: {reason}{}", quoted_lines(.output))]
    Build {
        /// Name and tag of the image.
        image: String,
        /// The engine's message.
        reason: String,
        /// The last lines of the build's output.
        output: Vec<String>,
    },
    /// The program in the container ended before it had connected.
    #[error("the worker ended in its container before it had started: {ending}{}", quoted_lines(.output))]
    EndedEarly {
        /// How it ended.
        ending: String,
        /// The last lines of the container's log.
        output: Vec<String>,
    },
    /// The program in the container did not connect in time.
    #[error("the worker did not connect from its container within {seconds} s")]
    NotConnected {
        /// The limit.
        seconds: u64,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// This program could not be copied to where containers can use it.
    #[error("cannot store this program in `{path}`: {source}")]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no folder for cached files.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no folder for this program's copy")]
    NoCache,
    /// A socket or another local resource of the start.
    #[error("cannot prepare the streams of a worker in a container: {0}")]
    Handover(io::Error),
    /// The streams of the worker could not be opened.
    #[error(transparent)]
    Streams(#[from] ProcessError),
}

fn quoted_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n{line}")).collect()
}

impl ContainerError {
    /// Returns what to do about the error; empty when the message suffices.
    pub fn hint(&self) -> String {
        match self {
            Self::NoEngine { .. } => {
                "start Docker or Podman (`systemctl --user start podman.socket`), name its socket with `DOCKER_HOST`, or set \
                 `CONTAINER: none`"
            }
            Self::NotLocal { .. } => "unset `DOCKER_HOST`, or give a socket of this machine: `unix:///run/docker.sock`",
            Self::Refused { message, .. } if message.contains("container-init") => {
                "Podman starts programs with catatonit: install the package of that name"
            }
            Self::Refused { .. } if self.is_about_limits() => {
                "the engine may not raise a limit of resources: `ACCE_CONTAINER_OPT: \"--ulimit nofile=20000:20000 --ulimit \
                 nproc=20000:20000\"` in host.yaml sets lower ones"
            }
            Self::Unreachable { .. } => "is the engine running? `docker info` shows it",
            Self::Build { .. } => "docker_images/README.md describes recipes; `docker build` with its folder shows more",
            Self::EndedEarly { output, .. } if output.iter().any(|line| line.contains("GLIBC_")) => {
                "the C library of the image is older than the one that this program was built for: `just portable` builds \
                 the program for images with glibc 2.28 or later"
            }
            Self::EndedEarly { output, .. } if output.iter().any(|line| line.contains("No such file or directory")) => {
                "the image has no loader for this program (a system without glibc, such as Alpine), or its recipe lacks bash"
            }
            Self::Store { .. } | Self::NoCache => "set XDG_CACHE_HOME to a folder with space",
            _ => "",
        }
        .to_owned()
    }

    /// Returns whether the engine may not set a limit of resources.
    pub(super) fn is_about_limits(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("rlimit"))
    }

    /// Returns whether the engine answered that what was requested does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}
