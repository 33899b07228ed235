//! Cases on several hosts and devices, with real connections and real faults (tests/lab/README.md).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use lab::Lab;
use slurm::Slurm;

#[path = "support/kubernetes.rs"]
mod kubernetes;
#[path = "support/lab.rs"]
mod lab;
#[path = "support/slurm.rs"]
mod slurm;
mod support;

const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e3\nfp16: false\ncompiler: own\nnum_workers: 1\nlog_freq: 1000\n\
                              repeat: 6\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";
/// The engine sleeps in each of the 100 steps of a pass.
const VENDOR: &str = "name: side\nabout: tried by tests\nframeworks: {own: {engine: \"null\"}}\n\
                      compilers: {own: {engine: \"null\", options: {sleep_ms: 5}}}\n";
/// Longest wait for an event of a run.
const WAIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// A checkout with the case `tiny`, and a cache of its own.
struct Site {
    folder: TempDir,
}

impl Site {
    fn new(host: &str) -> Self {
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
        site.write("configs/host.yaml", &format!("VENDOR: side\nHOST_TIMEOUT: 15\n{host}"));
        site
    }

    fn on_hosts(lab: &Lab, cases: &str) -> Self {
        let (hosts, config) = (lab.names().join(", "), lab.config());
        Site::new(&format!("HOSTS: [{hosts}]\nSSH_CONFIG: {}\nCASES:\n{cases}", config.display()))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[expect(clippy::disallowed_methods, reason = "a test that kills the program")]
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("flagperf"));
        command.args(words).current_dir(self.path()).env("XDG_CACHE_HOME", self.path().join("cache"));
        command.env("FLAGPERF_HOST_LOCK", "/dev/null").env_remove("FLAGPERF_CONFIG").env_remove("SLURM_JOB_NODELIST");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, words: &[&str]) -> Child {
        self.command(words).spawn().expect("the program starts")
    }

    /// Runs the program to its end, and returns its exit code and what it printed.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        finish(self.start(words))
    }

    /// Returns the folder of the only run.
    fn run_folder(&self) -> PathBuf {
        let entries = fs::read_dir(self.path().join("result")).expect("results");
        entries.flatten().next().expect("a run").path()
    }

    fn json(&self, path: &str) -> Value {
        let path = self.run_folder().join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits until inference has measured a pass on a host.
    fn wait_for_pass(&self, replica: &str) {
        let has_pass = || {
            let entries = fs::read_dir(self.path().join("result")).into_iter().flatten().flatten();
            let mut texts =
                entries.filter_map(|run| fs::read_to_string(run.path().join(replica).join("events.jsonl")).ok());
            texts.any(|text| text.contains("\"pass_end\",\"step\":\"inference\""))
        };
        wait_until(has_pass);
    }

    fn assert_consistent(&self, results: usize) {
        let run = self.run_folder();
        let (code, text) = self.run(&["verify", run.to_str().expect("text")]);
        assert_eq!((code, text.matches("consistent  tiny").count()), (Some(0), results), "{text}");
    }
}

fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..WAIT.as_millis() / POLL.as_millis() {
        if done() {
            return;
        }
        std::thread::sleep(POLL);
    }
    panic!("nothing happened within {} s", WAIT.as_secs());
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("the program ends");
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), texts.concat())
}

fn kill(child: &Child, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
}

const TWO: &str = "    \"tiny:own:2x1\": datasets/tiny\n";
const H1: &str = "tiny_own_2x1/h1_noderank0";
const H2: &str = "tiny_own_2x1/h2_noderank1";

#[test]
fn a_case_runs_on_two_hosts_and_a_cut_of_some_seconds_loses_nothing() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    lab.host(2).cut_for(Duration::from_secs(12));
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("host h2 has no connection") && text.contains("host h2 is connected again"), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_2x1/summary.json");
    let [first, second] = [0, 1].map(|place| summary["replicas"][place]["measured"][1].clone());
    let core = |found: &Value| found["throughput_core_samples_per_s"].as_f64().expect("a figure");
    let inference = &summary["steps"][1];
    assert_eq!(core(inference), core(&first) + core(&second));
    assert!(inference["common_share"].as_f64().expect("both clocks are known") > 0.0, "{inference}");
    for host in [1, 2] {
        assert_eq!(lab.host(host).exec("pgrep -c flagperf || true").trim(), "0");
        assert_eq!(lab.host(host).exec("ls /home/tester/.cache/flagperf/sessions").trim(), "");
    }
}

#[test]
fn a_lost_host_keeps_what_had_arrived_and_the_next_case_runs() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, &format!("{TWO}    \"tiny_again:own\": datasets/tiny\n"));
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    lab.host(2).power_off();
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let lost = site.json(&format!("{H2}/record.json"));
    let reason = lost["failures"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("host `h2` was lost: there was no contact for "), "{reason}");
    assert!(lost["finish_info"]["*p_inference_core(qps)"].as_f64().is_some_and(|figure| figure > 0.0), "{lost}");
    let summary = site.json("tiny_own_2x1/summary.json");
    assert_eq!((summary["steps"].as_array().map(Vec::len), &summary["status"]), (Some(0), &"failed".into()));
    for complete in [H1, "tiny_again_own/h1_noderank0"] {
        assert_eq!(site.json(&format!("{complete}/record.json"))["status"], "ok");
    }
}

