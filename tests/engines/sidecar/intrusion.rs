//! A sidecar that reaches for other processes: what the system refuses.

use crate::support;
use crate::support::site::Site;

/// A class that, when it is created, tries to reach the conductor and the worker, and writes which attempts succeeded, and what
/// the files of the run contain.
const CLASS: &str = "import json, os, signal
import onnxruntime

def parent(pid):
    with open(f'/proc/{pid}/stat') as stat:
        return int(stat.read().rsplit(')', 1)[1].split()[1])

def succeeds(action):
    try:
        action()
        return True
    except OSError:
        return False

FORGED = b'{\\\"event\\\":\\\"finished\\\",\\\"memory_bytes_max\\\":1}\\n'

def write_to(path):
    with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), 'wb', buffering=0) as file:
        file.write(FORGED)

class InferModel:
    takes_model = False

    def __init__(self, config, onnx_path, model):
        self.session = onnxruntime.InferenceSession(onnx_path, providers=['CPUExecutionProvider'])
        worker = os.getppid()
        conductor = parent(worker)
        found = {
            'memory': succeeds(lambda: open(f'/proc/{conductor}/mem', 'r+b')),
            'files': succeeds(lambda: os.listdir(f'/proc/{conductor}/fd') and os.readlink(f'/proc/{conductor}/fd/1')),
            'signal': succeeds(lambda: os.kill(conductor, 0)),
            'worker memory': succeeds(lambda: open(f'/proc/{worker}/mem', 'r+b')),
            'worker signal': succeeds(lambda: os.kill(worker, 0)),
            'events': [path for path in self.worker_files(worker) if self.is_event_channel(path) and succeeds(lambda: write_to(path))],
            'run': {path: open(path, encoding='latin-1').read() for path in self.files_of_run(config.log_dir)},
        }
        with open(os.path.join(config.log_dir, 'found.json'), 'w') as file:
            json.dump(found, file)

    def files_of_run(self, folder):
        run = os.path.dirname(os.path.dirname(folder))
        return [os.path.join(below, name) for below, _, names in os.walk(run) for name in names]

    def worker_files(self, worker):
        folder = f'/proc/{worker}/fd'
        try:
            return [os.path.join(folder, name) for name in os.listdir(folder)]
        except OSError:
            return []

    def is_event_channel(self, path):
        try:
            return os.readlink(path).startswith('socket:')
        except OSError:
            return False

    def __call__(self, model_inputs):
        return self.session.run(None, {'images': model_inputs[0]}), 0

TENSORS = 'numpy'
";

#[test]
fn a_sidecar_reaches_neither_the_conductor_nor_the_events_of_the_worker() {
    if support::python().is_none() {
        return;
    }
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let site = Site::new(own).with_vendor_file("engines/own.py", CLASS);
    let record = site.run_successfully(&[]);
    let folder = Site::exported(&record);
    let text = std::fs::read_to_string(folder.with_file_name("found.json")).expect("the class wrote what it found");
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found["events"], serde_json::json!([]), "{found}");
    // What the engine should compute, and the seed from which the inputs of the audit follow, cannot be read.
    let files = found["run"].as_object().expect("files by path");
    let seed = record["provenance"]["run_seed"].as_str().expect("a seed");
    assert!(files.keys().any(|path| path.ends_with("events.jsonl")), "{:?}", files.keys());
    assert!(files.values().all(|text| !text.as_str().unwrap_or_default().contains(seed)));
    let outputs = |text: &str| text.contains("fresh.0.tickets");
    assert!(files.values().all(|text| !outputs(text.as_str().unwrap_or_default())));
    let restored = std::fs::read(folder.with_file_name("outputs.safetensors")).expect("the outputs of validation");
    assert!(outputs(&String::from_utf8_lossy(&restored)));
    let protection = &record["phases"][1]["protection"];
    if protection["isolated"] == true {
        for reached in ["memory", "files", "worker memory"] {
            assert_eq!(found[reached], false, "{reached}: {found}");
        }
    }
    assert_eq!(protection["refused_system_calls"], true);
    assert_eq!(record["phases"][0]["protection"]["limited_writes"], protection["isolated"]);
}
