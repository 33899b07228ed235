//! What the evaluator received in one pass, as a safetensors file, so that accuracy can be computed again.
//!
//! For the step at position `p` of the pass, the file contains the tensors `p.samples` (indices of the samples, `i64`),
//! `p.output.<number>.<name>` and `p.truth.<name>`, all without padding. `others` is the JSON of the metrics of the steps
//! that are not in the file. The metadata describes the pass.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::name_outputs;
use super::tensor_file::{StoredTensor, stored_dtype, write_tensors};
use flagperf_core::metric::Accumulator;
use flagperf_core::step::Phase;
use flagperf_core::tensor::Tensor;
use flagperf_script::{EvaluatorFn, StepOutput};

/// The kind of the file in a record, and the beginning of its name: `evaluation.infer.safetensors`.
pub const FILE_KIND: &str = "evaluation";

/// Returns the name of the file of a phase.
pub fn file_name(phase: Phase) -> String {
    format!("{FILE_KIND}.{}.safetensors", phase.name())
}

/// Steps are stored up to about this many bytes of outputs and truth.
const STORED_BYTES_MAX: usize = 64 << 20;
/// Largest file that is read.
const READ_BYTES_MAX: u64 = 512 << 20;
/// The key of the metadata that describes the pass.
const HEADER_KEY: &str = "pass";
/// The name of the tensor with the metrics of the steps that are not stored.
const OTHERS_KEY: &str = "others";

/// A step with what its evaluator received.
#[derive(Clone, Debug)]
pub struct StoredStep {
    /// Indices of the samples of the batch, as its digest covers them.
    pub samples: Vec<u64>,
    /// The outputs, without padding and failed samples.
    pub output: StepOutput<Tensor>,
    /// The truth by the name of its field, without padding and failed samples.
    pub truth: IndexMap<String, Tensor>,
}

/// The steps of a pass, as many as can be stored; of the others, the sum of their metrics.
#[derive(Debug, Default)]
pub struct StoredPass {
    header: Header,
    steps: BTreeMap<u64, StoredStep>,
    others: Accumulator,
}

/// The metadata of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    pass: u32,
    /// Number of steps of the pass.
    steps: u64,
    form: OutputForm,
}

/// The form in which the forward function returned its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputForm {
    #[default]
    One,
    Many,
    Named,
}

/// Why a stored pass cannot be written, read or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoredPassError(String);

impl StoredPassError {
    fn of(reason: impl std::fmt::Display) -> Self {
        StoredPassError(reason.to_string())
    }
}

impl StoredPass {
    /// Creates a pass without steps; `pass` is its index, from 0.
    pub fn new(pass: u32) -> Self {
        StoredPass { header: Header { pass, ..Header::default() }, ..StoredPass::default() }
    }

    /// Returns the index of the pass, from 0.
    pub fn pass(&self) -> u32 {
        self.header.pass
    }

    /// Returns the number of steps of the pass, and how many of them are stored.
    pub fn step_count(&self) -> (u64, u64) {
        (self.header.steps, self.steps.len() as u64)
    }

