//! One engine on one ONNX file in a plain loop: images a second, one line a second of time.
//!
//!     cargo bench --bench engine -- ENGINE MODEL.onnx [BATCH [THREADS [SECONDS [OPTIONS]]]]
//!
//! ENGINE is a row of the table or the shared library of a plug-in; OPTIONS is a JSON object. A step is what `core` is of
//! a run: inputs handed over, computed, synchronised. `libtorch_side_by_side.py` runs this and PyTorch in turns.

use std::error::Error;
use std::path::Path;

use flagperf::engine::{Artifact, Engine, Options, Value, find, open_plugin};
use flagperf::measure::{Clock, MonotonicClock};
use flagperf::tensor::Tensor;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [engine, model, rest @ ..] = &arguments[..] else { return Err("which engine, and which ONNX file?".into()) };
    let number = |place: usize, default: usize| rest.get(place).map_or(Ok(default), |text| text.parse());
    let (batch, threads, seconds) = (number(0, 8)?, number(1, 2)?, number(2, 5)?);
    let extra = serde_json::from_str(rest.get(3).map_or("{}", String::as_str))?;
    let options = Options { threads, batch_size: batch, extra, ..Options::default() };
    time(engine_named(engine)?, Path::new(model), &options, seconds as f64)
}

fn engine_named(name: &str) -> Outcome<&'static dyn Engine> {
    let library = Path::new(name);
    if library.is_file() {
        return open_plugin(library).map_err(|missing| format!("{missing} ({})", missing.remedy).into());
    }
    Ok(find(name)?)
}

/// Steps until `seconds` are over, after warming up for as long as a line takes.
fn time(engine: &dyn Engine, model: &Path, options: &Options, seconds: f64) -> Outcome<()> {
    let mut session = engine.load(Artifact::Onnx(model), options)?;
    let spec = session.inputs()[0].spec.clone();
    let shape: Vec<usize> = spec.dims.iter().map(|dim| dim.fixed().unwrap_or(options.batch_size)).collect();
    let values = (0..shape.iter().product()).map(|i: usize| (i % 251) as f32 / 125.0 - 1.0).collect();
    let input = [Value::Host(Tensor::from_vec(shape, values)?.cast(spec.dtype))];
    let clock = MonotonicClock::start();
    let mut line = || -> Outcome<f64> {
        let (start, mut images) = (clock.now(), 0);
        while clock.now().since(start).0 < 1.0 {
            session.submit(&input)?;
            session.sync()?;
            images += options.batch_size;
        }
        Ok(images as f64 / clock.now().since(start).0)
    };
    line()?;
    let begin = clock.now();
    while clock.now().since(begin).0 < seconds {
        println!("{:.2}", line()?);
    }
    Ok(())
}
