//! How the outputs of inference agree with those of validation: each output by itself, element by element, sample by
//! sample.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::variation::VariationMeter;
use crate::tensor::{DType, Tensor};
use crate::units::null_is_nan;

/// Agreement of inference with validation over the samples that both computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// The pass of inference that was compared, from 0. It is drawn at random, so that no engine can know it.
    pub pass: u32,
    /// Samples compared.
    pub samples: u64,
    /// The figures of each output, by name.
    pub outputs: IndexMap<String, OutputAgreement>,
    /// What could not be compared and why, one fragment each.
    pub not_compared: Vec<String>,
}

/// Agreement of one output. `a` is an element of validation, `b` the same element of inference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputAgreement {
    /// Elements compared.
    pub elements: u64,
    /// Elements that are NaN or infinite on either side. With any of them, every figure that they enter is NaN.
    pub non_finite: u64,
    /// Largest absolute error, `|b - a|`.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_abs: f64,
    /// Mean absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_abs: f64,
    /// Median absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    pub median_abs: f64,
    /// Largest relative error, `|b - a| / max(|a|, 1e-6)`.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_rel: f64,
    /// Mean relative error.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_rel: f64,
    /// Median relative error.
    #[serde(deserialize_with = "null_is_nan")]
    pub median_rel: f64,
    /// Relative error of the output as one vector, `‖b - a‖₂ / ‖a‖₂`; 0 when both are all zero, infinite when only `a`
    /// is.
    #[serde(deserialize_with = "null_is_nan")]
    pub relative_l2: f64,
    /// The same of the sample with the largest error: `‖bᵢ - aᵢ‖₂` over the root mean square of all `‖aᵢ‖₂`.
    #[serde(deserialize_with = "null_is_nan")]
    pub worst_sample: f64,
    /// Cosine similarity of the output as one vector; `None` when one side is all zero or not finite.
    pub cosine: Option<f64>,
    /// Share of rows whose largest element is the same; `None` unless the output is `N,C`.
    pub top1_agreement: Option<f64>,
    /// How much validation's output depends on the sample: the norm of what is left of it when each element's mean over
    /// the samples is taken off, over the norm of the output. `None` with one sample, or samples of several shapes.
    #[serde(default)]
    pub variation: Option<f64>,
    /// Cosine similarity of what is left of each side when each element's mean over the samples is taken off; 0 when
    /// only inference's output is the same for every sample. `None` where `variation` is, or is 0.
    #[serde(default)]
    pub correlation: Option<f64>,
    /// Share of elements that differ, of an output of whole numbers or truth values; `None` of any other output.
    #[serde(default)]
    pub mismatches: Option<f64>,
}

/// Bounds of the agreement of an output. Beyond one of them the case fails.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// From this [`OutputAgreement::variation`] on the correlation is judged; below it is the noise of the type.
    #[serde(default)]
    pub variation: f64,
    /// Largest [`OutputAgreement::mismatches`]. An output that has this figure is judged by it alone.
    #[serde(default)]
    pub mismatches: f64,
}

/// The limits that a case can state, with the values that each can have.
pub const AGREEMENT_LIMITS: &[(&str, RangeInclusive<f64>)] = &[
    ("relative_l2", 0.0..=f64::MAX),
    ("worst_sample", 0.0..=f64::MAX),
    ("cosine", -1.0..=1.0),
    ("correlation", -1.0..=1.0),
    ("variation", 0.0..=1.0),
    ("mismatches", 0.0..=1.0),
];

/// The types for which a case can state limits.
pub const AGREEMENT_PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];

/// The name of a type in [`AGREEMENT_PRECISIONS`].
pub fn agreement_name(precision: DType) -> &'static str {
    match precision {
        DType::F16 => "fp16",
        DType::BF16 => "bf16",
        _ => "fp32",
    }
}

impl AgreementLimits {
    /// The limits of a type in which inference computes, where the case states none. Two correct engines differ by how
    /// they order sums: by about 1e-5 over a deep network in f32, 1e-2 in f16. Outputs of another image or of other weights
    /// differ by 0.1 and more, unless most of them is common to all images: `variation` is what no correct engine's noise
    /// reached (fp16: 5e-4 of ResNet-50's outputs, 6.5e-3 of EfficientNet-Lite0's), and the correlation of such noise with
    /// outputs that vary by so little is still above its limit.
    pub fn of_precision(precision: DType) -> Self {
        match precision {
            DType::F16 => AgreementLimits {
                relative_l2: 0.03,
                worst_sample: 0.1,
                cosine: 0.999,
                correlation: 0.7,
                variation: 0.01,
                mismatches: 0.05,
            },
            DType::BF16 => AgreementLimits {
                relative_l2: 0.15,
                worst_sample: 0.5,
                cosine: 0.98,
                correlation: 0.7,
                variation: 0.08,
                mismatches: 0.1,
            },
            _ => AgreementLimits {
                relative_l2: 1e-3,
                worst_sample: 1e-2,
                cosine: 0.9999,
                correlation: 0.95,
                variation: 1e-4,
                mismatches: 0.01,
            },
        }
    }

