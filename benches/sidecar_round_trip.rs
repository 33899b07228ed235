//! Measures the round trip to a sidecar: a batch of 38 MB is lent to a process that computes nothing, until it returns.
//!
//! `cargo bench --bench sidecar_round_trip` prints quantiles over 2000 round trips, without and with copying the
//! outputs (4 kB per row) to the host. The sidecar is `runtime/sidecar/flagperf_sidecar.py` with a class that returns
//! zeros, run by the `python3` on PATH.

use std::path::Path;
use std::sync::Arc;

use flagperf_core::measure::{Clock, Latency, MonotonicClock};
use flagperf_core::tensor::{DType, HostMemory, Tensor};
use flagperf_core::units::Seconds;
use flagperf_engine::{Artifact, LentMemory, LoadOptions, Value, find};
use indexmap::IndexMap;
use serde_json::json;

const ROWS: usize = 64;
const IMAGE: [usize; 4] = [ROWS, 3, 224, 224];
const ROUNDS: usize = 2000;

const ZEROS_CLASS: &str = "
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
    std::fs::write(folder.path().join("zeros.py"), ZEROS_CLASS).expect("a file");
    let extra = json!({"inputs": {"input": "N,3,224,224,f32"}, "outputs": {"output": "N,1000,f32"}});
    let options = LoadOptions {
        folder: folder.path().to_owned(),
        command: ["python3", "-m", "flagperf_sidecar", "zeros.py"].map(str::to_owned).to_vec(),
        batch_size: ROWS,
        extra: serde_json::from_value::<IndexMap<_, _>>(extra).expect("a map"),
        ..LoadOptions::default()
    };
    let engine = find("sidecar").expect("a row of the table");
    let mut session = engine.load(Artifact::Onnx(Path::new("foo")), &options).unwrap_or_else(|error| panic!("{error}"));

    let bytes = IMAGE.iter().product::<usize>() * DType::F32.size();
    let lent: Arc<dyn LentMemory> = session.lend(0, bytes).expect("memory").into();
    let memory: Arc<dyn HostMemory> = lent;
    let batch = [Value::Host(Tensor::from_memory(IMAGE, DType::F32, memory, 0).expect("the shape fits the memory"))];
    println!("batch of {:.1} MB, {}", bytes as f64 / 1e6, session.facts().sidecar.unwrap_or_default().version);

    let clock = MonotonicClock::start();
    let mut measure = |name: &str, fetch: bool| {
        let mut round_trip = || {
            let begin = clock.now();
            let outputs = session.submit(&batch).expect("the sidecar replies");
            session.sync().expect("the sidecar replies");
            if fetch {
                outputs[0].to_host().expect("the sidecar replies");
            }
            clock.now().since(begin)
        };
        (0..100).for_each(|_| _ = round_trip());
        let times: Vec<Seconds> = (0..ROUNDS).map(|_| round_trip()).collect();
        let latency = Latency::of(&times).expect("at least one round trip");
        let us = |time: Seconds| time.0 * 1e6;
        let (p50, p90, p99) = (us(latency.p50_s), us(latency.p90_s), us(latency.p99_s));
        println!("{name:<44} p50 {p50:>7.1} us, p90 {p90:>7.1} us, p99 {p99:>7.1} us");
    };
    measure("submit to a sidecar that computes nothing", false);
    measure("the same, outputs of 256 kB to the host", true);
}
