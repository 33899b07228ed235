//! The built program in a throw-away checkout.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;

/// Runs `flagperf` in a checkout, with nothing of this machine's settings.
pub fn flagperf(checkout: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("flagperf").expect("the program is built");
    command.current_dir(checkout).args(arguments).timeout(Duration::from_secs(280));
    for variable in ["FLAGPERF_CONFIG", "FLAGPERF_LOG_LEVEL", "LOG_CALL_INFORMATION"] {
        command.env_remove(variable);
    }
    command.output().expect("the program starts")
}

/// The record that `run --json` printed, and the exit code.
pub fn record(checkout: &Path, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
    let output = flagperf(checkout, &[&["run", "--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout);
    (record.unwrap_or_else(|error| panic!("no record on standard output: {error}\n{errors}")), output.status.code())
}
