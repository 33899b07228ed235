//! The way to a sidecar and back: a batch of 38 MB lent to a process that computes nothing, until its outputs are known.
//!
//! `cargo bench --bench sidecar_round_trip` prints quantiles over 2000 round trips, and the same with the outputs (4 kB a
//! row) brought to the host. The sidecar is `runtime/sidecar/flagperf_sidecar.py` with a class that gives zeros, on the
//! `python3` that is on PATH.

use std::path::Path;
use std::sync::Arc;

use flagperf::engine::{Artifact, LentMemory, Options, Value, find};
use flagperf::measure::{Clock, Latency, MonotonicClock};
use flagperf::tensor::{DType, HostMemory, Tensor};
use flagperf::units::Seconds;
use indexmap::IndexMap;
use serde_json::json;

const ROWS: usize = 64;
const IMAGE: [usize; 4] = [ROWS, 3, 224, 224];
const ROUNDS: usize = 2000;

const NOTHING: &str = "
try:
    import torch
    zeros = torch.zeros(64, 1000)
except ImportError:
    import numpy
    zeros = numpy.zeros((64, 1000), 'float32')

class InferModel:
    takes_model = False

    def __init__(self, config, onnx_path, model):
        pass

    def __call__(self, model_inputs):
        return [zeros], 0
";

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("nothing.py"), NOTHING).expect("a file");
    let extra = json!({"inputs": {"input": "N,3,224,224,f32"}, "outputs": {"output": "N,1000,f32"}});
    let options = Options {
        folder: folder.path().to_owned(),
        command: ["python3", "-m", "flagperf_sidecar", "nothing.py"].map(str::to_owned).to_vec(),
        batch_size: ROWS,
        extra: serde_json::from_value::<IndexMap<_, _>>(extra).expect("a map"),
        ..Options::default()
    };
    let engine = find("sidecar").expect("a row of the table");
    let mut session = engine.load(Artifact::Onnx(Path::new("foo")), &options).unwrap_or_else(|error| panic!("{error}"));

    let bytes = IMAGE.iter().product::<usize>() * DType::F32.size();
    let lent: Arc<dyn LentMemory> = session.lend(0, bytes).expect("memory").into();
    let memory: Arc<dyn HostMemory> = lent;
    let batch = [Value::Host(Tensor::from_memory(IMAGE, DType::F32, memory, 0).expect("as many bytes"))];
    println!("batch of {:.1} MB, {}", bytes as f64 / 1e6, session.sidecar().unwrap_or_default().version);

    let clock = MonotonicClock::start();
    let mut measure = |name: &str, fetch: bool| {
        let mut round = || {
            let begin = clock.now();
            let outputs = session.submit(&batch).expect("it answers");
            session.sync().expect("it answers");
            if fetch {
                outputs[0].to_host().expect("it answers");
            }
            clock.now().since(begin)
        };
        (0..100).for_each(|_| _ = round());
        let times: Vec<Seconds> = (0..ROUNDS).map(|_| round()).collect();
        let latency = Latency::of(&times).expect("some rounds");
        let us = |time: Seconds| time.0 * 1e6;
        let (p50, p90, p99) = (us(latency.p50_s), us(latency.p90_s), us(latency.p99_s));
        println!("{name:<44} p50 {p50:>7.1} us, p90 {p90:>7.1} us, p99 {p99:>7.1} us");
    };
    measure("submit to a sidecar that computes nothing", false);
    measure("the same, outputs of 256 kB to the host", true);
}
