//! Compares the output of a whole input with that of one tile, computed in f64.

use flagperf_core::tensor::{DType, Tensor};
use flagperf_onnx::Graph;
use flagperf_onnx_exec::{Executor, ReferenceOps};
use serde::{Deserialize, Serialize};

use super::graph::{GraphFailure, OperatorGraph};
use super::operators::{Operator, Scale};

/// Largest number of elements of an output that are compared: rows are left out of a larger one, evenly.
const COMPARED_MAX: usize = 1 << 24;

/// The number of standard deviations that chance explains: twice in a billion outputs it is exceeded.
const DEVIATIONS_MAX: f64 = 6.0;
/// The elements in which two calls must not drop the same ones.
const ZEROS_COMPARED: usize = 4096;

/// How an output differs from the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The largest difference, relative to the largest element of the reference.
    pub error: f64,
    /// The largest that rounding explains.
    pub limit: f64,
    /// The number of elements that were compared, and that the outputs have.
    pub compared: u64,
    pub elements: u64,
    /// The first element that is not a number where it should be one, or is a number where it should not; or another shape.
    pub wrong: Option<String>,
}

impl Comparison {
    /// Returns whether the outputs are right.
    pub fn is_right(&self) -> bool {
        self.wrong.is_none() && self.error <= self.limit
    }

    /// Adds another comparison: the larger error counts.
    pub(crate) fn merge(self, other: Comparison) -> Comparison {
        Comparison {
            error: self.error.max(other.error),
            limit: self.limit,
            compared: self.compared + other.compared,
            elements: self.elements + other.elements,
            wrong: self.wrong.or(other.wrong),
        }
    }
}

/// The outputs of one tile, computed in f64.
pub(crate) struct Reference {
    outputs: Vec<Tensor>,
    scales: Vec<Scale>,
    tiles: f64,
    limit: f64,
    /// The magnitude that errors are relative to: the largest finite element of the last output, and with a gradient also of what
    /// is differentiated, because the gradient of a sum may be zero except for rounding.
    magnitude: f64,
    /// The probability with which an element is dropped.
    dropped: f64,
    /// The standard deviation of the sum of all elements, which differs from that of the reference because some are dropped.
    sum_deviation: f64,
}

impl Reference {
    /// Computes the outputs of a tile with the graph for its shapes, and with `forward` what is differentiated. There are `tiles` of it;
    /// rounding explains an error of `limit`.
    ///
    /// # Errors
    /// When the graph cannot be computed.
    pub fn compute(
        operator: &Operator,
        tile: &OperatorGraph,
        forward: Option<&Graph>,
        inputs: &[Tensor],
        (tiles, limit): (f64, f64),
    ) -> Result<Self, GraphFailure> {
        let failed = |error: flagperf_onnx_exec::ExecError| GraphFailure::new(operator.name, error);
        let compute =
            |graph: &Graph| Executor::load(graph, ReferenceOps).and_then(|executor| executor.run_host(inputs));
        let outputs = compute(&tile.graph).map_err(failed)?;
        let differentiated = forward.map(compute).transpose().map_err(failed)?.unwrap_or_default();
        let last = outputs.last().into_iter().chain(&differentiated);
        let magnitude = last.map(|tensor| largest(&tensor.to_f64())).fold(0.0, f64::max);
        let squares: f64 = differentiated.iter().flat_map(Tensor::to_f64).map(|element| element * element).sum();
        let sum_deviation = (tiles * squares * operator.dropped * (1.0 - operator.dropped)).sqrt();
        let (scales, dropped) = (tile.scales.clone(), operator.dropped);
        Ok(Reference { outputs, scales, tiles, limit, magnitude, dropped, sum_deviation })
    }

    /// Returns the reference of an output that repeats `tile`, of which rounding explains an error of `limit`.
    pub fn repeated(tile: Tensor, limit: f64) -> Self {
        let magnitude = largest(&tile.to_f64());
        let scales = vec![Scale::Same];
        Reference { outputs: vec![tile], scales, tiles: 1.0, limit, magnitude, dropped: 0.0, sum_deviation: 0.0 }
    }

    /// Compares the outputs of whole inputs.
    pub fn compare(&self, outputs: &[Tensor]) -> Comparison {
        let mut all = Comparison { error: 0.0, limit: self.limit, compared: 0, elements: 0, wrong: None };
        if outputs.len() != self.outputs.len() {
            all.wrong = Some(format!("{} outputs instead of {}", outputs.len(), self.outputs.len()));
            return all;
        }
        for ((actual, tile), scale) in outputs.iter().zip(&self.outputs).zip(&self.scales) {
            let factor = match scale {
                Scale::Same => 1.0,
                Scale::Tiles => self.tiles,
                Scale::PerTile => 1.0 / self.tiles,
            };
            all = all.merge(self.compare_one(actual, tile, factor));
        }
        all
    }

