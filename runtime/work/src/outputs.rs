//! Outputs of one timed pass, kept so that inference can be compared with validation.
//!
//! The file is safetensors with the tensors `<batch>.tickets` and `<batch>.output.<name>`, the same with the prefix
//! `fresh.` for the fresh inputs of the audit, and the properties of the model in the metadata.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use flagperf_core::regular_file::open_regular;
use flagperf_onnx::HostMemory;
use safetensors::SafeTensors;

use self::queries::{first_token_name, first_tokens};
use super::audit::FreshOutputs;
use flagperf_core::event::ModelFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::metric::{Agreement, AgreementMeter, OutputAgreement};
use flagperf_core::tensor::{DType, Tensor, byte_count};
use flagperf_data::{Batch, BatchRequest};
use flagperf_engine::{HeapMemory, LentMemory};
use flagperf_evaluation::{StoredTensor, stored_dtype, write_tensors};

mod nearest;
mod queries;
mod samples;

pub use queries::{QueryOutputs, QuerySample};
pub use samples::{DrawnSamples, SAMPLES_DRAWN};

/// Outputs are kept up to this many bytes. The agreement contains the number of samples that were compared.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// The metadata key under which validation stores the properties of its model for inference.
const MODEL_KEY: &str = "model";

/// Outputs of some batches without padding, with the tickets of their samples.
#[derive(Debug, Default)]
pub struct KeptOutputs {
    /// Index of the pass, from 0.
    pub pass: u32,
    /// Whether they are tokens of an engine that told when they arrived.
    pub have_tokens: bool,
    batches: Vec<KeptBatch>,
    /// Outputs of the audit's inputs, which only this run has.
    fresh: Vec<KeptBatch>,
    /// The requests of these outputs.
    fresh_requests: Vec<BatchRequest>,
    /// The outputs of a batch of fresh inputs that validation does not run, and how many such batches there were.
    unseen: Option<(BatchRequest, KeptBatch)>,
    unseen_batches: u64,
    /// The rank of each batch: batches of low rank are kept.
    ranks: Vec<usize>,
}

#[derive(Debug)]
struct KeptBatch {
    tickets: Vec<u64>,
    /// Number of samples that could be read.
    samples: u32,
    outputs: Vec<(String, Tensor)>,
}

impl KeptBatch {
    /// Returns the first tokens of its answers, of which each row of an output of i64 has one.
    fn first_tokens(&self) -> Self {
        let is_tokens = |output: &&(String, Tensor)| output.1.dtype() == DType::I64 && output.1.shape().len() == 2;
        let outputs = self.outputs.iter().filter(is_tokens).map(|(name, tokens)| (name.clone(), first_tokens(tokens)));
        KeptBatch { tickets: self.tickets.clone(), samples: self.samples, outputs: outputs.collect() }
    }
}

impl KeptOutputs {
    /// Creates an empty collection for the pass with this index.
    pub fn of_pass(pass: u32) -> Self {
        KeptOutputs { pass, ..KeptOutputs::default() }
    }

    /// Creates an empty collection for a random pass of `0..passes`, so that an engine cannot predict which pass must
    /// be correct.
    pub fn of_random_pass(passes: u32) -> Self {
        let drawn = RandomState::new().hash_one(0) % u64::from(passes.max(1));
        KeptOutputs::of_pass(u32::try_from(drawn).expect("the remainder is less than `passes`"))
    }

    /// Sets the rank of each batch. Without ranks, every batch is kept.
    #[must_use]
    pub fn with_ranks(self, ranks: Vec<usize>) -> Self {
        KeptOutputs { ranks, ..self }
    }

    /// Keeps the outputs of a batch, which has `samples` samples that could be read, if those of all batches of lower
    /// rank fit into the limit, too.
    pub fn keep(&mut self, batch: &Batch, samples: u32, outputs: Vec<(String, Tensor)>) {
        let bytes: usize = outputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
        if bytes.saturating_mul(self.rank_of(batch) + 1) <= KEPT_BYTES_MAX {
            self.batches.push(KeptBatch { tickets: batch.sample_indices.clone(), samples, outputs });
        }
    }

