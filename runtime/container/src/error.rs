//! Errors of container engines, images and containers.

use std::io;
use std::path::PathBuf;

use flagperf_host::ProcessError;

/// Why a container engine, an image or a container cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    #[error("no container engine answered (tried: {tried})")]
    NoEngine {
        /// The sockets, each with the reason.
        tried: String,
    },
    #[error(
        "`DOCKER_HOST` names `{address}`, but only an engine on this machine can mount the folders of this machine"
    )]
    NotLocal { address: String },
    #[error("the container engine cannot be reached (request: {request}): {reason}")]
    Unreachable {
        /// What was requested: `start a container`.
        request: &'static str,
        reason: String,
    },
    #[error("the container engine refused to {request}: {message}")]
    Refused {
        request: &'static str,
        /// The status of the reply: 404 for an unknown image or container.
        status: u16,
        message: String,
    },
    #[error("cannot read the recipe `{path}`: {source}")]
    Recipe { path: PathBuf, source: io::Error },
    #[error("cannot read {source}")]
    Requirements { source: io::Error },
    #[error("image `{image}` could not be built: {reason}{}", quoted_lines(.output))]
    Build {
        image: String,
        reason: String,
        /// The last lines of the build's output.
        output: Vec<String>,
    },
    #[error(
        "the base image `{image}` ({}:{line}) is not on this machine, and the container engine could not get it: {reason}",
        .dockerfile.display()
    )]
    BaseImage {
        image: String,
        dockerfile: PathBuf,
        /// The line, from 1.
        line: usize,
        reason: String,
    },
    #[error("{named_by} names `{path}`, which a container must not see: {reason}")]
    Exposed {
        /// What names the path: "option `cache` of engine `rten`".
        named_by: String,
        path: PathBuf,
        reason: String,
    },
    #[error("the container ended before its worker had started: {ending}{}", quoted_lines(.output))]
    EndedEarly {
        ending: String,
        /// The last lines of the container's log.
        output: Vec<String>,
    },
    #[error("the worker in the container did not connect within {seconds} s")]
    NotConnected { seconds: u64 },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot store this program in `{path}`: {source}")]
    Store { path: PathBuf, source: io::Error },
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no folder in which to store a copy of this program")]
    NoCache,
    #[error("cannot set up the standard streams of a worker in a container: {0}")]
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
                "start Docker or Podman (`systemctl --user start podman.socket`), set `DOCKER_HOST` to the socket of an \
                 engine, or set `CONTAINER: none`"
            }
            Self::NotLocal { .. } => "unset `DOCKER_HOST`, or set it to a socket on this machine: `unix:///run/docker.sock`",
            Self::Refused { message, .. } if message.contains("container-init") => {
                "Podman needs the program catatonit: install the package `catatonit`"
            }
            Self::Refused { message, .. }
                if self.is_about_limits() && message.to_ascii_lowercase().contains("invalid argument") =>
            {
                "the kernel does not accept a resource limit: correct `--ulimit` in `ACCE_CONTAINER_OPT` of host.yaml or in `container_options` of vendor.yaml"
            }
            Self::Refused { .. } if self.is_about_limits() => {
                "the engine is not permitted to raise a resource limit: set lower limits in host.yaml, for example \
                 `ACCE_CONTAINER_OPT: \"--ulimit nofile=20000:20000 --ulimit nproc=20000:20000\"`"
            }
            Self::Unreachable { .. } => "check with `docker info` whether the engine is running",
            Self::Build { output, .. } if output.iter().any(|line| line.contains("CERTIFICATE_VERIFY_FAILED")) => {
                "pip in the image does not know the certificate of the package index: let the recipe copy the certificate into \
                 the image and set `ENV PIP_CERT` (docker_images/README.md)"
            }
            Self::Build { image, .. } if image.contains("-requirements-") => {
                "check the packages in requirements.txt, in the folder of the case's scripts, and the package index that \
                 `PIP_SOURCE` in host.yaml names; during a build, pip does not read your own configuration"
            }
            Self::Build { .. } => {
                "docker_images/README.md describes recipes; `docker build` on the folder of the recipe prints the whole output"
            }
            Self::BaseImage { image, .. } => {
                return format!(
                    "get it with `docker pull {image}`; without access to its registry, save it on a machine that has it with \
                     `docker save --output FILE {image}`, and load it here with `docker load --input FILE`"
                );
            }
            Self::Exposed { .. } => {
                "through a socket, a container reaches the process behind it, even if its folder is mounted read-only: name a \
                 folder that contains only what the engine needs"
            }
            Self::EndedEarly { output, .. } if output.iter().any(|line| line.contains("GLIBC_")) => {
                "the C library of the image is older than the one that this program was built for: `just portable` builds \
                 the program for images with glibc 2.28 or later"
            }
            Self::EndedEarly { output, .. } if output.iter().any(|line| line.contains("No such file or directory")) => {
                "the image has no dynamic loader for this program (as a system without glibc, such as Alpine), or it has no bash"
            }
            Self::Store { .. } | Self::NoCache => "set XDG_CACHE_HOME to a writable folder on a disk with free space",
            _ => "",
        }
        .to_owned()
    }

    /// Returns whether the engine was not permitted to set a resource limit.
    pub(super) fn is_about_limits(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("rlimit"))
    }

    /// Returns whether the engine answered that the requested object does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_limit_is_told_from_one_that_is_not_permitted() {
        let hint = |cause: &str| {
            let message = format!("error setting rlimits for ready process: error setting rlimit type 7: {cause}");
            ContainerError::Refused { request: "start a container", status: 400, message }.hint()
        };
        assert!(hint("invalid argument: unknown").starts_with("the kernel does not accept a resource limit"));
        assert!(hint("operation not permitted").starts_with("the engine is not permitted to raise a resource limit"));
    }
}
