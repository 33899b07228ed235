//! Weights from a file, matched to a graph by name; and the format of safetensors.

use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{Listed, MappedFile, Mismatches, WeightError};
use crate::{DType, Graph, Role, Source, TensorSpec, Weight};

/// What training keeps beside the weights and inference does not use.
const IGNORED_SUFFIX: &str = "num_batches_tracked";

/// Bytes of a header at most: that of 100,000 tensors has some 12 MiB.
const HEADER_BYTES: u64 = 32 << 20;

impl Graph {
    /// Takes all parameters and buffers from a safetensors file or a state_dict that PyTorch saved, by name. Values
    /// between real types are converted when a weight is read. PyTorch's `num_batches_tracked` counters are passed over.
    ///
    /// # Errors
    /// When the file cannot be read, is cut off, or wants code run; or one report of all names that are missing,
    /// unexpected or of another shape. The graph then stays as it was.
    pub fn load_weights(&mut self, path: &Path) -> Result<(), WeightError> {
        let file = open(path)?;
        let report = compare(self, &listed(path, &file)?);
        if !report.is_empty() {
            return Err(WeightError::Names {
                path: path.to_owned(),
                graph: self.name.clone(),
                report: Box::new(report),
            });
        }
        self.noted_random = false;
        for (name, weight) in &mut self.weights {
            if weight.role != Role::Constant {
                weight.source = Source::File { path: path.to_owned(), key: name.clone() };
            }
        }
        Ok(())
    }

    /// Gives every weight that comes from no file the random values of this seed.
    pub fn seed_weights(&mut self, new_seed: u64) {
        for weight in self.weights.values_mut() {
            if let Source::Seed { seed, .. } = &mut weight.source {
                *seed = new_seed;
            }
        }
    }

    /// Whether a parameter or buffer has random values, so that outputs mean nothing. A file that [`crate::write_onnx`]
    /// writes keeps it in its metadata; of a file by another program it is not known, and this is false.
    pub fn weights_are_random(&self) -> bool {
        let random = |weight: &Weight| weight.role != Role::Constant && matches!(weight.source, Source::Seed { .. });
        self.noted_random || self.weights.values().any(random)
    }
}

pub(super) fn open(path: &Path) -> Result<MappedFile, WeightError> {
    MappedFile::open(path).map_err(|source| WeightError::Open { path: path.to_owned(), source })
}

pub(super) fn parse<'a>(path: &Path, file: &'a MappedFile) -> Result<SafeTensors<'a>, WeightError> {
    let malformed = |reason: String| WeightError::Malformed { path: path.to_owned(), reason };
    match file.bytes().first_chunk().map(|length| u64::from_le_bytes(*length)) {
        Some(length) if length > HEADER_BYTES => {
            Err(malformed(format!("its header would have {length} bytes (at most {HEADER_BYTES})")))
        }
        _ => SafeTensors::deserialize(file.bytes()).map_err(|error| malformed(error.to_string())),
    }
}

/// The tensors of a file of either kind.
fn listed(path: &Path, file: &MappedFile) -> Result<Listed, WeightError> {
    #[cfg(feature = "candle")]
    if super::pth::is_one(file.bytes()) {
        return Ok(super::pth::Opened::open(path, file.bytes())?.listed());
    }
    let spec = |view: &TensorView<'_>| match dtype(view.dtype()) {
        Some(dtype) => Ok(TensorSpec::new(view.shape().iter().copied(), dtype)),
        None => Err(format!("{:?} {:?}", view.shape(), view.dtype())),
    };
    Ok(parse(path, file)?.tensors().into_iter().map(|(name, view)| (name, spec(&view))).collect())
}

/// Our element type of a safetensors type.
pub(super) fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::I64 => Some(DType::I64),
        Dtype::I32 => Some(DType::I32),
        Dtype::I8 => Some(DType::I8),
        Dtype::U8 => Some(DType::U8),
        Dtype::BOOL => Some(DType::Bool),
        _ => None,
    }
}

fn compare(graph: &Graph, tensors: &Listed) -> Mismatches {
    let mut report = Mismatches::default();
    for (name, weight) in &graph.weights {
        if weight.role == Role::Constant {
            continue;
        }
        let Some(found) = tensors.get(name) else {
            report.missing.push(name.clone());
            continue;
        };
        if !found.as_ref().is_ok_and(|found| fits(&weight.spec, found)) {
            let text = found.as_ref().map_or_else(Clone::clone, ToString::to_string);
            report.misshaped.push((name.clone(), weight.spec.clone(), text));
        }
    }
    let expected = |name: &str| graph.weights.get(name).is_some_and(|weight| weight.role != Role::Constant);
    let unexpected = |name: &&String| !expected(name) && name.rsplit('.').next() != Some(IGNORED_SUFFIX);
    report.unexpected = tensors.keys().filter(unexpected).cloned().collect();
    report.unexpected.sort();
    report
}

/// Same shape, and the same type or both real.
fn fits(graph: &TensorSpec, file: &TensorSpec) -> bool {
    graph.dims == file.dims && (graph.dtype == file.dtype || graph.dtype.is_float() && file.dtype.is_float())
}
