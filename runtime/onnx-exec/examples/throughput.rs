//! Measures the images per second of an ONNX file on the executor: `throughput MODEL.onnx [BATCH]...` prints the best of
//! five runs for each batch size. The model must have one input, whose first dimension is the batch.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use flagperf_onnx::{Tensor, read_onnx};
use flagperf_onnx_exec::{CpuOps, Executor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: throughput MODEL.onnx [BATCH]...")?;
    let mut batches = arguments.map(|batch| batch.parse()).collect::<Result<Vec<usize>, _>>()?;
    if batches.is_empty() {
        batches = vec![1, 4, 8];
    }
    let model = Executor::load(&read_onnx(Path::new(&path))?, CpuOps)?;
    for batch in batches {
        let mut shape = vec![batch];
        shape.extend(model.inputs()[0].spec.dims[1..].iter().map(|dim| dim.fixed().unwrap_or(1)));
        let values = (0..shape.iter().product()).map(|i: usize| (i % 251) as f32 / 125.0 - 1.0).collect();
        let input = Tensor::from_vec(shape, values)?;
        let seconds = (0..5).map(|_| time(&model, &input)).collect::<Result<Vec<_>, _>>()?;
        let best = seconds.into_iter().fold(f64::INFINITY, f64::min);
        println!("batch {batch}: {:.2} images/s", batch as f64 / best);
    }
    Ok(())
}

/// Returns the seconds of one run, with input and output on the host.
#[expect(clippy::disallowed_methods, reason = "an example has no other clock")]
fn time(model: &Executor<CpuOps>, input: &Tensor) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    model.run_host(std::slice::from_ref(input))?;
    Ok(start.elapsed().as_secs_f64())
}
