//! A device's memory and identity, with stubs in C for the libraries of a driver.

use std::path::Path;

use assert_cmd::Command;

use crate::support;
use crate::support::program;
use crate::support::site::Site;

/// A class that reports the first CUDA device as its own.
const ON_DEVICE: &str = "import onnxruntime

class InferModel:
    takes_model = False
    device = 'cuda:0'

    def __init__(self, config, onnx_path, model):
        self.session = onnxruntime.InferenceSession(onnx_path, providers=['CPUExecutionProvider'])

    def __call__(self, model_inputs):
        return self.session.run(None, {'images': model_inputs[0]}), 0

TENSORS = 'numpy'
";

const VENDOR: &str = "name: side
about: used by tests
monitor: nvml
frameworks:
    interpreter: {engine: interpreter}
compilers:
    own: {engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py]}
";

/// Compiles the stubs into a folder. Without a C compiler it returns `None` and reports the test as left out.
#[track_caller]
fn compile_stubs(folder: &Path) -> Option<()> {
    if !support::has_compiler("cc") {
        return None;
    }
    for library in ["libnvidia-ml.so.1", "libcuda.so.1"] {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(folder.join(library));
        command.arg(support::root().join("tests/engines/sidecar/gpus.c")).assert().success();
    }
    Some(())
}

#[test]
fn memory_is_the_largest_sample_of_the_device_that_cuda_numbers() {
    if support::python().is_none() {
        return;
    }
    let site = Site::new("{engine: \"null\"}")
        .with_vendor_file("engines/own.py", ON_DEVICE)
        .with_vendor_file("vendor.yaml", VENDOR);
    let Some(()) = compile_stubs(site.path()) else { return };
    let mut command = Command::cargo_bin("flagperf").expect("the program is built");
    command.current_dir(site.path()).args(["run", "--json"]).env("PATH", program::path());
    command.env("LD_LIBRARY_PATH", site.path()).env_remove("FLAGPERF_CONFIG");
    let output = command.output().expect("the program starts");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a record");
    let infer = &record["phases"][1];
    assert_eq!(infer["engine"]["device_id"], "GPU-01010101-0101-0101-0101-010101010101", "{}", record["failures"]);
    assert_eq!(infer["measured"][0]["device_memory_bytes_max"], 3u64 << 30);
    assert_eq!(record["finish_info"]["vendor_usage(GiB)"], 3.0);
}
