//! Operators that vendors bring: their build for the CPU computes what a reference in f64 does.

use assert_cmd::Command;

use crate::support;

#[test]
fn the_layer_normalization_of_a_vendor_agrees_with_a_reference_in_f64() {
    let Some(python) = support::python() else { return };
    let folder = support::root().join("vendors/nvidia/operators/layer_norm");
    let build = tempfile::tempdir().unwrap();
    let library = build.path().join("liblayer_norm_cpu.so");
    let compiled = Command::new("c++")
        .args(["-O2", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .arg(folder.join("layer_norm_cpu.cpp"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let checked = Command::new(python)
        .arg("-B")
        .arg(folder.join("check.py"))
        .arg(&library)
        .args(["cpu", "quick"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{printed}\n{}", String::from_utf8_lossy(&checked.stderr));
    assert!(printed.contains("0 failures"), "{printed}");
}
