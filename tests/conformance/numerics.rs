//! Compares what engines compute with the f64 reference executor.

use flagperf_core::tensor::{DType, Tensor};
use flagperf_onnx::Graph;
use flagperf_onnx_exec::{Executor, ReferenceOps};

use crate::Check;
use crate::graphs::feed;
use crate::harness::{BATCH, Harness};
use crate::networks::{depthwise, residual};
use crate::operators::OPERATORS;

pub const CHECKS: &[(&str, Check)] = &[
    ("operators", operators),
    ("residual_network", |harness| network(harness, residual)),
    ("depthwise_network", |harness| network(harness, depthwise)),
];

/// Returns the largest allowed difference from the reference, relative to the reference's largest absolute value.
fn tolerance(precision: DType) -> f64 {
    match precision {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        // Ten layers, each with a rounding of 2^-11.
        DType::F16 => 1e-2,
        _ => 8e-2,
    }
}

/// Checks every operator that cases use in a graph of its own, and reports all failures together.
fn operators(harness: &Harness) {
    let failed: Vec<String> = OPERATORS
        .iter()
        .filter_map(|(name, graph)| {
            compare(harness, &graph(), DType::F32).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} operators:\n{}", failed.len(), OPERATORS.len(), failed.join("\n"));
}

/// Checks a network in every precision of the engine.
fn network(harness: &Harness, graph: fn(DType) -> Graph) {
    for precision in &harness.subject.precisions {
        compare(harness, &graph(*precision), *precision).unwrap_or_else(|error| panic!("{precision}: {error}"));
    }
}

fn compare(harness: &Harness, graph: &Graph, precision: DType) -> Result<(), String> {
    let mut loaded = harness.try_load(graph, &harness.options(precision)).map_err(|error| error.to_string())?;
    let reference = Executor::load(graph, ReferenceOps).map_err(|error| format!("reference: {error}"))?;
    for rows in [BATCH, 1, 3] {
        let inputs = feed(graph, rows);
        let expected = reference.run_host(&inputs).map_err(|error| format!("reference: {error}"))?;
        let values = inputs.into_iter().map(flagperf_engine::Value::Host).collect::<Vec<_>>();
        let outputs = loaded.session.submit(&values).map_err(|error| error.to_string())?;
        for (output, expected) in outputs.iter().zip(&expected) {
            check_close(&output.to_host().map_err(|error| error.to_string())?, expected, precision)?;
        }
    }
    Ok(())
}

/// Checks that an output equals the expected tensor except for rounding.
pub fn check_close(output: &Tensor, expected: &Tensor, precision: DType) -> Result<(), String> {
    if output.spec() != expected.spec() {
        return Err(format!("`{}` instead of `{}`", output.spec(), expected.spec()));
    }
    let (output, expected_values) = (output.to_f64(), expected.to_f64());
    let largest = expected_values.iter().fold(1e-3, |largest: f64, x| largest.max(x.abs()));
    let allowed = if expected.dtype().is_float() { tolerance(precision) * largest } else { 0.0 };
    match output.iter().zip(&expected_values).find(|(x, y)| x.is_nan() || (*x - *y).abs() > allowed) {
        Some((x, y)) => Err(format!("{x} instead of {y} (allowed: {allowed:e})")),
        None => Ok(()),
    }
}
