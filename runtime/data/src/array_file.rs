//! Arrays in files: NumPy's .npy, one tensor of a safetensors file, or flat little-endian numbers. The header is read and
//! checked against the size of the file; elements are read by position and never all at once.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::data_file::open_file;
use super::{DataError, DataRoot};
use flagperf_core::file_kind::{self, HEAD_BYTES};
use flagperf_core::hash::hash_reader;
use flagperf_core::tensor::{DType, Tensor};

/// Largest file whose content is hashed, in bytes.
const HASHED_BYTES_MAX: u64 = 1 << 30;
/// Largest size of a header in bytes.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// The element types that files can have: those of tensors, and the unsigned ones in which tokens are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// Unsigned, 16 bits; read as `i32`.
    U16,
    /// Unsigned, 32 bits; read as `i64`.
    U32,
    Tensor(DType),
}

impl StoredType {
    /// Returns the type with this name: `u16`, `u32`, or that of a tensor.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "u16" => Some(StoredType::U16),
            "u32" => Some(StoredType::U32),
            other => other.parse().ok().map(StoredType::Tensor),
        }
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            StoredType::U16 => 2,
            StoredType::U32 => 4,
            StoredType::Tensor(dtype) => dtype.size(),
        }
    }

    /// Returns the type of a tensor with these elements.
    pub fn dtype(self) -> DType {
        match self {
            StoredType::U16 => DType::I32,
            StoredType::U32 => DType::I64,
            StoredType::Tensor(dtype) => dtype,
        }
    }
}

/// An opened array.
pub struct ArrayFile {
    file: File,
    /// Path as the pipeline has it.
    pub path: PathBuf,
    /// Type of the stored elements.
    pub stored: StoredType,
    /// Shape; that of flat numbers is their count.
    pub shape: Vec<usize>,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    offset: u64,
}

impl ArrayFile {
    /// Returns the size of the file and the hash of its content.
    pub fn content(&self) -> String {
        content(&self.file, self.file_bytes)
    }

    /// Opens the array in `path`. `flat` is the type of the elements of a file without a header; `key` selects a tensor
    /// of a safetensors file, which may be left out if there is only one.
    ///
    /// # Errors
    /// When the file is missing, not a regular file, has an unsupported or damaged header, or another size than the
    /// header states.
    pub fn open(root: &DataRoot, path: &Path, flat: Option<StoredType>, key: Option<&str>) -> Result<Self, DataError> {
        let invalid = |reason: String| DataError::Invalid { path: path.to_owned(), reason };
        let mut file = open_file(root, path)?;
        let file_bytes = file.metadata().map_err(|error| invalid(error.to_string()))?.len();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let header = match (extension, flat) {
            ("npy", None) => check_kind(&file, extension).and_then(|()| npy_header(&mut file)),
            ("safetensors", None) => {
                check_kind(&file, extension).and_then(|()| safetensors_header(&mut file, file_bytes, key))
            }
            (_, Some(stored)) => flat_header(file_bytes, stored),
            _ => {
                Err("unknown kind of file (supported: .npy, .safetensors, or flat numbers with their type)".to_owned())
            }
        };
        let Header { stored, shape, offset } = header.map_err(invalid)?;
        let elements = shape.iter().try_fold(stored.size() as u64, |bytes, size| bytes.checked_mul(*size as u64));
        let end = elements.and_then(|bytes| bytes.checked_add(offset));
        match end {
            Some(end) if end <= file_bytes => {
                Ok(ArrayFile { file, path: path.to_owned(), stored, shape, file_bytes, offset })
            }
            _ => Err(invalid(format!(
                "the header states elements of {} bytes after byte {offset}, but the file has {file_bytes} bytes: it is \
                 truncated",
                elements.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string())
            ))),
        }
    }

    /// Reads `count` elements from `first` on as a tensor of the shape `[count]`.
    ///
    /// # Errors
    /// When the file cannot be read or has become shorter.
    pub fn read(&self, first: usize, count: usize) -> Result<Tensor, String> {
        let size = self.stored.size();
        let mut bytes = vec![0; count * size];
        self.file.read_exact_at(&mut bytes, self.offset + (first * size) as u64).map_err(|error| {
            format!("{}: cannot read elements {first} to {}: {error}", self.path.display(), first + count)
        })?;
        let tensor = match self.stored {
            StoredType::U16 => {
                let numbers = bytes.chunks_exact(2).map(|b| i32::from(u16::from_le_bytes([b[0], b[1]])));
                Tensor::from_vec([count], numbers.collect())
            }
            StoredType::U32 => {
                let numbers = bytes.chunks_exact(4).map(|b| i64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                Tensor::from_vec([count], numbers.collect())
            }
            StoredType::Tensor(dtype) => Tensor::from_bytes([count], dtype, &bytes),
        };
        tensor.map_err(|error| error.to_string())
    }
}

