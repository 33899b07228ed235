//! The errors of installing a library.

use std::io;
use std::path::{Path, PathBuf};

use flagperf_host::ProcessError;

/// Why a library could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no wheel for this CPU architecture.
    #[error("`{name}` has no wheel for CPU architecture `{processor}` (available: {known})")]
    Processor {
        /// The backend.
        name: &'static str,
        /// This machine's CPU architecture.
        processor: &'static str,
        /// The architectures that the backend has wheels for.
        known: String,
    },
    /// Neither variable that locates the user's cache folder is set.
    #[error("there is no cache folder to install to: neither `XDG_CACHE_HOME` nor `HOME` is set")]
    NoCacheFolder,
    /// The folder is not writable.
    #[error("cannot write to `{}`: {source}", .folder.display())]
    NotWritable {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Python or cargo could not be started.
    #[error(transparent)]
    Program(#[from] ProcessError),
    /// pip failed.
    #[error("`{python} -m pip install` {ending}")]
    Pip {
        /// The Python program.
        python: String,
        /// How the process ended, as a predicate.
        ending: String,
    },
    /// cargo failed.
    #[error("cargo failed to build `{name}`: {ending}")]
    Cargo {
        /// The crate.
        name: &'static str,
        /// How the process ended.
        ending: String,
    },
    /// The wheel does not contain the library.
    #[error("the wheel of `{name}` does not contain `{library}`")]
    NoLibrary {
        /// The backend.
        name: &'static str,
        /// The path of the library inside the wheel.
        library: &'static str,
    },
}

/// Returns a function that converts an I/O error about `folder`.
pub(super) fn not_writable(folder: &Path) -> impl Fn(io::Error) -> InstallError {
    |source| InstallError::NotWritable { folder: folder.to_owned(), source }
}
