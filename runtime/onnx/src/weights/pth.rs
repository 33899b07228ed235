//! Weights from PyTorch's own files (`torch.save(model.state_dict())`), read without executing their contents.
//!
//! A pickle names functions to be called. None of them is called: every name is checked, and a file that names any
//! other function than those that construct tensors is refused. Knows nothing about graphs.

use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use candle_core::pickle::PthTensors;
use zip::ZipArchive;

use super::pickle::{Callable, callables};
use super::{TensorListing, WeightError};
use crate::exec::candle_storage;
use crate::{Tensor, TensorSpec, open_regular};

/// The functions and classes in the state_dict of a model, besides storages (`torch.FloatStorage` and the like).
const ALLOWED_CALLABLES: [(&str, &str); 4] = [
    ("collections", "OrderedDict"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_tensor_v2"),
];

/// Returns whether the first bytes of a file are those of a PyTorch file: a zip archive, or the pickle of PyTorch
/// before 1.6.
pub(super) fn is_pth(bytes: &[u8]) -> bool {
    // A safetensors file begins with the length of its header, whose upper half is zero.
    let archive = bytes.starts_with(b"PK\x03\x04") && bytes.get(4..8).is_some_and(|more| more != [0; 4]);
    archive || is_legacy_pth(bytes)
}

fn is_legacy_pth(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x80, 2, 0x8a, 0x0a, 0x6c])
}

/// An open PyTorch file.
pub(super) struct PthFile(PthTensors);

impl PthFile {
    /// Reads the names, shapes and types of the tensors, but not their elements.
    ///
    /// # Errors
    /// When the file is truncated or has the old format, names functions other than those that construct tensors, or
    /// takes more memory than the names of tensors could.
    pub(super) fn open(path: &Path, bytes: &[u8]) -> Result<Self, WeightError> {
        let malformed = |reason: String| WeightError::MalformedPth { path: path.to_owned(), reason };
        if is_legacy_pth(bytes) {
            return Err(malformed(
                "it has the format of PyTorch before 1.6 (save it again with a newer `torch.save`)".to_owned(),
            ));
        }
        for name in named_callables(path).map_err(malformed)? {
            let makes_storage = name.0 == "torch" && name.1.ends_with("Storage");
            if !makes_storage && !ALLOWED_CALLABLES.contains(&(&name.0, &name.1)) {
                return Err(WeightError::ForbiddenCall {
                    path: path.to_owned(),
                    callable: format!("{}.{}", name.0, name.1),
                });
            }
        }
        // candle's reader handles pickles as PyTorch writes them, and panics on some others.
        let read = catch_unwind(|| PthTensors::new(path, None));
        let read =
            read.map_err(|_| malformed("its pickle does not have the structure that PyTorch writes".to_owned()))?;
        read.map(PthFile).map_err(|error| malformed(error.to_string()))
    }

    /// Returns the specification of every tensor.
    pub(super) fn list_tensors(&self) -> TensorListing {
        let spec = |info: &candle_core::pickle::TensorInfo| {
            Ok(TensorSpec::new(info.layout.dims().iter().copied(), candle_storage::host_dtype(info.dtype)))
        };
        let infos: &HashMap<_, _> = self.0.tensor_infos();
        infos.iter().map(|(name, info)| (name.clone(), spec(info))).collect()
    }

    /// Returns a copy of one tensor.
    ///
    /// # Errors
    /// When the tensor is missing, truncated, or neither row-major nor column-major.
    pub(super) fn tensor(&self, path: &Path, name: &str) -> Result<Tensor, WeightError> {
        let malformed = |reason: String| WeightError::MalformedPth { path: path.to_owned(), reason };
        let read = catch_unwind(AssertUnwindSafe(|| self.0.get(name)));
        let tensor = read
            .map_err(|panic| malformed(format!("tensor `{name}`: {}", crate::panic_text(&*panic))))?
            .map_err(|error| malformed(format!("tensor `{name}`: {error}")))?;
        let tensor = tensor.ok_or_else(|| malformed(format!("it has no tensor `{name}`")))?;
        candle_storage::download(&tensor).map_err(|error| malformed(format!("tensor `{name}`: {error}")))
    }
}

/// Returns every class and function that the pickles of an archive name.
fn named_callables(path: &Path) -> Result<Vec<Callable>, String> {
    let file = BufReader::new(open_regular(path).map_err(|error| error.to_string())?);
    let mut archive = ZipArchive::new(file).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| error.to_string())?;
        if entry.name().is_ok_and(|name| name.ends_with("/byteorder")) {
            check_byte_order(&mut entry)?;
        }
        if entry.name().is_ok_and(|name| name.ends_with(".pkl")) {
            found.extend(callables(BufReader::new(entry))?);
        }
    }
    Ok(found)
}

/// Checks that the tensors are little-endian, because their bytes are read without conversion.
fn check_byte_order(entry: &mut impl Read) -> Result<(), String> {
    let mut order = String::new();
    entry.take(16).read_to_string(&mut order).map_err(|error| error.to_string())?;
    if order.trim() == "little" { Ok(()) } else { Err(format!("its byte order is `{}`, not `little`", order.trim())) }
}
