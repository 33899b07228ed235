//! Agreement of the outputs of inference with those of validation, for each output separately, over elements and
//! samples.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::tensor::{DType, Tensor};
use crate::units::null_is_nan;

/// Agreement of inference with validation over the samples for which both kept outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Index of the compared pass of inference, from 0. It is chosen at random, so that no engine can predict it.
    pub pass: u32,
    /// Number of compared samples.
    pub samples: u64,
    /// Figures of each output, by name.
    pub outputs: IndexMap<String, OutputAgreement>,
    /// Why some outputs or batches could not be compared, one fragment each.
    pub not_compared: Vec<String>,
}

/// Agreement of one output. `a` is an element of validation, `b` the same element of inference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputAgreement {
    /// Number of compared elements.
    pub elements: u64,
    /// Elements that are NaN or infinite on either side. Every figure that includes such an element is NaN.
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
    /// Relative L2 error of the output as one vector, `‖b - a‖₂ / ‖a‖₂`; 0 when both sides are all zero, infinite when
    /// only `a` is all zero.
    #[serde(deserialize_with = "null_is_nan")]
    pub relative_l2: f64,
    /// Relative L2 error of the worst sample: the largest `‖bᵢ - aᵢ‖₂` divided by the root mean square of all `‖aᵢ‖₂`.
    #[serde(deserialize_with = "null_is_nan")]
    pub worst_sample: f64,
    /// Cosine similarity of the output as one vector; `None` when one side is all zero or not finite.
    pub cosine: Option<f64>,
    /// Share of rows whose largest element has the same index; `None` unless the output is `N,C`.
    pub top1_agreement: Option<f64>,
}

/// Limits of the agreement of an output. The case fails when one of them is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgreementLimits {
    /// Largest [`OutputAgreement::relative_l2`].
    pub relative_l2: f64,
    /// Largest [`OutputAgreement::worst_sample`].
    pub worst_sample: f64,
    /// Least [`OutputAgreement::cosine`].
    pub cosine: f64,
}

/// The names of the limits that a case can set, with the range of each.
pub const AGREEMENT_LIMITS: &[(&str, RangeInclusive<f64>)] =
    &[("relative_l2", 0.0..=f64::MAX), ("worst_sample", 0.0..=f64::MAX), ("cosine", -1.0..=1.0)];

/// The precisions for which a case can set limits.
pub const AGREEMENT_PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];

/// Returns the name of a precision in [`AGREEMENT_PRECISIONS`].
pub fn precision_name(precision: DType) -> &'static str {
    match precision {
        DType::F16 => "fp16",
        DType::BF16 => "bf16",
        _ => "fp32",
    }
}

impl AgreementLimits {
    /// Returns the default limits for the precision of inference. Two correct engines differ in the order of their
    /// sums, which amounts to about 1e-5 over a deep network in fp32 and 1e-2 in fp16. Outputs for a different image or
    /// different weights differ by 0.1 or more.
    pub fn default_for(precision: DType) -> Self {
        match precision {
            DType::F16 => AgreementLimits { relative_l2: 0.03, worst_sample: 0.1, cosine: 0.999 },
            DType::BF16 => AgreementLimits { relative_l2: 0.15, worst_sample: 0.5, cosine: 0.98 },
            _ => AgreementLimits { relative_l2: 1e-3, worst_sample: 1e-2, cosine: 0.9999 },
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
        violations
    }
}

/// Compares one output batch by batch. Holds two `f32` per element in memory, for the medians.
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
        })
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

fn argmax(row: &[f64]) -> Option<usize> {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AgreementLimits = AgreementLimits { relative_l2: 0.01, worst_sample: 0.1, cosine: 0.999 };

    fn agreement(shape: [usize; 2], a: &[f32], b: &[f32]) -> OutputAgreement {
        let tensor = |values: &[f32]| Tensor::from_vec(shape, values.to_vec()).unwrap();
        let mut meter = AgreementMeter::default();
        assert!(meter.push(&tensor(a), &tensor(b)));
        meter.finish().unwrap()
    }

    #[test]
    fn figures_of_known_errors_are_correct() {
        let agreement = agreement([2, 2], &[1.0, 2.0, 4.0, 3.0], &[1.5, 2.0, 4.0, 4.25]);
        assert_eq!((agreement.max_abs, agreement.mean_abs, agreement.median_abs), (1.25, 0.4375, 0.25));
        assert_eq!((agreement.max_rel, agreement.elements), (0.5, 4));
        assert_eq!(agreement.top1_agreement, Some(0.5));
        assert!(agreement.cosine.unwrap() > 0.98);
        assert!((agreement.relative_l2 - (1.8125f64 / 30.0).sqrt()).abs() < 1e-12);
        assert!((agreement.worst_sample - (1.5625f64 / 15.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn outputs_of_different_shapes_are_not_compared() {
        let a = Tensor::from_vec([1], vec![1.0f32]).unwrap();
        let b = Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap();
        let mut meter = AgreementMeter::default();
        assert!(!meter.push(&a, &b));
        assert_eq!(meter.finish(), None);
    }

    #[test]
    fn nan_is_reported_and_exceeds_the_limits() {
        let agreement = agreement([1, 2], &[1.0, 2.0], &[f32::NAN, 2.0]);
        let text = serde_json::to_string(&agreement).unwrap();
        let read: OutputAgreement = serde_json::from_str(&text).unwrap();
        assert!(read.max_abs.is_nan() && read.relative_l2.is_nan() && read.worst_sample.is_nan());
        assert_eq!((read.cosine, read.non_finite), (None, 1));
        assert_eq!(LIMITS.violations(&read), ["1 element is NaN or infinite"]);
    }

    #[test]
    fn outputs_of_zeros_exceed_every_limit() {
        let violations = LIMITS.violations(&agreement([2, 2], &[1.0, 2.0, 3.0, 4.0], &[0.0; 4]));
        assert_eq!(violations.len(), 3, "{violations:?}");
        assert_eq!(violations[2], "one side is all zero");
        assert_eq!(LIMITS.violations(&agreement([2, 2], &[0.0; 4], &[0.0; 4])), [""; 0]);
        assert_eq!(LIMITS.violations(&agreement([2, 2], &[0.0; 4], &[0.0, 0.0, 0.0, 1.0])).len(), 3);
    }

    #[test]
    fn a_limit_that_a_case_sets_replaces_only_the_default_of_that_limit() {
        let default = AgreementLimits::default_for(DType::F16);
        for (name, range) in AGREEMENT_LIMITS {
            let limits = default.with_overrides([(&(*name).to_owned(), range.start())].into_iter());
            assert_ne!(limits, default, "{name}");
        }
        let overridden = default.with_overrides([(&"cosine".to_owned(), &0.5)].into_iter());
        assert_eq!(overridden, AgreementLimits { cosine: 0.5, ..default });
    }

    #[test]
    fn one_wrong_sample_among_many_correct_ones_exceeds_the_limit_of_the_worst_sample() {
        let a: Vec<f32> = (0..4096).map(|i| 1.0 + (i % 7) as f32).collect();
        let mut b = a.clone();
        b[8..10].copy_from_slice(&[3.0, 1.0]);
        let limits = AgreementLimits { relative_l2: 0.1, cosine: 0.99, ..LIMITS };
        let violations = limits.violations(&agreement([2048, 2], &a, &b));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("`worst_sample` is "), "{violations:?}");
    }
}
