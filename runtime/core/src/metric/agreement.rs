//! Agreement of the outputs of inference with those of validation, for each output separately, over elements and
//! samples.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::PassDifference;
use super::variation::VariationMeter;
use crate::precision::Precision;
use crate::tensor::Tensor;
use crate::units::null_is_nan;

/// Agreement of inference with validation over the samples for which both kept outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Agreement {
    /// Index of the compared pass of inference, from 0. It is chosen at random, so that no engine can predict it.
    pub pass: u32,
    /// Number of passes of inference; 0 in an older record.
    #[serde(default)]
    pub passes: u32,
    /// Number of compared samples.
    pub samples: u64,
    /// Figures of each output, by name.
    pub outputs: IndexMap<String, OutputAgreement>,
    /// For each output, how much the passes of inference differ from the first one; empty with one pass.
    #[serde(default)]
    pub between_passes: IndexMap<String, PassDifference>,
    /// Why some outputs or batches could not be compared, one fragment each.
    pub not_compared: Vec<String>,
}

/// Agreement of one output. `a` is an element of validation, `b` the same element of inference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct OutputAgreement {
    /// Number of compared elements.
    pub elements: u64,
    /// Elements that are NaN or infinite on either side. Every figure that includes such an element is NaN.
    pub non_finite: u64,
    /// Largest absolute error, `|b - a|`.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub max_abs: f64,
    /// Mean absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub mean_abs: f64,
    /// Median absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub median_abs: f64,
    /// Largest relative error, `|b - a| / max(|a|, 1e-6)`.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub max_rel: f64,
    /// Mean relative error.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub mean_rel: f64,
    /// Median relative error.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub median_rel: f64,
    /// Relative L2 error of the output as one vector, `‖b - a‖₂ / ‖a‖₂`; 0 when both sides are all zero, infinite when
    /// only `a` is all zero.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub relative_l2: f64,
    /// Relative L2 error of the worst sample: the largest `‖bᵢ - aᵢ‖₂` divided by the root mean square of all `‖aᵢ‖₂`.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub worst_sample: f64,
    /// Cosine similarity of the output as one vector; `None` when one side is all zero or not finite.
    pub cosine: Option<f64>,
    /// Share of rows whose largest element has the same index; `None` unless the output is `N,C`.
    pub top1_agreement: Option<f64>,
    /// How much validation's output depends on the sample: the norm of the output after subtracting each element's mean
    /// over the samples, divided by the norm of the output. `None` with one sample or with samples of different shapes.
    #[serde(default)]
    pub variation: Option<f64>,
    /// Cosine similarity of both sides after subtracting each element's mean over the samples; 0 when only inference's
    /// output is the same for every sample. `None` when `variation` is `None` or 0.
    #[serde(default)]
    pub correlation: Option<f64>,
    /// Share of elements that differ, for an integer or boolean output; `None` for any other output.
    #[serde(default)]
    pub mismatches: Option<f64>,
}

/// Limits of the agreement of an output. The case fails when one of them is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct AgreementLimits {
    /// Largest [`OutputAgreement::relative_l2`].
    pub relative_l2: f64,
    /// Largest [`OutputAgreement::worst_sample`].
    pub worst_sample: f64,
    /// Least [`OutputAgreement::cosine`].
    pub cosine: f64,
    /// Least [`OutputAgreement::correlation`].
    #[serde(default)]
    pub correlation: f64,
    /// Least [`OutputAgreement::variation`] with which the correlation is judged; below it are rounding errors.
    #[serde(default)]
    pub variation: f64,
    /// Largest [`OutputAgreement::mismatches`]. An output that has this figure is judged only by this limit.
    #[serde(default)]
    pub mismatches: f64,
}

/// The names of the limits that a case can set, with the range of each.
pub const AGREEMENT_LIMITS: &[(&str, RangeInclusive<f64>)] = &[
    ("relative_l2", 0.0..=f64::MAX),
    ("worst_sample", 0.0..=f64::MAX),
    ("cosine", -1.0..=1.0),
    ("correlation", -1.0..=1.0),
    ("variation", 0.0..=1.0),
    ("mismatches", 0.0..=1.0),
];