    /// Returns the rank of a batch.
    pub fn rank_of(&self, batch: &Batch) -> usize {
        self.ranks.get(batch.index as usize).copied().unwrap_or_default()
    }

    /// Keeps the outputs of fresh inputs, of which `samples` samples could be read. Of those that validation does not run, one batch
    /// is kept, which is drawn at random so that no engine can know it.
    pub fn keep_fresh(&mut self, fresh: FreshOutputs, samples: u32) {
        let FreshOutputs { is_compared, request, outputs } = fresh;
        let batch = KeptBatch { tickets: request.samples.to_vec(), samples, outputs };
        if is_compared {
            self.fresh.push(batch);
            self.fresh_requests.push(request);
            return;
        }
        self.unseen_batches += 1;
        if RandomState::new().hash_one(0).is_multiple_of(self.unseen_batches) {
            self.unseen = Some((request, batch));
        }
    }

    /// Writes the kept outputs and the properties of the model.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path, model: &ModelFacts) -> io::Result<()> {
        let facts = serde_json::to_string(model).map_err(io::Error::other)?;
        let mut tensors = Vec::new();
        for (part, batches) in [(Part::Pass, &self.batches), (Part::Fresh, &self.fresh)] {
            for (index, batch) in batches.iter().enumerate() {
                let tickets = batch.tickets.iter().map(|t| i64::try_from(*t).unwrap_or(i64::MAX)).collect::<Vec<_>>();
                let tickets = Tensor::from_vec([tickets.len()], tickets).map_err(io::Error::other)?;
                tensors.push((part.tickets_key(index), StoredTensor(tickets)));
                let outputs = batch.outputs.iter();
                tensors.extend(outputs.map(|(name, t)| (part.output_key(index, name), StoredTensor(t.clone()))));
            }
        }
        let metadata = HashMap::from([(MODEL_KEY.to_owned(), facts)]);
        write_tensors(tensors, metadata, path)
    }
}

/// The file of outputs that validation wrote.
pub struct ValidationOutputs {
    path: String,
    memory: Arc<HeapMemory>,
    /// Properties of validation's model.
    pub model: Option<ModelFacts>,
}

impl ValidationOutputs {
    /// Reads the file that the validation phase wrote, which had the given hash. It is read whole and before an engine is
    /// loaded, because a vendor's process may write to the folder.
    ///
    /// # Errors
    /// When the file is missing, malformed or another one.
    pub fn read(path: &Path, sha256: Option<&str>) -> Result<Self, OutputsError> {
        let failed = |reason: String| OutputsError { path: path.display().to_string(), reason };
        let memory = read_aligned(path).map_err(|e| failed(e.to_string()))?;
        if sha256.is_some_and(|sha256| sha256 != hash_bytes(memory.bytes())) {
            return Err(failed("another program changed it after validation wrote it".to_owned()));
        }
        let (_, header) = SafeTensors::read_metadata(memory.bytes()).map_err(|e| failed(e.to_string()))?;
        let facts = header.metadata().as_ref().and_then(|m| m.get(MODEL_KEY)).cloned();
        let model = facts.and_then(|text| serde_json::from_str(&text).ok());
        Ok(ValidationOutputs { path: path.display().to_string(), memory: Arc::new(memory), model })
    }

    /// Compares the kept outputs of inference with those of validation, each output separately. If they are tokens that arrived at known
    /// times, the first one of each answer is also compared by itself: an engine that sends any token at once, and the true ones later,
    /// would be within the limits of whole answers.
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn compare(&self, inference: &KeptOutputs) -> Result<Agreement, OutputsError> {
        let mut agreement = self.compare_part(Part::Pass, &inference.batches, Tensor::clone)?;
        if inference.have_tokens {
            let first = inference.batches.iter().map(KeptBatch::first_tokens).collect::<Vec<_>>();
            let compared = self.compare_part(Part::Pass, &first, first_tokens)?.outputs;
            agreement.outputs.extend(compared.into_iter().map(|(name, figures)| (first_token_name(&name), figures)));
        }
        Ok(Agreement { pass: inference.pass, ..agreement })
    }

