//! How far the outputs of two results differ, sample by sample.

use std::collections::HashMap;
use std::path::Path;

use flagperf_core::metric::{AgreementMeter, OutputAgreement};
use flagperf_core::step::Phase;
use flagperf_core::tensor::Tensor;
use flagperf_evaluation::{StoredPass, file_name, name_outputs};
use indexmap::IndexMap;
use serde::Serialize;

/// The mean, the largest and the median value of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    pub mean: f64,
    pub max: f64,
    pub median: f64,
}

/// The errors of one output over all samples that both results store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OutputErrors {
    /// Number of samples.
    pub samples: u64,
    /// Number of elements, without those that are not finite on both sides.
    pub elements: u64,
    /// Elements that are finite on one side only.
    pub not_finite: u64,
    /// `|b - a|`.
    pub absolute: Errors,
    /// `|b - a| / |a|`, over the elements whose `a` is not 0.
    pub relative: Errors,
}

/// Why the outputs of two results were not compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputsError {
    /// They cannot be equal.
    #[error("{0}")]
    Unlike(String),
    /// Nothing is known about their difference.
    #[error("{0}")]
    Unknown(String),
}

/// The outputs of each sample by name, each with one row.
type Samples = HashMap<u64, Vec<(String, Tensor)>>;

/// Compares the outputs that two results store. Outputs that are not floating-point numbers have no errors.
///
/// # Errors
/// When a file cannot be read, or the results store no common sample.
pub fn compare_outputs(first: &Path, second: &Path) -> Result<IndexMap<String, OutputErrors>, String> {
    let mut pairs: IndexMap<String, (u64, Vec<[f64; 2]>)> = IndexMap::new();
    let compared = for_each_pair(first, second, |name, a, b| {
        if a.dtype().is_float() && !a.is_empty() {
            let (count, all) = pairs.entry(name.to_owned()).or_default();
            *count += 1;
            all.extend(a.to_f64().into_iter().zip(b.to_f64()).map(|(a, b)| [a, b]));
        }
    });
    compared.map_err(|error| error.to_string())?;
    if pairs.is_empty() {
        return Err(NO_COMMON_SAMPLE.to_owned());
    }
    Ok(pairs.into_iter().map(|(name, (samples, pairs))| (name, errors(samples, &pairs))).collect())
}

/// Returns how closely the outputs of the second result match those of the first, over all samples that both store.
///
/// # Errors
/// The same as for [`compare_outputs`].
pub(super) fn agreement_of(first: &Path, second: &Path) -> Result<IndexMap<String, OutputAgreement>, OutputsError> {
    let mut meters: IndexMap<String, AgreementMeter> = IndexMap::new();
    for_each_pair(first, second, |name, a, b| {
        meters.entry(name.to_owned()).or_default().push(a, b);
    })?;
    let found: IndexMap<String, OutputAgreement> =
        meters.into_iter().filter_map(|(name, meter)| Some((name, meter.finish()?))).collect();
    if found.is_empty() { Err(OutputsError::Unknown(NO_COMMON_SAMPLE.to_owned())) } else { Ok(found) }
}

const NO_COMMON_SAMPLE: &str = "the results store the outputs of no common sample";

/// Passes each output of each common sample to `pair`, in the order of the samples.
fn for_each_pair(
    first: &Path,
    second: &Path,
    mut pair: impl FnMut(&str, &Tensor, &Tensor),
) -> Result<(), OutputsError> {
    let read = |result| read(result).map_err(OutputsError::Unknown);
    let [first, second] = [read(first)?, read(second)?];
    let mut samples: Vec<&u64> = first.keys().collect();
    samples.sort_unstable();
    for sample in samples {
        let Some(others) = second.get(sample) else { continue };
        for (name, row) in &first[sample] {
            let Some((_, other)) = others.iter().find(|(other, _)| other == name) else { continue };
            if row.shape() != other.shape() {
                let [a, b] = [row, other].map(Tensor::spec);
                return Err(OutputsError::Unlike(format!("output `{name}` of sample {sample} is `{a}` and `{b}`")));
            }
            pair(name, row, other);
        }
    }
    Ok(())
}

fn read(result: &Path) -> Result<Samples, String> {
    let path = result.join(file_name(Phase::Infer));
    let pass = StoredPass::read(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let mut samples = Samples::new();
    for (_, step) in pass.steps() {
        for (name, tensor) in name_outputs(&step.output) {
            let rows = tensor.shape().first().copied().unwrap_or(0);
            for (row, sample) in step.samples.iter().enumerate().take(rows) {
                let taken = tensor.take_rows(&[row]).expect("the row is below the number of rows");
                samples.entry(*sample).or_default().push((name.clone(), taken));
            }
        }
    }
    Ok(samples)
}

fn errors(samples: u64, pairs: &[[f64; 2]]) -> OutputErrors {
    let finite = |[a, b]: &&[f64; 2]| a.is_finite() && b.is_finite();
    let one_sided = |[a, b]: &&[f64; 2]| a.is_finite() != b.is_finite();
    let absolute: Vec<f64> = pairs.iter().filter(finite).map(|[a, b]| (b - a).abs()).collect();
    let relative = pairs.iter().filter(finite).filter(|[a, _]| *a != 0.0).map(|[a, b]| ((b - a) / a).abs());
    OutputErrors {
        samples,
        elements: absolute.len() as u64,
        not_finite: pairs.iter().filter(one_sided).count() as u64,
        relative: Errors::of(relative.collect()),
        absolute: Errors::of(absolute),
    }
}

impl Errors {
    fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Errors::default();
        }
        let count = values.len();
        let (mean, max) = (values.iter().sum::<f64>() / count as f64, values.iter().copied().fold(0.0, f64::max));
        let (_, median, _) = values.select_nth_unstable_by(count / 2, f64::total_cmp);
        Errors { mean, max, median: *median }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_absolute_and_relative_to_the_first_side() {
        let found = errors(2, &[[1.0, 1.5], [-4.0, -3.0], [0.0, 0.25], [2.0, f64::NAN], [f64::NAN, f64::NAN]]);
        assert_eq!((found.elements, found.not_finite, found.samples), (3, 1, 2));
        assert_eq!(found.absolute, Errors { mean: 1.75 / 3.0, max: 1.0, median: 0.5 });
        assert_eq!(found.relative, Errors { mean: 0.375, max: 0.5, median: 0.5 });
        assert_eq!(errors(0, &[]), OutputErrors::default());
    }
}
