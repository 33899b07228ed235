//! Checks that inputs stay as the loader wrote them.

use super::phase::failure;
use flagperf_core::event::Failure;
use flagperf_core::hash::hash_bytes;
use flagperf_data::Batch;

/// The hashes of the inputs of a batch, by name.
#[derive(Debug, Default)]
pub struct InputHashes(Vec<(String, String)>);

impl InputHashes {
    /// Hashes the inputs of a batch.
    pub fn of(batch: &Batch) -> Self {
        InputHashes(batch.inputs.iter().map(|(name, tensor)| (name.clone(), hash_bytes(tensor.bytes()))).collect())
    }

    /// Checks that the inputs of the same batch have not changed.
    ///
    /// # Errors
    /// When an input has other bytes.
    pub fn check(&self, batch: &Batch) -> Result<(), Failure> {
        let changed = self
            .0
            .iter()
            .find(|(name, hash)| batch.inputs.get(name).is_none_or(|tensor| hash_bytes(tensor.bytes()) != *hash));
        changed.map_or(Ok(()), |(name, _)| {
            let reason = format!(
                "the preloaded input `{name}` of the first batch changed during the run, so later passes had other inputs: the \
                 engine wrote to its inputs, which must not change"
            );
            Err(failure(&reason, "`preloaded: false` in the case's parameters.yaml loads the inputs again in each pass"))
        })
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use flagperf_core::tensor::Tensor;

    #[test]
    fn a_changed_input_is_named() {
        let batch = |value: f32| Batch {
            index: 0,
            inputs: IndexMap::from([("images".to_owned(), Tensor::from_vec([1], vec![value]).unwrap())]),
            truth: IndexMap::new(),
            sample_indices: vec![0],
            failed: Vec::new(),
            rows: 1,
        };
        let hashes = InputHashes::of(&batch(1.0));
        hashes.check(&batch(1.0)).unwrap();
        let reason = hashes.check(&batch(2.0)).unwrap_err().reason;
        assert!(
            reason.starts_with("the preloaded input `images` of the first batch changed during the run"),
            "{reason}"
        );
        InputHashes::default().check(&batch(2.0)).unwrap();
    }
}
