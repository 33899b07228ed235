//! Compares a sample of the outputs of each pass with that of the first pass. Only one pass is compared whole with
//! validation; this comparison shows whether the other passes computed the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use flagperf_onnx::Element;
use indexmap::IndexMap;

use flagperf_core::metric::PassDifference;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_core::with_element_type;

/// Elements that are compared of each output of a step.
const ELEMENTS_PER_OUTPUT: usize = 4096;
/// Elements of the first pass that are kept, 8 bytes each; the batches after them are not compared.
const KEPT_ELEMENTS_MAX: usize = 8 << 20;

/// Compares the passes of a measured loop.
#[derive(Debug, Default)]
pub struct PassComparison {
    /// Decides which elements are compared, so that an engine cannot know them.
    random: RandomState,
    /// The elements of the first pass, by batch and output.
    first: HashMap<u64, IndexMap<String, SampledOutput>>,
    kept_elements: usize,
    pass: u32,
    /// The sums of this pass, by output.
    sums: IndexMap<String, Sums>,
    /// For each output, the pass that differs most so far.
    worst: IndexMap<String, PassDifference>,
}

/// Elements of an output at positions that depend only on the batch and on the shape.
#[derive(Debug, PartialEq)]
struct SampledOutput {
    shape: Vec<usize>,
    dtype: DType,
    values: Vec<f64>,
}

#[derive(Debug, Default)]
struct Sums {
    elements: u64,
    differing: u64,
    is_discrete: bool,
    error: f64,
    norm_first: f64,
    norm: f64,
}

impl PassComparison {
    /// Adds the outputs of the batch number `batch` of a pass, without padding.
    pub fn add_step(&mut self, batch: u64, outputs: &[(String, Tensor)]) {
        if self.pass == 0 {
            self.keep(batch, outputs);
            return;
        }
        let Some(first) = self.first.get(&batch) else { return };
        for (name, expected) in first {
            let found = outputs.iter().find(|(found, _)| found == name);
            let sampled =
                found.map(|(_, tensor)| self.sample(batch, tensor)).filter(|found| found.is_same_spec(expected));
            self.sums.entry(name.clone()).or_default().add(expected, sampled.as_ref());
        }
    }

    /// Ends a pass.
    pub fn end_pass(&mut self) {
        for (name, sums) in std::mem::take(&mut self.sums) {
            let difference = sums.difference(self.pass);
            let worst = self.worst.entry(name).or_insert_with(|| difference.clone());
            // NaN is worse than any number.
            if !worst.judged().is_nan() && (difference.judged().is_nan() || difference.judged() > worst.judged()) {
                *worst = difference;
            }
        }
        self.pass += 1;
    }

    /// Returns the number of passes that have ended, and for each output the pass that differs most from the first one.
    pub fn finish(self) -> (u32, IndexMap<String, PassDifference>) {
        (self.pass, self.worst)
    }

    fn keep(&mut self, batch: u64, outputs: &[(String, Tensor)]) {
        if self.kept_elements > KEPT_ELEMENTS_MAX {
            return;
        }
        let sampled: IndexMap<_, _> =
            outputs.iter().map(|(name, tensor)| (name.clone(), self.sample(batch, tensor))).collect();
        self.kept_elements += sampled.values().map(|output| output.values.len()).sum::<usize>();
        self.first.insert(batch, sampled);
    }

    /// Returns evenly spaced elements of an output, from a random one on.
    fn sample(&self, batch: u64, tensor: &Tensor) -> SampledOutput {
        let stride = tensor.len().div_ceil(ELEMENTS_PER_OUTPUT).max(1);
        let start =
            usize::try_from(self.random.hash_one(batch) % stride as u64).expect("the remainder is below the stride");
        let values = sampled_values(tensor, start, stride);
        SampledOutput { shape: tensor.shape().to_vec(), dtype: tensor.dtype(), values }
    }
}

/// Compares evenly spaced elements of pairs of outputs.
#[derive(Debug, Default)]
pub struct DifferenceMeter(Sums);

impl DifferenceMeter {
    /// Adds a pair of outputs.
    pub fn add(&mut self, first: &Tensor, found: &Tensor) {
        let sample = |tensor: &Tensor| {
            let stride = tensor.len().div_ceil(ELEMENTS_PER_OUTPUT).max(1);
            let values = sampled_values(tensor, 0, stride);
            SampledOutput { shape: tensor.shape().to_vec(), dtype: tensor.dtype(), values }
        };
        let (first, found) = (sample(first), sample(found));
        self.0.add(&first, found.is_same_spec(&first).then_some(&found));
    }