impl AgreementLimits {
    /// Returns the default limits for the precision of inference. Two correct engines differ in the order of their
    /// sums, which amounts to about 1e-5 over a deep network in fp32 and 1e-2 in fp16. Outputs for a different image or
    /// different weights differ by 0.1 or more, unless most of each output is common to all images. The errors of
    /// correct engines stayed below `variation` (in fp16: 5e-4 for ResNet-50, 6.5e-3 for EfficientNet-Lite0). With
    /// errors of that size in outputs that vary by as little as `variation`, the correlation still exceeds its limit.
    pub fn default_for(precision: Precision) -> Self {
        match precision {
            // The products of TF32 have the mantissa of fp16.
            Precision::Fp16 | Precision::Tf32 => AgreementLimits {
                relative_l2: 0.03,
                worst_sample: 0.1,
                cosine: 0.999,
                correlation: 0.7,
                variation: 0.01,
                mismatches: 0.05,
            },
            Precision::Bf16 => AgreementLimits {
                relative_l2: 0.15,
                worst_sample: 0.5,
                cosine: 0.98,
                correlation: 0.7,
                variation: 0.08,
                mismatches: 0.1,
            },
            Precision::Fp32 => AgreementLimits {
                relative_l2: 1e-3,
                worst_sample: 1e-2,
                cosine: 0.9999,
                correlation: 0.95,
                variation: 1e-4,
                mismatches: 0.01,
            },
        }
    }

    /// Returns these limits with those replaced that a case sets, by their names in [`AGREEMENT_LIMITS`].
    #[must_use]
    pub fn with_overrides<'l>(mut self, overrides: impl Iterator<Item = (&'l String, &'l f64)>) -> Self {
        for (name, limit) in overrides {
            match name.as_str() {
                "relative_l2" => self.relative_l2 = *limit,
                "worst_sample" => self.worst_sample = *limit,
                "cosine" => self.cosine = *limit,
                "correlation" => self.correlation = *limit,
                "variation" => self.variation = *limit,
                "mismatches" => self.mismatches = *limit,
                _ => {}
            }
        }
        self
    }

    /// Describes each limit that `agreement` exceeds, one fragment each. NaN exceeds every limit.
    pub fn violations(&self, agreement: &OutputAgreement) -> Vec<String> {
        let OutputAgreement { relative_l2, worst_sample, cosine, non_finite, .. } = *agreement;
        let mut violations = Vec::new();
        if non_finite > 0 {
            violations.push(match non_finite {
                1 => "1 element is NaN or infinite".to_owned(),
                count => format!("{count} elements are NaN or infinite"),
            });
            return violations;
        }
        if let Some(share) = agreement.mismatches {
            if share.is_nan() || share > self.mismatches {
                violations.push(format!("`mismatches` is {share:.2e}, the limit is {:.2e}", self.mismatches));
            }
            return violations;
        }
        for (name, value, limit) in
            [("relative_l2", relative_l2, self.relative_l2), ("worst_sample", worst_sample, self.worst_sample)]
        {
            if value.is_nan() || value > limit {
                violations.push(format!("`{name}` is {value:.2e}, the limit is {limit:.2e}"));
            }
        }
        match cosine {
            Some(cosine) if cosine >= self.cosine => {}
            // Both sides are all zero: the angle is undefined, and there is no error.
            None if relative_l2 == 0.0 => {}
            Some(cosine) => violations.push(format!("`cosine` is {cosine:.6}, the limit is {}", self.cosine)),
            None => violations.push("one side is all zero".to_owned()),
        }
        if let Some(correlation) = self.judged_correlation(agreement).filter(|c| c.is_nan() || *c < self.correlation) {
            violations.push(format!(
                "`correlation` is {correlation:.4}, the limit is {}: do the outputs depend on their sample?",
                self.correlation
            ));
        }
        violations
    }

    /// Returns why it is not judged whether the output of `agreement` depends on its sample, as one fragment; `None` when
    /// it is judged or need not be. An integer or boolean output is judged by its mismatches, which show nothing if
    /// validation's output is the same for every sample.
    pub fn not_judged(&self, agreement: &OutputAgreement) -> Option<String> {
        if agreement.non_finite > 0 || self.judged_correlation(agreement).is_some() {
            return None;
        }
        if agreement.mismatches.is_some() {
            let reason = match agreement.variation {
                None => "this requires two samples of the same shape",
                Some(0.0) => "validation's output is the same for every sample",
                Some(_) => return None,
            };
            return Some(format!("it is not judged whether the output depends on its sample: {reason}"));
        }
        Some(match agreement.variation {
            None => "`correlation` is not judged: this requires two samples of the same shape".to_owned(),
            Some(variation) => format!(
                "`correlation` is not judged: `variation` is {variation:.2e}, below {:.2e}, and may be rounding errors",
                self.variation
            ),
        })
    }

    /// Returns the correlation if validation's output varies over the samples by more than rounding errors.
    fn judged_correlation(&self, agreement: &OutputAgreement) -> Option<f64> {
        agreement.variation.filter(|variation| *variation >= self.variation).and(agreement.correlation)
    }
}

/// Compares one output batch by batch. Holds two `f32` per element in memory, for the medians, and a
/// [`VariationMeter`].
#[derive(Debug, Default)]
pub struct AgreementMeter {
    abs: Vec<f32>,
    rel: Vec<f32>,
    non_finite: u64,
    dot: f64,
    norm_a: f64,
    norm_b: f64,
    error: f64,
    worst_error: f64,
    samples: u64,
    same_top1: u64,
    ranked_rows: u64,
    variation: VariationMeter,
    mismatches: u64,
    is_discrete: bool,
}

