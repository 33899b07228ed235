//! Asks the container engine for what options name: with an unknown network or runtime, no container starts.

use std::fs;

use bollard::query_parameters::{InspectContainerOptions, InspectNetworkOptions};

use super::engine::ANSWER_LIMIT;
use super::{ContainerEngine, ContainerError};
use flagperf_config::ContainerOptions;

/// The networks that every engine has.
const BUILT_IN_NETWORKS: [&str; 7] = ["bridge", "default", "host", "nat", "none", "private", "slirp4netns"];
/// The runtimes that come with an engine. Any other one may be that of a vendor of devices.
const PLAIN_RUNTIMES: [&str; 4] = ["crun", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc"];
/// End of the name of the program by which Docker finds a vendor's container toolkit, and where it may find the program.
const TOOLKIT_HOOK: &str = "-container-runtime-hook";
const PROGRAM_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"];
/// The status of a reply to a request about something unknown.
const NOT_FOUND: u16 = 404;

/// An option with which this engine starts no container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedContainerOption {
    /// What the engine lacks.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
}

impl ContainerEngine {
    /// Returns the options with which this engine would start no container. What the engine does not tell is not refused.
    pub fn refused_options(&self, options: &ContainerOptions) -> Vec<RefusedContainerOption> {
        let mut refused: Vec<RefusedContainerOption> = self.unknown_network(options).into_iter().collect();
        refused.extend(self.unknown_container("--ipc", options.ipc.as_deref()));
        refused.extend(self.unknown_container("--pid", options.pid.as_deref()));
        // Podman lists its own runtimes and finds devices by CDI.
        if self.facts().is_podman() || options.runtime.is_none() && options.gpus.is_none() {
            return refused;
        }
        let Ok(info) = self.request("ask for its runtimes", ANSWER_LIMIT, async |docker| docker.info().await) else {
            return refused;
        };
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort_unstable();
        let is_unknown = |runtime: &&String| !runtimes.is_empty() && !runtimes.contains(runtime);
        if let Some(runtime) = options.runtime.as_ref().filter(is_unknown) {
            refused.push(RefusedContainerOption {
                message: format!(
                    "the container engine does not know the runtime `{runtime}` (known: {})",
                    runtimes.join(", ")
                ),
                hint: "correct `--runtime`, or install the runtime and list it in the engine's daemon.json",
            });
        }
        let has_devices = info.discovered_devices.is_some_and(|devices| !devices.is_empty());
        let has_runtime = runtimes.iter().any(|runtime| !PLAIN_RUNTIMES.contains(&runtime.as_str()));
        let has_gpus = has_devices || has_runtime || has_toolkit();
        if let Some(gpus) = options.gpus.as_ref().filter(|_| !has_gpus) {
            refused.push(RefusedContainerOption {
                message: format!(
                    "`--gpus {gpus}` needs a runtime for devices, and the container engine has none (known: {})",
                    runtimes.join(", ")
                ),
                hint: "install the container toolkit of the devices' vendor, and restart the engine",
            });
        }
        refused
    }

    /// Returns that there is no container whose namespace an option joins.
    fn unknown_container(&self, option: &str, namespace: Option<&str>) -> Option<RefusedContainerOption> {
        let container = namespace?.strip_prefix("container:")?;
        let inspect = async |docker: &bollard::Docker| {
            docker.inspect_container(container, None::<InspectContainerOptions>).await.map(drop)
        };
        match self.request("inspect a container", ANSWER_LIMIT, inspect) {
            Err(ContainerError::Refused { status: NOT_FOUND, .. }) => Some(RefusedContainerOption {
                message: format!(
                    "`{option} container:{container}` names a container that the container engine does not have"
                ),
                hint: "start that container first, or remove the option",
            }),
            _ => None,
        }
    }

    fn unknown_network(&self, options: &ContainerOptions) -> Option<RefusedContainerOption> {
        let is_own = |network: &&String| !BUILT_IN_NETWORKS.contains(&network.as_str()) && !network.contains(':');
        let network = options.network.as_ref().filter(is_own)?;
        let inspect = async |docker: &bollard::Docker| {
            docker.inspect_network(network, None::<InspectNetworkOptions>).await.map(drop)
        };
        match self.request("inspect a network", ANSWER_LIMIT, inspect) {
            Err(ContainerError::Refused { status: NOT_FOUND, .. }) => Some(RefusedContainerOption {
                message: format!("the container engine has no network `{network}`"),
                hint: "correct `--network`: `docker network ls` lists the networks, and `docker network create` adds one",
            }),
            _ => None,
        }
    }
}

/// Returns whether a vendor's container toolkit is installed.
fn has_toolkit() -> bool {
    let programs = PROGRAM_FOLDERS.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    programs.into_iter().any(|program| program.file_name().to_string_lossy().ends_with(TOOLKIT_HOOK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestEngine;

    #[test]
    fn an_unknown_network_or_runtime_is_found_without_a_container() {
        let engine = TestEngine::start(|request| match request {
            _ if request.contains("/networks/lab") => (200, r#"{"Name":"lab"}"#.to_owned()),
            _ if request.contains("/containers/") => (404, r#"{"message":"No such container: x"}"#.to_owned()),
            _ if request.contains("/networks/") => (404, r#"{"message":"network x not found"}"#.to_owned()),
            _ if request.contains("/info") => (200, r#"{"Runtimes":{"runc":{"path":"runc"}}}"#.to_owned()),
            _ => (200, r#"{"Version":"20","ApiVersion":"1.41"}"#.to_owned()),
        });
        let engine = engine.connect();
        let refused = |text: &str| {
            let refused = engine.refused_options(&ContainerOptions::parse(text).unwrap());
            refused.into_iter().map(|refused| refused.message).collect::<Vec<_>>()
        };
        assert_eq!(refused("--network nowhere"), ["the container engine has no network `nowhere`"]);
        let container = "`--ipc container:x` names a container that the container engine does not have";
        assert_eq!(refused("--ipc container:x --pid host"), [container]);
        let runtime = "the container engine does not know the runtime `chip` (known: runc)";
        assert_eq!(refused("--runtime chip --network host"), [runtime]);
        assert_eq!(refused("--runtime runc --network lab"), [""; 0]);
        // A machine on which tests run may have the toolkit.
        assert_eq!(refused("--gpus all").is_empty(), has_toolkit());
    }
}
