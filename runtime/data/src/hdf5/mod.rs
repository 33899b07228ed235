//! Arrays in HDF5 files as fields: the first dimension of each counts the samples, and the samples of all files follow each other.

mod shard;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use super::array_file::content;
use super::tokens::write_tensor;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SAMPLE_BYTES_MAX, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::regular_file::open_regular;
use flagperf_core::tensor::{DType, TensorSpec, byte_count};
use shard::Shard;

/// Largest number of files.
const SHARDS_MAX: usize = 1 << 16;
/// Number of files that stay open.
const OPEN_FILES_MAX: usize = 256;
/// Memory for decompressed chunks of all files together, in bytes.
const CACHE_BYTES: usize = 512 << 20;
/// Largest size of all files together whose content is hashed, in bytes.
const HASHED_BYTES_MAX: u64 = 1 << 30;
/// The extensions of HDF5 files.
const EXTENSIONS: [&str; 2] = ["hdf5", "h5"];

/// One field of a dataset in HDF5 files.
#[derive(Clone, Debug, PartialEq)]
pub struct Hdf5Field {
    pub name: String,
    /// Which script functions may see it.
    pub role: FieldRole,
    /// Name of the dataset in each file.
    pub dataset: String,
    /// Type of the elements in a batch; `None` for the stored one, or that of the case for float inputs.
    pub dtype: Option<DType>,
}

/// The description of a dataset in HDF5 files.
#[derive(Clone, Debug, PartialEq)]
pub struct Hdf5Options {
    /// A file, or a folder in which the files that end in .hdf5 or .h5 are read in byte order of their names.
    pub path: PathBuf,
    pub fields: Vec<Hdf5Field>,
}

/// Opened HDF5 files.
pub struct Hdf5Shards {
    shards: Vec<Shard>,
    /// Number of samples before each file.
    before: Vec<usize>,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

impl Hdf5Shards {
    /// Opens the files and checks their descriptions. Float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When there is no file, one cannot be read, or its arrays have different numbers of samples, or samples of another shape or
    /// type than those of the first file.
    pub fn open(root: &DataRoot, options: &Hdf5Options, dtype: DType) -> Result<Self, DataError> {
        let paths = shard_paths(root, &options.path)?;
        let datasets: Vec<&str> = options.fields.iter().map(|field| field.dataset.as_str()).collect();
        let (stay_open, cache) = (paths.len() <= OPEN_FILES_MAX, CACHE_BYTES / paths.len());
        let open = |path: &PathBuf| {
            let shard = Shard::open(path, &root.resolve(path)?, &datasets, stay_open, cache);
            shard.map_err(|reason| DataError::Invalid { path: path.clone(), reason })
        };
        let shards: Vec<Shard> = paths.iter().map(open).collect::<Result<_, _>>()?;
        let (mut before, mut samples) = (Vec::new(), 0usize);
        for shard in &shards {
            before.push(samples);
            let count = samples_of(shard, &shards[0], &datasets);
            let count = count.map_err(|reason| DataError::Invalid { path: shard.path.clone(), reason })?;
            samples = samples.saturating_add(count);
        }
        if samples == 0 {
            let reason = "has no samples: the first dimension of an array counts them".to_owned();
            return Err(DataError::Invalid { path: options.path.clone(), reason });
        }
        let fields = fields_of(options, &shards[0], dtype)?;
        let facts = facts(root, &options.path, (&fields, &datasets), &shards, samples)?;
        Ok(Hdf5Shards { shards, before, fields, facts })
    }

    /// Returns the file of a sample, and its number in it.
    fn locate(&self, index: usize) -> (&Shard, usize) {
        let shard = self.before.partition_point(|before| *before <= index) - 1;
        (&self.shards[shard], index - self.before[shard])
    }
}

impl Dataset for Hdf5Shards {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        let (shard, row) = self.locate(index);
        format!("{}: row {row}", shard.path.display())
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let (shard, row) = self.locate(index);
        for ((array, field), out) in shard.arrays.iter().zip(&self.fields).zip(fields) {
            let read = array.read(row).and_then(|sample| write_tensor(&sample.cast(field.spec.dtype), out));
            read.map_err(|reason| SampleError { sample: self.sample_name(index), reason })?;
        }
        Ok(())
    }
}

