//! Lists the tensors of weights files: of one file, of several that an index names, or of a folder with either.
//!
//! Knows nothing about graphs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{MappedFile, TensorListing, UnsupportedTensor, WeightError, safetensors as format};
use crate::TensorSpec;

/// The largest index in bytes. The index of 100,000 tensors has about 10 MiB.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The files of a model in a folder, as transformers names them: the index of several, or the only one.
const IN_FOLDER: [&str; 2] = ["model.safetensors.index.json", "model.safetensors"];

/// A tensor of a weights file.
#[derive(Clone, Debug)]
pub(super) struct FileTensor {
    pub path: Arc<Path>,
    /// The name under which the file has it.
    pub key: String,
    pub spec: Result<TensorSpec, UnsupportedTensor>,
}

/// The tensors of one file or of several, by name.
#[derive(Debug, Default)]
pub(super) struct WeightFiles {
    pub tensors: HashMap<String, FileTensor>,
    /// The names of the tensors under each key of a file that contains dictionaries of them.
    pub nested: BTreeMap<String, Vec<String>>,
    /// Every file that was read, the index first.
    pub read: Vec<PathBuf>,
}

/// The index of several safetensors files, as Hugging Face's transformers writes it.
#[derive(Deserialize)]
struct Index {
    weight_map: WeightMap,
}

/// The names of tensors and of their files, in the order of the index: a map would hide a name that it has twice.
struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = WeightMap;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the file of each tensor")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<WeightMap, M::Error> {
                std::iter::from_fn(|| map.next_entry().transpose()).collect::<Result<_, _>>().map(WeightMap)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Returns the weights file that a path leads to: the file itself, or that of a folder with `model.safetensors` or an
/// index.
///
/// # Errors
/// When a folder has neither or both.
pub fn find_weights_file(path: &Path) -> Result<PathBuf, WeightError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    // A link that leads nowhere counts: opening it says so.
    let found: Vec<PathBuf> =
        IN_FOLDER.iter().map(|name| path.join(name)).filter(|file| file.symlink_metadata().is_ok()).collect();
    let [index, single] = IN_FOLDER;
    match &found[..] {
        [file] => Ok(file.clone()),
        [] => Err(format!("neither `{single}` nor `{index}`")),
        _ => Err(format!("both `{single}` and `{index}`: name one of the two")),
    }
    .map_err(|reason| WeightError::Folder { path: path.to_owned(), reason })
}

impl WeightFiles {
    /// Lists the tensors of a file, of those that an index (`.json`) names, or of a folder with either. If `state_dict` is
    /// set, it is the key of the dictionary to list; otherwise a file without tensors outside of dictionaries must have
    /// them in only one.
    pub(super) fn open(path: &Path, state_dict: Option<&str>) -> Result<Self, WeightError> {
        let path = &*find_weights_file(path)?;
        let mut files = WeightFiles::default();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.add_indexed(path)?;
        } else {
            let listing = list_tensors(path)?;
            let only = if state_dict.is_none() { find_only_dict(path, &listing)? } else { None };
            files.add(path, &listing, state_dict.or(only), None);
        }
        if let Some(key) = state_dict.filter(|_| files.tensors.is_empty()) {
            let known = join_keys(files.nested.keys());
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(WeightError::NoStateDict { path: path.to_owned(), key: key.to_owned(), known });
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
        self.read.push(path.to_owned());
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
        self.read.push(path.to_owned());
        let mut files = HashMap::new();
        let mut names: BTreeMap<String, HashSet<String>> = BTreeMap::new();
        for (tensor, file) in index.weight_map.0 {
            if files.insert(tensor.clone(), file.clone()).is_some() {
                return Err(malformed(format!("it names tensor `{tensor}` twice")));
            }
            names.entry(file).or_default().insert(tensor);
        }
        for (name, expected) in &names {
            let failed = |reason: String| WeightError::Shard { index: path.to_owned(), shard: name.clone(), reason };
            let mut parts = Path::new(name).components();
            if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
                return Err(failed("is not in the folder of the index: put both into one folder".to_owned()));
            }
            let shard = path.with_file_name(name);
            let listing = list_tensors(&shard).map_err(|error| match error {
                WeightError::Open { source, .. } => {
                    let (others, tensor) = (expected.len() - 1, expected.iter().min().map_or("", |tensor| tensor));
                    failed(format!(
                        "cannot be opened: {source} (it must be in the folder of the index, with tensor `{tensor}` and \
                         {others} others)"
                    ))
                }
                error => error,
            })?;
            let other = |tensor: &String| files.get(tensor).filter(|file| *file != name);
            if let Some((tensor, other)) = listing.keys().find_map(|tensor| Some((tensor, other(tensor)?))) {
                return Err(failed(format!("has tensor `{tensor}`, which is in `{other}` by the index")));
            }
            self.add(&shard, &listing, None, Some(expected));
            if let Some(absent) = expected.iter().find(|tensor| !self.tensors.contains_key(*tensor)) {
                return Err(failed(format!("does not have tensor `{absent}`, although the index says so")));
            }
        }
        Ok(())
    }
}

/// Returns the key of the only dictionary with tensors in a file that has none outside of dictionaries.
fn find_only_dict<'a>(path: &Path, listing: &'a TensorListing) -> Result<Option<&'a str>, WeightError> {
    let keys: BTreeSet<Option<&str>> = listing.keys().map(|key| super::split_key(key).0).collect();
    match keys.first() {
        Some(Some(key)) if keys.len() == 1 => Ok(Some(key)),
        Some(Some(_)) => {
            Err(WeightError::SeveralStateDicts { path: path.to_owned(), keys: join_keys(keys.into_iter().flatten()) })
        }
        _ => Ok(None),
    }
}

fn join_keys(keys: impl Iterator<Item = impl std::fmt::Display>) -> String {
    keys.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the tensors of a safetensors, PyTorch or GGUF file.
fn list_tensors(path: &Path) -> Result<TensorListing, WeightError> {
    let file: MappedFile = format::open(path)?;
    if super::pth::is_pth(file.bytes()) {
        let pth = super::pth::PthFile::open(path, file.clone())?;
        pth.check_sums(path)?;
        return Ok(pth.list_tensors());
    }
    if super::gguf::is_gguf(file.bytes()) {
        return Ok(super::gguf::GgufFile::open(path, file)?.list_tensors());
    }
    format::list_tensors(path, &file)
}
