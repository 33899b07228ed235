//! `flagperf peak --devices`: processes of libtorch on the processor, which exchange tensors with Gloo.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{self, checkout_with_libtorch, give_devices, program};

const TWO: [&str; 7] = ["peak", "--devices", "2", "--compiler", "pytorch", "--set", "threads=1"];
const LIMIT: &str = "interconnect-MPI_intraserver";
const PEAK: [&str; 9] = [TWO[0], TWO[1], TWO[2], TWO[3], TWO[4], TWO[5], TWO[6], "--only", LIMIT];

/// Returns a checkout in which processes of libtorch get devices; `None` without libtorch.
fn checkout() -> Option<TempDir> {
    let checkout = checkout_with_libtorch()?;
    give_devices(checkout.path());
    Some(checkout)
}

#[test]
fn two_processes_exchange_tensors_of_each_size() {
    let Some(checkout) = checkout() else { return };
    let output = program::flagperf(checkout.path(), &[&TWO[..], &["--json", "--html", "page.html"]].concat());
    let (text, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let results: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{messages}"));
    let results = results.as_array().expect("a list");
    let measured = results.iter().filter(|result| !result["value"].is_null());
    assert_eq!(measured.map(|result| &result["limit"]).collect::<Vec<_>>(), [LIMIT, "interconnect-P2P_intraserver"]);
    // Noise of a busy machine may make a figure not count, and the exit code 1.
    let has_reasons = results.iter().any(|result| result["reasons"] != serde_json::json!([]));
    assert_eq!(output.status.code(), Some(i32::from(has_reasons)), "{text}{messages}");
    check_exchange(&results[0], "all_reduce");
    check_exchange(&results[1], "broadcast");
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains(LIMIT) && page.contains("the processes share the processor"), "{page}");
}

/// Checks the sizes and the outputs of an exchange of two processes.
fn check_exchange(result: &Value, name: &str) {
    assert_eq!(result["devices"], 2, "{result}");
    let sizes = result["exchange"].as_array().expect("sizes");
    let bandwidth = |size: &Value| size["bus_bytes_per_s"].as_f64().expect("a number");
    let best = sizes.iter().map(bandwidth).fold(0.0, f64::max);
    assert!(sizes.len() >= 3 && best > 0.0 && result["value"].as_f64() == Some(best), "{result}");
    for size in sizes {
        // Two processes: bytes / time, and for an all-reduce · 2 · 1/2.
        let (bytes, call) = (size["bytes"].as_f64().expect("bytes"), size["call_s"].as_f64().expect("a time"));
        assert!((bandwidth(size) * call / bytes - 1.0).abs() < 1e-9, "{size}");
    }
    let processes = result["times"][name].as_array().expect("the times of each process");
    assert_eq!(processes.iter().map(|process| &process["rank"]).collect::<Vec<_>>(), [0, 1]);
    for series in processes.iter().flat_map(|process| process["series"].as_array().expect("sizes")) {
        for comparison in [&series["comparison"], &series["comparison_of_new_inputs"]] {
            assert!(comparison["error"].as_f64() <= comparison["limit"].as_f64(), "{comparison}");
            assert!(comparison["wrong"].is_null() && comparison["compared"].as_u64() > Some(0), "{comparison}");
        }
    }
}

#[test]
fn what_cannot_be_measured_together_is_said_before_anything_runs() {
    let checkout = support::checkout();
    let refused = |arguments: &[&str], expected: &str| {
        let output = program::flagperf(checkout.path(), arguments);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {messages}");
        assert!(messages.contains(expected), "{arguments:?}: {messages}");
    };
    let rten = ["peak", "--compiler", "rten"];
    refused(&[&rten[..], &["--devices", "2"]].concat(), "--devices: no variable selects the device of a process");
    give_devices(checkout.path());
    refused(
        &[&rten[..], &["--devices", "2"]].concat(),
        "--devices: engine `rten` cannot exchange tensors between devices",
    );
    refused(&[&rten[..], &["--devices", "1"]].concat(), "1 is not in 2..=128");
    refused(
        &[&rten[..], &["--only", LIMIT]].concat(),
        "limit `interconnect-MPI_intraserver` is that of several devices: `--devices 2` measures it on two",
    );
    refused(
        &[&rten[..], &["--devices", "3", "--only", "interconnect-P2P_intraserver"]].concat(),
        "limit `interconnect-P2P_intraserver` is that of two devices: `--devices 2`",
    );
    refused(
        &[&rten[..], &["--devices", "2", "--only", "computation-FP32"]].concat(),
        "limit `computation-FP32` is that of one device: measure it without `--devices`",
    );
}

