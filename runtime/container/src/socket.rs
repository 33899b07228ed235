//! Lists the sockets at which a container engine may answer on this machine.

use std::path::{Path, PathBuf};

use super::ContainerError;
use flagperf_config::env;

/// The sockets of engines that run as root.
const SYSTEM_SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// The sockets of engines that run as this user, below the folder `XDG_RUNTIME_DIR`.
const USER_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

/// Returns the sockets to try, in order: the one that `DOCKER_HOST` names, or else those of Docker and Podman.
pub(super) fn candidates() -> Result<Vec<PathBuf>, ContainerError> {
    candidates_of(env::container_host(), env::runtime_folder().as_deref())
}

fn candidates_of(address: Option<String>, runtime: Option<&Path>) -> Result<Vec<PathBuf>, ContainerError> {
    if let Some(address) = address {
        let path = address.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        return path.map(|path| vec![path.into()]).ok_or(ContainerError::NotLocal { address });
    }
    let user = runtime.into_iter().flat_map(|folder| USER_SOCKETS.map(|socket| folder.join(socket)));
    let [docker, podman] = SYSTEM_SOCKETS.map(PathBuf::from);
    Ok([docker].into_iter().chain(user).chain([podman]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_on_another_machine_is_refused() {
        for address in ["tcp://10.0.0.1:2375", "ssh://me@host", "unix://relative.sock", "npipe:////./pipe/x"] {
            let refused = candidates_of(Some(address.to_owned()), None).unwrap_err().to_string();
            assert!(refused.contains(&format!("names `{address}`")), "{refused}");
        }
        let named = candidates_of(Some("unix:///tmp/d.sock".to_owned()), Some(Path::new("/run/user/7"))).unwrap();
        assert_eq!(named, [Path::new("/tmp/d.sock")]);
    }

    #[test]
    fn sockets_of_the_user_come_after_that_of_docker() {
        let found = candidates_of(None, Some(Path::new("/run/user/7"))).unwrap();
        let expected = [
            "/var/run/docker.sock",
            "/run/user/7/docker.sock",
            "/run/user/7/podman/podman.sock",
            "/run/podman/podman.sock",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
