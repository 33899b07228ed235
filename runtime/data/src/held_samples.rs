//! Some samples of a dataset, read once and held in memory, so that they can be requested again in any order without reading a file.

use std::collections::HashMap;
use std::sync::Arc;

use super::fill::read_sample;
use super::{Dataset, Field, OpenLength, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::tensor::byte_count;

/// Samples of a dataset that are held in memory. Their indices are those of the dataset.
pub struct HeldSamples {
    dataset: Arc<dyn Dataset>,
    /// The fields of each sample by its index.
    samples: HashMap<usize, Vec<Vec<u8>>>,
}

impl HeldSamples {
    /// Reads these samples. Those that cannot be read are left out if `skips_bad`.
    ///
    /// # Errors
    /// When a sample cannot be read and is not left out.
    pub fn read(dataset: Arc<dyn Dataset>, indices: &[usize], skips_bad: bool) -> Result<Self, SampleError> {
        let mut samples = HashMap::with_capacity(indices.len());
        for &index in indices {
            let mut fields: Vec<Vec<u8>> = dataset.fields().iter().map(|field| vec![0; field_bytes(field)]).collect();
            let mut slices: Vec<&mut [u8]> = fields.iter_mut().map(Vec::as_mut_slice).collect();
            match read_sample(dataset.as_ref(), index, None, &mut slices) {
                Ok(()) => drop(samples.insert(index, fields)),
                Err(_) if skips_bad => {}
                Err(error) => return Err(error),
            }
        }
        Ok(HeldSamples { dataset, samples })
    }

    /// Returns the bytes of a sample of a dataset.
    pub fn sample_bytes(dataset: &dyn Dataset) -> usize {
        dataset.fields().iter().map(field_bytes).sum()
    }

    /// Returns whether a sample is held.
    pub fn has(&self, index: usize) -> bool {
        self.samples.contains_key(&index)
    }
}

/// Returns the bytes of a field in a sample.
fn field_bytes(field: &Field) -> usize {
    field.spec.fixed_shape().and_then(|shape| byte_count(&shape, field.spec.dtype)).unwrap_or(0)
}

impl Dataset for HeldSamples {
    fn facts(&self) -> &DatasetFacts {
        self.dataset.facts()
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn open_length(&self) -> Option<OpenLength> {
        self.dataset.open_length()
    }

    fn sample_name(&self, index: usize) -> String {
        self.dataset.sample_name(index)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let held = self.samples.get(&index).ok_or_else(|| SampleError {
            sample: self.sample_name(index),
            reason: "it is not held in memory".to_owned(),
        })?;
        fields.iter_mut().zip(held).for_each(|(field, held)| field.copy_from_slice(held));
        Ok(())
    }
}