    /// Compares the outputs of fresh inputs with those of validation; `None` when there are none on both sides.
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn compare_fresh(&self, inference: &KeptOutputs) -> Result<Agreement, OutputsError> {
        self.compare_part(Part::Fresh, &inference.fresh, Tensor::clone)
    }

    /// Compares what `of_stored` returns of the stored outputs with outputs of inference.
    fn compare_part(
        &self,
        part: Part,
        inference: &[KeptBatch],
        of_stored: fn(&Tensor) -> Tensor,
    ) -> Result<Agreement, OutputsError> {
        let failed = |reason: String| OutputsError { path: self.path.clone(), reason };
        let stored = SafeTensors::deserialize(self.memory.bytes()).map_err(|e| failed(e.to_string()))?;
        let read = |name: &str| stored.tensor(name).ok().and_then(|view| self.tensor(&view));
        let tickets = |index| Some(read(&part.tickets_key(index))?.as_slice::<i64>().ok()?.to_vec());
        let numbers: HashMap<Vec<i64>, usize> =
            (0..).map_while(tickets).enumerate().map(|(index, tickets)| (tickets, index)).collect();
        let find = |batch: &KeptBatch| {
            let tickets: Vec<i64> = batch.tickets.iter().map(|t| i64::try_from(*t).unwrap_or(i64::MAX)).collect();
            numbers.get(&tickets).copied()
        };
        let batches: Vec<(usize, &KeptBatch)> =
            inference.iter().filter_map(|batch| Some((find(batch)?, batch))).collect();
        let samples = batches.iter().map(|(_, batch)| u64::from(batch.samples)).sum();
        let mut agreement = Agreement { samples, ..Agreement::default() };
        if batches.len() < inference.len() {
            let (others, all) = (inference.len() - batches.len(), inference.len());
            agreement
                .not_compared
                .push(format!("validation kept no outputs for the samples of {others} of {all} batches"));
        }
        let Some((first, batch)) = batches.first() else { return Ok(agreement) };
        let prefix = part.output_key(*first, "");
        let mut stored_outputs: Vec<&str> =
            stored.names().into_iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
        stored_outputs.sort_unstable();
        for name in stored_outputs.iter().filter(|name| !batch.outputs.iter().any(|(kept, _)| kept == *name)) {
            agreement.not_compared.push(format!("inference has no output `{name}`, which validation has"));
        }
        for (position, (name, _)) in batch.outputs.iter().enumerate() {
            let pairs = batches.iter().map(|(index, batch)| {
                (read(&part.output_key(*index, name)).as_ref().map(of_stored), batch.outputs.get(position))
            });
            match compare_output(name, pairs) {
                Ok(figures) => drop(agreement.outputs.insert(name.clone(), figures)),
                Err(reason) => agreement.not_compared.push(reason),
            }
        }
        Ok(agreement)
    }

    /// Returns the tensor of a view into this file; `None` when its element type is unsupported or the data is
    /// misaligned.
    fn tensor(&self, view: &safetensors::tensor::TensorView<'_>) -> Option<Tensor> {
        let dtype = stored_dtype(view)?;
        let offset = view.data().as_ptr() as usize - self.memory.bytes().as_ptr() as usize;
        debug_assert_eq!(byte_count(view.shape(), dtype), Some(view.data().len()));
        Tensor::from_memory(view.shape(), dtype, self.memory.clone(), offset).ok()
    }
}

/// The two parts of the file.
#[derive(Clone, Copy)]
enum Part {
    /// One pass over the dataset.
    Pass,
    /// The fresh inputs of the audit.
    Fresh,
}