    /// The same with what a case states: limits by their names in [`AGREEMENT_LIMITS`].
    #[must_use]
    pub fn with<'l>(mut self, stated: impl Iterator<Item = (&'l String, &'l f64)>) -> Self {
        for (name, limit) in stated {
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

    /// What `agreement` beyond these limits is, one fragment each; NaN is beyond every limit.
    pub fn exceeded(&self, agreement: &OutputAgreement) -> Vec<String> {
        let OutputAgreement { relative_l2, worst_sample, cosine, non_finite, .. } = *agreement;
        let mut exceeded = Vec::new();
        if non_finite > 0 {
            exceeded.push(format!("{non_finite} elements are NaN or infinite"));
            return exceeded;
        }
        if let Some(share) = agreement.mismatches {
            if share.is_nan() || share > self.mismatches {
                exceeded.push(format!("`mismatches` is {share:.2e}, the limit is {:.2e}", self.mismatches));
            }
            return exceeded;
        }
        for (name, value, limit) in
            [("relative_l2", relative_l2, self.relative_l2), ("worst_sample", worst_sample, self.worst_sample)]
        {
            if value.is_nan() || value > limit {
                exceeded.push(format!("`{name}` is {value:.2e}, the limit is {limit:.2e}"));
            }
        }
        match cosine {
            Some(cosine) if cosine >= self.cosine => {}
            // Both all zero: there is no angle, and no error either.
            None if relative_l2 == 0.0 => {}
            Some(cosine) => exceeded.push(format!("`cosine` is {cosine:.6}, the limit is {}", self.cosine)),
            None => exceeded.push("one side is all zero".to_owned()),
        }
        if let Some(correlation) = self.judged_correlation(agreement).filter(|c| c.is_nan() || *c < self.correlation) {
            exceeded.push(format!(
                "`correlation` is {correlation:.4}, the limit is {}: do outputs depend on their sample?",
                self.correlation
            ));
        }
        exceeded
    }

    /// Why the correlation of `agreement` is not judged, as one fragment; `None` when it is, or need not be.
    pub fn not_judged(&self, agreement: &OutputAgreement) -> Option<String> {
        if agreement.mismatches.is_some() || agreement.non_finite > 0 || self.judged_correlation(agreement).is_some() {
            return None;
        }
        Some(match agreement.variation {
            None => "`correlation` is not judged: it takes two samples of one shape".to_owned(),
            Some(variation) => format!(
                "`correlation` is not judged: `variation` is {variation:.2e}, below {:.2e} it is not told from rounding",
                self.variation
            ),
        })
    }

    /// The correlation, where validation's output varies over the samples by more than rounding does.
    fn judged_correlation(&self, agreement: &OutputAgreement) -> Option<f64> {
        agreement.variation.filter(|variation| *variation >= self.variation).and(agreement.correlation)
    }
}

/// Collects pairs of one output, batch by batch. Memory: two `f32` an element, for the medians,
/// and what a [`VariationMeter`] has.
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
    /// Takes the output of one batch from both sides, one row a sample.
    ///
    /// Returns `false`, taking nothing, when the shapes differ.
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
        self.mismatches += mismatches(a, b, &x, &y);
        if let [rows, classes] = *a.shape()
            && classes > 0
        {
            self.ranked_rows += rows as u64;
            let rows = x.chunks_exact(classes).zip(y.chunks_exact(classes));
            self.same_top1 += rows.filter(|(a, b)| argmax(a) == argmax(b)).count() as u64;
        }
        true
    }

    /// Takes one sample and returns its squared error.
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

    /// Samples taken so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The agreement over everything taken; `None` without any element.
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
            relative_l2: ratio(self.error, self.norm_a),
            worst_sample: ratio(self.worst_error, self.norm_a / self.samples as f64),
            cosine: (norms > 0.0 && self.non_finite == 0).then(|| self.dot / norms),
            top1_agreement: (self.ranked_rows > 0).then(|| self.same_top1 as f64 / self.ranked_rows as f64),
            variation: variation.map(|variation| ratio(variation.squares_a, self.norm_a)),
            correlation: variation.and_then(|variation| variation.correlation()),
            mismatches: self.is_discrete.then(|| self.mismatches as f64 / self.abs.len() as f64),
        })
    }
}

/// Elements that differ. Whole numbers of 64 bits are compared as they are: `f64` holds not all of them.
fn mismatches(a: &Tensor, b: &Tensor, x: &[f64], y: &[f64]) -> u64 {
    match (a.as_slice::<i64>(), b.as_slice::<i64>()) {
        (Ok(a), Ok(b)) => a.iter().zip(b).filter(|(a, b)| a != b).count() as u64,
        _ => x.iter().zip(y).filter(|(a, b)| a != b).count() as u64,
    }
}

/// The root of a quotient of squares; no error against nothing is none.
fn ratio(squared_error: f64, squared_norm: f64) -> f64 {
    if squared_error == 0.0 { 0.0 } else { (squared_error / squared_norm).sqrt() }
}

/// The largest value; NaN when there is one.
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

fn argmax(row: &[f64]) -> Option<usize> {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests;
