//! How far the outputs of two results differ, sample by sample.

use std::collections::HashMap;
use std::path::Path;

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

/// The outputs of each sample by name.
type Samples = HashMap<u64, Vec<(String, Vec<f64>)>>;

/// Compares the outputs that two results store.
///
/// # Errors
/// When a file cannot be read, or the results store no common sample.
pub fn compare_outputs(first: &Path, second: &Path) -> Result<IndexMap<String, OutputErrors>, String> {
    let [first, second] = [read(first)?, read(second)?];
    let mut pairs: IndexMap<String, (u64, Vec<[f64; 2]>)> = IndexMap::new();
    let mut samples: Vec<&u64> = first.keys().collect();
    samples.sort_unstable();
    for sample in samples {
        let Some(others) = second.get(sample) else { continue };
        for (name, values) in &first[sample] {
            let Some((_, other)) = others.iter().find(|(other, _)| other == name) else { continue };
            if values.len() != other.len() {
                return Err(format!(
                    "output `{name}` of sample {sample} has {} and {} elements",
                    values.len(),
                    other.len()
                ));
            }
            let (count, all) = pairs.entry(name.clone()).or_default();
            *count += 1;
            all.extend(values.iter().zip(other).map(|(a, b)| [*a, *b]));
        }
    }
    if pairs.is_empty() {
        return Err("the results store the outputs of no common sample".to_owned());
    }
    Ok(pairs.into_iter().map(|(name, (samples, pairs))| (name, errors(samples, &pairs))).collect())
}

fn read(result: &Path) -> Result<Samples, String> {
    let path = result.join(file_name(Phase::Infer));
    let pass = StoredPass::read(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let mut samples = Samples::new();
    for (_, step) in pass.steps() {
        for (name, tensor) in name_outputs(&step.output) {
            for (row, values) in rows(&tensor).into_iter().enumerate() {
                let Some(sample) = step.samples.get(row) else { continue };
                samples.entry(*sample).or_default().push((name.clone(), values));
            }
        }
    }
    Ok(samples)
}

/// Returns the elements of each row of a floating-point tensor; other outputs have no errors.
fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    let count = tensor.shape().first().copied().unwrap_or(0);
    if !tensor.dtype().is_float() || count == 0 || tensor.is_empty() {
        return Vec::new();
    }
    let values = tensor.to_f64();
    values.chunks_exact(values.len() / count).map(<[f64]>::to_vec).collect()
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
