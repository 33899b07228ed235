//! Checks Kubernetes manifests against the published schema of a Job.

use std::path::Path;
use std::time::Duration;

use assert_cmd::Command;

use crate::support;

/// Returns what is wrong with the manifest of a Job, one fault a line; nothing if it is valid. `python` is that of
/// [`support::python`].
pub fn job_faults(python: &Path, manifest: &Path) -> String {
    let script = support::root().join("tests/reference/check_job_manifest.py");
    let mut command = Command::new(python);
    let output = command.arg(script).arg(manifest).timeout(Duration::from_secs(120)).output().expect("Python");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)) && errors.is_empty(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
