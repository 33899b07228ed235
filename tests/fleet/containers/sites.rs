//! A checkout whose cases run in containers, and the command line of the engine.

use std::fs;
use std::thread;
use std::time::Duration;

pub use crate::support::docker::{BASE, docker, docker_text, has_base};
use crate::support::site::Site;

/// A compiler that is a shell script in the vendor's folder.
pub const SHELL: &str = "{engine: sidecar, command: [sh, engine.sh]}";

/// A checkout in which the cases of vendor `side` run in containers. Its images are removed when it is dropped.
pub struct ContainerSite {
    site: Site,
    /// Part of the names of its images.
    name: String,
}

impl ContainerSite {
    /// Creates the checkout. The recipe contains the name of the test, so tests do not share images. `own` is the compiler's
    /// entry in vendor.yaml; `None` without an engine.
    pub fn new(name: &str, own: &str) -> Option<Self> {
        if !has_base() {
            return None;
        }
        let site = ContainerSite { site: Site::new(own), name: name.to_owned() };
        site.host("");
        site.recipe("");
        Some(site)
    }

    /// Creates the checkout with a compiler that runs `body` as [`shell_sidecar`] does.
    pub fn with_shell(name: &str, body: &str) -> Option<Self> {
        let site = Self::new(name, SHELL)?;
        site.write("vendors/side/engine.sh", &shell_sidecar(body));
        Some(site)
    }

    /// Replaces the compiler by one that is part of the program.
    pub fn write_vendor_rten(&self) {
        let text = fs::read_to_string(self.path().join("vendors/side/vendor.yaml")).expect("the vendor");
        self.write("vendors/side/vendor.yaml", &text.replace(SHELL, "{engine: rten}"));
    }

    /// Writes host.yaml with these further lines.
    pub fn host(&self, lines: &str) {
        let text = format!("VENDOR: side\nCONTAINER: docker\n{lines}CASES:\n    \"tiny:interpreter\": data\n");
        self.site.write("configs/host.yaml", &text);
    }

    /// Writes the recipe with these further lines.
    pub fn recipe(&self, lines: &str) {
        let text = format!("FROM {BASE}\nLABEL flagperf.test={}\n{lines}", self.name);
        self.site.write("docker_images/side/interpreter/Dockerfile", &text);
    }

    /// Returns the ids of the images of this test.
    pub fn images(&self) -> Vec<String> {
        let filter = format!("label=flagperf.test={}", self.name);
        let text = docker_text(&["images", "--quiet", "--no-trunc", "--filter", &filter]);
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the ids of the containers of the runs of this test, running or not.
    pub fn containers(&self) -> Vec<String> {
        let text = docker_text(&["ps", "--all", "--quiet", "--no-trunc", "--filter", "label=flagperf.case"]);
        let is_own = |id: &&str| {
            let mounts = docker(&["inspect", "--format", "{{json .Mounts}}", id]);
            String::from_utf8_lossy(&mounts.stdout).contains(&*self.site.path().to_string_lossy())
        };
        text.lines().filter(is_own).map(str::to_owned).collect()
    }

    /// Returns what the workers wrote to standard error.
    pub fn errors(&self) -> String {
        let run = fs::read_dir(self.path().join("result")).expect("results").next().expect("a run").expect("a run");
        let log = run.path().join("tiny_interpreter/localhost_noderank0/stdout_err.out.log");
        fs::read_to_string(log).expect("a log")
    }

    /// Runs the case while `action` is done to the container of its inference, whose compiler waits.
    pub fn run_while(&self, action: impl FnOnce(&str)) -> serde_json::Value {
        thread::scope(|scope| {
            let run = scope.spawn(|| self.run(&[]).0);
            action(&self.await_inference());
            run.join().expect("the run ended")
        })
    }

    /// Waits for the container in which the compiler waits, and returns its id.
    pub fn await_inference(&self) -> String {
        for _ in 0..6000 {
            if let Some(id) = self.inference() {
                return id;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("no container of inference");
    }

    /// Returns the id of the container in which the compiler waits, if there is one.
    pub fn inference(&self) -> Option<String> {
        let waits = |id: &String| {
            let processes = docker(&["top", id]);
            String::from_utf8_lossy(&processes.stdout).contains("sleep")
        };
        self.containers().into_iter().find(waits)
    }
}

impl std::ops::Deref for ContainerSite {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Drop for ContainerSite {
    fn drop(&mut self) {
        for id in self.containers() {
            docker(&["rm", "--force", &id]);
        }
        // Later images build on earlier ones.
        for id in self.images() {
            docker(&["rmi", "--force", &id]);
        }
    }
}

/// Returns the text of a sidecar, a shell script, that runs `body` when it gets a model and then exits with status 3.
pub fn shell_sidecar(body: &str) -> String {
    format!(
        r#"read hello
echo '{{"answer":"hello","protocol":1,"name":"shell","version":"1","roles":["compiler"],"kinds":["onnx"],"precisions":["f32"]}}'
read load
{body}
exit 3
"#
    )
}
