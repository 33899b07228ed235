//! The adaptor handles the examples of PROTOCOL.md as the document shows.

use std::fs;
use std::io::Write;

use assert_cmd::Command;
use serde_json::Value;

use crate::support;

/// A class that doubles its input and fails as the document shows.
const EXAMPLE: &str = "__version__ = '1.2'; OPTIONS = [{'name': 'level', 'kind': 'integer', 'min': 0, 'max': 3, 'default': 2, 'about': 'how far the graph is rewritten'}]

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model):
        assert (config.vendor, config.level, onnx_path, model) == ('chip', 3, '/tmp/model.onnx', None)
    def __call__(self, model_inputs):
        if not model_inputs: raise __import__('__main__').Failure('no inputs')
        return [self.factor * x for x in model_inputs], 0.0
    factor = 2
    def ask(self, question, argument): return {question: self.factor}
    def tune(self, setting, value): setattr(self, setting, value)
";

/// Reads the messages of the document's examples.
fn example_messages() -> Vec<Value> {
    let text = fs::read_to_string(support::root().join("runtime/sidecar/PROTOCOL.md")).expect("the document");
    let blocks = text.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    blocks.flat_map(str::lines).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_adaptor_ends_when_its_input_ends() {
    let Some(python) = support::python() else { return };
    let mut command = Command::new(python);
    command.args(["-m", "flagperf_sidecar", "none.py"]).write_stdin("{\"ask\": \"hello\", \"protocol\": 2}\n");
    let output = command.env("PYTHONPATH", support::root().join("runtime/sidecar")).output().expect("it starts");
    let reply = "{\"answer\": \"error\", \"reason\": \"flagperf_sidecar uses protocol version 1, not 2\"}\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(0), reply));
}

#[test]
fn the_adaptor_replies_as_the_document_shows() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("example.py"), EXAMPLE).expect("a file");
    let memory = folder.path().join("memory");
    let numbers: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    fs::File::create(&memory).and_then(|mut file| file.write_all(&numbers)).expect("a file");

    // The second example of an error has no request.
    let example = example_messages();
    let requests = example.iter().filter(|line| line.get("ask").is_some());
    let mut input = requests.map(|request| request.to_string() + "\n").collect::<String>();
    input = input.replace("/proc/4711/fd/9", &memory.display().to_string());
    let mut command = Command::new(python);
    command.args(["-m", "flagperf_sidecar", "example.py"]).current_dir(folder.path()).write_stdin(input);
    let output = command.env("PYTHONPATH", support::root().join("runtime/sidecar")).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");

    let answers = String::from_utf8_lossy(&output.stdout);
    // Which modules Python has imported depends on its version.
    let without_modules = |mut answer: Value| {
        answer.as_object_mut().expect("an object").remove("modules");
        answer
    };
    let answers: Vec<Value> =
        answers.lines().map(|line| without_modules(serde_json::from_str(line).expect("JSON"))).collect();
    let pairs = example.windows(2).filter(|pair| pair[0].get("ask").is_some());
    let expected = pairs.map(|pair| &pair[1]).filter(|line| line.get("answer").is_some());
    assert_eq!(answers, expected.map(|line| without_modules(line.clone())).collect::<Vec<_>>(), "{errors}");
    assert!(answers.len() > 10);

    let doubled_twice = fs::read(&memory).expect("it is there");
    let numbers: Vec<f32> =
        doubled_twice.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(numbers, [4.0, 8.0, 12.0, 16.0, 20.0, 24.0]);
}
