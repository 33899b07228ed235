//! The errors of installing a library.

use std::io;
use std::path::{Path, PathBuf};

use flagperf_host::ProcessError;

/// Why a library could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("`{name}` has no wheel for CPU architecture `{processor}` (available: {known})")]
    Processor { name: &'static str, processor: &'static str, known: String },
    #[error("there is no cache folder to install to: neither `XDG_CACHE_HOME` nor `HOME` is set")]
    NoCacheFolder,
    #[error("cannot write to `{}`: {source}", .folder.display())]
    NotWritable { folder: PathBuf, source: io::Error },
    /// Python or cargo could not be started.
    #[error(transparent)]
    Program(#[from] ProcessError),
    #[error("`{python} -m pip install` {ending}")]
    Pip {
        python: String,
        /// How the process ended, as a predicate.
        ending: String,
    },
    #[error("cargo failed to build `{name}`: {ending}")]
    Cargo { name: &'static str, ending: String },
    #[error("the wheel of `{name}` does not contain `{library}`")]
    NoLibrary { name: &'static str, library: &'static str },
}

/// Returns a function that converts an I/O error about `folder`.
pub(super) fn not_writable(folder: &Path) -> impl Fn(io::Error) -> InstallError {
    |source| InstallError::NotWritable { folder: folder.to_owned(), source }
}
