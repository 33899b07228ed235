//! Runs the built program in a temporary checkout.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;

/// Runs `flagperf` in a checkout, without the settings of this machine's environment.
pub fn flagperf(checkout: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::from_std(command(checkout, arguments));
    command.timeout(Duration::from_secs(580)).output().expect("the program starts")
}

/// Returns the command that [`flagperf`] runs.
#[expect(clippy::disallowed_methods, reason = "tests start the program")]
pub fn command(checkout: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("flagperf"));
    command.current_dir(checkout).args(arguments).env("PATH", path());
    // Tests run at the same time.
    command.env("FLAGPERF_HOST_LOCK", "/dev/null");
    for variable in ["COLUMNS", "FLAGPERF_CONFIG", "FLAGPERF_LOG_LEVEL", "LOG_CALL_INFORMATION"] {
        command.env_remove(variable);
    }
    command
}

/// Returns PATH, preceded by the folder of FLAGPERF_PYTHON if that variable is set.
#[expect(clippy::disallowed_methods, reason = "the environment describes the machine to the tests")]
pub fn path() -> OsString {
    let path = std::env::var("PATH").unwrap_or_default();
    let python = std::env::var("FLAGPERF_PYTHON").map(PathBuf::from).unwrap_or_default();
    let first = python.parent().filter(|folder| folder.is_absolute()).map(Path::to_owned);
    std::env::join_paths(first.into_iter().chain(std::env::split_paths(&path))).expect("folders of PATH")
}

/// Runs `run --json` and returns the record that it printed, and the exit code.
pub fn record(checkout: &Path, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
    let output = flagperf(checkout, &[&["run", "--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout);
    (record.unwrap_or_else(|error| panic!("no record on standard output: {error}\n{errors}")), output.status.code())
}
