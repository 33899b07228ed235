//! Loads weights from files, matched to a graph by name.
//!
//! Reads names and shapes only; the values follow when a session loads, except those that must be equal.

use std::path::{Path, PathBuf};

use super::listing::{FileTensor, WeightFiles};
use super::{ConfigurationValue, WeightError, WeightMismatches, configuration, reader};
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
    /// What the `config.json` beside the weights and the metadata of a GGUF file must have, where they have these keys.
    pub configuration: Vec<ConfigurationValue>,
    /// Pairs of tensors in the file, by their names there. The graph does not use the first; if the file has it, it must
    /// equal the second.
    pub equal: Vec<(String, String)>,
}

impl WeightOptions {
    fn ignores(&self, name: &str) -> bool {
        let matches = |pattern: &String| matches_name(pattern, name);
        name.rsplit('.').next() == Some(IGNORED_SUFFIX)
            || self.ignore.iter().any(matches)
            || self.equal.iter().any(|(copy, _)| copy == name)
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
        for (copy, original) in &options.equal {
            self.check_equal(path, &files, copy, original)?;
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

    /// Checks that the tensor `copy`, if there is one, has the type, shape and bytes of `original`.
    fn check_equal(&self, path: &Path, files: &WeightFiles, copy: &str, original: &str) -> Result<(), WeightError> {
        let Some(found) = files.tensors.get(copy) else { return Ok(()) };
        let differ = |difference: String| WeightError::Unequal {
            path: path.to_owned(),
            names: Box::new([copy, original].map(str::to_owned)),
            reason: format!(
                "{difference}; graph `{}` uses `{original}` in place of both: choose weights in which they are equal, or \
                 give the graph a weight `{copy}`",
                self.name
            ),
        };
        let other = files.tensors.get(original).ok_or_else(|| differ(format!("there is no `{original}`")))?;
        let shape = match (&found.spec, &other.spec) {
            (Ok(spec), Ok(other)) if spec == other => spec.fixed_shape().unwrap_or_default(),
            (Ok(spec), Ok(other)) => return Err(differ(format!("they are `{spec}` and `{other}`"))),
            (Err(unsupported), _) | (_, Err(unsupported)) => {
                return Err(differ(format!("one has {}", unsupported.describe())));
            }
        };
        let read = |tensor: &FileTensor| reader::read_stored(&tensor.path, &tensor.key, &shape);
        let (found, other) = (read(found)?, read(other)?);
        let size = found.dtype().size();
        let elements = found.bytes().chunks_exact(size).zip(other.bytes().chunks_exact(size));
        match elements.filter(|(a, b)| a != b).count() {
            0 => Ok(()),
            count => Err(differ(format!("{count} of {} elements are not equal", found.len()))),
        }
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
        match &found.spec {
            Ok(found) if is_loadable(&weight.spec, found) => {}
            Ok(found) => report.mismatched.push((name.clone(), weight.spec.clone(), found.clone())),
            Err(unsupported) => report.unsupported.push((name.clone(), unsupported.describe())),
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

/// Returns what to do, such as the option with which the names would fit, if there is one.
fn find_hint(report: &WeightMismatches, files: &WeightFiles, options: &WeightOptions) -> Option<String> {
    if let Some((name, _)) = report.unsupported.first()
        && let Some(Err(tensor)) = files.tensors.get(&format!("{}{name}", options.prefix)).map(|found| &found.spec)
    {
        return Some(format!("convert the file to one of the supported types: {}", tensor.supported));
    }
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
