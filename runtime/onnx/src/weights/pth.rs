//! Weights from PyTorch's own files (`torch.save(model.state_dict())`), read without running what is in them.
//!
//! A pickle says which functions are to be called. None is: each is looked at, and one that does not make a tensor is a
//! reason to refuse the file. Knows no graph.

use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use candle_core::pickle::PthTensors;
use zip::ZipArchive;

use super::pickle::{Callable, callables};
use super::{Listed, WeightError};
use crate::exec::candle_storage;
use crate::{Tensor, TensorSpec, open_regular};

/// What the state_dict of a model is made of; storages are `torch.FloatStorage` and the like.
const MAKERS: [(&str, &str); 4] = [
    ("collections", "OrderedDict"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_tensor_v2"),
];

/// Whether a file is PyTorch's, by its first bytes: a zip archive, or the pickle of PyTorch before 1.6.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    // A safetensors file begins with the length of its header, whose upper half is zero.
    let archive = bytes.starts_with(b"PK\x03\x04") && bytes.get(4..8).is_some_and(|more| more != [0; 4]);
    archive || is_old(bytes)
}

fn is_old(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x80, 2, 0x8a, 0x0a, 0x6c])
}

/// The tensors of a file.
pub(super) struct Opened(PthTensors);

impl Opened {
    /// Reads what tensors there are, not yet their numbers.
    ///
    /// # Errors
    /// When the file is cut off or of the old format, names anything but what makes tensors, or is larger in memory than
    /// the tensors' names could be.
    pub(super) fn open(path: &Path, bytes: &[u8]) -> Result<Self, WeightError> {
        let malformed = |reason: String| WeightError::Pickle { path: path.to_owned(), reason };
        if is_old(bytes) {
            return Err(malformed(
                "it is of the format before PyTorch 1.6; save it again with `torch.save`".to_owned(),
            ));
        }
        for name in named(path).map_err(malformed)? {
            let makes_storage = name.0 == "torch" && name.1.ends_with("Storage");
            if !makes_storage && !MAKERS.contains(&(&name.0, &name.1)) {
                return Err(WeightError::Code { path: path.to_owned(), callable: format!("{}.{}", name.0, name.1) });
            }
        }
        // The reader takes pickles apart as PyTorch writes them, and panics on some that it does not.
        let read = catch_unwind(|| PthTensors::new(path, None));
        let read = read.map_err(|_| malformed("its pickle is not one that PyTorch writes".to_owned()))?;
        read.map(Opened).map_err(|error| malformed(candle_storage::words(error)))
    }

    /// What each tensor is.
    pub(super) fn listed(&self) -> Listed {
        let spec = |info: &candle_core::pickle::TensorInfo| {
            Ok(TensorSpec::new(info.layout.dims().iter().copied(), candle_storage::dtype(info.dtype)))
        };
        let infos: &HashMap<_, _> = self.0.tensor_infos();
        infos.iter().map(|(name, info)| (name.clone(), spec(info))).collect()
    }

    /// One tensor, copied.
    ///
    /// # Errors
    /// When it is not there, cut off, or neither row-major nor column-major.
    pub(super) fn tensor(&self, path: &Path, name: &str) -> Result<Tensor, WeightError> {
        let malformed = |reason: String| WeightError::Pickle { path: path.to_owned(), reason };
        let read = catch_unwind(AssertUnwindSafe(|| self.0.get(name)));
        let tensor = read
            .map_err(|panic| malformed(format!("tensor `{name}`: {}", crate::panic_text(&*panic))))?
            .map_err(|error| malformed(format!("tensor `{name}`: {}", candle_storage::words(error))))?;
        let tensor = tensor.ok_or_else(|| malformed(format!("it has no tensor `{name}`")))?;
        candle_storage::download(&tensor).map_err(|error| malformed(format!("tensor `{name}`: {error}")))
    }
}

/// Every class and function that the pickles of an archive name.
fn named(path: &Path) -> Result<Vec<Callable>, String> {
    let file = BufReader::new(open_regular(path).map_err(|error| error.to_string())?);
    let mut archive = ZipArchive::new(file).map_err(|error| error.to_string())?;
    let mut named = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| error.to_string())?;
        if entry.name().is_ok_and(|name| name.ends_with("/byteorder")) {
            check_byte_order(&mut entry)?;
        }
        if entry.name().is_ok_and(|name| name.ends_with(".pkl")) {
            named.extend(callables(BufReader::new(entry))?);
        }
    }
    Ok(named)
}

/// Refuses tensors that another kind of machine wrote: their bytes are read as they are.
fn check_byte_order(entry: &mut impl Read) -> Result<(), String> {
    let mut order = String::new();
    entry.take(16).read_to_string(&mut order).map_err(|error| error.to_string())?;
    if order.trim() == "little" { Ok(()) } else { Err(format!("its byte order is `{}`, not `little`", order.trim())) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// `RUST_BACKTRACE` makes the reader's errors carry a backtrace, so this says the most where that is set.
    #[test]
    fn a_strided_tensor_is_named_without_the_readers_backtrace() {
        let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        let storage = [b"(", &text("storage")[..], b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), b"K\x08tQ"];
        let layout = b"K\0K\x02K\x03\x86K\x04K\x01\x86\x89ccollections\nOrderedDict\n)R";
        let call = [&b"ctorch._utils\n_rebuild_tensor_v2\n("[..], &storage.concat(), layout, b"tR"].concat();
        let pickle = [&b"\x80\x02}"[..], &text("w"), &call, b"s."].concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strided.pth");
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (name, content) in [("archive/data.pkl", &pickle[..]), ("archive/data/0", &[0; 32])] {
            archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(content).unwrap();
        }
        archive.finish().unwrap();
        let opened = Opened::open(&path, &fs::read(&path).unwrap()).unwrap();
        let error = opened.tensor(&path, "w").unwrap_err().to_string();
        assert!(error.contains("tensor `w`: cannot retrieve non-contiguous tensors"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
