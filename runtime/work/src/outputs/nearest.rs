//! How well the outputs of other samples would pass for those of fresh inputs.
//!
//! An engine that keeps the outputs of earlier runs returns those of the nearest sample. If these agree within the limits, no
//! comparison shows that it computed anything. It may know many more samples than validation kept. How much nearer the nearest one
//! then is follows from the number of dimensions in which the outputs lie.

use flagperf_core::metric::{AgreementMeter, OutputAgreement};
use flagperf_core::tensor::Tensor;
use flagperf_onnx::HostMemory as _;
use indexmap::IndexMap;
use safetensors::SafeTensors;

use super::{OutputsError, Part, ValidationOutputs};

/// Rows of fresh inputs that are compared, and rows of other samples that each is compared with.
const ROWS_MAX: usize = 16;
const OTHERS_MAX: usize = 256;
/// How many times as many samples an engine may know as the rows are compared with.
const KNOWN_MORE: f64 = 1000.0;
/// The nearest rows from whose distances the number of dimensions is estimated.
const NEIGHBOURS: usize = 8;
/// Elements of a row in which the nearest other row is searched.
const SEARCHED_MAX: usize = 4096;
/// Elements of a row that are compared.
const ELEMENTS_MAX: usize = 1 << 20;

impl ValidationOutputs {
    /// Returns the agreement of each floating-point output of fresh inputs with what an engine would return that knows other samples,
    /// [`KNOWN_MORE`] times as many as validation kept.
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn nearest(&self) -> Result<IndexMap<String, OutputAgreement>, OutputsError> {
        let failed = |reason: String| OutputsError { path: self.path.clone(), reason };
        let stored = SafeTensors::deserialize(self.memory.bytes()).map_err(|e| failed(e.to_string()))?;
        let prefix = Part::Fresh.output_key(0, "");
        let mut names: Vec<&str> = stored.names().into_iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
        names.sort_unstable();
        let agreement = |name: &str| {
            let rows = |part, count| self.rows(&stored, part, name, count);
            let (fresh, pass) = (rows(Part::Fresh, OTHERS_MAX), rows(Part::Pass, OTHERS_MAX));
            Some((name.to_owned(), nearest_agreement(&fresh, &pass)?))
        };
        Ok(names.into_iter().filter_map(agreement).collect())
    }

    /// Returns the first rows of a floating-point output; none if it has no row per sample.
    fn rows(&self, stored: &SafeTensors<'_>, part: Part, name: &str, count: usize) -> Vec<Vec<f64>> {
        let read = |key: &str| stored.tensor(key).ok().and_then(|view| self.tensor(&view));
        let batch = |index| Some((read(&part.tickets_key(index))?.len(), read(&part.output_key(index, name))?));
        let mut rows = Vec::new();
        for (samples, tensor) in (0..).map_while(batch) {
            rows.extend(rows_of(&tensor, samples, count - rows.len()));
            if rows.len() == count {
                break;
            }
        }
        rows
    }
}

/// Returns the beginning of at most `count` rows of a floating-point output; none if it has no row per sample.
fn rows_of(tensor: &Tensor, samples: usize, count: usize) -> Vec<Vec<f64>> {
    if !tensor.dtype().is_float() || tensor.shape().first() != Some(&samples) || tensor.is_empty() {
        return Vec::new();
    }
    let row = |index| {
        let row = tensor.take_rows(&[index]).ok()?;
        let elements = row.len().min(ELEMENTS_MAX);
        row.reshape([row.len()]).and_then(|row| row.first_rows(elements)).ok().map(|row| row.to_f64())
    };
    (0..samples.min(count)).filter_map(row).collect()
}

/// The row of a fresh input, and the rows of others around it.
struct Neighbours<'r> {
    row: &'r Vec<f64>,
    nearest: &'r Vec<f64>,
    /// The inverse of the number of dimensions in which the rows lie: the mean logarithm of the ratio between the distance of the last of
    /// the nearest rows and those of the others (Levina and Bickel, "Maximum likelihood estimation of intrinsic dimension", 2004).
    inverse_dimension: f64,
}

