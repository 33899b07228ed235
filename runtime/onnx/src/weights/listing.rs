//! Lists the tensors of weights files: of one file, or of several that an index names.
//!
//! Knows nothing about graphs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path};
use std::sync::Arc;

use serde::Deserialize;

use super::{MappedFile, TensorListing, WeightError, safetensors as format};
use crate::TensorSpec;

/// The largest index in bytes. The index of 100,000 tensors has about 10 MiB.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// A tensor of a weights file.
#[derive(Clone, Debug)]
pub(super) struct FileTensor {
    pub path: Arc<Path>,
    /// The name under which the file has it.
    pub key: String,
    /// Shape and type, or a description of an unsupported type.
    pub spec: Result<TensorSpec, String>,
}

/// The tensors of one file or of several, by name.
#[derive(Debug, Default)]
pub(super) struct WeightFiles {
    pub tensors: HashMap<String, FileTensor>,
    /// The names of the tensors under each key of a file that contains dictionaries of them.
    pub nested: BTreeMap<String, Vec<String>>,
}

/// The index of several safetensors files, as Hugging Face's transformers writes it.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl WeightFiles {
    /// Lists the tensors of a file, or of those that an index (`.json`) names. If `state_dict` is set, it is the key of
    /// the dictionary to list.
    pub(super) fn open(path: &Path, state_dict: Option<&str>) -> Result<Self, WeightError> {
        let mut files = WeightFiles::default();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.add_indexed(path)?;
        } else {
            files.add(path, &list_tensors(path)?, state_dict, None);
        }
        if let Some(key) = state_dict.filter(|_| files.tensors.is_empty()) {
            let known = files.nested.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let reason = if known.is_empty() { "none".to_owned() } else { known };
            return Err(WeightError::NoStateDict { path: path.to_owned(), key: key.to_owned(), known: reason });
        }
        Ok(files)
    }

    /// Adds the tensors of a file, or of one of its dictionaries, or those that are `expected` of it.
    fn add(
        &mut self,
        path: &Path,
        listing: &TensorListing,
        state_dict: Option<&str>,
        expected: Option<&HashSet<String>>,
    ) {
        let path: Arc<Path> = path.into();
        for (key, spec) in listing {
            let (dict, name) = super::split_key(key);
            if let Some(dict) = dict {
                self.nested.entry(dict.to_owned()).or_default().push(name.to_owned());
            }
            if dict == state_dict && expected.is_none_or(|expected| expected.contains(name)) {
                let tensor = FileTensor { path: path.clone(), key: key.clone(), spec: spec.clone() };
                self.tensors.insert(name.to_owned(), tensor);
            }
        }
    }

    /// Adds the tensors of the files that an index names. Each must lie in the folder of the index.
    fn add_indexed(&mut self, path: &Path) -> Result<(), WeightError> {
        let malformed = |reason: String| WeightError::MalformedIndex { path: path.to_owned(), reason };
        let file = format::open(path)?;
        if file.bytes().len() as u64 > INDEX_BYTES_MAX {
            return Err(malformed(format!("it is larger than {INDEX_BYTES_MAX} bytes")));
        }
        let index: Index = serde_json::from_slice(file.bytes()).map_err(|error| malformed(error.to_string()))?;
        let mut names: BTreeMap<String, HashSet<String>> = BTreeMap::new();
        for (tensor, file) in index.weight_map {
            names.entry(file).or_default().insert(tensor);
        }
        for (name, expected) in names {
            let mut parts = Path::new(&name).components();
            if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
                return Err(malformed(format!("its file `{name}` does not lie beside it")));
            }
            let shard = path.with_file_name(&name);
            self.add(&shard, &list_tensors(&shard)?, None, Some(&expected));
            if let Some(absent) = expected.iter().find(|tensor| !self.tensors.contains_key(*tensor)) {
                return Err(malformed(format!("its file `{name}` has no tensor `{absent}`")));
            }
        }
        Ok(())
    }
}

/// Returns the tensors of a safetensors or PyTorch file.
fn list_tensors(path: &Path) -> Result<TensorListing, WeightError> {
    let file: MappedFile = format::open(path)?;
    if super::pth::is_pth(file.bytes()) {
        let pth = super::pth::PthFile::open(path, file.clone())?;
        pth.check_sums(path)?;
        return Ok(pth.list_tensors());
    }
    format::list_tensors(path, &file)
}
