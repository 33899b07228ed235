//! Core while the host keeps outputs: samples a second of steps whose outputs are all kept, as validation keeps them.
//!
//!     cargo bench --bench kept_outputs -- ENGINE [OPTION=VALUE ...]
//!
//! A small network, batches of one row. Prints one line for each number of outputs that are kept: the samples a second of
//! the first tenth of the steps, and of the last. Core that grows with what the host keeps shows as a fall.

use std::error::Error;
use std::path::Path;

use flagperf::engine::{Artifact, Options, Value, find};
use flagperf::measure::{Clock, MonotonicClock};
use flagperf::tensor::Tensor;
use flagperf::units::Seconds;
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{GraphBuilder, write_onnx};
use serde_json::Value as Json;

/// Outputs that are kept in each turn.
const KEPT: [usize; 3] = [100, 1_000, 20_000];
const WIDTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, own @ ..] = arguments.as_slice() else {
        return Err("usage: kept_outputs ENGINE [OPTION=VALUE ...]".into());
    };
    let own = own.iter().map(|option| option.split_once('=').ok_or("an option is NAME=VALUE"));
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
    let extra = own.map(|pair| pair.map(|(key, text)| (key.to_owned(), value(text)))).collect::<Result<_, _>>()?;
    let (folder, engine) = (tempfile::tempdir()?, find(name)?);
    let path = folder.path().join("model.onnx");
    write(&path)?;
    println!("{name} {}", engine.check()?);
    let options = Options { threads: 1, extra, ..Options::default() };
    for kept in KEPT {
        let mut session = engine.load(Artifact::Onnx(&path), &options)?;
        let [first, last] = turn(session.as_mut(), kept)?;
        println!("{kept:6} kept: {first:8.0} samples/s in core at first, {last:8.0} at last");
    }
    Ok(())
}

fn write(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut builder = GraphBuilder::new("small");
    let x = builder.input("x", format!("N,{WIDTH},f32").parse()?)?;
    let y = layers::linear(&mut builder, "fc", &x, Linear::new(WIDTH, WIDTH))?;
    builder.output("y", &y)?;
    write_onnx(&builder.finish()?, path)?;
    Ok(())
}

/// Samples a second in core over the first and the last tenth of so many steps, whose outputs are fetched and kept.
fn turn(session: &mut dyn flagperf::engine::Session, steps: usize) -> Result<[f64; 2], Box<dyn Error>> {
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
