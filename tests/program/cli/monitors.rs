//! Monitors of a case through the program: a vendor's command that works, hangs, fails and prints nonsense.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use super::{checkout, flagperf, record};

const SCRIPT: &str = r#"fn read_devices(output) {
    let devices = [];
    for line in text::lines(output) {
        let cells = text::cells(line, ",");
        devices.push(#{ device: cells[0], power_w: text::number(cells[1]), memory_used_bytes: text::mebibytes(cells[2]) });
    }
    devices
}
"#;

/// Creates a checkout whose vendor reads its devices by a shell script with this text, every second.
fn monitored(command: &str, script: &str) -> TempDir {
    let checkout = checkout();
    let vendor = checkout.path().join("vendors/mock");
    let program = vendor.join("chip-smi");
    fs::write(&program, format!("#!/bin/sh\n{command}\n")).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of this test");
    fs::write(vendor.join("monitor.rhai"), script).expect("a file");
    let text = fs::read_to_string(vendor.join("vendor.yaml")).expect("the vendor");
    let command = format!("monitor_command: {{command: [{}], interval_s: 1}}\n", program.display());
    fs::write(vendor.join("vendor.yaml"), format!("{text}{command}")).expect("a file");
    checkout
}

/// Runs the case, with steps that take long enough for some readings, and returns its record.
fn run(checkout: &Path, step_ms: u32) -> Value {
    let output = flagperf(checkout, &["run", "--set", &format!("sleep_ms={step_ms}"), "--set", "repeat=4"]);
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    record(checkout).1
}

/// Returns what a command wrote to standard output and to standard error.
fn both(output: &std::process::Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Returns the warnings about a monitor. Other monitors may be read late on a busy machine, which is a warning, too.
fn warnings<'r>(record: &'r Value, monitor: &str) -> Vec<&'r str> {
    let all = record["warnings"].as_array().expect("a list").iter().filter_map(Value::as_str);
    all.filter(|warning| warning.contains(monitor)).collect()
}