    /// Adds the next step of the pass. It is stored with copies of its truth if those of lower rank fit, too; otherwise
    /// only its metrics are.
    ///
    /// # Errors
    /// When the metrics of two steps cannot be merged.
    pub fn add(&mut self, step: &StoredStep, rank: usize, metrics: &Accumulator) -> Result<(), StoredPassError> {
        let position = self.header.steps;
        self.header.steps += 1;
        let tensors = step.output.iter().map(|(_, tensor)| tensor).chain(step.truth.values());
        let bytes: usize = tensors.map(|tensor| tensor.bytes().len()).sum();
        if bytes.saturating_mul(rank + 1) > STORED_BYTES_MAX {
            return self.others.merge(metrics).map_err(StoredPassError::of);
        }
        self.header.form = match &step.output {
            StepOutput::One(_) => OutputForm::One,
            StepOutput::Many(_) => OutputForm::Many,
            StepOutput::Named(_) => OutputForm::Named,
        };
        // The loader writes the truth of another batch to the same memory.
        let copy = |tensor: &Tensor| Tensor::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes());
        let truth = step.truth.iter().map(|(name, tensor)| Ok((name.clone(), copy(tensor)?)));
        let truth = truth.collect::<Result<_, flagperf_core::tensor::TensorError>>().map_err(StoredPassError::of)?;
        self.steps.insert(position, StoredStep { truth, ..step.clone() });
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut tensors = Vec::new();
        for (position, step) in &self.steps {
            let samples = step.samples.iter().map(|sample| i64::try_from(*sample).unwrap_or(i64::MAX)).collect();
            let samples = Tensor::from_vec([step.samples.len()], samples).map_err(io::Error::other)?;
            tensors.push((format!("{position}.samples"), StoredTensor(samples)));
            for (number, (name, tensor)) in name_outputs(&step.output).into_iter().enumerate() {
                tensors.push((format!("{position}.output.{number}.{name}"), StoredTensor(tensor)));
            }
            let truth = step.truth.iter();
            tensors.extend(truth.map(|(name, t)| (format!("{position}.truth.{name}"), StoredTensor(t.clone()))));
        }
        let others = serde_json::to_vec(&self.others).map_err(io::Error::other)?;
        let others = Tensor::from_vec([others.len()], others).map_err(io::Error::other)?;
        tensors.push((OTHERS_KEY.to_owned(), StoredTensor(others)));
        let header = serde_json::to_string(&self.header).map_err(io::Error::other)?;
        let metadata = HashMap::from([(HEADER_KEY.to_owned(), header)]);
        write_tensors(tensors, metadata, path)
    }

    /// Reads a file that anyone may have written.
    ///
    /// # Errors
    /// When the file cannot be read or is not a stored pass.
    pub fn read(path: &Path) -> Result<Self, StoredPassError> {
        let bytes = read_regular(path, READ_BYTES_MAX).map_err(StoredPassError::of)?;
        StoredPass::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, StoredPassError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(StoredPassError::of)?;
        let header = metadata.metadata().as_ref().and_then(|keys| keys.get(HEADER_KEY));
        let header = header.ok_or_else(|| StoredPassError(format!("its metadata lack `{HEADER_KEY}`")))?;
        let header: Header = serde_json::from_str(header).map_err(StoredPassError::of)?;
        let file = SafeTensors::deserialize(bytes).map_err(StoredPassError::of)?;
        let mut parts: BTreeMap<u64, StepParts> = BTreeMap::new();
        let mut others = None;
        for (name, view) in file.iter() {
            let unknown = || StoredPassError(format!("its tensor `{name}` is not part of a step"));
            let dtype = stored_dtype(&view).ok_or_else(unknown)?;
            let tensor = Tensor::from_bytes(view.shape(), dtype, view.data()).map_err(StoredPassError::of)?;
            if name == OTHERS_KEY {
                others = Some(serde_json::from_slice(tensor.bytes()).map_err(StoredPassError::of)?);
                continue;
            }
            let (position, part) = name.split_once('.').ok_or_else(unknown)?;
            let position: u64 = position.parse().ok().filter(|at| *at < header.steps).ok_or_else(unknown)?;
            parts.entry(position).or_default().add(part, tensor).ok_or_else(unknown)?;
        }
        let others = others.ok_or_else(|| StoredPassError(format!("it lacks the tensor `{OTHERS_KEY}`")))?;
        let steps = parts.into_iter().map(|(position, parts)| {
            let incomplete = || StoredPassError(format!("step {position} lacks its samples or outputs"));
            parts.into_step(header.form).map(|step| (position, step)).ok_or_else(incomplete)
        });
        let steps = steps.collect::<Result<_, _>>()?;
        Ok(StoredPass { header, steps, others })
    }

    /// Returns the stored steps with their positions in the pass, in order.
    pub fn steps(&self) -> impl Iterator<Item = (u64, &StoredStep)> {
        self.steps.iter().map(|(position, step)| (*position, step))
    }

    /// Evaluates the stored steps again and returns the accuracy of the whole pass. That of a pass whose steps are not all
    /// stored depends on the stored sum of the others.
    ///
    /// # Errors
    /// When the evaluator fails, or metrics cannot be merged.
    pub fn evaluate(&self, evaluator: &mut EvaluatorFn) -> Result<IndexMap<String, f64>, StoredPassError> {
        let mut metrics = Accumulator::default();
        for step in self.steps.values() {
            let observed = evaluator.call(&step.output, &step.truth).map_err(StoredPassError::of)?;
            metrics.merge(&observed).map_err(StoredPassError::of)?;
        }
        metrics.merge(&self.others).map_err(StoredPassError::of)?;
        Ok(metrics.finish())
    }
}

/// The tensors of a step that have been read so far.
#[derive(Default)]
struct StepParts {
    samples: Option<Vec<u64>>,
    outputs: BTreeMap<usize, (String, Tensor)>,
    truth: IndexMap<String, Tensor>,
}