    /// Returns the difference over all pairs; `pass` is 0.
    pub fn finish(&self) -> PassDifference {
        self.0.difference(0)
    }
}

/// Compares evenly spaced elements of two outputs of the same samples; `pass` of the result is 0.
pub fn compare_tensors(first: &Tensor, found: &Tensor) -> PassDifference {
    let mut meter = DifferenceMeter::default();
    meter.add(first, found);
    meter.finish()
}

impl SampledOutput {
    fn is_same_spec(&self, other: &SampledOutput) -> bool {
        self.shape == other.shape && self.dtype == other.dtype
    }
}

impl Sums {
    /// Adds the elements of one step; `found` is `None` when the output is missing or has another shape.
    fn add(&mut self, first: &SampledOutput, found: Option<&SampledOutput>) {
        self.is_discrete |= !first.dtype.is_float();
        let Some(found) = found else {
            self.error = f64::NAN;
            return;
        };
        for (a, b) in first.values.iter().zip(&found.values) {
            self.elements += 1;
            self.differing += u64::from(a != b);
            self.error += (a - b) * (a - b);
            self.norm_first += a * a;
            self.norm += b * b;
        }
    }

    fn difference(&self, pass: u32) -> PassDifference {
        let relative_l2 = match self.error {
            0.0 => 0.0,
            error => (error / self.norm_first.max(self.norm)).sqrt(),
        };
        let share = self.differing as f64 / self.elements.max(1) as f64;
        let mismatches = self.is_discrete.then_some(share);
        PassDifference { pass, elements: self.elements, relative_l2, mismatches }
    }
}

/// Returns every `stride`-th element from `start` on, without converting the others.
fn sampled_values(tensor: &Tensor, start: usize, stride: usize) -> Vec<f64> {
    fn pick<T: Element>(tensor: &Tensor, start: usize, stride: usize) -> Vec<f64> {
        let elements: &[T] = bytemuck::cast_slice(tensor.bytes());
        elements.iter().skip(start).step_by(stride).map(|element| element.to_f64()).collect()
    }
    with_element_type!(tensor.dtype(), T => pick::<T>(tensor, start, stride))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs passes of two steps with these values in every element, and returns the difference of the output.
    fn compare(passes: &[[f32; 2]]) -> (u32, PassDifference) {
        let mut comparison = PassComparison::default();
        for pass in passes {
            for (batch, value) in pass.iter().enumerate() {
                let values = (0..10_000).map(|index| value * (1.0 + index as f32)).collect();
                let tensor = Tensor::from_vec([10, 1000], values).unwrap();
                comparison.add_step(batch as u64, &[("output".to_owned(), tensor)]);
            }
            comparison.end_pass();
        }
        let (count, differences) = comparison.finish();
        (count, differences["output"].clone())
    }

    #[test]
    fn the_pass_that_differs_most_from_the_first_one_is_found() {
        let (passes, same) = compare(&[[1.0, 2.0], [1.0, 2.0]]);
        assert_eq!((passes, same.pass, same.relative_l2, same.mismatches), (2, 1, 0.0, None));
        assert!((4096..=2 * 4096).contains(&same.elements), "{}", same.elements);
        let (_, zeros) = compare(&[[1.0, 2.0], [1.0, 2.001], [0.0, 0.0], [1.0, 2.0]]);
        assert_eq!((zeros.pass, zeros.relative_l2), (2, 1.0));
        let (_, nan) = compare(&[[1.0, 2.0], [1.0, f32::NAN], [0.0, 0.0]]);
        assert!(nan.pass == 1 && nan.relative_l2.is_nan(), "{nan:?}");
        let (_, from_zeros) = compare(&[[0.0, 0.0], [1.0, 2.0]]);
        assert_eq!(from_zeros.relative_l2, 1.0);
    }

    #[test]
    fn an_output_that_is_missing_or_has_another_shape_differs() {
        let output =
            |name: &str, values: Vec<i64>| (name.to_owned(), Tensor::from_vec([values.len()], values).unwrap());
        let compare = |second: (String, Tensor)| {
            let mut comparison = PassComparison::default();
            for outputs in [output("tokens", vec![1, 2, 3, 4]), second] {
                comparison.add_step(0, &[outputs]);
                comparison.end_pass();
            }
            comparison.finish().1["tokens"].clone()
        };
        assert!(compare(output("tokens", vec![1, 2])).judged().is_nan());
        assert!(compare(output("others", vec![1, 2, 3, 4])).judged().is_nan());
        let tokens = compare(output("tokens", vec![1, 2, 3, 9]));
        assert_eq!((tokens.mismatches, tokens.judged()), (Some(0.25), 0.25));
    }
}