impl Part {
    fn tickets_key(self, batch: usize) -> String {
        format!("{}{batch}.tickets", self.prefix())
    }

    fn output_key(self, batch: usize, name: &str) -> String {
        format!("{}{batch}.output.{name}", self.prefix())
    }

    fn prefix(self) -> &'static str {
        match self {
            Part::Pass => "",
            Part::Fresh => "fresh.",
        }
    }
}

/// Compares one output over pairs of its tensors from validation and from inference, one pair per batch. The error
/// states why the output cannot be compared.
fn compare_output<'k>(
    name: &str,
    pairs: impl Iterator<Item = (Option<Tensor>, Option<&'k (String, Tensor)>)>,
) -> Result<OutputAgreement, String> {
    let mut meter = AgreementMeter::default();
    for (validation, inference) in pairs {
        let Some((_, inference)) = inference.filter(|(kept, _)| kept == name) else {
            return Err(format!("inference has no output `{name}` in some steps"));
        };
        let Some(validation) = validation else {
            return Err(format!("validation has no output `{name}`, which inference has"));
        };
        if !meter.push(&validation, inference) {
            let (validation, inference) = (validation.spec(), inference.spec());
            return Err(format!("output `{name}` is `{inference}` in inference and `{validation}` in validation"));
        }
    }
    meter.finish().ok_or_else(|| format!("output `{name}` has no elements"))
}

