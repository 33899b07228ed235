//! How well the outputs of other samples would pass for those of fresh inputs.
//!
//! An engine that keeps the outputs of an earlier run returns those of the nearest sample. If these agree within the limits, no
//! comparison shows that it computed anything.

use flagperf_core::metric::{AgreementMeter, OutputAgreement};
use flagperf_core::tensor::Tensor;
use flagperf_onnx::HostMemory as _;
use indexmap::IndexMap;
use safetensors::SafeTensors;

use super::{OutputsError, Part, ValidationOutputs};

/// Rows of fresh inputs that are compared, and rows of other samples that each is compared with.
const ROWS_MAX: usize = 16;
const OTHERS_MAX: usize = 256;
/// Elements of a row in which the nearest other row is searched.
const SEARCHED_MAX: usize = 4096;
/// Elements of a row that are compared.
const ELEMENTS_MAX: usize = 1 << 20;

impl ValidationOutputs {
    /// Returns the agreement of each floating-point output of fresh inputs with that of the nearest other sample.
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
        let batches = (0..).map_while(batch);
        batches.flat_map(|(samples, tensor)| rows_of(&tensor, samples)).take(count).collect()
    }
}

/// Returns the beginning of each row of a floating-point output; none if it has no row per sample.
fn rows_of(tensor: &Tensor, samples: usize) -> Vec<Vec<f64>> {
    if !tensor.dtype().is_float() || tensor.shape().first() != Some(&samples) || tensor.is_empty() {
        return Vec::new();
    }
    let row = |index| {
        let row = tensor.take_rows(&[index]).ok()?;
        let elements = row.len().min(ELEMENTS_MAX);
        row.reshape([row.len()]).and_then(|row| row.first_rows(elements)).ok().map(|row| row.to_f64())
    };
    (0..samples.min(OTHERS_MAX)).filter_map(row).collect()
}

/// Compares each of the first fresh rows with the nearest of all other rows.
fn nearest_agreement(fresh: &[Vec<f64>], pass: &[Vec<f64>]) -> Option<OutputAgreement> {
    let (mut expected, mut replaced) = (Vec::<f64>::new(), Vec::<f64>::new());
    let compared = fresh.iter().take(ROWS_MAX);
    for (place, row) in compared.enumerate() {
        let others = fresh.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, other)| other).chain(pass);
        let others = others.filter(|other| other.len() == row.len()).take(OTHERS_MAX);
        let nearest = others.min_by(|a, b| distance(row, a).total_cmp(&distance(row, b)))?;
        expected.extend(row);
        replaced.extend(nearest);
    }
    let rows = fresh.len().min(ROWS_MAX);
    let shape = [rows, expected.len() / rows.max(1)];
    let [expected, replaced] = [expected, replaced].map(|numbers| Tensor::from_vec(shape, numbers).ok());
    let mut meter = AgreementMeter::default();
    meter.push(&expected?, &replaced?).then(|| meter.finish())?
}

/// Returns the squared distance of two rows, over some of their elements.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let stride = a.len().div_ceil(SEARCHED_MAX).max(1);
    a.iter().zip(b).step_by(stride).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_other_row_stands_for_a_fresh_one() {
        let fresh = [vec![1.0, 0.0], vec![0.0, 1.0]];
        let pass = [vec![1.0, 0.2], vec![5.0, 5.0]];
        let found = nearest_agreement(&fresh, &pass).unwrap();
        // That of both is the first row of the pass.
        let expected = ((0.2f64.powi(2) + 1.0 + 0.8f64.powi(2)) / 2.0).sqrt();
        assert!((found.relative_l2 - expected).abs() < 1e-12, "{found:?}");
        assert_eq!(nearest_agreement(&fresh[..1], &[]), None, "no other sample");
    }

    #[test]
    fn integers_and_outputs_without_a_row_per_sample_have_no_rows() {
        let floats = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(rows_of(&floats, 2), [[1.0, 2.0], [3.0, 4.0]]);
        assert!(
            rows_of(&floats, 3).is_empty() && rows_of(&floats.cast(flagperf_core::tensor::DType::I64), 2).is_empty()
        );
    }
}
