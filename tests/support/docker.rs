//! The command line of the container engine, and the image on which recipes build.

use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;

use super::{Missing, leave_out};

/// The image on which the recipes of vendor `cpu` build.
pub const BASE: &str = "debian:bookworm-slim";

/// Runs the engine's command line.
pub fn docker(arguments: &[&str]) -> Output {
    docker_within(Duration::from_secs(120), arguments)
}

/// Runs the engine's command line, which may take this time.
pub fn docker_within(limit: Duration, arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).timeout(limit).output().expect("docker starts")
}

/// Returns what the engine's command line prints.
pub fn docker_text(arguments: &[&str]) -> String {
    printed(arguments, &docker(arguments))
}

/// Returns what a command has printed, which must have succeeded.
pub fn printed(arguments: &[&str], output: &Output) -> String {
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns whether there is an engine with the base image; otherwise the test is counted as left out.
pub fn has_base() -> bool {
    let missing = match flagperf_container::ContainerEngine::connect() {
        Err(error) => Some(Missing::new(error.to_string(), error.hint())),
        Ok(_) => (!docker(&["image", "inspect", BASE]).status.success())
            .then(|| Missing::new(format!("containers: no image `{BASE}`"), "run `tests/lab/image`")),
    };
    missing.iter().for_each(leave_out);
    missing.is_none()
}
