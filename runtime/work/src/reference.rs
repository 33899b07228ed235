//! Computes some samples of a phase again with flagperf's own interpreter, if a vendor supplies the engine: a vendor's framework
//! and compiler can agree on wrong outputs, and a compiler can return for known inputs what the framework left for it.
//!
//! Judges nothing.

use flagperf_core::description::Delivery;
use flagperf_core::event::Failure;
use flagperf_core::metric::{Agreement, AgreementMeter, OutputAgreement};
use flagperf_core::precision::Precision;
use flagperf_core::tensor::Tensor;
use flagperf_plan::{CaseSettings, EngineChoice, Job, Task};

use super::load::delivery;
use super::outputs::{DrawnSamples, SAMPLES_DRAWN};

/// The name of the interpreter in the table of engines.
const ENGINE: &str = "interpreter";
/// Most operations for a sample. On a processor with a few cores, they take about a minute.
const OPERATIONS_MAX: f64 = 2e12;
/// Most learned values: as fp32, they take 4 GB.
const PARAMETERS_MAX: u64 = 1_000_000_000;

/// Returns whether outputs of this phase are computed again: its engine is a plug-in, a sidecar or a server, and both phases run.
pub fn is_due(job: &Job) -> bool {
    let is_foreign = matches!(delivery(job), Some(Delivery::Library | Delivery::Command | Delivery::Server));
    job.outputs.is_some() && is_foreign
}

/// Returns why a model is not computed again; `None` if it is small enough.
pub fn too_large(job: &Job, parameters: Option<u64>) -> Option<String> {
    let operations = job.settings.flops_per_sample;
    let parameters = parameters.unwrap_or_default();
    if operations > OPERATIONS_MAX {
        return Some(format!("a sample takes {operations:.1e} operations (at most {OPERATIONS_MAX:.0e})"));
    }
    (parameters > PARAMETERS_MAX).then(|| format!("the model has {parameters} parameters (at most {PARAMETERS_MAX})"))
}

/// Returns the job of validation in which the interpreter runs the same model on a few samples in fp32.
pub fn job(job: &Job) -> Job {
    let engine = EngineChoice { name: ENGINE.to_owned(), engine: ENGINE.to_owned(), ..EngineChoice::default() };
    let settings =
        CaseSettings { batch_size: SAMPLES_DRAWN as u32, precision: Precision::Fp32, ..job.settings.clone() };
    Job { engine, settings, task: Task::Validate { export: None }, ..job.clone() }
}

/// Compares the outputs of a phase for some samples with those of the interpreter for the same ones, in the same order.
pub fn compare(phase: &[DrawnSamples], interpreter: &[Vec<(String, Tensor)>]) -> Agreement {
    let samples = phase.iter().map(|drawn| drawn.rows.len() as u64).sum();
    let mut agreement = Agreement { samples, ..Agreement::default() };
    // The forward function gives every batch the same outputs.
    for (name, _) in phase.first().iter().flat_map(|drawn| &drawn.outputs) {
        match compare_output(name, phase, interpreter) {
            Ok(figures) => drop(agreement.outputs.insert(name.clone(), figures)),
            Err(reason) => agreement.not_compared.push(reason),
        }
    }
    agreement
}

/// Returns an agreement of no outputs with the reason.
pub fn not_compared(failure: Failure) -> Agreement {
    let reason = failure.reason.lines().next().unwrap_or_default().to_owned();
    Agreement { not_compared: vec![reason], ..Agreement::default() }
}

/// Compares an output for all samples. The error says why it cannot be compared.
fn compare_output(
    name: &str,
    phase: &[DrawnSamples],
    interpreter: &[Vec<(String, Tensor)>],
) -> Result<OutputAgreement, String> {
    let mut meter = AgreementMeter::default();
    let find = |outputs: &[(String, Tensor)]| outputs.iter().find(|(other, _)| other == name).map(|(_, t)| t.clone());
    for (drawn, reference) in phase.iter().zip(interpreter) {
        let reference = find(reference).ok_or_else(|| format!("the interpreter has no output `{name}`"))?;
        let output =
            find(&drawn.outputs).ok_or_else(|| format!("the engine has no output `{name}` in some batches"))?;
        let rows = (output.shape().first() == Some(&drawn.batch_rows)).then(|| output.take_rows(&drawn.rows));
        let Some(Ok(rows)) = rows else {
            return Err(format!("output `{name}` (`{}`) has no row per sample", output.spec()));
        };
        if !meter.push(&reference, &rows) {
            let (own, other) = (rows.spec(), reference.spec());
            return Err(format!("output `{name}` is `{own}` for the engine and `{other}` for the interpreter"));
        }
    }
    meter.finish().ok_or_else(|| format!("output `{name}` has no elements"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flagperf_data::BatchRequest;

    use super::*;

    fn rows(values: &[f32]) -> Tensor {
        Tensor::from_vec([values.len(), 1], values.to_vec()).unwrap()
    }

    fn compared(outputs: &[(&str, Tensor)], reference: &[(&str, Tensor)]) -> Agreement {
        let named = |outputs: &[(&str, Tensor)]| -> Vec<(String, Tensor)> {
            outputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect()
        };
        let request = BatchRequest { number: 0, samples: Arc::from([7, 3]), perturbation: None };
        let drawn = DrawnSamples { request, rows: vec![2, 0], batch_rows: 3, outputs: named(outputs) };
        compare(&[drawn], &[named(reference)])
    }

    #[test]
    fn only_the_rows_of_the_samples_are_compared() {
        let agreement = compared(&[("y", rows(&[1.0, 2.0, 9.0]))], &[("y", rows(&[9.0, 1.0]))]);
        assert_eq!((agreement.samples, agreement.outputs["y"].max_abs), (2, 0.0));
        assert!(agreement.not_compared.is_empty());
        let agreement = compared(&[("y", rows(&[1.0, 2.0, 9.5]))], &[("y", rows(&[9.0, 1.0]))]);
        assert_eq!(agreement.outputs["y"].max_abs, 0.5);
    }

    #[test]
    fn what_is_not_compared_is_named() {
        let sum = Tensor::scalar(3.0f32);
        let agreement = compared(
            &[("y", rows(&[1.0, 2.0, 9.0])), ("sum", sum.clone()), ("z", rows(&[1.0; 3]))],
            &[("y", Tensor::from_vec([2, 2], vec![1.0f32; 4]).unwrap()), ("sum", sum)],
        );
        assert!(agreement.outputs.is_empty());
        insta::assert_snapshot!(agreement.not_compared.join("\n"), @r"
        output `y` is `2,1,f32` for the engine and `2,2,f32` for the interpreter
        output `sum` (`f32`) has no row per sample
        the interpreter has no output `z`
        ");
    }
}