/// Returns the size of a file and the hash of its content, for the index of a dataset; of a very large file, the size alone.
pub fn content(file: &File, bytes: u64) -> String {
    let hash = |_: &u64| {
        let mut file = file.try_clone().ok()?;
        file.rewind().ok()?;
        hash_reader(file).ok()
    };
    let hash = Some(bytes).filter(|bytes| *bytes <= HASHED_BYTES_MAX).as_ref().and_then(hash);
    format!("{bytes} bytes {}", hash.unwrap_or_default())
}

/// What a header states.
struct Header {
    stored: StoredType,
    shape: Vec<usize>,
    offset: u64,
}

fn flat_header(file_bytes: u64, stored: StoredType) -> Result<Header, String> {
    let size = stored.size() as u64;
    if !file_bytes.is_multiple_of(size) {
        return Err(format!("{file_bytes} bytes are not a whole number of elements of {size} bytes"));
    }
    Ok(Header { stored, shape: vec![(file_bytes / size) as usize], offset: 0 })
}

/// Refuses a file whose first bytes are those of another kind than its extension states.
fn check_kind(file: &File, extension: &str) -> Result<(), String> {
    let mut head = [0; HEAD_BYTES];
    let read = file.read_at(&mut head, 0).map_err(|error| error.to_string())?;
    match file_kind::recognise(&head[..read]).filter(|kind| !kind.name.contains(extension)) {
        Some(kind) => Err(kind.to_string()),
        None => Ok(()),
    }
}

/// Reads a part of the header; `what` describes it in the error.
fn read_part(file: &mut File, bytes: u64, what: &str) -> Result<Vec<u8>, String> {
    if bytes > HEADER_BYTES_MAX {
        return Err(format!("{what} has {bytes} bytes (at most {HEADER_BYTES_MAX})"));
    }
    let mut part = vec![0; bytes as usize];
    file.read_exact(&mut part).map_err(|_| format!("the file ends inside {what}: it is truncated"))?;
    Ok(part)
}

/// Reads the header of a .npy file, version 1 to 3: a Python dictionary in a fixed form.
fn npy_header(file: &mut File) -> Result<Header, String> {
    let start = read_part(file, 8, "the header")?;
    if &start[..6] != b"\x93NUMPY" {
        return Err("does not begin as a .npy file".to_owned());
    }
    let wide = start[6] >= 2;
    let length = read_part(file, if wide { 4 } else { 2 }, "the header")?;
    let length = length.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let text = String::from_utf8_lossy(&read_part(file, length, "the header")?).into_owned();
    let value = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start().to_owned())
    };
    let damaged = || format!("damaged header `{}`", text.trim().chars().take(200).collect::<String>());
    let descr = value("descr").ok_or_else(damaged)?;
    let descr = descr.trim_start_matches('\'').split('\'').next().unwrap_or_default();
    if !value("fortran_order").ok_or_else(damaged)?.starts_with("False") {
        return Err("the array is in Fortran order: save `numpy.ascontiguousarray(array)`".to_owned());
    }
    let shape = value("shape").ok_or_else(damaged)?;
    let inside = shape.trim_start_matches('(').split(')').next().unwrap_or_default();
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty()).map(str::parse);
    let shape = sizes.collect::<Result<Vec<usize>, _>>().map_err(|_| damaged())?;
    Ok(Header { stored: npy_type(descr)?, shape, offset: 8 + if wide { 4 } else { 2 } + length })
}

fn npy_type(descr: &str) -> Result<StoredType, String> {
    let dtype = match descr {
        "<u2" => return Ok(StoredType::U16),
        "<u4" => return Ok(StoredType::U32),
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "<i2" => DType::I16,
        "|i1" => DType::I8,
        "<u8" => DType::U64,
        "|u1" => DType::U8,
        "|b1" => DType::Bool,
        other => {
            let other: String = other.chars().take(50).collect();
            return Err(format!(
                "unsupported element type `{other}` (supported: <f8 <f4 <f2 <i8 <i4 <i2 |i1 <u8 <u4 <u2 |u1 |b1)"
            ));
        }
    };
    Ok(StoredType::Tensor(dtype))
}