impl<'r> Neighbours<'r> {
    fn find(row: &'r Vec<f64>, others: impl Iterator<Item = &'r Vec<f64>>) -> Option<Self> {
        let others = others.filter(|other| other.len() == row.len()).take(OTHERS_MAX);
        let mut others: Vec<_> = others.map(|other| (distance(row, other).sqrt(), other)).collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0));
        others.truncate(NEIGHBOURS);
        let (last, nearer) = others.split_last()?;
        let ratios = nearer.iter().map(|(distance, _)| (last.0 / distance).ln());
        let inverse_dimension = ratios.sum::<f64>() / nearer.len().max(1) as f64;
        Some(Neighbours { row, nearest: others[0].1, inverse_dimension })
    }

    /// Returns a row in the direction of the nearest one, at a part of its distance.
    fn at(&self, part: f64) -> Vec<f64> {
        self.row.iter().zip(self.nearest).map(|(own, other)| own + (other - own) * part).collect()
    }
}

/// Compares each of the first fresh rows with a row as far away as the nearest of [`KNOWN_MORE`] times as many others.
fn nearest_agreement(fresh: &[Vec<f64>], pass: &[Vec<f64>]) -> Option<OutputAgreement> {
    let without = |place| fresh.iter().enumerate().filter(move |(other, _)| *other != place).map(|(_, other)| other);
    let rows = fresh.iter().enumerate().take(ROWS_MAX);
    let found: Vec<_> =
        rows.map(|(place, row)| Neighbours::find(row, without(place).chain(pass))).collect::<Option<_>>()?;
    let inverse_dimension = found.iter().map(|found| found.inverse_dimension).sum::<f64>() / found.len().max(1) as f64;
    // The number of rows within a distance grows with its power of the dimension.
    let part = KNOWN_MORE.powf(-inverse_dimension);
    let tensor = |rows: Vec<Vec<f64>>| Tensor::from_vec([rows.len(), rows.first()?.len()], rows.concat()).ok();
    let expected = tensor(found.iter().map(|found| found.row.clone()).collect())?;
    let mut meter = AgreementMeter::default();
    meter.push(&expected, &tensor(found.iter().map(|found| found.at(part)).collect())?).then(|| meter.finish())?
}

/// Returns the squared distance of two rows, over some of their elements.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let stride = a.len().div_ceil(SEARCHED_MAX).max(1);
    a.iter().zip(b).step_by(stride).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of the nearest row among rows of random numbers that depend on so many random numbers each.
    fn error(dimensions: usize) -> f64 {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut row = || {
            let numbers: Vec<f64> = (0..dimensions).map(|_| random()).collect();
            (0..64).map(|i| numbers[i % dimensions]).collect::<Vec<f64>>()
        };
        let [fresh, pass] = [16, 128].map(|count| (0..count).map(|_| row()).collect::<Vec<_>>());
        nearest_agreement(&fresh, &pass).unwrap().relative_l2
    }

    #[test]
    fn stored_outputs_of_few_dimensions_are_near_and_those_of_many_are_not() {
        assert!(error(1) < 1e-3, "{}", error(1));
        assert!(error(64) > 0.2, "{}", error(64));
        assert_eq!(nearest_agreement(&[vec![1.0]], &[]), None, "no other sample");
    }

    #[test]
    fn integers_and_outputs_without_a_row_per_sample_have_no_rows() {
        let floats = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(rows_of(&floats, 2, 2), [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(rows_of(&floats, 2, 1), [[1.0, 2.0]], "no more than asked for");
        assert!(
            rows_of(&floats, 3, 2).is_empty()
                && rows_of(&floats.cast(flagperf_core::tensor::DType::I64), 2, 2).is_empty()
        );
    }
}
