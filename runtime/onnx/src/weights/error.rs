//! Why weights could not be found or read.

use std::path::PathBuf;

use crate::{TensorError, TensorSpec};

/// Weights that could not be found or read.
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
    /// The file is no whole safetensors file.
    #[error("`{path}` is not a complete safetensors file: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is no whole file of PyTorch's.
    #[error("`{path}` is not a complete PyTorch file: {reason}", path = path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file wants something called that does not make a tensor.
    #[error("`{path}` wants `{callable}` called, and only tensors are read from it: save `model.state_dict()` alone", path = path.display())]
    Code {
        /// The file.
        path: PathBuf,
        /// What it wants called.
        callable: String,
    },
    /// The file's tensors are not those of the graph.
    #[error("the weights in `{path}` are not those of graph `{graph}`:{report}", path = path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// The graph.
        graph: String,
        /// Everything that does not fit.
        report: Box<Mismatches>,
    },
    /// The graph has no weight of this name.
    #[error("graph `{graph}` has no weight `{name}`")]
    Unknown {
        /// The graph.
        graph: String,
        /// The name.
        name: String,
    },
    /// A data file ends before the weight does.
    #[error("`{path}` ends before the bytes {offset}..{end} of weight `{name}`", path = path.display())]
    Short {
        /// The data file.
        path: PathBuf,
        /// The weight.
        name: String,
        /// Its first byte.
        offset: u64,
        /// The byte after its last.
        end: u64,
    },
    /// There is not as much memory as a weight takes.
    #[error("weight `{name}` of `{spec}` takes {bytes} bytes, and there is not that much memory")]
    Memory {
        /// The weight.
        name: String,
        /// Its shape and type.
        spec: TensorSpec,
        /// Bytes of its values.
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

/// Names of one kind that a report lists at most.
const LISTED: usize = 20;

/// Everything in a weights file that does not fit a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// In the graph, not in the file.
    pub missing: Vec<String>,
    /// In the file, not in the graph.
    pub unexpected: Vec<String>,
    /// In both: name, specification in the graph, specification in the file.
    pub misshaped: Vec<(String, TensorSpec, String)>,
}

impl Mismatches {
    /// Whether everything fits.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.misshaped.is_empty()
    }
}

impl std::fmt::Display for Mismatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, names) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            if !names.is_empty() {
                let listed = &names[..names.len().min(LISTED)];
                write!(f, "\n  {what} ({}): `{}`{}", names.len(), listed.join("`, `"), more(names.len()))?;
            }
        }
        if !self.misshaped.is_empty() {
            write!(f, "\n  mis-shaped ({}):", self.misshaped.len())?;
        }
        for (name, graph, file) in self.misshaped.iter().take(LISTED) {
            write!(f, "\n    `{name}` is `{graph}` in the graph and `{file}` in the file")?;
        }
        f.write_str(&more(self.misshaped.len()))
    }
}

/// How many of `count` names are left out.
fn more(count: usize) -> String {
    if count > LISTED { format!(" and {} more", count - LISTED) } else { String::new() }
}