/// Returns the processes that a process has started, each with its device.
fn children(parent: u32) -> Vec<(Pid, String)> {
    let read =
        |path: String| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let list = read(format!("/proc/{parent}/task/{parent}/children"));
    let device = |pid: &str| {
        let variables = read(format!("/proc/{pid}/environ"));
        variables.split('\0').find_map(|variable| variable.strip_prefix("TEST_DEVICES=").map(str::to_owned))
    };
    let child = |pid: &str| Some((Pid::from_raw(pid.parse().ok()?), device(pid)?));
    list.split_whitespace().filter_map(child).collect()
}

fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Waits until a condition holds: at most a minute, or the test fails.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let holds = (0..3000).any(|_| {
        sleep(Duration::from_millis(20));
        holds()
    });
    assert!(holds, "not within a minute: {what}");
}

/// Starts a measurement, lets `fault` act on it once both processes run, and returns its exit code and its output. No process may be
/// left.
fn output_after(checkout: &TempDir, fault: impl FnOnce(&Child, [Pid; 2])) -> (Option<i32>, String) {
    let mut command = program::command(checkout.path(), &PEAK);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut pids = Vec::new();
    wait_for("two processes, each with its device", || {
        pids = children(running.id());
        pids.sort_by(|a, b| a.1.cmp(&b.1));
        pids.iter().map(|(_, device)| device.as_str()).eq(["0", "1"])
    });
    let pids = [pids[0].0, pids[1].0];
    fault(&running, pids);
    let output = running.wait_with_output().expect("it ended");
    pids.into_iter().for_each(|pid| wait_for("the end of the processes", || has_ended(pid)));
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_process_that_is_killed_is_named_and_ends_the_others() {
    let Some(checkout) = checkout() else { return };
    let (code, text) = output_after(&checkout, |_, [_, second]| kill(second, Signal::SIGKILL).expect("it runs"));
    let expected =
        format!("not measured: {LIMIT}: rank 1 (TEST_DEVICES=1): its process was killed by signal 9 (SIGKILL)");
    assert!(code == Some(1) && text.contains(&expected), "{code:?}: {text}");
}

#[test]
fn a_process_that_is_stopped_is_named_and_ends_the_others() {
    let Some(checkout) = checkout() else { return };
    let (code, text) = output_after(&checkout, |_, [first, _]| kill(first, Signal::SIGSTOP).expect("it runs"));
    let expected =
        format!("not measured: {LIMIT}: rank 0 (TEST_DEVICES=0): a signal (SIGSTOP) stopped it for more than 5 s");
    assert!(code == Some(1) && text.contains(&expected), "{code:?}: {text}");
}

#[test]
fn an_interruption_and_the_death_of_the_program_end_the_processes() {
    let Some(checkout) = checkout() else { return };
    let send = |signal| {
        move |running: &Child, _: [Pid; 2]| kill(Pid::from_raw(running.id().cast_signed()), signal).expect("it runs")
    };
    let (code, text) = output_after(&checkout, send(Signal::SIGINT));
    assert!(code == Some(130) && text.contains("it was stopped"), "{code:?}: {text}");
    let (code, _) = output_after(&checkout, send(Signal::SIGKILL));
    assert_eq!(code, None);
}

#[test]
fn a_process_that_cannot_join_is_named() {
    let Some(checkout) = checkout() else { return };
    let site = fs::read_to_string(checkout.path().join("configs/host.yaml")).expect("the site");
    let port =
        site.lines().find_map(|line| line.trim().strip_prefix("MASTER_PORT: ")).expect("the port").trim_matches('"');
    let _used = TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is free");
    let output = program::flagperf(checkout.path(), &PEAK);
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("rank 0 cannot wait for the others at `127.0.0.1`, port {port}");
    let is_named = text.contains("rank 0 (TEST_DEVICES=0): ") && text.contains(&expected);
    assert!(output.status.code() == Some(1) && is_named, "{text}");
}
