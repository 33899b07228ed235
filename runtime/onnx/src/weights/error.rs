//! Errors of finding and reading weights.

use std::path::PathBuf;

use crate::{TensorError, TensorSpec};

/// Why weights could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The file cannot be opened.
    #[error("cannot open the weights file `{path}`: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a complete safetensors file.
    #[error("`{path}` is not a complete safetensors file: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is not a complete PyTorch file.
    #[error("`{path}` is not a complete PyTorch file: {reason}", path = path.display())]
    MalformedPth {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is not a complete GGUF file.
    #[error("`{path}` is not a complete GGUF file: {reason}", path = path.display())]
    MalformedGguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The configuration beside the weights is that of another model.
    #[error("`{path}` {reason}", path = path.display())]
    Configuration {
        /// The configuration.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// A name of weights that should be stored as int8 matches none.
    #[error("graph `{graph}` has no weight `{name}` of a fully connected layer")]
    NoLinearWeight {
        /// The graph.
        graph: String,
        /// The name, or the beginning of it before a `*`.
        name: String,
    },
    /// A folder does not have exactly one set of weights.
    #[error("the folder `{path}` has {reason}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What it has instead.
        reason: String,
    },
    /// An index lists a file that is missing, or that has other tensors than the index says.
    #[error("the index `{index}` lists the file `{shard}`, which {reason}", index = index.display())]
    Shard {
        /// The index.
        index: PathBuf,
        /// The file as the index names it.
        shard: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The index of several files is malformed.
    #[error("`{path}` is not an index of safetensors files: {reason}", path = path.display())]
    MalformedIndex {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has no tensors under a key.
    #[error("`{path}` has no state_dict under the key `{key}` (keys with tensors: {known})", path = path.display())]
    NoStateDict {
        /// The file.
        path: PathBuf,
        key: String,
        /// The keys under which it has tensors.
        known: String,
    },
    /// The file has tensors under several keys, and none was chosen.
    #[error(
        "`{path}` has several state_dicts, under the keys {keys}: set `state_dict` to one of them",
        path = path.display()
    )]
    SeveralStateDicts {
        /// The file.
        path: PathBuf,
        /// The keys.
        keys: String,
    },
    /// The file names a function or class other than those that construct tensors.
    #[error("`{path}` calls `{callable}`, but only tensors are read from it (save `model.state_dict()` alone)", path = path.display())]
    ForbiddenCall {
        /// The file.
        path: PathBuf,
        /// The function or class.
        callable: String,
    },
    /// The file's tensors do not match those of the graph.
    #[error("the weights in `{path}` do not match graph `{graph}`:{report}", path = path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        graph: String,
        /// All differences.
        report: Box<WeightMismatches>,
    },
    /// Two tensors of the file differ, although the graph has one weight for both.
    #[error("the tensors `{}` and `{}` in `{}` differ: {reason}", names[0], names[1], path.display())]
    Unequal {
        /// The file, or the index or folder of several.
        path: PathBuf,
        /// The tensor that the graph does not use, and the one that it uses.
        names: Box<[String; 2]>,
        /// How they differ, and what to do.
        reason: String,
    },
    /// A tensor has values that are NaN or infinite.
    #[error(
        "tensor `{name}` in `{path}` has {count} values of {elements} that are NaN or infinite: the file is damaged or was \
         converted wrongly",
        path = path.display()
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The number of such values.
        count: usize,
        /// The number of all values.
        elements: usize,
    },
    /// The graph has no weight of this name.
    #[error("graph `{graph}` has no weight `{name}`")]
    UnknownWeight { graph: String, name: String },
    /// The weight's shape is not fixed.
    #[error("weight `{name}` of graph `{graph}` has no fixed shape")]
    NoFixedShape {
        graph: String,
        /// The weight.
        name: String,
    },
    /// A data file ends before the weight does.
    #[error("`{path}` ends before the bytes {offset}..{end} of weight `{name}`", path = path.display())]
    DataTooShort {
        /// The data file.
        path: PathBuf,
        /// The weight.
        name: String,
        /// Position of its first byte.
        offset: u64,
        /// Position after its last byte.
        end: u64,
    },
    /// There is not enough memory for a weight.
    #[error("not enough memory for weight `{name}` of `{spec}` ({bytes} bytes)")]
    OutOfMemory {
        /// The weight.
        name: String,
        /// Its shape and type.
        spec: TensorSpec,
        /// Size of its values in bytes.
        bytes: u64,
    },
    /// Bytes, shape and type of a weight contradict each other.
    #[error("weight `{name}`: {source}")]
    Tensor {
        /// The weight.
        name: String,
        /// The contradiction.
        source: TensorError,
    },
}

/// The most names of one kind that a report lists.
const LISTED: usize = 20;

/// All differences between the tensors of a weights file and those of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightMismatches {
    /// Names in the graph, but not in the file.
    pub missing: Vec<String>,
    /// Names in the file, but not in the graph.
    pub unexpected: Vec<String>,
    /// Tensors whose specifications differ: name, specification in the graph, specification in the file.
    pub mismatched: Vec<(String, TensorSpec, TensorSpec)>,
    /// Tensors whose element types are not supported: name and description.
    pub unsupported: Vec<(String, String)>,
    /// The option with which the names would fit.
    pub hint: Option<String>,
}

impl WeightMismatches {
    /// Returns whether there are no differences.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && self.unexpected.is_empty()
            && self.mismatched.is_empty()
            && self.unsupported.is_empty()
    }
}

impl std::fmt::Display for WeightMismatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, names) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            if !names.is_empty() {
                let listed = &names[..names.len().min(LISTED)];
                write!(f, "\n  {what} ({}): `{}`{}", names.len(), listed.join("`, `"), more(names.len()))?;
            }
        }
        if !self.mismatched.is_empty() {
            write!(f, "\n  mismatched ({}):", self.mismatched.len())?;
        }
        for (name, graph, file) in self.mismatched.iter().take(LISTED) {
            write!(f, "\n    `{name}` is `{graph}` in the graph and `{file}` in the file")?;
        }
        f.write_str(&more(self.mismatched.len()))?;
        if !self.unsupported.is_empty() {
            write!(f, "\n  of an unsupported type ({}):", self.unsupported.len())?;
        }
        for (name, description) in self.unsupported.iter().take(LISTED) {
            write!(f, "\n    `{name}` has {description}")?;
        }
        f.write_str(&more(self.unsupported.len()))?;
        self.hint.iter().try_for_each(|hint| write!(f, "\n  hint: {hint}"))
    }
}

/// Returns text with the number of omitted names, empty if none of `count` names is omitted.
fn more(count: usize) -> String {
    if count > LISTED { format!(" and {} more", count - LISTED) } else { String::new() }
}
