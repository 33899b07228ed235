//! Makes tensors of weights: maps a file once, converts between real types, draws random values.
//!
//! Knows no operator.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use half::f16;
use safetensors::SafeTensors;

use super::{MappedFile, WeightError, safetensors as format, seed};
use crate::{DType, Graph, Source, Tensor, TensorError, Weight, byte_count};

/// Reads the weights of one graph; every file is opened once.
pub struct WeightReader<'a> {
    graph: &'a Graph,
    files: HashMap<PathBuf, Opened>,
}

/// A mapped file, and where each safetensors key lies in it: type, first byte, number of bytes.
struct Opened {
    file: MappedFile,
    keys: HashMap<String, (DType, usize, usize)>,
    /// The tensors, when the file is PyTorch's.
    #[cfg(feature = "candle")]
    pth: Option<super::pth::Opened>,
}

impl<'a> WeightReader<'a> {
    /// A reader that has opened nothing yet.
    pub fn new(graph: &'a Graph) -> Self {
        WeightReader { graph, files: HashMap::new() }
    }

    /// The values of a weight, in the shape and type of its specification. A mapped file's bytes are not copied when
    /// they are of that type and aligned. Going to f16, values beyond its range become its largest (±65504).
    ///
    /// # Errors
    /// When there is no such weight, or its file is gone, cut off, or does not hold it any more.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, WeightError> {
        let unknown = || WeightError::Unknown { graph: self.graph.name.clone(), name: name.to_owned() };
        let weight = self.graph.weights.get(name).ok_or_else(unknown)?;
        let shape = weight.spec.fixed_shape().ok_or_else(unknown)?;
        let stored = match &weight.source {
            Source::Value(tensor) => tensor.clone(),
            Source::Seed { seed, init } => {
                let bytes = byte_count(&shape, DType::F32).ok_or(TensorError::TooLarge);
                let bytes = bytes.map_err(|source| tensor_error(name, source))?;
                let memory =
                    || WeightError::Memory { name: name.to_owned(), spec: weight.spec.clone(), bytes: bytes as u64 };
                let values = seed::values(*seed, name, *init, bytes / DType::F32.size()).ok_or_else(memory)?;
                Tensor::from_vec(shape, values).map_err(|source| tensor_error(name, source))?
            }
            Source::File { path, key } => self.read_key(name, weight, path, key)?,
            Source::External { path, offset, length, dtype } => {
                self.read_external(name, &shape, *dtype, (path, *offset, *length))?
            }
        };
        Ok(narrowed(&stored, weight.spec.dtype))
    }

    fn read_key(&mut self, name: &str, weight: &Weight, path: &Path, key: &str) -> Result<Tensor, WeightError> {
        let opened = self.open(path, true)?;
        #[cfg(feature = "candle")]
        if let Some(pth) = &opened.pth {
            return pth.tensor(path, key);
        }
        let gone = || WeightError::Malformed { path: path.to_owned(), reason: format!("it has no tensor `{key}`") };
        let (dtype, offset, length) = *opened.keys.get(key).ok_or_else(gone)?;
        let shape = weight.spec.fixed_shape().ok_or_else(gone)?;
        part(name, &shape, dtype, &opened.file, offset..offset + length)
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
                part(name, shape, dtype, &opened.file, start..end)
            }
            _ => Err(WeightError::Short { path: path.to_owned(), name: name.to_owned(), offset, end }),
        }
    }

    fn open(&mut self, path: &Path, keyed: bool) -> Result<&Opened, WeightError> {
        if !self.files.contains_key(path) {
            let file = format::open(path)?;
            let opened = if keyed { Opened::keyed(path, file)? } else { Opened::plain(file) };
            self.files.insert(path.to_owned(), opened);
        }
        Ok(&self.files[path])
    }
}

impl Opened {
    fn plain(file: MappedFile) -> Self {
        Opened {
            file,
            keys: HashMap::new(),
            #[cfg(feature = "candle")]
            pth: None,
        }
    }

    /// A file whose tensors have names.
    fn keyed(path: &Path, file: MappedFile) -> Result<Self, WeightError> {
        #[cfg(feature = "candle")]
        if super::pth::is_one(file.bytes()) {
            let pth = super::pth::Opened::open(path, file.bytes())?;
            return Ok(Opened { pth: Some(pth), ..Opened::plain(file) });
        }
        let keys = keys(&file, &format::parse(path, &file)?);
        Ok(Opened { keys, ..Opened::plain(file) })
    }
}

impl Graph {
    /// The values of one weight; to read many, a [`WeightReader`] opens each file only once.
    ///
    /// # Errors
    /// As [`WeightReader::tensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightError> {
        WeightReader::new(self).tensor(name)
    }
}

fn keys(file: &MappedFile, tensors: &SafeTensors<'_>) -> HashMap<String, (DType, usize, usize)> {
    let start = file.bytes().as_ptr() as usize;
    let place = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let offset = view.data().as_ptr() as usize - start;
        Some((name, (format::dtype(view.dtype())?, offset, view.data().len())))
    };
    tensors.tensors().into_iter().filter_map(place).collect()
}

/// A tensor over part of a file; copied only when the part is not aligned.
fn part(
    name: &str,
    shape: &[usize],
    dtype: DType,
    file: &MappedFile,
    range: std::ops::Range<usize>,
) -> Result<Tensor, WeightError> {
    let memory = file.part(range);
    let aligned = (memory.bytes().as_ptr() as usize).is_multiple_of(dtype.size());
    let tensor = if aligned {
        Tensor::from_memory(shape, dtype, memory, 0)
    } else {
        Tensor::from_bytes(shape, dtype, memory.bytes())
    };
    tensor.map_err(|source| tensor_error(name, source))
}

/// The tensor in another type; finite values that f16 cannot hold become its largest.
pub(crate) fn narrowed(tensor: &Tensor, dtype: DType) -> Tensor {
    let wide = matches!(tensor.dtype(), DType::F32 | DType::F64 | DType::BF16);
    if dtype != DType::F16 || !wide {
        return tensor.cast(dtype);
    }
    let largest = f64::from(f16::MAX);
    let clamp = |x: f64| f16::from_f64(if x.is_finite() { x.clamp(-largest, largest) } else { x });
    let values = match tensor.as_slice::<f32>() {
        Ok(values) => values.iter().map(|x| clamp(f64::from(*x))).collect(),
        Err(_) => tensor.to_f64().into_iter().map(clamp).collect(),
    };
    Tensor::from_vec(tensor.shape(), values).expect("as many elements come out as went in")
}

fn tensor_error(name: &str, source: TensorError) -> WeightError {
    WeightError::Tensor { name: name.to_owned(), source }
}
