//! The image of a server, and its manifests for Kubernetes.

use std::fs;
use std::time::Duration;

use crate::grpc::{GrpcClient, rows as message};
use crate::server::{Server, rows, store};
use crate::support::docker::{docker, docker_text, docker_within, has_base, printed};
use crate::support::{self, root};

const FOLDER: &str = "docker_images/cpu/serve";
/// The most time that the image may take to be built.
const BUILD_TIME: Duration = Duration::from_secs(600);

/// A container and its image, which are removed at the end of the test.
struct Container {
    image: String,
    name: String,
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(&["rm", "--force", &self.name]);
        docker(&["image", "rm", "--force", &self.image]);
    }
}

#[test]
fn the_image_serves_a_store_without_root_and_without_writing() {
    if !has_base() {
        return;
    }
    let build = tempfile::tempdir().unwrap();
    fs::copy(env!("CARGO_BIN_EXE_flagperf"), build.path().join("flagperf")).unwrap();
    let recipe = root().join(FOLDER).join("Dockerfile");
    let name = format!("flagperf-serve-test-{}", std::process::id());
    let container = Container { image: format!("{name}:latest"), name };
    let (recipe, folder) = (recipe.to_str().unwrap(), build.path().to_str().unwrap());
    let build = ["build", "--quiet", "--tag", &container.image, "--file", recipe, folder];
    printed(&build, &docker_within(BUILD_TIME, &build));
    let store = store(&[("m", "")]);
    // The folder of a test is private.
    let readable = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(store.path(), readable).unwrap();
    let models = format!("{}:/models:ro", store.path().display());
    let options = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--publish-all", "--volume", &models];
    docker_text(&[&["run", "--detach", "--name", &container.name][..], &options, &[&container.image]].concat());
    let address = |port: &str| {
        let text = docker_text(&["port", &container.name, port]);
        let port = text.lines().next().and_then(|line| line.rsplit_once(':')).expect("a port").1.to_owned();
        format!("127.0.0.1:{port}")
    };
    let server = Server::at(&address("8000"), &address("8001"));
    server.wait_until("the server is ready", |server| server.try_get("/v2/health/ready") == Some(200));
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
    assert_eq!(GrpcClient::connect(&server.grpc_address).infer(&message("m", &[[1.0; 3]])).code, 0);
    docker_text(&["stop", "--time", "60", &container.name]);
    let code = docker_text(&["inspect", "--format", "{{.State.ExitCode}}", &container.name]);
    assert_eq!(code, "0", "{:?}", docker(&["logs", &container.name]));
}

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    let Some(python) = support::python() else { return };
    let path = |name: &str| root().join(FOLDER).join(name).to_str().unwrap().to_owned();
    let files = [path("deployment.yaml"), path("inference_service.yaml")];
    support::run_script(&python, "check_serve_manifests.py", &files.each_ref().map(String::as_str));
}
