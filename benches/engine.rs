//! Times steps of one engine in turns, as a worker does: from submit until synchronised, with inputs in lent memory.
//!
//!     cargo bench --bench engine -- ENGINE MODEL.onnx BATCH THREADS [OPTION=VALUE ...]
//!
//! ENGINE is a row of the table of engines, the shared library of a plug-in, or the file of an `InferModel` class for a
//! sidecar; VALUE is JSON, otherwise text. Prints the engine's version. Then, for each number of seconds on standard
//! input, runs a turn of that length and prints samples per second from its median step and from its fastest step.
//! `engines_side_by_side.py` alternates this program with the same library in Python.

use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::sync::Arc;

use flagperf_core::measure::{Clock, Latency, MonotonicClock};
use flagperf_core::tensor::{DType, HostMemory, Tensor};
use flagperf_engine::{Artifact, Engine, LentMemory, LoadOptions, Session, Value, find, open_plugin};
use flagperf_onnx::read_onnx;
use serde_json::Value as Json;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [name, model, batch, threads, engine_options @ ..] = arguments.as_slice() else {
        return Err("usage: engine ENGINE MODEL.onnx BATCH THREADS [OPTION=VALUE ...]".into());
    };
    let (engine, command) = find_engine(name)?;
    let engine_options =
        engine_options.iter().map(|option| option.split_once('=').ok_or("an option must have the form OPTION=VALUE"));
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
    let extra =
        engine_options.map(|pair| pair.map(|(key, text)| (key.to_owned(), value(text)))).collect::<Result<_, _>>()?;
    let (batch_size, threads) = (batch.parse()?, threads.parse()?);
    let precision = precision(Path::new(model))?;
    let folder = std::env::current_dir()?;
    let options = LoadOptions { folder, threads, batch_size, precision, command, extra, ..LoadOptions::default() };
    let mut session = engine.load(Artifact::Onnx(Path::new(model)), &options)?;
    let inputs = inputs(session.as_mut(), batch_size)?;
    println!("{}", engine.check()?);
    for seconds in stdin().lines() {
        let latency = run_turn(session.as_mut(), &inputs, seconds?.trim().parse()?)?;
        let [median, fastest] = [latency.p50_s, latency.min_s].map(|step| batch_size as f64 / step.0);
        println!("{median} {fastest}");
    }
    Ok(())
}

/// Returns the engine and, for a sidecar, the command of its process.
fn find_engine(name: &str) -> Outcome<(&'static dyn Engine, Vec<String>)> {
    let file = Path::new(name);
    if name.ends_with(".py") {
        let command = ["python3", "-m", "flagperf_sidecar", name].map(str::to_owned);
        return Ok((find("sidecar")?, command.to_vec()));
    }
    if file.is_file() {
        let plugin = open_plugin(file).map_err(|missing| format!("{missing} ({})", missing.remedy))?;
        return Ok((plugin, Vec::new()));
    }
    Ok((find(name)?, Vec::new()))
}

/// Returns the element type of the model's first input.
fn precision(model: &Path) -> Outcome<DType> {
    let graph = read_onnx(model)?;
    Ok(graph.inputs.first().ok_or("the model has no inputs")?.spec.dtype)
}

/// Returns inputs with numbers between 0 and 1 in memory that the session lends.
fn inputs(session: &mut dyn Session, rows: usize) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut values = Vec::new();
    for (index, info) in session.inputs().to_vec().into_iter().enumerate() {
        let shape: Vec<usize> = info.spec.dims.iter().map(|dim| dim.fixed().unwrap_or(rows)).collect();
        let count = shape.iter().product::<usize>();
        let numbers = Tensor::from_vec(shape.clone(), (0..count).map(|at| (at % 255) as f32 / 255.0).collect())?;
        let numbers = numbers.cast(info.spec.dtype);
        let mut memory = session.lend(index, numbers.bytes().len())?;
        memory.bytes_mut().copy_from_slice(numbers.bytes());
        let memory: Arc<dyn LentMemory> = memory.into();
        let memory: Arc<dyn HostMemory> = memory;
        values.push(Value::Host(Tensor::from_memory(shape, info.spec.dtype, memory, 0)?));
    }
    Ok(values)
}

/// Runs steps for the given number of seconds, after two untimed steps, and returns their latency.
fn run_turn(session: &mut dyn Session, inputs: &[Value], seconds: f64) -> Result<Latency, Box<dyn Error>> {
    let clock = MonotonicClock::start();
    let mut step = || {
        let begin = clock.now();
        let outputs = session.submit(inputs)?;
        session.sync()?;
        drop(outputs);
        Ok::<_, Box<dyn Error>>(clock.now().since(begin))
    };
    step()?;
    step()?;
    let (start, mut times) = (clock.now(), Vec::new());
    while clock.now().since(start).0 < seconds {
        times.push(step()?);
    }
    Ok(Latency::of(&times).ok_or("the turn has no steps")?)
}
