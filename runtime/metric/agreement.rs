//! How two sets of outputs agree, element by element and row by row.

use serde::{Deserialize, Deserializer, Serialize};

use crate::tensor::Tensor;

/// Agreement of inference with validation over the samples that both computed.
///
/// Absolute error is `|b - a|`; relative error is `|b - a| / max(|a|, 1e-6)`, `a` being validation. The cosine is of
/// all outputs as one vector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Samples compared.
    pub samples: u64,
    /// Largest absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_abs: f64,
    /// Largest relative error.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_rel: f64,
    /// Mean absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_abs: f64,
    /// Median absolute error.
    #[serde(deserialize_with = "null_is_nan")]
    pub median_abs: f64,
    /// Mean relative error.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_rel: f64,
    /// Median relative error.
    #[serde(deserialize_with = "null_is_nan")]
    pub median_rel: f64,
    /// Cosine similarity; `None` when one side is all zero.
    pub cosine: Option<f64>,
    /// Share of rows whose largest element is the same; `None` unless outputs are `N,C`.
    pub top1_agreement: Option<f64>,
}

/// JSON has no NaN: it is written as null, and read back as NaN.
fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// Collects pairs of outputs. Memory: two numbers an element, for the medians.
#[derive(Debug, Default)]
pub struct AgreementMeter {
    abs: Vec<f32>,
    rel: Vec<f32>,
    dot: f64,
    norm_a: f64,
    norm_b: f64,
    samples: u64,
    same_top1: u64,
    ranked_rows: u64,
}

impl AgreementMeter {
    /// Takes one output of the same rows from both sides; `counts_samples` for the first output only.
    ///
    /// Returns `false`, taking nothing, when the shapes differ.
    pub fn push(&mut self, a: &Tensor, b: &Tensor, counts_samples: bool) -> bool {
        if a.shape() != b.shape() {
            return false;
        }
        let (x, y) = (a.to_f64(), b.to_f64());
        for (a, b) in x.iter().zip(&y) {
            let error = (b - a).abs();
            self.abs.push(error as f32);
            self.rel.push((error / a.abs().max(1e-6)) as f32);
            self.dot += a * b;
            self.norm_a += a * a;
            self.norm_b += b * b;
        }
        if counts_samples {
            self.samples += a.shape().first().copied().unwrap_or(1) as u64;
            if let [rows, classes] = *a.shape()
                && classes > 0
            {
                self.ranked_rows += rows as u64;
                let rows = x.chunks_exact(classes).zip(y.chunks_exact(classes));
                self.same_top1 += rows.filter(|(a, b)| argmax(a) == argmax(b)).count() as u64;
            }
        }
        true
    }

    /// The agreement over everything taken; `None` without any element.
    pub fn finish(mut self) -> Option<Agreement> {
        if self.abs.is_empty() {
            return None;
        }
        let norms = (self.norm_a * self.norm_b).sqrt();
        Some(Agreement {
            samples: self.samples,
            max_abs: largest(&self.abs),
            max_rel: largest(&self.rel),
            mean_abs: mean(&self.abs),
            median_abs: median(&mut self.abs),
            mean_rel: mean(&self.rel),
            median_rel: median(&mut self.rel),
            cosine: (norms > 0.0).then(|| self.dot / norms),
            top1_agreement: (self.ranked_rows > 0).then(|| self.same_top1 as f64 / self.ranked_rows as f64),
        })
    }
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
mod tests {
    use super::*;

    #[test]
    fn known_errors_give_known_figures() {
        let a = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 4.0, 3.0]).unwrap();
        let b = Tensor::from_vec([2, 2], vec![1.5f32, 2.0, 4.0, 4.25]).unwrap();
        let mut meter = AgreementMeter::default();
        assert!(meter.push(&a, &b, true));
        let agreement = meter.finish().unwrap();
        assert_eq!((agreement.max_abs, agreement.mean_abs, agreement.median_abs), (1.25, 0.4375, 0.25));
        assert_eq!((agreement.max_rel, agreement.samples), (0.5, 2));
        assert_eq!(agreement.top1_agreement, Some(0.5));
        assert!(agreement.cosine.unwrap() > 0.98);
    }

    #[test]
    fn other_shapes_are_not_compared() {
        let a = Tensor::from_vec([1], vec![1.0f32]).unwrap();
        let b = Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap();
        let mut meter = AgreementMeter::default();
        assert!(!meter.push(&a, &b, true));
        assert_eq!(meter.finish(), None);
    }

    #[test]
    fn nan_is_never_hidden() {
        let a = Tensor::from_vec([1, 2], vec![1.0f32, 2.0]).unwrap();
        let b = Tensor::from_vec([1, 2], vec![f32::NAN, 2.0]).unwrap();
        let mut meter = AgreementMeter::default();
        meter.push(&a, &b, true);
        let text = serde_json::to_string(&meter.finish().unwrap()).unwrap();
        let read: Agreement = serde_json::from_str(&text).unwrap();
        assert!(read.max_abs.is_nan());
    }
}
