//! Crates of this checkout that make an engine of a library.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{InstallError, unwritten};
use crate::host::{Ending, run_to_end};

/// A crate that is built where the library was unpacked: it finds it there ever after.
#[derive(Debug)]
pub(super) struct Plugin {
    /// The crate's folder in the checkout.
    pub(super) folder: &'static str,
    /// The shared library that cargo makes of it, without prefix and suffix.
    pub(super) library: &'static str,
    /// The variable that tells the build where the library is, and the folder that it names.
    pub(super) variable: (&'static str, &'static str),
}

impl Plugin {
    /// Where it is kept; one that another version of this program built is not taken for its own.
    pub(super) fn place(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{DLL_PREFIX}{}-{}{DLL_SUFFIX}", self.library, env!("CARGO_PKG_VERSION")))
    }

    /// The command that builds it.
    pub(super) fn command(&self, checkout: &Path, folder: &Path, target: &Path) -> Vec<String> {
        let (variable, names) = self.variable;
        let manifest = checkout.join(self.folder).join("Cargo.toml");
        let told = format!("{variable}={}", folder.join(names).display());
        let words = ["env", &told, "cargo", "build", "--release", "--locked", "--manifest-path"];
        let mut argv: Vec<String> = words.map(str::to_owned).into();
        argv.extend([manifest.display().to_string(), "--target-dir".to_owned(), target.display().to_string()]);
        argv
    }

    /// Builds it where the library lies, and keeps nothing but the result.
    pub(super) fn build(&self, checkout: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
        let target = tempfile::Builder::new().prefix("build.").tempdir_in(folder).map_err(unwritten(folder))?;
        match run_to_end(&self.command(checkout, folder, target.path()))? {
            Ending::Exited(0) => {}
            ending => return Err(InstallError::Cargo { name: self.library, ending: ending.to_string() }),
        }
        let place = self.place(folder);
        let built = target.path().join("release").join(format!("{DLL_PREFIX}{}{DLL_SUFFIX}", self.library));
        fs::rename(built, &place).map_err(unwritten(folder))?;
        Ok(place)
    }
}
