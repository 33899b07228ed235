//! Loads weights from a file, matched to a graph by name, and reads the safetensors format.

use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{MappedFile, TensorListing, WeightError, WeightMismatches};
use crate::{DType, Graph, TensorSpec, Weight, WeightRole, WeightSource};

/// The suffix of the counters that PyTorch stores for training and that inference does not use.
const IGNORED_SUFFIX: &str = "num_batches_tracked";

/// The usual extensions of PyTorch's own files.
const PTH_EXTENSIONS: [&str; 4] = ["pth", "pt", "ckpt", "bin"];

/// The longest header in bytes. The header of 100,000 tensors has about 12 MiB.
const HEADER_BYTES: u64 = 32 << 20;

impl Graph {
    /// Uses all parameters and buffers of a safetensors file, or of a state_dict saved by PyTorch, matched by name.
    /// Values are converted between floating-point types when a weight is read. PyTorch's `num_batches_tracked`
    /// counters are ignored.
    ///
    /// # Errors
    /// When the file cannot be read, is truncated, or contains calls other than those that construct tensors; also when
    /// names are missing or unexpected or shapes differ, all in one report. The graph then stays unchanged.
    pub fn load_weights(&mut self, path: &Path) -> Result<(), WeightError> {
        let file = open(path)?;
        let report = find_mismatches(self, &list_tensors(path, &file)?);
        if !report.is_empty() {
            return Err(WeightError::Mismatch {
                path: path.to_owned(),
                graph: self.name.clone(),
                report: Box::new(report),
            });
        }
        self.declares_random_weights = false;
        for (name, weight) in &mut self.weights {
            if weight.role != WeightRole::Constant {
                weight.source = WeightSource::File { path: path.to_owned(), key: name.clone() };
            }
        }
        Ok(())
    }

    /// Sets the seed of every weight with random values.
    pub fn seed_weights(&mut self, new_seed: u64) {
        for weight in self.weights.values_mut() {
            if let WeightSource::Seed { seed, .. } = &mut weight.source {
                *seed = new_seed;
            }
        }
    }

    /// Returns whether a parameter or buffer has random values, so that the outputs are meaningless. Files written by
    /// [`crate::write_onnx`] store this in their metadata. For files of other programs it is unknown, and the result is
    /// false.
    pub fn weights_are_random(&self) -> bool {
        let random =
            |weight: &Weight| weight.role != WeightRole::Constant && matches!(weight.source, WeightSource::Seed { .. });
        self.declares_random_weights || self.weights.values().any(random)
    }
}

pub(super) fn open(path: &Path) -> Result<MappedFile, WeightError> {
    MappedFile::open(path).map_err(|source| WeightError::Open { path: path.to_owned(), source })
}

pub(super) fn parse<'a>(path: &Path, file: &'a MappedFile) -> Result<SafeTensors<'a>, WeightError> {
    if PTH_EXTENSIONS.iter().any(|own| path.extension().is_some_and(|extension| extension == *own)) {
        let reason = "it begins neither as an archive of PyTorch nor as a safetensors file".to_owned();
        if !begins_as_safetensors(file.bytes()) {
            return Err(WeightError::MalformedPth { path: path.to_owned(), reason });
        }
    }
    let malformed = |reason: String| WeightError::Malformed { path: path.to_owned(), reason };
    match file.bytes().first_chunk().map(|length| u64::from_le_bytes(*length)) {
        Some(length) if length > HEADER_BYTES => {
            Err(malformed(format!("its header has a length of {length} bytes (at most {HEADER_BYTES})")))
        }
        _ => SafeTensors::deserialize(file.bytes()).map_err(|error| malformed(error.to_string())),
    }
}

/// Returns whether a file begins with the length of a header and the `{` of the header.
fn begins_as_safetensors(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    length.is_some_and(|length| length <= HEADER_BYTES) && bytes.get(8) == Some(&b'{')
}

/// Returns the tensors of a safetensors or PyTorch file.
fn list_tensors(path: &Path, file: &MappedFile) -> Result<TensorListing, WeightError> {
    #[cfg(feature = "interpreter")]
    if super::pth::is_pth(file.bytes()) {
        let pth = super::pth::PthFile::open(path, file.clone())?;
        pth.check_sums(path)?;
        return Ok(pth.list_tensors());
    }
    let spec = |view: &TensorView<'_>| match dtype(view.dtype()) {
        Some(dtype) => Ok(TensorSpec::new(view.shape().iter().copied(), dtype)),
        None => Err(format!("{:?} {:?}", view.shape(), view.dtype())),
    };
    Ok(parse(path, file)?.tensors().into_iter().map(|(name, view)| (name, spec(&view))).collect())
}

/// Converts an element type of safetensors; `None` when this crate does not support it.
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

fn find_mismatches(graph: &Graph, tensors: &TensorListing) -> WeightMismatches {
    let mut report = WeightMismatches::default();
    for (name, weight) in &graph.weights {
        if weight.role == WeightRole::Constant {
            continue;
        }
        let Some(found) = tensors.get(name) else {
            report.missing.push(name.clone());
            continue;
        };
        if !found.as_ref().is_ok_and(|found| is_loadable(&weight.spec, found)) {
            let text = found.as_ref().map_or_else(Clone::clone, ToString::to_string);
            report.mismatched.push((name.clone(), weight.spec.clone(), text));
        }
    }
    let expected = |name: &str| graph.weights.get(name).is_some_and(|weight| weight.role != WeightRole::Constant);
    let unexpected = |name: &&String| !expected(name) && name.rsplit('.').next() != Some(IGNORED_SUFFIX);
    report.unexpected = tensors.keys().filter(unexpected).cloned().collect();
    report.unexpected.sort();
    report
}

/// Returns whether a tensor of the file can be loaded into a weight of the graph: the shapes are equal, and the types
/// are equal or both floating-point.
fn is_loadable(graph: &TensorSpec, file: &TensorSpec) -> bool {
    graph.dims == file.dims && (graph.dtype == file.dtype || graph.dtype.is_float() && file.dtype.is_float())
}
