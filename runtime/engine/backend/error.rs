//! Why a library could not be installed.

use std::io;
use std::path::{Path, PathBuf};

use crate::host::ProcessError;

/// Why a library could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// No wheel for this processor.
    #[error("`{name}` has no wheel for processor `{processor}` (known: {known})")]
    Processor {
        /// The backend.
        name: &'static str,
        /// This machine's processor.
        processor: &'static str,
        /// Processors that it has wheels for.
        known: String,
    },
    /// Neither variable that says where the user's files are.
    #[error("neither `XDG_CACHE_HOME` nor `HOME` says where to keep it")]
    NoHome,
    /// The folder cannot be written.
    #[error("cannot write in `{}`: {reason}", .folder.display())]
    Unwritten {
        /// The folder.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
    /// Python or cargo could not be started.
    #[error(transparent)]
    Program(#[from] ProcessError),
    /// pip did not finish well.
    #[error("`{python} -m pip install` {ending}")]
    Pip {
        /// The program.
        python: String,
        /// How it ended.
        ending: String,
    },
    /// cargo did not finish well.
    #[error("building `{name}` with cargo {ending}")]
    Cargo {
        /// The crate.
        name: &'static str,
        /// How it ended.
        ending: String,
    },
    /// The wheel is not what it should be.
    #[error("the wheel of `{name}` has no `{library}`")]
    NoLibrary {
        /// The backend.
        name: &'static str,
        /// The library.
        library: &'static str,
    },
}

/// What went wrong with a folder.
pub(super) fn unwritten(folder: &Path) -> impl Fn(io::Error) -> InstallError {
    |error| InstallError::Unwritten { folder: folder.to_owned(), reason: error.to_string() }
}
