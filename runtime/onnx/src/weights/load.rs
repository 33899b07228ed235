//! Loads weights from files, matched to a graph by name.
//!
//! Reads names and shapes only; the values follow when a session loads.

use std::path::{Path, PathBuf};

use super::listing::{FileTensor, WeightFiles};
use super::{ConfigurationValue, WeightError, WeightMismatches, configuration};
use crate::{Graph, TensorSpec, WeightRole, WeightSource};

/// The suffix of the counters that PyTorch stores for training and that inference does not use.
const IGNORED_SUFFIX: &str = "num_batches_tracked";

/// How the names in a file differ from those of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightOptions {
    /// What the names in the file have in front of those of the graph, such as `module.`.
    pub prefix: String,
    /// The key of the state_dict in a file that PyTorch saved, if it is not the whole content: a path through the
    /// dictionaries, such as `model.state`.
    pub state_dict: Option<String>,
    /// Names of tensors in the file that the graph does not use, with the prefix; a final `*` stands for any text.
    pub ignore: Vec<String>,
    /// What the `config.json` beside the weights must have, where it has these keys.
    pub configuration: Vec<ConfigurationValue>,
}

impl WeightOptions {
    fn ignores(&self, name: &str) -> bool {
        let matches = |pattern: &String| matches_name(pattern, name);
        name.rsplit('.').next() == Some(IGNORED_SUFFIX) || self.ignore.iter().any(matches)
    }
}

/// Returns whether a name is the pattern, or begins with it if the pattern ends with `*`.
pub(super) fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

impl Graph {
    /// Uses all parameters and buffers of a safetensors file, of several that an index lists, of a folder with either, of
    /// a GGUF file, or of a state_dict saved by PyTorch, matched by name. Values are converted between floating-point
    /// types when a weight is read. PyTorch's `num_batches_tracked` counters are ignored.
    ///
    /// # Errors
    /// When a file cannot be read, is truncated, or contains calls other than those that construct tensors; also when
    /// names are missing or unexpected or shapes differ, all in one report. The graph then stays unchanged.
    pub fn load_weights(&mut self, path: &Path) -> Result<(), WeightError> {
        self.load_weights_with(path, &WeightOptions::default()).map(drop)
    }

    /// Loads weights as [`Graph::load_weights`] does, from a file whose names differ as `options` says. Returns every file
    /// that was read, also an index, which has no weights itself.
    ///
    /// # Errors
    /// Those of [`Graph::load_weights`].
    pub fn load_weights_with(&mut self, path: &Path, options: &WeightOptions) -> Result<Vec<PathBuf>, WeightError> {
        let mut files = WeightFiles::open(path, options.state_dict.as_deref())?;
        let first = files.read.first().cloned().unwrap_or_default();
        files.read.extend(configuration::check(&first, &options.configuration)?);
        let mut report = find_mismatches(self, &files, options);
        if !report.is_empty() {
            report.hint = find_hint(&report, &files, options);
            return Err(WeightError::Mismatch {
                path: path.to_owned(),
                graph: self.name.clone(),
                report: Box::new(report),
            });
        }
        self.declares_random_weights = false;
        for (name, weight) in &mut self.weights {
            if weight.role == WeightRole::Constant {
                continue;
            }
            if let Some(FileTensor { path, key, .. }) = files.tensors.get(&format!("{}{name}", options.prefix)) {
                weight.source = WeightSource::File { path: path.to_path_buf(), key: key.clone() };
            }
        }
        Ok(files.read)
    }

    /// Sets the seed of every weight with random values.
    pub fn seed_weights(&mut self, new_seed: u64) {
        for weight in self.weights.values_mut() {
            if let WeightSource::Seed { seed, .. } = &mut weight.source {
                *seed = new_seed;
            }
        }
    }

    /// Returns whether a parameter or buffer has random values, so that the outputs are meaningless. Files written by
    /// [`crate::write_onnx`] store this in their metadata. For files of other programs it is unknown, and the result is
    /// false.
    pub fn weights_are_random(&self) -> bool {
        let random = |weight: &crate::Weight| {
            weight.role != WeightRole::Constant && matches!(weight.source.original(), WeightSource::Seed { .. })
        };
        self.declares_random_weights || self.weights.values().any(random)
    }
}

fn find_mismatches(graph: &Graph, files: &WeightFiles, options: &WeightOptions) -> WeightMismatches {
    let mut report = WeightMismatches::default();
    for (name, weight) in graph.weights.iter().filter(|(_, weight)| weight.role != WeightRole::Constant) {
        let Some(found) = files.tensors.get(&format!("{}{name}", options.prefix)) else {
            report.missing.push(name.clone());
            continue;
        };
        if !found.spec.as_ref().is_ok_and(|found| is_loadable(&weight.spec, found)) {
            let text = found.spec.as_ref().map_or_else(Clone::clone, ToString::to_string);
            report.mismatched.push((name.clone(), weight.spec.clone(), text));
        }
    }
    // A buffer that is a constant of the graph (a table of positions) is computed, not read.
    let belongs = |key: &str| key.strip_prefix(&options.prefix).is_some_and(|name| graph.weights.contains_key(name));
    let unexpected = |key: &&String| !belongs(key) && !options.ignores(key);
    report.unexpected = files.tensors.keys().filter(unexpected).cloned().collect();
    report.unexpected.sort();
    report
}

/// Returns whether a tensor of the file can be loaded into a weight of the graph: the shapes are equal, and the types
/// are equal or both floating-point.
fn is_loadable(graph: &TensorSpec, file: &TensorSpec) -> bool {
    graph.dims == file.dims && (graph.dtype == file.dtype || graph.dtype.is_float() && file.dtype.is_float())
}

/// Returns the option with which the names would fit, if there is one.
fn find_hint(report: &WeightMismatches, files: &WeightFiles, options: &WeightOptions) -> Option<String> {
    if report.missing.is_empty() && report.mismatched.is_empty() {
        let prefix = match options.prefix.as_str() {
            "" => String::new(),
            prefix => format!(", also those without the `prefix` `{prefix}`"),
        };
        return Some(format!("`ignore` lists the names that the graph does not need, as they are in the file{prefix}"));
    }
    let missing = report.missing.first()?;
    let is_nested = |tensor: &FileTensor| super::split_key(&tensor.key).0.is_some();
    if !files.tensors.values().any(is_nested)
        && let Some(key) = files.nested.iter().find(|(_, names)| names.iter().any(|name| name.ends_with(&**missing)))
    {
        return Some(format!("the file has a state_dict under the key `{0}`: set `state_dict: \"{0}\"`", key.0));
    }
    let prefix = report.unexpected.iter().find_map(|name| name.strip_suffix(&**missing))?;
    let has_prefix = |name: &&String| files.tensors.contains_key(&format!("{prefix}{name}"));
    let count = report.missing.iter().filter(has_prefix).count();
    let all = report.missing.len();
    (prefix != options.prefix).then(|| {
        format!("{count} of these {all} names are in the file with `{prefix}` in front: set `prefix: \"{prefix}\"`")
    })
}
