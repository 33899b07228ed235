//! The same results as other implementations: torchvision's network and pixels, ONNX's checker, ONNX Runtime.
//!
//! Knows nothing of engines; README.md says how the vectors beside this file were made.

#[path = "../support/mod.rs"]
mod support;

mod pixels;

use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// The folder of the vectors and the Python scripts.
fn folder() -> PathBuf {
    support::root().join("tests/reference")
}

/// Runs one of the Python scripts of this folder; it fails with what it printed. Two threads, like the machine of CI.
fn check_with(python: &Path, script: &str, arguments: &[&str]) {
    let mut command = Command::new(python);
    command.arg(folder().join(script)).args(arguments).env("OMP_NUM_THREADS", "2");
    let done = command.output().expect("FLAGPERF_PYTHON names a program");
    let printed = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{script} {arguments:?}:\n{printed}");
    println!("{printed}");
}
