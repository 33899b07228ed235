//! One HDF5 file: its datasets, whose rows are read by position. Anyone may have written the file, so sizes that it states are
//! limited.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::panic::panic_text;
use flagperf_core::regular_file::open_regular;
use flagperf_core::tensor::{DType, Element, Tensor};
use hdf5_reader::error::{Error, Result as ReadResult};
use hdf5_reader::{Dataset, Datatype, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem, Storage, StorageBuffer};

use crate::SAMPLE_BYTES_MAX;

/// Largest chunk of a dataset in bytes.
const CHUNK_BYTES_MAX: usize = 64 << 20;
/// Largest description of a dataset in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// A file that is read by position. Without an open file, each read opens it again: there may be more shards than a process may
/// have open files.
struct ShardFile {
    path: PathBuf,
    bytes: u64,
    open: Option<File>,
}

impl Storage for ShardFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_range(&self, offset: u64, len: usize) -> ReadResult<StorageBuffer> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.bytes) || len > SAMPLE_BYTES_MAX {
            let reason = format!("no {len} bytes can be read after byte {offset}: the file is damaged or truncated");
            return Err(Error::InvalidData(reason));
        }
        let mut bytes = vec![0; len];
        match &self.open {
            Some(file) => file.read_exact_at(&mut bytes, offset)?,
            None => open_regular(&self.path)?.read_exact_at(&mut bytes, offset)?,
        }
        Ok(StorageBuffer::from_vec(bytes))
    }
}

/// An opened dataset.
pub struct ShardArray {
    dataset: Dataset,
    /// The shape, whose first dimension counts the samples.
    pub shape: Vec<usize>,
    /// Type of a tensor with its elements.
    pub dtype: DType,
}

/// The datasets of a file.
pub struct Shard {
    /// Path as errors show it.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
    pub arrays: Vec<ShardArray>,
}

impl Shard {
    /// Opens the datasets with these names in the file at `resolved`, which stays open if `stays_open`. Decompressed chunks take up
    /// to `cache_bytes` of memory.
    ///
    /// # Errors
    /// When the file cannot be read, is not HDF5, lacks a dataset, or has one whose elements are not numbers.
    pub fn open(
        path: &Path,
        resolved: &Path,
        datasets: &[&str],
        stays_open: bool,
        cache_bytes: usize,
    ) -> Result<Self, String> {
        let file = open_regular(resolved).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let storage = ShardFile { path: resolved.to_owned(), bytes, open: stays_open.then_some(file) };
        let options = OpenOptions::default()
            .with_chunk_cache_bytes(cache_bytes)
            .with_max_chunk_bytes(CHUNK_BYTES_MAX)
            .with_max_read_bytes(SAMPLE_BYTES_MAX)
            .with_max_object_header_bytes(HEADER_BYTES_MAX);
        let file = guard(|| Hdf5File::from_storage_with_options(Arc::new(storage), options))?;
        let open = |name: &&str| {
            let dataset = guard(|| file.dataset(name)).map_err(|reason| format!("dataset `{name}`: {reason}"))?;
            let dtype = dtype_of(dataset.dtype()).ok_or_else(|| {
                let supported = "supported: integers of up to 32 bits, i64, f32, f64";
                format!("dataset `{name}` has elements of an unsupported type ({supported})")
            })?;
            let size = |size: &u64| usize::try_from(*size).map_err(|error| format!("dataset `{name}`: {error}"));
            let shape = dataset.shape().iter().map(size).collect::<Result<_, _>>()?;
            Ok(ShardArray { dataset, shape, dtype })
        };
        let arrays = datasets.iter().map(open).collect::<Result<_, String>>()?;
        Ok(Shard { path: path.to_owned(), bytes, arrays })
    }
}

impl ShardArray {
    /// Reads a sample.
    ///
    /// # Errors
    /// When the file cannot be read, has become shorter or is damaged.
    pub fn read(&self, row: usize) -> Result<Tensor, String> {
        match self.dataset.dtype() {
            Datatype::FixedPoint { size: 1, signed: true, .. } => self.read_as::<i8, i8>(row, |number| number),
            Datatype::FixedPoint { size: 1, .. } => self.read_as::<u8, u8>(row, |number| number),
            Datatype::FixedPoint { size: 2, signed: true, .. } => self.read_as::<i16, i32>(row, i32::from),
            Datatype::FixedPoint { size: 2, .. } => self.read_as::<u16, i32>(row, i32::from),
            Datatype::FixedPoint { size: 4, signed: true, .. } => self.read_as::<i32, i32>(row, |number| number),
            Datatype::FixedPoint { size: 4, .. } => self.read_as::<u32, i64>(row, i64::from),
            Datatype::FixedPoint { .. } => self.read_as::<i64, i64>(row, |number| number),
            Datatype::FloatingPoint { size: 4, .. } => self.read_as::<f32, f32>(row, |number| number),
            _ => self.read_as::<f64, f64>(row, |number| number),
        }
    }

    fn read_as<S: H5Type, T: Element>(&self, row: usize, convert: impl Fn(S) -> T) -> Result<Tensor, String> {
        let all = SliceInfoElem::Slice { start: 0, end: u64::MAX, step: 1 };
        let mut selections = vec![all; self.shape.len()];
        selections[0] = SliceInfoElem::Index(row as u64);
        let read = guard(|| self.dataset.read_slice::<S>(&SliceInfo { selections }))?;
        let elements: Vec<T> = read.into_iter().map(convert).collect();
        Tensor::from_vec(&self.shape[1..], elements).map_err(|error| error.to_string())
    }
}

/// Returns the type of a tensor with elements of this type; `None` if there is none.
fn dtype_of(stored: &Datatype) -> Option<DType> {
    Some(match stored {
        Datatype::FixedPoint { size: 1, signed: true, .. } => DType::I8,
        Datatype::FixedPoint { size: 1, signed: false, .. } => DType::U8,
        Datatype::FixedPoint { size: 2, .. } | Datatype::FixedPoint { size: 4, signed: true, .. } => DType::I32,
        Datatype::FixedPoint { size: 4, .. } | Datatype::FixedPoint { size: 8, signed: true, .. } => DType::I64,
        Datatype::FloatingPoint { size: 4, .. } => DType::F32,
        Datatype::FloatingPoint { size: 8, .. } => DType::F64,
        _ => return None,
    })
}

/// Runs the reader of HDF5 files, whose panic about a damaged file is an error of that file.
fn guard<T>(read: impl FnOnce() -> ReadResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("the reader of HDF5 files panicked: {}", panic_text(&*panic))),
    }
}