impl StepParts {
    /// Adds a tensor by its name without the position; `None` when a step has no such tensor.
    fn add(&mut self, name: &str, tensor: Tensor) -> Option<()> {
        if name == "samples" {
            let indices = tensor.as_slice::<i64>().ok()?;
            self.samples = Some(indices.iter().map(|index| u64::try_from(*index).ok()).collect::<Option<_>>()?);
        } else if let Some(name) = name.strip_prefix("truth.") {
            self.truth.insert(name.to_owned(), tensor);
        } else {
            let (number, name) = name.strip_prefix("output.")?.split_once('.')?;
            self.outputs.insert(number.parse().ok()?, (name.to_owned(), tensor));
        }
        Some(())
    }

    fn into_step(self, form: OutputForm) -> Option<StoredStep> {
        let outputs = self.outputs.into_values();
        let output = match form {
            OutputForm::One => StepOutput::One(outputs.map(|(_, tensor)| tensor).next()?),
            OutputForm::Many => StepOutput::Many(outputs.map(|(_, tensor)| tensor).collect()),
            OutputForm::Named => StepOutput::Named(outputs.collect()),
        };
        Some(StoredStep { samples: self.samples?, output, truth: self.truth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(first: u64, form: OutputForm, values: usize) -> StoredStep {
        let tensor = |value: f32| Tensor::from_vec([2, values / 2], vec![value; values]).unwrap();
        let output = match form {
            OutputForm::One => StepOutput::One(tensor(1.0)),
            OutputForm::Many => StepOutput::Many(vec![tensor(1.0), tensor(2.0)]),
            OutputForm::Named => StepOutput::Named([("b".to_owned(), tensor(1.0)), ("a".into(), tensor(2.0))].into()),
        };
        let truth = [("label".to_owned(), Tensor::from_vec([2], vec![3i64, 4]).unwrap())].into();
        StoredStep { samples: vec![first, first + 1], output, truth }
    }

    fn round_trip(pass: &StoredPass) -> StoredPass {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outputs.safetensors");
        pass.write(&path).unwrap();
        StoredPass::read(&path).unwrap()
    }

    #[test]
    fn a_pass_is_read_as_it_was_written() {
        for form in [OutputForm::One, OutputForm::Many, OutputForm::Named] {
            let mut pass = StoredPass::new(3);
            for first in [7, 2] {
                pass.add(&step(first, form, 4), 0, &Accumulator::default()).unwrap();
            }
            let read = round_trip(&pass);
            assert_eq!((read.pass(), read.step_count()), (3, (2, 2)));
            for ((_, before), (_, after)) in pass.steps().zip(read.steps()) {
                assert_eq!(
                    (&before.samples, before.truth["label"].bytes()),
                    (&after.samples, after.truth["label"].bytes())
                );
                let tensors = |step: &StoredStep| {
                    let named = name_outputs(&step.output).into_iter();
                    named.map(|(name, t)| (name, t.spec(), t.bytes().to_vec())).collect::<Vec<_>>()
                };
                assert_eq!(tensors(before), tensors(after), "{form:?}");
            }
        }
    }

    #[test]
    fn of_steps_that_do_not_fit_only_the_metrics_are_stored() {
        let mut pass = StoredPass::new(0);
        let metrics = Accumulator::mean("top1", 1.0, 2);
        pass.add(&step(0, OutputForm::One, (4 << 20) - 8), 3, &metrics).unwrap();
        pass.add(&step(2, OutputForm::One, (4 << 20) - 8), 4, &metrics).unwrap();
        let read = round_trip(&pass);
        assert_eq!((read.step_count(), &read.others), ((2, 1), &metrics));
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let reason = |bytes: &[u8]| StoredPass::parse(bytes).unwrap_err().to_string();
        assert!(reason(b"").contains("header"), "{}", reason(b""));
        let tensors = |name: &str, steps: u64| {
            let tensor = StoredTensor(Tensor::from_vec([1], vec![0i64]).unwrap());
            let header = format!("{{\"pass\":0,\"steps\":{steps},\"form\":\"one\"}}");
            safetensors::serialize([(name.to_owned(), tensor)], Some([("pass".to_owned(), header)].into())).unwrap()
        };
        assert_eq!(reason(&tensors("x", 1)), "its tensor `x` is not part of a step");
        assert_eq!(reason(&tensors("5.samples", 1)), "its tensor `5.samples` is not part of a step");
        assert_eq!(reason(&tensors("0.samples", 1)), "it lacks the tensor `others`");
    }
}