#[test]
fn a_run_whose_main_process_was_killed_is_resumed() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H1);
    kill(&run, nix::sys::signal::Signal::SIGKILL);
    finish(run);
    let folder = site.run_folder();
    let words = ["resume", folder.to_str().expect("text"), "--plain"];
    let (code, text) = site.run(&words);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let (code, text) = site.run(&words);
    assert!(code == Some(2) && text.contains("is no run that can be resumed"), "{text}");
}

#[test]
fn an_interruption_ends_what_runs_on_every_host() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H1);
    kill(&run, nix::sys::signal::Signal::SIGINT);
    let (code, text) = finish(run);
    assert_eq!(code, Some(130), "{text}");
    for replica in [H1, H2] {
        assert_eq!(site.json(&format!("{replica}/record.json"))["status"], "interrupted");
    }
    wait_until(|| [1, 2].iter().all(|host| lab.host(*host).exec("pgrep -c flagperf || true").trim() == "0"));
}

#[test]
fn hosts_that_cannot_be_used_are_named_before_anything_runs() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, "    \"tiny:own:2x1\": datasets/tiny\n");
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
    site.write("configs/host.yaml", &host.replace("[h1]", "[h1, nowhere.invalid]"));
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("error: host `nowhere.invalid` cannot be used: "), "{text}");
    let (code, text) = site.run(&["doctor", "--hosts"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("host h1\n state       ready\n"), "{text}");
    assert!(text.contains("host nowhere.invalid\n state  cannot be used: "), "{text}");
    // A host whose key is not the known one may be another machine.
    let config = fs::read_to_string(lab.config()).expect("a file");
    let strange = site.path().join("strange_hosts");
    site.write("strange_hosts", "");
    let file = site.path().join("ssh_config");
    site.write("ssh_config", &format!("UserKnownHostsFile {}\nStrictHostKeyChecking yes\n{config}", strange.display()));
    site.write("configs/host.yaml", &host.replace(&lab.config().display().to_string(), &file.display().to_string()));
    let (code, text) = site.run(&["run", "--plain", "--case", "tiny:own"]);
    assert!(code == Some(2) && text.contains("Host key verification failed"), "{text}");
}

#[test]
fn a_full_disk_of_a_host_is_the_stated_reason() {
    let Some(lab) = Lab::hosts_with_small_homes(1, 400 << 20) else { return };
    lab.host(1).fill_home();
    let site = Site::on_hosts(&lab, "    \"tiny:own\": datasets/tiny\n");
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("is there space?"), "{text}");
    lab.host(1).free_home();
    let (code, text) = site.run(&["run", "--plain"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_case_runs_on_two_devices_of_this_machine_at_once() {
    let cases =
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n";
    let site = Site::new(cases);
    let (code, text) = site.run(&["run", "--plain"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_1x2/summary.json");
    assert_eq!(summary["replicas"][1]["device"], 1);
    assert!(summary["steps"][1]["common_share"].as_f64().is_some_and(|share| share > 0.0), "{summary}");
}

#[test]
fn a_run_within_a_slurm_job_uses_its_nodes_and_reports_what_slurm_says_of_a_lost_one() {
    let Some(cluster) = Slurm::start() else { return };
    let site = Site::new(&format!("CASES:\n{TWO}"));
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let program = program.to_str().expect("text");
    #[expect(clippy::disallowed_methods, reason = "a test that starts a job")]
    let mut job = Command::new("salloc");
    job.args(["--nodes=2", "--no-kill", program, "run", "--plain"]).current_dir(site.path());
    job.env("SLURM_CONF", cluster.config()).env("XDG_CACHE_HOME", site.path().join("cache"));
    job.env("FLAGPERF_HOST_LOCK", "/dev/null").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = job.spawn().expect("salloc");
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    cluster.kill("n2");
    let (_, text) = finish(run);
    let lost = site.json("tiny_own_2x1/n2_noderank1/record.json");
    let reason = lost["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("{text}"));
    assert!(reason.starts_with("host `n2` was lost: ") && reason.contains("Slurm says of node n2: State="), "{reason}");
    assert_eq!(site.json("tiny_own_2x1/n1_noderank0/record.json")["status"], "ok", "{text}");
}

#[test]
fn jobs_for_schedulers_are_accepted_by_them() {
    let site = Site::new(&format!("CASES:\n{TWO}"));
    let (code, manifest) = site.run(&["run", "--submit", "kubernetes"]);
    assert_eq!(code, Some(0), "{manifest}");
    site.write("job.yaml", &manifest);
    if let Some(python) = support::python() {
        assert_eq!(kubernetes::job_faults(&python, &site.path().join("job.yaml")), "");
    }
    let Some(cluster) = Slurm::start() else { return };
    let (code, script) = site.run(&["run", "--submit", "slurm"]);
    assert_eq!(code, Some(0), "{script}");
    site.write("job.sh", &script);
    let script = site.path().join("job.sh");
    lab::successful(&mut cluster.command("sbatch", &["--test-only", script.to_str().expect("text")]));
}