#[test]
fn a_vendors_command_gives_memory_and_power_of_its_device() {
    let checkout = monitored("echo 0, 250 W, 64 MiB", SCRIPT);
    let record = run(checkout.path(), 300);
    let source = &record["monitors"]["sources"]["device"];
    assert_eq!((&source["failures"], &source["refused_values"]), (&0.into(), &0.into()), "{source}");
    let problem = source["problem"].as_str().unwrap_or_default();
    assert!(!problem.contains("contradictory"), "{problem}");
    assert!(source["readings"].as_u64().is_some_and(|readings| readings > 3), "{source}");
    assert_eq!(record["phases"][0]["usage"]["devices"][0]["memory_source"].as_str(), Some("increase"));
    let usage = &record["phases"][1]["usage"];
    let device = &usage["devices"][0];
    assert_eq!((device["device"].as_str(), device["identified_by"].as_str()), (Some("0"), Some("only")));
    assert_eq!((device["memory_bytes_max"].as_u64(), device["memory_source"].as_str()), (Some(0), Some("increase")));
    assert_eq!((device["power_w_mean"].as_f64(), device["power_w_max"].as_f64()), (Some(250.0), Some(250.0)));
    assert_eq!(usage["samples"].as_u64(), Some(40));
    let folder = super::record(checkout.path()).0;
    let log = fs::read_to_string(folder.join("mock_monitor.log")).expect("FlagPerf's log");
    assert!(log.lines().nth(1) == Some("N/A 250W 64MiB N/A N/A"), "{log}");
    let verified = flagperf(checkout.path(), &["verify", folder.to_str().expect("a path that is text")]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_command_that_fails_hangs_or_prints_nonsense_is_a_warning_and_the_case_succeeds() {
    let cut_off =
        ["the case ended before the first reading was complete", "chip-smi` took longer than 10 s and was killed"];
    let cases: [(&str, &str, &[&str]); 10] = [
        ("echo no driver >&2; exit 3", SCRIPT, &["exited with status 3: `no driver`"]),
        // On a busy machine, the case may take longer than a reading may.
        ("sleep 600", SCRIPT, &cut_off),
        ("yes | head -c 3000000", SCRIPT, &["printed more than 1048576 bytes and was killed"]),
        ("echo garbage", SCRIPT, &["monitor.rhai:5:"]),
        ("printf '\\377\\376\\n'", "fn read_devices(output) { [#{ device: 0, powr_w: 1 }] }", &["`powr_w` is unknown"]),
        ("echo 0, -5 W, 1 MiB", SCRIPT, &["it reported an impossible value: `power_w` of device `0` is -5"]),
        ("echo 0, 1e6 W, 1 MiB", SCRIPT, &["it reported an impossible value: `power_w` of device `0` is 1000000"]),
        ("true", SCRIPT, &["chip-smi` contained no device"]),
        ("printf '0, 5 W, 1 MiB\\n0, 6 W, 1 MiB\\n'", SCRIPT, &["a reading contains device `0` more than once"]),
        ("true", "fn read_devices(output) { let a = []; loop { a.push(a); } }", &["monitor.rhai:1:"]),
    ];
    let check = |(command, script, reasons): &(&str, &str, &[&str])| {
        let record = run(monitored(command, script).path(), 100);
        let found = warnings(&record, "monitor `device`");
        let is_stated = found.len() == 1 && reasons.iter().any(|reason| found[0].contains(reason));
        assert!(is_stated, "{command}: {found:?} {}", record["monitors"]);
    };
    // They mostly wait.
    for some in cases.chunks(5) {
        thread::scope(|scope| some.iter().for_each(|case| drop(scope.spawn(|| check(case)))));
    }
}

#[test]
fn a_process_that_the_command_left_behind_is_not_attributed_to_the_worker() {
    let record = run(monitored("sleep 600 & echo 0, 250 W, 64 MiB", SCRIPT).path(), 100);
    let all = record["warnings"].to_string();
    assert!(!all.contains("the worker left"), "{all}");
    // A worker that ends finds the process earlier than the time limit of the command, except on a slow machine.
    let left = all.contains("a command of the monitor left a process behind: ");
    assert!(left || all.contains("a process that it had started kept its output open"), "{all}");
}

#[test]
fn a_run_without_monitors_says_so() {
    let checkout = checkout();
    let host = checkout.path().join("configs/host.yaml");
    let text = fs::read_to_string(&host).expect("the site");
    fs::write(&host, format!("{text}MONITOR_RATE: 0\n")).expect("a file");
    let output = flagperf(checkout.path(), &["run"]);
    assert_eq!(output.status.code(), Some(0));
    let (folder, record) = record(checkout.path());
    assert_eq!(warnings(&record, "monitor"), ["no monitor ran: `MONITOR_RATE` in host.yaml is 0"]);
    assert_eq!((record["monitors"]["rate_per_s"].as_u64(), &record["phases"][0]["usage"]), (Some(0), &Value::Null));
    assert!(!folder.join("cpu_monitor.log").exists());
}

#[test]
fn a_script_that_does_not_compile_is_refused_before_anything_runs() {
    let checkout = monitored("true", "fn read_devices(output) {\n    text::lins(output)\n}\n");
    for command in [&["plan"][..], &["lint", "tiny"], &["run"]] {
        let output = flagperf(checkout.path(), command);
        let text = both(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        assert!(text.contains("error: vendors/mock/monitor.rhai:2:"), "{command:?}: {text}");
    }
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn doctor_shows_the_sources_and_runs_the_vendors_command() {
    let output = flagperf(monitored("echo 0, 250 W, 64 MiB", SCRIPT).path(), &["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for row in ["nvml ", "processor ", "ipmi ", "memory ", "rapl ", "mock.monitor_command "] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {text}");
    }
    assert!(text.contains("works, 1 device") && !text.contains("1 devices"), "{text}");
}