impl AgreementMeter {
    /// Adds the outputs of one batch from both sides, with one row per sample.
    ///
    /// Returns `false` and adds nothing when the shapes differ.
    pub fn push(&mut self, a: &Tensor, b: &Tensor) -> bool {
        if a.shape() != b.shape() {
            return false;
        }
        let rows = a.shape().first().copied().unwrap_or(1);
        let (x, y) = (a.to_f64(), b.to_f64());
        let row_elements = (x.len() / rows.max(1)).max(1);
        for (x, y) in x.chunks(row_elements).zip(y.chunks(row_elements)) {
            let error = self.push_row(x, y);
            self.error += error;
            self.worst_error = if error.is_nan() { f64::NAN } else { self.worst_error.max(error) };
        }
        self.samples += rows as u64;
        self.is_discrete |= !a.dtype().is_float();
        self.mismatches += count_mismatches(a, b, &x, &y);
        if let [rows, classes] = *a.shape()
            && classes > 0
        {
            self.ranked_rows += rows as u64;
            let rows = x.chunks_exact(classes).zip(y.chunks_exact(classes));
            self.same_top1 += rows.filter(|(a, b)| argmax(a) == argmax(b)).count() as u64;
        }
        true
    }

    /// Adds one sample and returns its squared error.
    fn push_row(&mut self, a: &[f64], b: &[f64]) -> f64 {
        self.variation.push(a, b);
        let mut squared = 0.0;
        for (a, b) in a.iter().zip(b) {
            let error = (b - a).abs();
            self.abs.push(error as f32);
            self.rel.push((error / a.abs().max(1e-6)) as f32);
            self.non_finite += u64::from(!(a.is_finite() && b.is_finite()));
            self.dot += a * b;
            self.norm_a += a * a;
            self.norm_b += b * b;
            squared += error * error;
        }
        squared
    }

    /// Returns the number of samples added so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the agreement over everything added; `None` when there are no elements.
    pub fn finish(mut self) -> Option<OutputAgreement> {
        if self.abs.is_empty() {
            return None;
        }
        let norms = (self.norm_a * self.norm_b).sqrt();
        let variation = self.variation.finish().filter(|_| self.non_finite == 0);
        Some(OutputAgreement {
            elements: self.abs.len() as u64,
            non_finite: self.non_finite,
            max_abs: largest(&self.abs),
            max_rel: largest(&self.rel),
            mean_abs: mean(&self.abs),
            median_abs: median(&mut self.abs),
            mean_rel: mean(&self.rel),
            median_rel: median(&mut self.rel),
            relative_l2: relative_error(self.error, self.norm_a),
            worst_sample: relative_error(self.worst_error, self.norm_a / self.samples as f64),
            cosine: (norms > 0.0 && self.non_finite == 0).then(|| self.dot / norms),
            top1_agreement: (self.ranked_rows > 0).then(|| self.same_top1 as f64 / self.ranked_rows as f64),
            variation: variation.map(|variation| relative_error(variation.squares_a, self.norm_a)),
            correlation: variation.and_then(|variation| variation.correlation()),
            mismatches: self.is_discrete.then(|| self.mismatches as f64 / self.abs.len() as f64),
        })
    }
}

/// Counts the elements that differ. 64-bit integers are compared directly because `f64` cannot represent all of them.
fn count_mismatches(a: &Tensor, b: &Tensor, x: &[f64], y: &[f64]) -> u64 {
    match (a.as_slice::<i64>(), b.as_slice::<i64>()) {
        (Ok(a), Ok(b)) => a.iter().zip(b).filter(|(a, b)| a != b).count() as u64,
        _ => x.iter().zip(y).filter(|(a, b)| a != b).count() as u64,
    }
}

/// Returns the square root of `squared_error / squared_norm`; 0 when both are 0.
fn relative_error(squared_error: f64, squared_norm: f64) -> f64 {
    if squared_error == 0.0 { 0.0 } else { (squared_error / squared_norm).sqrt() }
}

/// Returns the largest value; NaN when any value is NaN.
fn largest(values: &[f32]) -> f64 {
    values.iter().fold(0.0, |most, v| if v.is_nan() || f64::is_nan(most) { f64::NAN } else { most.max(f64::from(*v)) })
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64
}

fn median(values: &mut [f32]) -> f64 {
    let middle = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    let upper = f64::from(*upper);
    match below.iter().copied().max_by(f32::total_cmp) {
        Some(lower) if values.len().is_multiple_of(2) => f64::midpoint(f64::from(lower), upper),
        _ => upper,
    }
}

/// Returns the index of the largest element; of equal elements, the first. The sum with zero makes -0.0 equal to 0.0.
fn argmax(row: &[f64]) -> Option<usize> {
    let row = row.iter().map(|value| value + 0.0).enumerate();
    row.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests;
