//! What the server and a worker tell each other over the worker's pipes: frames of a head in JSON, preceded by its length
//! in four bytes, and the bytes of tensors, whose lengths follow from the head.
//!
//! Knows no protocol of clients.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use flagperf_core::tensor::{DType, byte_count};
use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most bytes of a head.
pub const HEAD_BYTES_MAX: usize = 1 << 20;
/// The most bytes of the tensors of a frame.
pub const TENSOR_BYTES_MAX: usize = 1 << 32;

/// The first frame to a worker: the model that it loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The ONNX file.
    pub file: PathBuf,
    /// The row in the table of engines.
    pub engine: String,
    /// The vendor's folder.
    pub folder: PathBuf,
    /// The shared library of a plug-in.
    pub library: Option<PathBuf>,
    /// The program and the arguments of a sidecar.
    pub command: Vec<String>,
    /// The threads for the computation; 0 is the engine's default.
    pub threads: usize,
    /// The most rows of a run.
    pub batch_size: usize,
    /// Of a language model: the most tokens of a row that a run reads.
    pub chunk: Option<usize>,
    /// The type that the engine computes in.
    pub precision: DType,
    /// Further options of the engine.
    pub options: IndexMap<String, serde_json::Value>,
    /// The folder for temporary files.
    pub scratch: PathBuf,
}

/// The first frame from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadReply {
    /// The model is loaded.
    Loaded(LoadedModel),
    /// It could not be loaded.
    Failed {
        /// Why.
        reason: String,
        /// What to do about it; may be empty.
        hint: String,
    },
}

/// What a worker loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedModel {
    /// The inputs in the engine's order: name and specification.
    pub inputs: Vec<NamedSpec>,
    /// The outputs in the engine's order.
    pub outputs: Vec<NamedSpec>,
    /// The SHA-256 of the ONNX file and of its data files, by file name.
    pub files_sha256: IndexMap<String, String>,
    /// The device, as the engine names it.
    pub device: String,
}

/// A name with the specification of its tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedSpec {
    /// The name in the ONNX file.
    pub name: String,
    /// Shape and type.
    pub spec: flagperf_core::tensor::TensorSpec,
}

impl From<&ValueInfo> for NamedSpec {
    fn from(info: &ValueInfo) -> Self {
        NamedSpec { name: info.name.clone(), spec: info.spec.clone() }
    }
}

/// The head of a run: the inputs, whose bytes follow in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRequest {
    /// Shapes and types.
    pub inputs: Vec<TensorHead>,
}

/// The head of the answer to a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunReply {
    /// The outputs, whose bytes follow in the same order.
    Outputs(Vec<TensorHead>),
    /// The engine failed.
    Failed(String),
}

/// The shape and the type of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorHead {
    /// The sizes, outermost first.
    pub shape: Vec<usize>,
    /// The type of the elements.
    pub dtype: DType,
}

impl TensorHead {
    /// Returns the number of bytes; `None` above [`TENSOR_BYTES_MAX`].
    pub fn bytes(&self) -> Option<usize> {
        byte_count(&self.shape, self.dtype).filter(|bytes| *bytes <= TENSOR_BYTES_MAX)
    }
}

/// Returns a head with its length before it.
pub fn head_bytes(head: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, head).expect("a head is plain data");
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Returns the length of a head.
///
/// # Errors
/// When it is above [`HEAD_BYTES_MAX`].
pub fn head_length(prefix: [u8; 4]) -> io::Result<usize> {
    match u32::from_le_bytes(prefix) as usize {
        length @ ..=HEAD_BYTES_MAX => Ok(length),
        length => Err(io::Error::other(format!("a head of {length} bytes (at most {HEAD_BYTES_MAX})"))),
    }
}

/// Parses a head.
///
/// # Errors
/// When it is not one of this type.
pub fn parse_head<T: DeserializeOwned>(head: &[u8]) -> io::Result<T> {
    serde_json::from_slice(head).map_err(|error| io::Error::other(format!("a malformed head: {error}")))
}

/// Reads a head; `None` at the end of the input.
///
/// # Errors
/// When the input ends within it, or it is not one of this type.
pub fn read_head<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut prefix = [0; 4];
    if input.read(&mut prefix[..1])? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut prefix[1..])?;
    let mut head = vec![0; head_length(prefix)?];
    input.read_exact(&mut head)?;
    parse_head(&head).map(Some)
}

/// Writes a head, and flushes it.
///
/// # Errors
/// When writing fails.
pub fn write_head(output: &mut impl Write, head: &impl Serialize) -> io::Result<()> {
    output.write_all(&head_bytes(head))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_a_longer_one_is_refused() {
        let head = TensorHead { shape: vec![2, 3], dtype: DType::F32 };
        let mut bytes = Vec::new();
        write_head(&mut bytes, &head).unwrap();
        assert_eq!(read_head::<TensorHead>(&mut &bytes[..]).unwrap(), Some(head));
        assert_eq!(read_head::<TensorHead>(&mut &[][..]).unwrap(), None);
        assert!(read_head::<TensorHead>(&mut &bytes[..bytes.len() - 1]).is_err());
        let error = read_head::<TensorHead>(&mut &[0, 0, 0, 1][..]).unwrap_err().to_string();
        assert_eq!(error, "a head of 16777216 bytes (at most 1048576)");
    }

    #[test]
    fn a_tensor_that_is_too_large_has_no_size() {
        assert_eq!(TensorHead { shape: vec![2, 3], dtype: DType::F32 }.bytes(), Some(24));
        assert_eq!(TensorHead { shape: vec![1 << 40], dtype: DType::F32 }.bytes(), None);
        assert_eq!(TensorHead { shape: vec![usize::MAX, 2], dtype: DType::U8 }.bytes(), None);
    }
}
