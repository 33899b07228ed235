//! Measures whether `core` slows down while the host keeps the outputs of all steps, as validation does.
//!
//!     cargo bench --bench kept_outputs -- ENGINE [OPTION=VALUE ...]
//!
//! Runs a small network with batches of one row. Prints one line per number of kept outputs: samples per second of the
//! first tenth and of the last tenth of the steps. If `core` grows with the number of kept outputs, the second figure
//! is lower.

use std::error::Error;
use std::path::Path;

use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Seconds;
use flagperf_engine::{Artifact, LoadOptions, Value, find};
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{GraphBuilder, write_onnx};
use serde_json::Value as Json;

/// Numbers of outputs that are kept, one per turn.
const KEPT: [usize; 3] = [100, 1_000, 20_000];
const WIDTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, engine_options @ ..] = arguments.as_slice() else {
        return Err("usage: kept_outputs ENGINE [OPTION=VALUE ...]".into());
    };
    let engine_options =
        engine_options.iter().map(|option| option.split_once('=').ok_or("an option must have the form OPTION=VALUE"));
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
    let extra =
        engine_options.map(|pair| pair.map(|(key, text)| (key.to_owned(), value(text)))).collect::<Result<_, _>>()?;
    let (folder, engine) = (tempfile::tempdir()?, find(name)?);
    let path = folder.path().join("model.onnx");
    write_model(&path)?;
    println!("{name} {}", engine.check()?);
    let options = LoadOptions { threads: 1, extra, ..LoadOptions::default() };
    for kept in KEPT {
        let mut session = engine.load(Artifact::Onnx(&path), &options)?;
        let [first, last] = run_turn(session.as_mut(), kept)?;
        println!("{kept:6} kept: {first:8.0} samples/s in core at the start, {last:8.0} at the end");
    }
    Ok(())
}

fn write_model(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut builder = GraphBuilder::new("small");
    let x = builder.input("x", format!("N,{WIDTH},f32").parse()?)?;
    let y = layers::linear(&mut builder, "fc", &x, Linear::new(WIDTH, WIDTH))?;
    builder.output("y", &y)?;
    write_onnx(&builder.finish()?, path)?;
    Ok(())
}

/// Runs `steps` steps, fetches and keeps their outputs, and returns samples per second in `core` of the first and the
/// last tenth.
fn run_turn(session: &mut dyn flagperf_engine::Session, steps: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let clock = MonotonicClock::start();
    let batch = [Value::Host(Tensor::from_vec([1, WIDTH], vec![0.5f32; WIDTH])?)];
    let (mut kept, mut times) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let begin = clock.now();
        let outputs = session.submit(&batch)?;
        session.sync()?;
        times.push(clock.now().since(begin));
        kept.push(outputs[0].to_host()?);
    }
    let tenth = steps / 10;
    let speed = |times: &[Seconds]| times.len() as f64 / times.iter().copied().sum::<Seconds>().0;
    Ok([speed(&times[..tenth]), speed(&times[steps - tenth..])])
}
