//! Libraries of others that engines open at run time: which there are, where they are kept, how they are got.
//!
//! They come as Python wheels, through the user's own settings of pip, which checks them against the sums here. Knows no
//! vendor; changes nothing outside its folder in the user's cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::cache_folder;
use crate::host::{Ending, ProcessError, run_to_end};

/// A library that can be installed.
#[derive(Debug)]
pub struct Backend {
    /// Its name, and that of its Python package.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The version that was tried.
    pub version: &'static str,
    /// SHA-256 of the wheel for each processor, hexadecimal.
    wheels: &'static [(&'static str, &'static str)],
    /// The library inside the package, without the version behind its name.
    library: &'static str,
}

/// Every library that `flagperf backend install` gets, by name.
pub static BACKENDS: &[Backend] = &[
    Backend {
        name: "onnxruntime",
        about: "ONNX Runtime for processors",
        version: "1.31.1",
        wheels: &[
            ("x86_64", "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536"),
            ("aarch64", "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc"),
        ],
        library: "onnxruntime/capi/libonnxruntime.so",
    },
    Backend {
        name: "onnxruntime-gpu",
        about: "ONNX Runtime with CUDA 13 and TensorRT providers; needs CUDA and cuDNN",
        version: "1.31.1",
        wheels: &[("x86_64", "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7")],
        library: "onnxruntime/capi/libonnxruntime.so",
    },
    Backend {
        name: "openvino",
        about: "OpenVINO for processors, with its devices and the libraries they need",
        version: "2026.4.1",
        wheels: &[("x86_64", "6b4375c17ddcac83a5180349e2e2bb811185c261066e2a920659892d58ef0e3b")],
        library: "openvino/libs/libopenvino_c.so",
    },
];

/// The Python whose wheels are taken: a library inside does not depend on it, the sums do.
const PYTHON_VERSION: &str = "3.12";
/// Systems whose wheels run here, newest first.
const SYSTEMS: [&str; 3] = ["manylinux_2_28", "manylinux_2_27", "manylinux2014"];

/// The library of the first backend of these names that is installed.
pub fn library(names: &[&str]) -> Option<PathBuf> {
    let rows = names.iter().filter_map(|name| BACKENDS.iter().find(|row| row.name == *name));
    rows.filter_map(Backend::installed).next()
}

impl Backend {
    /// The row of this name.
    pub fn find(name: &str) -> Option<&'static Backend> {
        BACKENDS.iter().find(|row| row.name == name)
    }

    /// Its library, when it is installed.
    pub fn installed(&self) -> Option<PathBuf> {
        self.library_in(&self.folder()?)
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(cache_folder()?.join("backends").join(format!("{}-{}", self.name, self.version)))
    }

    /// The library with the longest name that begins as it should: beside a link may lie what it points to.
    fn library_in(&self, folder: &Path) -> Option<PathBuf> {
        let library = folder.join(self.library);
        let begins = library.file_name()?.to_str()?.to_owned();
        let files = fs::read_dir(library.parent()?).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let fits = |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&begins));
        files.filter(fits).max_by_key(|path| path.as_os_str().len())
    }

    /// Gets the wheel with `python -m pip` and unpacks it, whole or not at all; gives the library.
    ///
    /// # Errors
    /// When there is no wheel for this processor, pip fails (it says why itself), or the folder cannot be written.
    pub fn install(&self, python: &str) -> Result<PathBuf, InstallError> {
        if let Some(library) = self.installed() {
            return Ok(library);
        }
        let processor = std::env::consts::ARCH;
        if !self.wheels.iter().any(|(known, _)| *known == processor) {
            let known = self.wheels.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(InstallError::Processor { name: self.name, processor, known });
        }
        let folder = self.folder().ok_or(InstallError::NoHome)?;
        let above = folder.parent().unwrap_or(&folder);
        let unwritten =
            |error: io::Error| InstallError::Unwritten { folder: above.to_owned(), reason: error.to_string() };
        fs::create_dir_all(above).map_err(unwritten)?;
        let unfinished = tempfile::Builder::new().prefix("unfinished.").tempdir_in(above).map_err(unwritten)?;
        let requirements = unfinished.path().join("requirements.txt");
        let sums: String = self.wheels.iter().map(|(_, sum)| format!(" --hash=sha256:{sum}")).collect();
        fs::write(&requirements, format!("{}=={}{sums}\n", self.name, self.version)).map_err(unwritten)?;
        let whole = unfinished.path().join("whole");
        match run_to_end(&self.pip(python, processor, &requirements, &whole))? {
            Ending::Exited(0) => {}
            ending => return Err(InstallError::Pip { python: python.to_owned(), ending: ending.to_string() }),
        }
        self.library_in(&whole).ok_or(InstallError::NoLibrary { name: self.name, library: self.library })?;
        fs::rename(&whole, &folder).map_err(unwritten)?;
        self.library_in(&folder).ok_or(InstallError::NoLibrary { name: self.name, library: self.library })
    }

    fn pip(&self, python: &str, processor: &str, requirements: &Path, target: &Path) -> Vec<String> {
        let fixed = ["-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--require-hashes"];
        let versions = ["--disable-pip-version-check", "--implementation", "cp", "--python-version", PYTHON_VERSION];
        let mut argv: Vec<String> = std::iter::once(python).chain(fixed).chain(versions).map(str::to_owned).collect();
        for system in SYSTEMS {
            argv.extend(["--platform".to_owned(), format!("{system}_{processor}")]);
        }
        let paths = [("--target", target), ("--requirement", requirements)];
        argv.extend(paths.into_iter().flat_map(|(option, path)| [option.to_owned(), path.display().to_string()]));
        argv
    }
}

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
    /// Python could not be started.
    #[error(transparent)]
    Python(#[from] ProcessError),
    /// pip did not finish well.
    #[error("`{python} -m pip install` {ending}")]
    Pip {
        /// The program.
        python: String,
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_in_order_and_sums_are_whole() {
        let names: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
        assert!(names.is_sorted() && names.iter().collect::<HashSet<_>>().len() == names.len());
        for backend in BACKENDS {
            assert!(!backend.about.is_empty() && !backend.wheels.is_empty());
            assert!(
                backend.wheels.iter().all(|(_, sum)| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit()))
            );
        }
    }

    #[test]
    fn the_library_is_found_by_the_beginning_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend::find("onnxruntime").unwrap();
        assert_eq!(backend.library_in(folder.path()), None);
        let inside = folder.path().join("onnxruntime/capi");
        fs::create_dir_all(&inside).unwrap();
        for name in ["libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so"] {
            fs::write(inside.join(name), b"").unwrap();
        }
        assert_eq!(backend.library_in(folder.path()), Some(inside.join("libonnxruntime.so.1.31.1")));
    }

    #[test]
    fn pip_is_asked_for_sums_and_for_this_processor_only() {
        let backend = Backend::find("onnxruntime").unwrap();
        let argv = backend.pip("python3", "x86_64", Path::new("r.txt"), Path::new("t")).join(" ");
        assert!(argv.starts_with("python3 -m pip install --no-deps --only-binary :all: --require-hashes"), "{argv}");
        assert!(argv.ends_with("--platform manylinux2014_x86_64 --target t --requirement r.txt"), "{argv}");
    }
}
