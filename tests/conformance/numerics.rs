//! What engines compute, against the reference executor in f64.

use flagperf::tensor::{DType, Tensor};
use flagperf_onnx::Graph;
use flagperf_onnx::exec::{Executor, ReferenceOps};

use crate::Check;
use crate::bench::{BATCH, Bench};
use crate::graphs::feed;
use crate::networks::{depthwise, residual};
use crate::operators::OPERATORS;

pub const CHECKS: &[(&str, Check)] = &[
    ("operators", operators),
    ("residual_network", |bench| network(bench, residual)),
    ("depthwise_network", |bench| network(bench, depthwise)),
];

/// Largest difference from the reference, as a share of its largest value.
fn tolerance(precision: DType) -> f64 {
    match precision {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        // Ten layers of roundings of 2^-11.
        DType::F16 => 1e-2,
        _ => 8e-2,
    }
}

/// Every operator that cases use, each alone; all that fail are named at once.
fn operators(bench: &Bench) {
    let failed: Vec<String> = OPERATORS
        .iter()
        .filter_map(|(name, graph)| compare(bench, &graph(), DType::F32).err().map(|error| format!("{name}: {error}")))
        .collect();
    assert!(failed.is_empty(), "{} of {} operators:\n{}", failed.len(), OPERATORS.len(), failed.join("\n"));
}

/// The network in every precision of the engine.
fn network(bench: &Bench, graph: fn(DType) -> Graph) {
    for precision in &bench.subject.precisions {
        compare(bench, &graph(*precision), *precision).unwrap_or_else(|error| panic!("{precision}: {error}"));
    }
}

fn compare(bench: &Bench, graph: &Graph, precision: DType) -> Result<(), String> {
    let mut loaded = bench.try_load(graph, &bench.options(precision)).map_err(|error| error.to_string())?;
    let reference = Executor::load(graph, ReferenceOps).map_err(|error| format!("reference: {error}"))?;
    for rows in [BATCH, 1, 3] {
        let inputs = feed(graph, rows);
        let expected = reference.run_host(&inputs).map_err(|error| format!("reference: {error}"))?;
        let values = inputs.into_iter().map(flagperf::engine::Value::Host).collect::<Vec<_>>();
        let outputs = loaded.session.submit(&values).map_err(|error| error.to_string())?;
        for (output, expected) in outputs.iter().zip(&expected) {
            agree(&output.to_host().map_err(|error| error.to_string())?, expected, precision)?;
        }
    }
    Ok(())
}

/// Whether an output is what is expected, but for rounding.
pub fn agree(output: &Tensor, expected: &Tensor, precision: DType) -> Result<(), String> {
    if output.spec() != expected.spec() {
        return Err(format!("`{}` instead of `{}`", output.spec(), expected.spec()));
    }
    let (output, wanted) = (output.to_f64(), expected.to_f64());
    let largest = wanted.iter().fold(1e-3, |largest: f64, x| largest.max(x.abs()));
    let allowed = if expected.dtype().is_float() { tolerance(precision) * largest } else { 0.0 };
    match output.iter().zip(&wanted).find(|(x, y)| x.is_nan() || (*x - *y).abs() > allowed) {
        Some((x, y)) => Err(format!("{x} instead of {y} (allowed: {allowed:e})")),
        None => Ok(()),
    }
}
