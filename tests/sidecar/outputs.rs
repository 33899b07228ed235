//! Outputs that somebody keeps.

use std::path::Path;

use flagperf::engine::{Artifact, Options, Value, find};
use flagperf::tensor::Tensor;
use serde_json::json;

use crate::support;

/// One more than its input; answers how many buffers it was lent.
const ENGINE: &str = "import __main__
lends = 0
lend = __main__.Sidecar.ask_lend
def counted(sidecar, ask):
    global lends
    lends += 1
    return lend(sidecar, ask)
__main__.Sidecar.ask_lend = counted

class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs): return [model_inputs[0] + 1], 0
    def ask(self, question, argument): return lends
";

#[test]
fn outputs_that_are_kept_stay_as_they_are_and_take_no_buffer_each() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plus.py"), ENGINE).expect("a file");
    let words = [python.to_str().expect("text"), "-m", "flagperf_sidecar", "plus.py"];
    let options = Options {
        folder: folder.path().to_owned(),
        command: words.map(str::to_owned).to_vec(),
        extra: serde_json::from_value(json!({"inputs": {"x": "N,f32"}, "outputs": {"y": "N,f32"}})).expect("a map"),
        ..Options::default()
    };
    let engine = find("sidecar").expect("a row");
    let mut session = engine.load(Artifact::Onnx(Path::new("none")), &options).expect("it loads");
    let mut kept = Vec::new();
    for run in 0..40u8 {
        // Of two sizes: what is kept of one must not be given out for the other.
        let rows = 3 + usize::from(run % 2);
        let input = Tensor::from_vec([rows], vec![f32::from(run); rows]).expect("a tensor");
        let outputs = session.submit(&[Value::Host(input)]).expect("it computes");
        kept.push((rows, run, outputs[0].to_host().expect("it answers")));
    }
    for (rows, run, output) in &kept {
        assert_eq!(output.to_f64(), vec![f64::from(*run) + 1.0; *rows]);
    }
    let lends = session.ask("lends", &json!(null)).expect("it answers").as_u64().expect("a number");
    assert!((9..=20).contains(&lends), "{lends} buffers for {} outputs", kept.len());
}
