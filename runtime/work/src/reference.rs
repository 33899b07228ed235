//! Computes some of validation's samples again with flagperf's own interpreter, if the framework is an engine that a vendor
//! supplies: a vendor's framework and compiler can agree on wrong outputs.
//!
//! Judges nothing.

use flagperf_core::event::Failure;
use flagperf_core::metric::{Agreement, AgreementMeter};
use flagperf_core::precision::Precision;
use flagperf_core::tensor::Tensor;
use flagperf_plan::{CaseSettings, EngineChoice, Job};

use super::outputs::FreshSamples;

/// The name of the interpreter in the table of engines.
const ENGINE: &str = "interpreter";
/// Number of samples that are computed again.
pub const SAMPLES: usize = 2;
/// Most operations for a sample. On a processor with a few cores, they take about a minute.
const OPERATIONS_MAX: f64 = 2e12;
/// Most learned values: as fp32, they take 4 GB.
const PARAMETERS_MAX: u64 = 1_000_000_000;

/// Returns whether the outputs of this phase are computed again: the framework is a plug-in or a sidecar, and a compiler is
/// compared with it.
pub fn is_due(job: &Job) -> bool {
    job.outputs.is_some() && (job.engine.library.is_some() || !job.engine.command.is_empty())
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

/// Returns the job in which the interpreter runs the same model on a few samples in fp32.
pub fn job(job: &Job) -> Job {
    let engine = EngineChoice { name: ENGINE.to_owned(), engine: ENGINE.to_owned(), ..EngineChoice::default() };
    let settings = CaseSettings { batch_size: SAMPLES as u32, precision: Precision::Fp32, ..job.settings.clone() };
    Job { engine, settings, ..job.clone() }
}

/// Compares the outputs of validation with those of the interpreter.
pub fn compare(validation: &FreshSamples, interpreter: &[(String, Tensor)]) -> Agreement {
    let samples = validation.request.samples.len();
    let mut agreement = Agreement { samples: samples as u64, ..Agreement::default() };
    for (name, output) in &validation.outputs {
        let Some((_, reference)) = interpreter.iter().find(|(other, _)| other == name) else {
            agreement.not_compared.push(format!("the interpreter has no output `{name}`"));
            continue;
        };
        let mut meter = AgreementMeter::default();
        let rows = (output.shape().first() == Some(&validation.rows)).then(|| output.take_rows(&first_rows(samples)));
        let Some(Ok(rows)) = rows else {
            agreement.not_compared.push(format!("output `{name}` (`{}`) has no row per sample", output.spec()));
            continue;
        };
        match meter.push(reference, &rows).then(|| meter.finish()).flatten() {
            Some(figures) => drop(agreement.outputs.insert(name.clone(), figures)),
            None => agreement.not_compared.push(format!(
                "output `{name}` is `{}` in validation and `{}` for the interpreter",
                rows.spec(),
                reference.spec()
            )),
        }
    }
    agreement
}

/// Returns an agreement of no outputs with the reason.
pub fn not_compared(failure: Failure) -> Agreement {
    let reason = failure.reason.lines().next().unwrap_or_default().to_owned();
    Agreement { not_compared: vec![reason], ..Agreement::default() }
}

fn first_rows(samples: usize) -> Vec<usize> {
    (0..samples).collect()
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
        compare(&FreshSamples { request, rows: 3, outputs: named(outputs) }, &named(reference))
    }

    #[test]
    fn only_the_rows_of_the_samples_are_compared() {
        let agreement = compared(&[("y", rows(&[1.0, 2.0, 9.0]))], &[("y", rows(&[1.0, 2.0]))]);
        assert_eq!((agreement.samples, agreement.outputs["y"].max_abs), (2, 0.0));
        assert!(agreement.not_compared.is_empty());
        let agreement = compared(&[("y", rows(&[1.0, 2.5, 2.0]))], &[("y", rows(&[1.0, 2.0]))]);
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
        output `y` is `2,1,f32` in validation and `2,2,f32` for the interpreter
        output `sum` (`f32`) has no row per sample
        the interpreter has no output `z`
        ");
    }
}
