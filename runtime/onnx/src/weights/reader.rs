//! Reads weights as tensors: maps each file once, converts between floating-point types, draws random values.
//!
//! Knows nothing about operators.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::SafeTensors;

use super::{MappedFile, WeightError, safetensors as format, seed};
use crate::{DType, Element, Graph, Tensor, TensorError, Weight, WeightRole, WeightSource, byte_count};
use flagperf_core::tensor::{bf16_from_f64, f16_from_f64};

/// Reads the weights of one graph. Every file is opened once.
pub struct WeightReader<'a> {
    graph: &'a Graph,
    files: HashMap<PathBuf, OpenFile>,
}

/// An open weights file.
struct OpenFile {
    file: MappedFile,
    /// For each tensor of a safetensors file: type, position of its first byte, number of bytes.
    keys: HashMap<String, (DType, usize, usize)>,
    /// The tensors of a PyTorch file.
    pth: Option<super::pth::PthFile>,
    /// The tensors of a GGUF file.
    gguf: Option<super::gguf::GgufFile>,
}

impl<'a> WeightReader<'a> {
    /// Returns a reader. Opens no file yet.
    pub fn new(graph: &'a Graph) -> Self {
        WeightReader { graph, files: HashMap::new() }
    }

    /// Returns the values of a weight in the shape and type of its specification. The bytes of a mapped file are not
    /// copied if they have that type and are aligned. In a conversion to f16, values beyond its range become its
    /// largest value (±65504).
    ///
    /// # Errors
    /// When there is no such weight, its shape is not fixed, or its file is missing, truncated, or no longer contains it;
    /// also when a parameter is converted, or expanded from quantised numbers, and has values that are NaN or infinite.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, WeightError> {
        let unknown = || WeightError::UnknownWeight { graph: self.graph.name.clone(), name: name.to_owned() };
        let weight = self.graph.weights.get(name).ok_or_else(unknown)?;
        self.values(name, weight)
    }

    /// Returns the values of a weight whose random values are drawn for `name`.
    fn values(&mut self, name: &str, weight: &Weight) -> Result<Tensor, WeightError> {
        let not_fixed = || WeightError::NoFixedShape { graph: self.graph.name.clone(), name: name.to_owned() };
        let shape = weight.spec.fixed_shape().ok_or_else(not_fixed)?;
        let stored = match &weight.source {
            WeightSource::Value(tensor) => tensor.clone(),
            WeightSource::Seed { seed, init } => {
                let bytes = byte_count(&shape, DType::F32).ok_or(TensorError::TooLarge);
                let bytes = bytes.map_err(|source| tensor_error(name, source))?;
                let memory = || WeightError::OutOfMemory {
                    name: name.to_owned(),
                    spec: weight.spec.clone(),
                    bytes: bytes as u64,
                };
                let values = seed::random_values(*seed, name, *init, bytes / DType::F32.size()).ok_or_else(memory)?;
                Tensor::from_vec(shape, values).map_err(|source| tensor_error(name, source))?
            }
            WeightSource::Int8 { name, of, part } => super::int8::round(&self.values(name, of)?, *part),
            WeightSource::File { path, key } => {
                let stored = self.open(path, true)?.tensor(name, path, key, &shape)?;
                // Only a conversion reads every value anyway. A buffer may have infinite ones: a mask of attention.
                if weight.role == WeightRole::Parameter && stored.dtype() != weight.spec.dtype {
                    check_finite(path, key, &stored)?;
                }
                stored
            }
            WeightSource::External { path, offset, length, dtype } => {
                self.read_external(name, &shape, *dtype, (path, *offset, *length))?
            }
        };
        Ok(cast_saturating(&stored, weight.spec.dtype))
    }

    fn read_external(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        (path, offset, length): (&Path, u64, u64),
    ) -> Result<Tensor, WeightError> {
        let opened = self.open(path, false)?;
        let end = offset.saturating_add(length);
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        match range {
            Some((start, end)) if end <= opened.file.bytes().len() => {
                tensor_from_range(name, shape, dtype, &opened.file, start..end)
            }
            _ => Err(WeightError::DataTooShort { path: path.to_owned(), name: name.to_owned(), offset, end }),
        }
    }

    fn open(&mut self, path: &Path, has_names: bool) -> Result<&OpenFile, WeightError> {
        if !self.files.contains_key(path) {
            let file = format::open(path)?;
            let opened =
                if has_names { OpenFile::with_named_tensors(path, file)? } else { OpenFile::without_names(file) };
            self.files.insert(path.to_owned(), opened);
        }
        Ok(&self.files[path])
    }
}

impl OpenFile {
    fn without_names(file: MappedFile) -> Self {
        OpenFile { file, keys: HashMap::new(), pth: None, gguf: None }
    }

