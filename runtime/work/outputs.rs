//! Outputs of the timed run itself, kept from the first pass so that inference can be compared with validation.
//!
//! The file is safetensors: `<batch>.tickets` and `<batch>.<output>`, and what the model is in the metadata.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use flagperf_onnx::HostMemory;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, View};

use crate::event::ModelFacts;
use crate::metric::{Agreement, AgreementMeter};
use crate::tensor::{DType, Tensor, byte_count};

/// Outputs are kept up to this many bytes; the agreement says how many samples it is over.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// The metadata key under which validation tells inference what the model is.
const MODEL_KEY: &str = "model";

/// Outputs of some batches, padding cut, by the tickets of their samples.
#[derive(Debug, Default)]
pub struct KeptOutputs {
    batches: Vec<KeptBatch>,
    bytes: usize,
    full: bool,
}

#[derive(Debug)]
struct KeptBatch {
    tickets: Vec<u64>,
    outputs: Vec<(String, Tensor)>,
}

impl KeptOutputs {
    /// Keeps the outputs of one batch, unless the limit is reached.
    pub fn keep(&mut self, tickets: &[u64], outputs: Vec<(String, Tensor)>) {
        let bytes: usize = outputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
        self.full |= self.bytes + bytes > KEPT_BYTES_MAX;
        if !self.full {
            self.bytes += bytes;
            self.batches.push(KeptBatch { tickets: tickets.to_vec(), outputs });
        }
    }

    /// Writes everything kept.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path, model: &ModelFacts) -> Result<(), OutputsError> {
        let failed = |reason: String| OutputsError { path: path.display().to_string(), reason };
        let facts = serde_json::to_string(model).map_err(|e| failed(e.to_string()))?;
        let mut tensors = Vec::new();
        for (index, batch) in self.batches.iter().enumerate() {
            let tickets = batch.tickets.iter().map(|t| i64::try_from(*t).unwrap_or(i64::MAX)).collect::<Vec<_>>();
            let tickets = Tensor::from_vec([tickets.len()], tickets).map_err(|e| failed(e.to_string()))?;
            tensors.push((format!("{index}.tickets"), Stored(tickets)));
            tensors.extend(batch.outputs.iter().map(|(name, t)| (format!("{index}.{name}"), Stored(t.clone()))));
        }
        let metadata = HashMap::from([(MODEL_KEY.to_owned(), facts)]);
        safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|e| failed(e.to_string()))
    }
}

/// The outputs that validation wrote.
pub struct ValidationOutputs {
    path: String,
    memory: Arc<Mapped>,
    /// What validation's model was.
    pub model: Option<ModelFacts>,
}

impl ValidationOutputs {
    /// Opens the file that a validate phase wrote.
    ///
    /// # Errors
    /// When it is missing or malformed.
    pub fn open(path: &Path) -> Result<Self, OutputsError> {
        let failed = |reason: String| OutputsError { path: path.display().to_string(), reason };
        let file = File::open(path).map_err(|e| failed(e.to_string()))?;
        // SAFETY: the file is this run's own; nobody writes to it between the two phases.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| failed(e.to_string()))?;
        let (_, header) = SafeTensors::read_metadata(&map).map_err(|e| failed(e.to_string()))?;
        let facts = header.metadata().as_ref().and_then(|m| m.get(MODEL_KEY)).cloned();
        let model = facts.and_then(|text| serde_json::from_str(&text).ok());
        Ok(ValidationOutputs { path: path.display().to_string(), memory: Arc::new(Mapped(map)), model })
    }

    /// Compares what inference kept with what validation kept, batch by batch; batches of other samples, and outputs
    /// of other names or shapes, are left out. `None` when nothing was comparable.
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn compare(&self, inference: &KeptOutputs) -> Result<Option<Agreement>, OutputsError> {
        let failed = |reason: String| OutputsError { path: self.path.clone(), reason };
        let stored = SafeTensors::deserialize(self.memory.bytes()).map_err(|e| failed(e.to_string()))?;
        let read = |name: &str| stored.tensor(name).ok().and_then(|view| self.tensor(&view));
        let mut meter = AgreementMeter::default();
        for (index, batch) in inference.batches.iter().enumerate() {
            let Some(tickets) = read(&format!("{index}.tickets")) else { continue };
            let same =
                tickets.as_slice::<i64>().is_ok_and(|t| t.iter().map(|t| *t as u64).eq(batch.tickets.iter().copied()));
            if !same {
                continue;
            }
            let mut first = true;
            for (name, ours) in &batch.outputs {
                if let Some(theirs) = read(&format!("{index}.{name}")) {
                    first &= !meter.push(&theirs, ours, first);
                }
            }
        }
        Ok(meter.finish())
    }

    /// The tensor behind a view of this file; `None` when it is of no type we know or not aligned for it.
    fn tensor(&self, view: &safetensors::tensor::TensorView<'_>) -> Option<Tensor> {
        let dtype = DTYPES.into_iter().find(|(_, stored)| *stored == view.dtype()).map(|(dtype, _)| dtype)?;
        let offset = view.data().as_ptr() as usize - self.memory.bytes().as_ptr() as usize;
        debug_assert_eq!(byte_count(view.shape(), dtype), Some(view.data().len()));
        Tensor::from_memory(view.shape(), dtype, self.memory.clone(), offset).ok()
    }
}

struct Mapped(Mmap);

impl HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

const DTYPES: [(DType, Dtype); 9] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I8, Dtype::I8),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

struct Stored(Tensor);

impl View for Stored {
    fn dtype(&self) -> Dtype {
        let row = DTYPES.into_iter().find(|(dtype, _)| *dtype == self.0.dtype());
        row.expect("the table names every element type").1
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.0.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.0.bytes().len()
    }
}

/// A file of outputs that could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("outputs of validation `{path}`: {reason}")]
pub struct OutputsError {
    path: String,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(tickets: &[u64], values: Vec<f32>) -> KeptOutputs {
        let mut kept = KeptOutputs::default();
        let tensor = Tensor::from_vec([tickets.len(), values.len() / tickets.len()], values).unwrap();
        kept.keep(tickets, vec![("output".into(), tensor)]);
        kept
    }

    #[test]
    fn what_validation_wrote_inference_compares() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        let facts = ModelFacts { weights_are_random: true, ..ModelFacts::default() };
        kept(&[0, 1], vec![1.0, 2.0, 3.0, 4.0]).write(&path, &facts).unwrap();
        let stored = ValidationOutputs::open(&path).unwrap();
        assert!(stored.model.as_ref().unwrap().weights_are_random);
        let agreement = stored.compare(&kept(&[0, 1], vec![1.0, 2.5, 3.0, 4.0])).unwrap().unwrap();
        assert_eq!((agreement.samples, agreement.max_abs), (2, 0.5));
        assert_eq!(stored.compare(&kept(&[0, 2], vec![1.0, 2.0, 3.0, 4.0])).unwrap(), None);
    }

    #[test]
    fn a_truncated_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        std::fs::write(&path, b"short").unwrap();
        let error = ValidationOutputs::open(&path).err().unwrap();
        assert!(error.to_string().contains("outputs.safetensors"));
    }
}