/// Returns the paths of the files, relative to the data directory.
fn shard_paths(root: &DataRoot, path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let resolved = root.resolve(path)?;
    if !resolved.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(&resolved).map_err(|error| DataError::unreadable(path, &error))?;
    let names = entries.flatten().map(|entry| PathBuf::from(entry.file_name()));
    let is_shard =
        |name: &PathBuf| EXTENSIONS.iter().any(|known| name.extension().is_some_and(|found| found == *known));
    // One more than the limit, so that what is beyond it is noticed.
    let mut names: Vec<PathBuf> = names.filter(is_shard).take(SHARDS_MAX + 1).collect();
    names.sort();
    let reason = match names.len() {
        0 => "has no file that ends in .hdf5 or .h5".to_owned(),
        1..=SHARDS_MAX => return Ok(names.into_iter().map(|name| path.join(name)).collect()),
        _ => format!("has more than {SHARDS_MAX} HDF5 files"),
    };
    Err(DataError::Invalid { path: path.to_owned(), reason })
}

/// Returns the number of samples of a file whose samples must be as those of the first one.
fn samples_of(shard: &Shard, first: &Shard, datasets: &[&str]) -> Result<usize, String> {
    let count = |array: usize| shard.arrays[array].shape.first().copied();
    for (index, (array, expected)) in shard.arrays.iter().zip(&first.arrays).enumerate() {
        let name = datasets[index];
        let Some(samples) = count(index) else { return Err(format!("dataset `{name}` has no first dimension")) };
        if Some(samples) != count(0) {
            let other = count(0).unwrap_or_default();
            return Err(format!("dataset `{name}` has {samples} samples, but `{}` has {other}", datasets[0]));
        }
        let sample =
            |array: &shard::ShardArray| TensorSpec::new(array.shape.get(1..).unwrap_or_default().to_vec(), array.dtype);
        let (found, expected) = (sample(array), sample(expected));
        if found != expected {
            let file = first.path.display();
            return Err(format!(
                "the samples of dataset `{name}` are `{found}`, but in `{file}` they are `{expected}`"
            ));
        }
        if array.shape[1..].contains(&0) {
            return Err(format!("the samples of dataset `{name}` are empty: its shape is {:?}", array.shape));
        }
    }
    Ok(count(0).unwrap_or_default())
}

/// Returns the fields with the shapes of a file, if a sample is not too large.
fn fields_of(options: &Hdf5Options, shard: &Shard, dtype: DType) -> Result<Vec<Field>, DataError> {
    let mut all = 0usize;
    let mut fields = Vec::new();
    for (Hdf5Field { name, role, dtype: wanted, .. }, array) in options.fields.iter().zip(&shard.arrays) {
        let is_converted = *role == FieldRole::Input && array.dtype.is_float();
        let dtype = wanted.unwrap_or(if is_converted { dtype } else { array.dtype });
        let (name, spec) = (name.clone(), TensorSpec::new(array.shape[1..].to_vec(), dtype));
        match byte_count(&array.shape[1..], dtype).filter(|bytes| *bytes <= SAMPLE_BYTES_MAX) {
            Some(bytes) => all = all.saturating_add(bytes),
            None => return Err(DataError::FieldTooLarge { field: name, spec }),
        }
        fields.push(Field { name, role: *role, spec });
    }
    if all > SAMPLE_BYTES_MAX {
        return Err(DataError::SampleTooLarge { fields: fields.len(), bytes: all });
    }
    Ok(fields)
}

/// Returns the facts. The index contains the content of the files, unless they are very large together: then only their sizes.
fn facts(
    root: &DataRoot,
    path: &Path,
    (fields, datasets): (&[Field], &[&str]),
    shards: &[Shard],
    samples: usize,
) -> Result<DatasetFacts, DataError> {
    let describe = |(field, dataset): (&Field, &&str)| format!("{} {} from `{dataset}`", field.name, field.spec);
    let mut pipeline: Vec<String> = fields.iter().zip(datasets).map(describe).collect();
    let bytes = shards.iter().fold(0u64, |sum, shard| sum.saturating_add(shard.bytes));
    let mut index = format!("{}\n", pipeline.join("\n"));
    for shard in shards {
        let content = match bytes <= HASHED_BYTES_MAX {
            true => open_regular(&root.resolve(&shard.path)?)
                .map_err(|error| DataError::unreadable(&shard.path, &error))
                .map(|file| content(&file, shard.bytes))?,
            false => format!("{} bytes", shard.bytes),
        };
        let name = shard.path.file_name().unwrap_or_default();
        index += &format!("{} {} {content}\n", name.display(), shard.arrays[0].shape[0]);
    }
    pipeline.push(format!("{} HDF5 files, {bytes} bytes", shards.len()));
    Ok(root.facts(&root.path().join(path), samples, hash_bytes(index.as_bytes()), pipeline))
}