/// Reads a whole file into memory that is aligned for every element type.
fn read_aligned(path: &Path) -> std::io::Result<HeapMemory> {
    let mut file = open_regular(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
    let mut memory = HeapMemory::zeroed(length).map_err(std::io::Error::other)?;
    file.read_exact(memory.bytes_mut())?;
    Ok(memory)
}

/// An error in reading the outputs of validation, or in comparing with them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("file of validation outputs `{path}`: {reason}")]
pub struct OutputsError {
    path: String,
    reason: String,
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn kept(tickets: &[u64], values: Vec<f32>) -> KeptOutputs {
        let mut kept = KeptOutputs::default();
        let tensor = Tensor::from_vec([tickets.len(), values.len() / tickets.len()], values).unwrap();
        kept.keep(&batch(tickets), tickets.len() as u32, vec![("output".into(), tensor)]);
        kept
    }

    fn fresh(outputs: Vec<(String, Tensor)>) -> FreshOutputs {
        let request = BatchRequest { number: 0, samples: [1].into(), perturbation: None };
        FreshOutputs { is_compared: true, request, outputs }
    }

    fn batch(tickets: &[u64]) -> Batch {
        Batch {
            index: 0,
            inputs: IndexMap::new(),
            truth: IndexMap::new(),
            sample_indices: tickets.to_vec(),
            failed: Vec::new(),
            rows: tickets.len(),
        }
    }

    #[test]
    fn batches_are_compared_in_any_order_and_fresh_inputs_separately() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        let outputs = |value: f32| vec![("output".to_owned(), Tensor::from_vec([1, 1], vec![value]).unwrap())];
        let mut validation = KeptOutputs::default();
        validation.keep(&batch(&[0]), 1, outputs(1.0));
        validation.keep(&batch(&[1]), 1, outputs(2.0));
        validation.keep_fresh(fresh(outputs(3.0)), 1);
        validation.write(&path, &ModelFacts::default()).unwrap();
        let stored = ValidationOutputs::read(&path, None).unwrap();
        let mut inference = KeptOutputs::default();
        inference.keep(&batch(&[1]), 1, outputs(2.0));
        inference.keep(&batch(&[0]), 1, outputs(1.0));
        inference.keep_fresh(fresh(outputs(2.0)), 1);
        let agreement = stored.compare(&inference).unwrap();
        assert_eq!((agreement.samples, agreement.outputs["output"].max_abs), (2, 0.0));
        let fresh = stored.compare_fresh(&inference).unwrap();
        assert_eq!((fresh.samples, fresh.outputs["output"].max_abs), (1, 1.0));
    }

    #[test]
    fn only_the_outputs_of_batches_of_low_rank_are_kept_when_they_are_large() {
        let kept = |rank| {
            let mut kept = KeptOutputs::default().with_ranks(vec![rank]);
            let tensor = Tensor::from_vec([1, 1 << 20], vec![0.0f32; 1 << 20]).unwrap();
            kept.keep(&batch(&[0]), 1, vec![("output".into(), tensor)]);
            kept.batches.len()
        };
        assert_eq!((kept(0), kept(63), kept(64)), (1, 1, 0));
    }

    #[test]
    fn inference_is_compared_with_the_outputs_that_validation_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        let facts = ModelFacts { weights_are_random: true, ..ModelFacts::default() };
        kept(&[0, 1], vec![1.0, 2.0, 3.0, 4.0]).write(&path, &facts).unwrap();
        let sha256 = flagperf_core::hash::hash_file(&path).unwrap();
        let stored = ValidationOutputs::read(&path, Some(&sha256)).unwrap();
        assert!(stored.model.as_ref().unwrap().weights_are_random);
        let agreement = stored.compare(&kept(&[0, 1], vec![1.0, 2.5, 3.0, 4.0])).unwrap();
        assert_eq!((agreement.samples, agreement.outputs["output"].max_abs), (2, 0.5));
        assert_eq!(agreement.not_compared, [""; 0]);
        let other_samples = stored.compare(&kept(&[0, 2], vec![1.0, 2.0, 3.0, 4.0])).unwrap();
        assert_eq!(other_samples.not_compared, ["validation kept no outputs for the samples of 1 of 1 batches"]);
        let wider = stored.compare(&kept(&[0, 1], vec![1.0; 6])).unwrap();
        kept(&[0, 1], vec![1.0, 2.5, 3.0, 4.0]).write(&path, &facts).unwrap();
        let changed = ValidationOutputs::read(&path, Some(&sha256)).err().unwrap().to_string();
        assert!(changed.ends_with("another program changed it after validation wrote it"), "{changed}");
        assert_eq!(wider.not_compared, ["output `output` is `2,3,f32` in inference and `2,2,f32` in validation"]);
    }

    #[test]
    fn each_output_is_compared_separately_and_missing_outputs_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        let outputs = |values: &[(&str, f32)]| {
            let mut kept = KeptOutputs::default();
            let tensor = |value| Tensor::from_vec([1, 2], vec![value, 1000.0]).unwrap();
            kept.keep(
                &batch(&[0]),
                1,
                values.iter().map(|(name, value)| ((*name).to_owned(), tensor(*value))).collect(),
            );
            kept
        };
        outputs(&[("tickets", 1.0), ("scores", 2.0), ("boxes", 3.0)]).write(&path, &ModelFacts::default()).unwrap();
        let stored = ValidationOutputs::read(&path, None).unwrap();
        let agreement = stored.compare(&outputs(&[("scores", 2.5), ("tickets", 1.0), ("masks", 1.0)])).unwrap();
        assert_eq!((agreement.outputs["tickets"].max_abs, agreement.outputs["scores"].max_abs), (0.0, 0.5));
        let missing = [
            "inference has no output `boxes`, which validation has",
            "validation has no output `masks`, which inference has",
        ];
        assert_eq!(agreement.not_compared, missing);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, theirs) = (folder.path().join("outputs.safetensors"), folder.path().join("theirs"));
        std::fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        kept(&[0], vec![1.0, 2.0]).write(&path, &ModelFacts::default()).unwrap();
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn the_error_for_a_truncated_file_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        std::fs::write(&path, b"short").unwrap();
        let error = ValidationOutputs::read(&path, None).err().unwrap();
        assert!(error.to_string().contains("outputs.safetensors"));
    }
}
