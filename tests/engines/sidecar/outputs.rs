//! Outputs that a caller keeps.

use std::path::Path;

use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, Session, Value, find};
use flagperf_onnx::{GraphBuilder, layers};
use serde_json::json;

use crate::support;

/// A class that adds one to its input and answers how many buffers were lent to it.
const ENGINE: &str = "import __main__
lends = 0
lend = __main__.Sidecar.handle_lend
def counted(sidecar, request):
    global lends
    lends += 1
    return lend(sidecar, request)
__main__.Sidecar.handle_lend = counted
TENSORS = 'numpy'

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs): return [model_inputs[0] + 1], 0
    def ask(self, question, argument): return lends
";

/// Loads the class `text` with the input `x` and the output `y` of one specification; `None` without a Python.
#[track_caller]
fn session(text: &str, spec: &str) -> Option<Box<dyn Session>> {
    let python = support::python()?;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plus.py"), text).expect("a file");
    let words = [python.to_str().expect("text"), "-m", "flagperf_sidecar", "plus.py"];
    let options = LoadOptions {
        folder: folder.path().to_owned(),
        command: words.map(str::to_owned).to_vec(),
        extra: serde_json::from_value(json!({"inputs": {"x": spec}, "outputs": {"y": spec}})).expect("a map"),
        ..LoadOptions::default()
    };
    Some(find("sidecar").expect("a row").load(Artifact::Onnx(Path::new("none")), &options).expect("it loads"))
}

#[test]
fn kept_outputs_do_not_change_and_do_not_each_take_a_buffer() {
    let Some(mut session) = session(ENGINE, "N,f32") else { return };
    let mut kept = Vec::new();
    for run in 0..40u8 {
        // Two sizes: a kept buffer of one size must not be reused for the other.
        let rows = 3 + usize::from(run % 2);
        let input = Tensor::from_vec([rows], vec![f32::from(run); rows]).expect("a tensor");
        let outputs = session.submit(&[Value::Host(input)]).expect("it computes");
        kept.push((rows, run, outputs[0].to_host().expect("it answers")));
    }
    for (rows, run, output) in &kept {
        assert_eq!(output.to_f64(), vec![f64::from(*run) + 1.0; *rows]);
    }
    let lends = session.ask("lends", &json!(null)).expect("it answers").as_u64().expect("a number");
    assert!(lends <= 6, "{lends} buffers for {} outputs", kept.len());
}

/// A class that goes on to write to the buffer of an output after its reply.
const LATE_WRITER: &str = "import threading, time
import __main__
fetch = __main__.Sidecar.handle_fetch
def late(sidecar, request):
    reply = fetch(sidecar, request)
    output = sidecar.kept_outputs[request['run']][request['output']]
    view = sidecar.view(request['buffer'], 0, sidecar.spec(request['output'], output))
    def write():
        number = 0
        while True:
            number += 1
            sidecar.tensors.copy(output * 0 + number, view)
    threading.Thread(target=write, daemon=True).start()
    return reply
__main__.Sidecar.handle_fetch = late
TENSORS = 'numpy'

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs): return [model_inputs[0] + 1], 0
";

#[test]
fn an_output_cannot_be_changed_after_it_was_copied() {
    let Some(mut session) = session(LATE_WRITER, "N,f32") else { return };
    let input = Tensor::from_vec([4], vec![1f32; 4]).expect("a tensor");
    let outputs = session.submit(&[Value::Host(input)]).expect("it computes");
    let output = outputs[0].to_host().expect("it answers");
    let first = output.to_f64();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(output.to_f64(), first);
}

/// A class that adds one to its input and returns a flat output.
const FLAT: &str = "TENSORS = 'numpy'

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs):
        assert tuple(model_inputs[0].shape) == (2, 3), model_inputs[0].shape
        return [(model_inputs[0] + 1).reshape(-1)], 0
";

#[test]
fn a_reshaped_output_is_an_input_of_the_declared_shape() {
    let Some(mut session) = session(FLAT, "N,3,f32") else { return };
    let input = Tensor::from_vec([2, 3], vec![0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("a tensor");
    let once = session.submit(&[Value::Host(input)]).expect("it computes");
    let twice = session.submit(&once).expect("it computes with its own output");
    let outputs = twice[0].to_host().expect("it answers");
    assert_eq!((outputs.shape(), outputs.to_f64()), (&[2, 3][..], vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    let reshaped = session.facts().sidecar.expect("a sidecar").reshaped_outputs;
    assert_eq!(
        reshaped.iter().map(|(name, output)| format!("{name}: {} to {}", output.from, output.to)).collect::<Vec<_>>(),
        ["y: 6,f32 to 2,3,f32"]
    );
}

/// A class that reads its model file at each call, checks that `Gelu` was decomposed, and returns its input.
const LATE_READER: &str = "TENSORS = 'numpy'

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): self.path = onnx_path
    def __call__(self, model_inputs):
        with open(self.path, 'rb') as file: assert b'Gelu' not in file.read()
        return [model_inputs[0]], 0
";

#[test]
fn a_model_without_the_operators_that_the_sidecar_lacks_exists_as_long_as_the_session() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("late.py"), LATE_READER).expect("a file");
    let model = folder.path().join("gelu.onnx");
    let mut builder = GraphBuilder::new("gelu");
    let x = builder.input("x", "N,3,f32".parse().expect("a specification")).expect("an input");
    let y = layers::gelu(&mut builder, "gelu", &x).expect("a layer");
    builder.output("y", &y).expect("an output");
    flagperf_onnx::write_onnx(&builder.finish().expect("a graph"), &model).expect("a file");
    let words = [python.to_str().expect("text"), "-m", "flagperf_sidecar", "late.py"];
    let options = LoadOptions {
        folder: folder.path().to_owned(),
        command: words.map(str::to_owned).to_vec(),
        ..LoadOptions::default()
    };
    let mut session = find("sidecar").expect("a row").load(Artifact::Onnx(&model), &options).expect("it loads");
    let input = Tensor::from_vec([1, 3], vec![1f32, 2.0, 3.0]).expect("a tensor");
    let outputs = session.submit(&[Value::Host(input)]).expect("the file is there");
    assert_eq!(outputs[0].to_host().expect("it answers").to_f64(), [1.0, 2.0, 3.0]);
}
