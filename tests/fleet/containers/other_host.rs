//! Cases in containers on another host, which ssh connects to.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::sites::{ContainerSite, docker_text};
use crate::support::loopback::LoopbackHost;
use crate::support::program;

/// Waits until somebody ends the container.
const WAIT: &str = "sleep 600";
/// The time between two looks at the containers of a test, and the largest number of looks: 60 s.
const POLL: Duration = Duration::from_millis(50);
const POLLS: u32 = 1200;

/// Returns a checkout whose case runs in containers on the host `other`, and this host. `scale` is empty, or `:1x2`; `timeout` are the
/// seconds after which a host counts as lost.
fn site(name: &str, scale: &str, timeout: u32) -> Option<(ContainerSite, LoopbackHost)> {
    let site = ContainerSite::with_shell(name, WAIT)?;
    // The folder belongs to the checkout, so that the containers of this test are known by what they mount.
    let host = LoopbackHost::start(&site.path().join("other"))?;
    let config = host.config();
    let lines = format!(
        "VENDOR: side\nCONTAINER: docker\nHOSTS: [other]\nSSH_CONFIG: {}\nHOST_TIMEOUT: {timeout}\nACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\n\
         CASES:\n    \"tiny:interpreter{scale}\": datasets/tiny\n",
        config.display()
    );
    site.write("datasets/tiny/nothing", "");
    site.write("configs/host.yaml", &lines);
    Some((site, host))
}

fn start(site: &ContainerSite) -> Child {
    let mut command = program::command(site.path(), &["run", "--plain"]);
    command.env("XDG_CACHE_HOME", site.path().join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for the container in which the compiler waits, and returns the run and the container's id.
fn await_inference(site: &ContainerSite, mut run: Child) -> (Child, String) {
    loop {
        if let Some(id) = site.inference() {
            return (run, id);
        }
        if run.try_wait().expect("the run is a child").is_some() {
            panic!("the run ended before there was a container of inference: {:?}", finish(run));
        }
        thread::sleep(POLL);
    }
}

/// Waits for the end of a run, and returns its exit code and what it displayed.
fn finish(run: Child) -> (Option<i32>, String) {
    let output = run.wait_with_output().expect("the program ends");
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), texts.concat())
}

fn record(site: &ContainerSite, folder: &str) -> Value {
    let run = fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run").path();
    let path = run.join(folder).join("record.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a record")
}

fn reason(record: &Value) -> &str {
    record["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("no reason: {record}"))
}

/// Waits until the other host has no container of this test.
fn assert_no_container_remains(site: &ContainerSite) {
    for _ in 0..POLLS {
        if site.containers().is_empty() {
            return;
        }
        thread::sleep(POLL);
    }
    panic!("containers remain: {:?}", site.containers());
}

#[test]
fn a_case_runs_in_containers_on_two_devices_of_another_host() {
    let Some((site, _host)) = site("other_two", ":1x2", 60) else { return };
    site.write_vendor_rten();
    let (code, text) = finish(start(&site));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(" prepares its worker: building image flagperf-inference-side-interpreter:"), "{text}");
    for device in [0, 1] {
        let record = record(&site, &format!("tiny_interpreter_1x2/other_noderank0_device{device}"));
        assert_eq!(record["provenance"]["image"]["privileged"], false, "{record}");
    }
    assert_no_container_remains(&site);
}

#[test]
fn a_container_that_is_killed_on_another_host_and_ctrl_c_leave_a_reason_and_no_container() {
    let Some((site, _host)) = site("other_killed", "", 60) else { return };
    let (run, container) = await_inference(&site, start(&site));
    docker_text(&["kill", &container]);
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let killed = record(&site, "tiny_interpreter/other_noderank0");
    assert!(reason(&killed).ends_with("SIGKILL): another program sent it to the container"), "{killed}");
    assert_no_container_remains(&site);

    fs::remove_dir_all(site.path().join("result")).expect("the first run");
    let (run, _) = await_inference(&site, start(&site));
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let (code, text) = finish(run);
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(record(&site, "tiny_interpreter/other_noderank0")["status"], "interrupted");
    assert_no_container_remains(&site);
}

#[test]
fn a_host_that_cannot_be_reached_any_more_removes_its_containers() {
    let Some((site, host)) = site("other_lost", "", 5) else { return };
    let (run, _) = await_inference(&site, start(&site));
    host.kill();
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let lost = record(&site, "tiny_interpreter/other_noderank0");
    assert!(reason(&lost).starts_with("host `other` was lost: no contact for "), "{lost}");
    assert!(lost["finish_info"]["p_validation_core(qps)"].as_f64().is_some_and(|rate| rate > 0.0), "{lost}");
    // The host waits 30 s longer than the run.
    assert_no_container_remains(&site);
}