    /// Opens a file whose tensors have names: a safetensors, PyTorch or GGUF file.
    fn with_named_tensors(path: &Path, file: MappedFile) -> Result<Self, WeightError> {
        if super::pth::is_pth(file.bytes()) {
            let pth = super::pth::PthFile::open(path, file.clone())?;
            return Ok(OpenFile { pth: Some(pth), ..OpenFile::without_names(file) });
        }
        if super::gguf::is_gguf(file.bytes()) {
            let gguf = super::gguf::GgufFile::open(path, file.clone())?;
            return Ok(OpenFile { gguf: Some(gguf), ..OpenFile::without_names(file) });
        }
        let keys = tensor_ranges(&file, &format::parse(path, &file)?);
        Ok(OpenFile { keys, ..OpenFile::without_names(file) })
    }

    /// Returns the tensor `key` of the file as it is stored; `name` is that of the weight.
    fn tensor(&self, name: &str, path: &Path, key: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        if let Some(pth) = &self.pth {
            return pth.tensor(path, key, shape);
        }
        if let Some(gguf) = &self.gguf {
            return gguf.tensor(path, key, shape);
        }
        let not_found =
            || WeightError::Malformed { path: path.to_owned(), reason: format!("it has no tensor `{key}`") };
        let (dtype, offset, length) = *self.keys.get(key).ok_or_else(not_found)?;
        tensor_from_range(name, shape, dtype, &self.file, offset..offset + length)
    }
}

impl Graph {
    /// Returns the values of one weight. To read many weights, use a [`WeightReader`], which opens each file only once.
    ///
    /// # Errors
    /// As [`WeightReader::tensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightError> {
        WeightReader::new(self).tensor(name)
    }
}

/// Returns a tensor of a file as it is stored.
///
/// # Errors
/// When the file cannot be read, has no such tensor, or the tensor has another shape.
pub(super) fn read_stored(path: &Path, key: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
    OpenFile::with_named_tensors(path, format::open(path)?)?.tensor(super::split_key(key).1, path, key, shape)
}

fn tensor_ranges(file: &MappedFile, tensors: &SafeTensors<'_>) -> HashMap<String, (DType, usize, usize)> {
    let start = file.bytes().as_ptr() as usize;
    let place = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let offset = view.data().as_ptr() as usize - start;
        Some((name, (format::dtype(view.dtype())?, offset, view.data().len())))
    };
    tensors.tensors().into_iter().filter_map(place).collect()
}

/// Returns a tensor over a range of a file. The bytes are copied only if they are not aligned.
pub(super) fn tensor_from_range(
    name: &str,
    shape: &[usize],
    dtype: DType,
    file: &MappedFile,
    range: std::ops::Range<usize>,
) -> Result<Tensor, WeightError> {
    let memory = file.slice(range);
    let aligned = (memory.bytes().as_ptr() as usize).is_multiple_of(dtype.size());
    let tensor = if aligned {
        Tensor::from_memory(shape, dtype, memory, 0)
    } else {
        Tensor::from_bytes(shape, dtype, memory.bytes())
    };
    tensor.map_err(|source| tensor_error(name, source))
}

/// Converts a tensor to another type. In a conversion to f16 or bf16, finite values beyond its range become its largest
/// value.
pub(crate) fn cast_saturating(tensor: &Tensor, dtype: DType) -> Tensor {
    match (dtype, tensor.dtype()) {
        (DType::F16, DType::F32 | DType::F64 | DType::BF16) => narrow(tensor, f16::MAX.into(), f16_from_f64),
        (DType::BF16, DType::F32 | DType::F64) => narrow(tensor, bf16::MAX.into(), bf16_from_f64),
        _ => tensor.cast(dtype),
    }
}

/// Converts each element with `to`, after limiting finite ones to the range from `-largest` to `largest`.
fn narrow<T: Element>(tensor: &Tensor, largest: f64, to: impl Fn(f64) -> T) -> Tensor {
    let convert = |x: f64| to(if x.is_finite() { x.clamp(-largest, largest) } else { x });
    let values = match tensor.as_slice::<f32>() {
        Ok(values) => values.iter().map(|x| convert(f64::from(*x))).collect(),
        Err(_) => tensor.to_f64().into_iter().map(convert).collect(),
    };
    Tensor::from_vec(tensor.shape(), values).expect("a conversion keeps the number of elements")
}

/// Checks that the values of a tensor of a file are neither NaN nor infinite.
pub(super) fn check_finite(path: &Path, key: &str, tensor: &Tensor) -> Result<(), WeightError> {
    let count = match tensor.dtype() {
        DType::F64 => count_elements(tensor, |x: f64| !x.is_finite()),
        DType::F32 => count_elements(tensor, |x: f32| !x.is_finite()),
        DType::F16 => count_elements(tensor, |x: f16| !x.is_finite()),
        DType::BF16 => count_elements(tensor, |x: bf16| !x.is_finite()),
        _ => 0,
    };
    if count == 0 {
        return Ok(());
    }
    let name = super::split_key(key).1.to_owned();
    Err(WeightError::NotFinite { path: path.to_owned(), name, count, elements: tensor.len() })
}

fn count_elements<T: Element>(tensor: &Tensor, counts: impl Fn(T) -> bool) -> usize {
    tensor.as_slice::<T>().map_or(0, |elements| elements.iter().filter(|x| counts(**x)).count())
}

fn tensor_error(name: &str, source: TensorError) -> WeightError {
    WeightError::Tensor { name: name.to_owned(), source }
}
