//! A checkout with a small case for hosts, and runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::support;
use crate::support::lab::Lab;

pub const TWO: &str = "    \"tiny:own:2x1\": datasets/tiny\n";
pub const H1: &str = "tiny_own_2x1/h1_noderank0";
pub const H2: &str = "tiny_own_2x1/h2_noderank1";

const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e3\nfp16: false\ncompiler: own\nnum_workers: 1\nlog_freq: 1000\n\
                              repeat: 6\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";
/// The engine sleeps in each of the 100 steps of a pass.
const VENDOR: &str = "name: side\nabout: tried by tests\nframeworks: {own: {engine: \"null\"}}\n\
                      compilers: {own: {engine: \"null\", options: {sleep_ms: 5}}}\n";
/// Longest wait for an event of a run.
const WAIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// A checkout with the case `tiny`, and a cache of its own.
pub struct Site {
    folder: TempDir,
}

impl Site {
    pub fn new(host: &str) -> Self {
        let site = Site { folder: tempfile::tempdir().expect("a folder") };
        for script in fs::read_dir(support::root().join("tests/cases/tiny")).expect("the case").flatten() {
            let text = fs::read_to_string(script.path()).expect("a script");
            for case in ["tiny", "tiny_again"] {
                site.write(&format!("scripts/{case}/{}", script.file_name().display()), &text);
            }
        }
        for case in ["tiny", "tiny_again"] {
            site.write(&format!("configs/{case}/configurations.yaml"), CONFIGURATIONS);
            site.write(&format!("configs/{case}/parameters.yaml"), "samples: 400\nweights: null\nseed: 0\n");
        }
        site.write("vendors/side/vendor.yaml", VENDOR);
        site.write("datasets/tiny/nothing", "");
        // On a busy machine, a new connection takes seconds.
        site.write("configs/host.yaml", &format!("VENDOR: side\nHOST_TIMEOUT: 60\n{host}"));
        site
    }

    /// Gives up hosts and sessions soon, for tests that wait until one is lost.
    pub fn with_short_timeout(self) -> Self {
        let host = fs::read_to_string(self.path().join("configs/host.yaml")).expect("a file");
        self.write("configs/host.yaml", &host.replace("HOST_TIMEOUT: 60", "HOST_TIMEOUT: 15"));
        self
    }

    pub fn on_hosts(lab: &Lab, cases: &str) -> Self {
        let (hosts, config) = (lab.names().join(", "), lab.config());
        Site::new(&format!("HOSTS: [{hosts}]\nSSH_CONFIG: {}\nCASES:\n{cases}", config.display()))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[expect(clippy::disallowed_methods, reason = "a test that kills the program")]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("flagperf"));
        command.args(words).current_dir(self.path()).env("XDG_CACHE_HOME", self.path().join("cache"));
        command.env("FLAGPERF_HOST_LOCK", "/dev/null").env_remove("FLAGPERF_CONFIG").env_remove("SLURM_JOB_NODELIST");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the processes of the sessions on this machine.
    pub fn sessions(&self) -> Vec<Pid> {
        let own = self.path().join("cache/flagperf/sessions").display().to_string();
        let is_session = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).split('\0').skip(1).any(|word| word.starts_with(&own))
        };
        let entries = fs::read_dir("/proc").expect("processes").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(is_session).map(Pid::from_raw).collect()
    }

    pub fn start(&self, words: &[&str]) -> Child {
        self.command(words).spawn().expect("the program starts")
    }

    /// Runs the program to its end, and returns its exit code and what it printed.
    pub fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        finish(self.start(words))
    }

    /// Returns the folder of the only run.
    pub fn run_folder(&self) -> PathBuf {
        let entries = fs::read_dir(self.path().join("result")).expect("results");
        entries.flatten().next().expect("a run").path()
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        fs::read_dir(self.path().join("result")).map_or(0, Iterator::count)
    }

    pub fn json(&self, path: &str) -> Value {
        let path = self.run_folder().join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits until inference has measured a pass on a host.
    pub fn wait_for_pass(&self, replica: &str) {
        let has_pass = || {
            let entries = fs::read_dir(self.path().join("result")).into_iter().flatten().flatten();
            let mut texts =
                entries.filter_map(|run| fs::read_to_string(run.path().join(replica).join("events.jsonl")).ok());
            texts.any(|text| text.contains("\"pass_end\",\"step\":\"inference\""))
        };
        wait_until(has_pass);
    }

    pub fn assert_consistent(&self, results: usize) {
        let run = self.run_folder();
        let (code, text) = self.run(&["verify", run.to_str().expect("text")]);
        // A summary is checked, too.
        let with_summary = results + usize::from(results > 1);
        assert_eq!((code, text.matches("consistent  tiny").count()), (Some(0), with_summary), "{text}");
    }
}

pub fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..WAIT.as_millis() / POLL.as_millis() {
        if done() {
            return;
        }
        std::thread::sleep(POLL);
    }
    panic!("nothing happened within {} s", WAIT.as_secs());
}

pub fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("the program ends");
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), texts.concat())
}

pub fn kill(child: &Child, signal: nix::sys::signal::Signal) {
    kill_process(child.id().cast_signed(), signal);
}

pub fn kill_process(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("it runs");
}