fn safetensors_header(file: &mut File, file_bytes: u64, key: Option<&str>) -> Result<Header, String> {
    let length = read_part(file, 8, "the header")?;
    let length = length.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let text = read_part(file, length, "the header")?;
    let parsed: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| format!("damaged header: {error}"))?;
    let tensors = parsed.as_object().ok_or("damaged header: not a JSON object")?;
    let mut names = tensors.keys().filter(|name| *name != "__metadata__");
    let name = match (key, names.next(), names.next()) {
        (Some(key), ..) => key,
        (None, Some(only), None) => only.as_str(),
        _ => return Err("has several tensors or none: set `key` to the name of one".to_owned()),
    };
    let entry = tensors.get(name).ok_or_else(|| {
        let known: Vec<&str> = tensors.keys().filter(|n| *n != "__metadata__").take(5).map(String::as_str).collect();
        format!("has no tensor `{name}` (the first: {})", known.join(", "))
    })?;
    let stored = entry["dtype"].as_str().map(str::to_lowercase).and_then(|dtype| StoredType::parse(&dtype));
    let numbers = |value: &serde_json::Value| -> Option<Vec<u64>> {
        value.as_array()?.iter().map(serde_json::Value::as_u64).collect()
    };
    let (shape, offsets) = (numbers(&entry["shape"]), numbers(&entry["data_offsets"]));
    match (stored, shape, offsets.as_deref()) {
        (Some(stored), Some(shape), Some([first, _])) if *first <= file_bytes => {
            let shape = shape.into_iter().map(|size| size as usize).collect();
            Ok(Header { stored, shape, offset: 8 + length + first })
        }
        _ => Err(format!("the header of tensor `{name}` is damaged or has an unsupported type: {entry}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, bytes: &[u8], flat: Option<StoredType>) -> Result<ArrayFile, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let root = DataRoot::open(folder.path()).unwrap();
        ArrayFile::open(&root, Path::new(name), flat, None).map_err(|error| error.to_string())
    }

    fn npy(dictionary: &str, elements: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        [bytes, dictionary.as_bytes().to_vec(), elements.to_vec()].concat()
    }

    #[test]
    fn a_file_of_another_kind_than_its_extension_is_named() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
        for name in ["a.npy", "a.safetensors"] {
            let reason = open(name, pointer, None).err().unwrap();
            assert!(reason.contains("it is a pointer of git LFS, not the file itself"), "{reason}");
        }
    }

    #[test]
    fn elements_are_read_by_position_from_every_kind_of_file() {
        let numbers: Vec<u8> = (0..6u16).flat_map(u16::to_le_bytes).collect();
        let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }";
        let tensors = b"{\"a\":{\"dtype\":\"U16\",\"shape\":[3,2],\"data_offsets\":[0,12]}}";
        let safetensors = [&(tensors.len() as u64).to_le_bytes()[..], tensors, &numbers].concat();
        for (name, bytes, flat, shape) in [
            ("a.npy", npy(header, &numbers), None, vec![3, 2]),
            ("a.safetensors", safetensors, None, vec![3, 2]),
            ("a.bin", numbers.clone(), Some(StoredType::U16), vec![6]),
        ] {
            let array = open(name, &bytes, flat).unwrap();
            assert_eq!((&array.shape, array.stored), (&shape, StoredType::U16));
            assert_eq!(array.read(2, 3).unwrap().as_slice::<i32>().unwrap(), [2, 3, 4]);
        }
    }

    #[test]
    fn a_truncated_or_damaged_file_is_refused_with_the_reason() {
        let reason = |name: &str, bytes: &[u8]| open(name, bytes, None).err().unwrap();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
        let short = reason("a.npy", &npy(header, &[0; 23]));
        assert_eq!(
            short,
            "`a.npy`: the header states elements of 24 bytes after byte 69, but the file has 92 bytes: it is truncated"
        );
        assert!(reason("a.npy", &npy(header, &[])[..30]).contains("ends inside the header"));
        assert!(reason("a.npy", b"text text").contains("does not begin as a .npy file"));
        assert!(reason("a.npy", &npy("{'descr': '<c8'}", &[])).contains("damaged header"));
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }";
        assert!(reason("a.npy", &npy(fortran, &[0; 24])).contains("Fortran order"));
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 8), }";
        assert!(reason("a.npy", &npy(huge, &[0; 24])).contains("more than 2^64"));
        assert!(reason("a.bin", &[0; 3]).contains("unknown kind of file"));
        assert!(
            open("a.bin", &[0; 3], Some(StoredType::U16)).err().unwrap().contains("not a whole number of elements")
        );
    }

    #[test]
    fn a_huge_header_is_refused_before_memory_is_allocated() {
        let reason = open("a.safetensors", &u64::MAX.to_le_bytes(), None).err().unwrap();
        assert_eq!(reason, "`a.safetensors`: the header has 18446744073709551615 bytes (at most 16777216)");
    }
}
