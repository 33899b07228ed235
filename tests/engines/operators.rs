//! Operators that vendors bring: their build for the CPU computes what a reference in f64 does.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

use crate::support;

#[test]
fn the_layer_normalization_of_a_vendor_agrees_with_a_reference_in_f64() {
    let Some(python) = support::python() else { return };
    let folder = support::root().join("vendors/nvidia/operators/layer_norm");
    let build = tempfile::tempdir().unwrap();
    let library = build.path().join("liblayer_norm_cpu.so");
    let compiled = Command::new("c++")
        .args(["-O2", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(support::root().join("runtime/plugin/include"))
        .arg("-o")
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

#[test]
fn operators_answer_the_calls_that_tensorrt_makes() {
    let Some(headers) = support::tensorrt_headers().filter(|_| support::has_compiler("c++")) else { return };
    let (checkout, built) = (support::checkout(), tempfile::tempdir().unwrap());
    let run = |arguments: &[&str]| {
        let mut command = support::program::command(checkout.path(), arguments);
        let done = command.env("FLAGPERF_CACHE", built.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    run(&["new", "operator", "add_relu", "--vendor", "nvidia"]);
    let shells = ["nvidia/layer_norm", "nvidia/add_relu"].map(|operator| {
        run(&["operator", "build", operator, "--device", "cpu"]);
        let folder = headers.to_str().unwrap();
        let printed = run(&["operator", "build", operator, "--device", "tensorrt", "--headers", folder]);
        let shell = PathBuf::from(printed.trim().strip_prefix("tensorrt: ").expect("the path of the library"));
        // The shell opens the library for CUDA, in whose place the one for the processor computes.
        fs::copy(shell.with_file_name("cpu.so"), shell.with_file_name("cuda.so")).unwrap();
        shell
    });
    let (source, program) =
        (support::root().join("vendors/nvidia/tensorrt/operator_shell"), built.path().join("drives_as_tensorrt"));
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-isystem"])
        .arg(&headers)
        .arg("-I")
        .arg(support::root().join("runtime/plugin/include"))
        .arg("-idirafter")
        .arg(source.join("without_cuda"))
        .arg(source.join("test.cpp"))
        .args(["-ldl", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let driven = Command::new(&program).args(&shells).output().unwrap();
    let printed = String::from_utf8_lossy(&driven.stdout).into_owned();
    assert!(driven.status.success() && printed.contains(" 0 failures"), "{printed}");
}

/// Returns the folder of CUDA's compiler among the Python packages for tests, and that of its libraries.
fn cuda(python: &Path) -> [PathBuf; 2] {
    let packages = python.parent().and_then(Path::parent).expect("a virtual environment").join("lib");
    let versions = fs::read_dir(packages).expect("the packages").map(|entry| entry.expect("a folder").path());
    let version = versions.filter(|path| path.is_dir()).max().expect("a version of Python");
    let cuda = version.join("site-packages/nvidia/cu13");
    ["bin", "lib"].map(|folder| cuda.join(folder))
}

#[test]
fn the_cuda_sources_of_operators_are_compiled() {
    let Some([bin, lib]) = support::python().map(|python| cuda(&python)) else { return };
    let compiled = tempfile::tempdir().unwrap();
    let nvcc = |arguments: &[&str], source: &Path, output: &str| {
        let done = Command::new(bin.join("nvcc"))
            .args(["-std=c++17", "-I"])
            .arg(support::root().join("runtime/plugin/include"))
            .args(arguments)
            .arg(source)
            .arg("-o")
            .arg(compiled.path().join(output))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let layer_norm = support::root().join("vendors/nvidia/operators/layer_norm/layer_norm.cu");
    nvcc(&["-O1", "-arch=compute_90", "-ptx"], &layer_norm, "layer_norm.ptx");
    // The template is built as its operator.yaml says.
    let checkout = support::checkout();
    let run = |arguments: &[&str]| {
        let path = std::env::join_paths([bin.clone(), "/usr/bin".into(), "/bin".into()]).unwrap();
        let mut command = support::program::command(checkout.path(), arguments);
        command.env("PATH", path).env("FLAGPERF_CACHE", compiled.path());
        let done = command.env("NVCC_APPEND_FLAGS", format!("-L {}", lib.display())).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["new", "operator", "sum", "--vendor", "cpu"]);
    run(&["operator", "build", "cpu/sum"]);
}
