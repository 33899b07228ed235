//! The batches of a training: each is loaded, and copied to the device if the engine copies during the step before.

use flagperf_core::event::Failure;
use flagperf_data::{Batch, LoadError};
use flagperf_engine::Value;

use super::super::phase::failure;
use super::training_loop::TrainingLoop;

/// A batch with the fields that the step reads.
pub struct LoadedBatch {
    pub batch: Batch,
    /// In host memory, or copied to the device.
    pub fields: Vec<Value>,
}

impl TrainingLoop<'_> {
    /// Takes the batch that was copied during the last step, or else waits for the next one; `None` at the end of the pass.
    pub(super) fn next_batch(&mut self) -> Result<Option<LoadedBatch>, Failure> {
        match self.ahead.take() {
            Some(copied) => copied.map(Some),
            None => self.loader.next().map(|batch| self.with_fields(batch)).transpose(),
        }
    }

    fn with_fields(&self, batch: Result<Batch, LoadError>) -> Result<LoadedBatch, Failure> {
        let batch = batch.map_err(|e| failure(&e, e.hint()))?;
        let fields = self.batch_inputs(&batch)?;
        Ok(LoadedBatch { batch, fields })
    }

    /// Starts to copy the next batch if it has been loaded.
    pub(super) fn copy_next(&mut self) {
        let Some(transfer) = &self.transfer else { return };
        let Some(batch) = self.loader.next_if_ready() else { return };
        self.ahead = Some(self.with_fields(batch).and_then(|loaded| {
            let fields = transfer.start(&loaded.fields)?;
            Ok(LoadedBatch { fields, ..loaded })
        }));
    }

    /// Returns the fields of the batch that the step reads.
    pub(super) fn batch_inputs(&self, batch: &Batch) -> Result<Vec<Value>, Failure> {
        let field = |name: &String| {
            let tensor = batch.inputs.get(name).or_else(|| batch.truth.get(name));
            tensor.map(|tensor| Value::Host(tensor.clone())).ok_or_else(|| {
                let known: Vec<&str> = batch.inputs.keys().chain(batch.truth.keys()).map(String::as_str).collect();
                let reason = format!(
                    "the training step has the input `{name}`, but the batches of training.rhai have {}",
                    known.join(", ")
                );
                failure(&reason, "inputs of the graph have the names of fields of the dataset")
            })
        };
        self.model.fields().iter().map(|input| field(&input.name)).collect()
    }
}