    fn compare_one(&self, actual: &Tensor, tile: &Tensor, factor: f64) -> Comparison {
        let elements = actual.len() as u64;
        let mut found = Comparison { error: 0.0, limit: self.limit, compared: 0, elements, wrong: None };
        let is_multiple = |(whole, part): (&usize, &usize)| *part > 0 && whole.is_multiple_of(*part);
        if actual.dtype() != tile.dtype()
            || actual.shape().len() != tile.shape().len()
            || !actual.shape().iter().zip(tile.shape()).all(is_multiple)
        {
            found.wrong = Some(format!("an output `{}` instead of repetitions of `{}`", actual.spec(), tile.spec()));
            return found;
        }
        let scalar = [1];
        let (whole, part) =
            if actual.shape().is_empty() { (&scalar[..], &scalar[..]) } else { (actual.shape(), tile.shape()) };
        let (width, tile_width) = (whole[whole.len() - 1], part[part.len() - 1]);
        let (rows, expected_tile) = (actual.len() / width, in_range(tile, factor));
        if self.dropped > 0.0 && tile.shape().is_empty() {
            return Comparison { compared: 1, wrong: self.wrong_sum(actual.to_f64()[0], expected_tile[0]), ..found };
        }
        let magnitude = if tile.shape().is_empty() { largest(&expected_tile) } else { self.magnitude * factor };
        let mut dropped = 0u64;
        let step = actual.len().div_ceil(COMPARED_MAX).max(1);
        let size = actual.dtype().size();
        for row in (0..rows).step_by(step) {
            let from = row * width * size;
            let values = row_values(&actual.bytes()[from..from + width * size], actual.dtype());
            let tile_row = row_of_tile(row, whole, part) * tile_width;
            let expected = expected_tile[tile_row..tile_row + tile_width].iter().cycle();
            for (place, (value, expected)) in values.iter().zip(expected).enumerate() {
                if value == expected || value.is_nan() && expected.is_nan() {
                    continue;
                }
                if self.dropped > 0.0 && *value == 0.0 {
                    dropped += 1;
                    continue;
                }
                if !value.is_finite() || !expected.is_finite() {
                    let place = row * width + place;
                    found.wrong.get_or_insert_with(|| format!("element {place} is {value} instead of {expected}"));
                    continue;
                }
                found.error = found.error.max((value - expected).abs() / magnitude.max(f64::MIN_POSITIVE));
            }
            found.compared += width as u64;
        }
        found.wrong = found.wrong.or_else(|| self.wrong_share(dropped, found.compared));
        found
    }

    /// Returns what is wrong with the sum of elements of which some are dropped, given the sum of all.
    fn wrong_sum(&self, sum: f64, of_all: f64) -> Option<String> {
        let expected = of_all * (1.0 - self.dropped);
        let allowed = DEVIATIONS_MAX * self.sum_deviation + self.limit * expected.abs();
        let is_wrong = sum.is_nan() || (sum - expected).abs() > allowed;
        is_wrong.then(|| format!("the sum is {sum} instead of {expected}, and chance explains at most {allowed:.1e}"))
    }

    /// Returns what is wrong with the number of dropped elements.
    fn wrong_share(&self, dropped: u64, compared: u64) -> Option<String> {
        let (probability, count) = (self.dropped, compared as f64);
        if probability == 0.0 {
            return None;
        }
        let deviation = (probability * (1.0 - probability) / count).sqrt();
        // A type with few digits rounds the probability.
        let allowed = DEVIATIONS_MAX * deviation + self.limit * probability;
        let share = dropped as f64 / count;
        let is_wrong = (share - probability).abs() > allowed;
        is_wrong.then(|| format!("a share of {share} of the elements is dropped instead of {probability}"))
    }
}

/// Returns whether in the last outputs of two calls the same elements are zero, as far as the first ones show.
pub(crate) fn drop_the_same(first: &[Tensor], second: &[Tensor]) -> bool {
    let zeros = |outputs: &[Tensor]| {
        let output = outputs.last()?;
        let count = output.len().min(ZEROS_COMPARED);
        let values = row_values(&output.bytes()[..count * output.dtype().size()], output.dtype());
        Some(values.into_iter().map(|value| value == 0.0).collect::<Vec<bool>>())
    };
    zeros(first) == zeros(second)
}

/// Returns the elements of a tensor times a factor; infinite where the type of the tensor ends before: the sum of many elements in f16.
fn in_range(tensor: &Tensor, factor: f64) -> Vec<f64> {
    let exact: Vec<f64> = tensor.to_f64().into_iter().map(|value| value * factor).collect();
    let rounded = Tensor::from_vec([exact.len()], exact.clone()).expect("the shape is the length of the list");
    let rounded = rounded.cast(tensor.dtype()).to_f64();
    exact.into_iter().zip(rounded).map(|(exact, rounded)| if rounded.is_finite() { exact } else { rounded }).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().filter(|value| value.is_finite()).fold(0.0, |largest: f64, value| largest.max(value.abs()))
}

fn row_values(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let row = Tensor::from_bytes([bytes.len() / dtype.size()], dtype, bytes);
    row.expect("the bytes are whole elements").to_f64()
}

/// Returns the row of a tile that a row of the whole repeats. A row is all elements along the last dimension.
fn row_of_tile(mut row: usize, whole: &[usize], tile: &[usize]) -> usize {
    let (mut place, mut stride) = (0, 1);
    for (size, part) in whole.iter().zip(tile).rev().skip(1) {
        place += row % size % part * stride;
        stride *= part;
        row /= size;
    }
    place
}
