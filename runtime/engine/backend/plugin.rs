//! Crates of this checkout that make an engine of a library.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{InstallError, unwritten};
use crate::host::{Ending, run_to_end};

/// A crate that is built where the library was unpacked: it finds it there ever after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plugin {
    /// The crate's folder in the checkout.
    pub(super) folder: &'static str,
    /// The shared library that cargo makes of it, without prefix and suffix.
    pub(super) library: &'static str,
    /// The features that it is built with; its default ones when there are none.
    pub(super) features: &'static [&'static str],
    /// Variables that tell the build where the library is, and the folders that they name.
    pub(super) tells: &'static [(&'static str, &'static str)],
}

impl Plugin {
    /// Where it is kept; one that another version of this program built is not taken for its own.
    pub(super) fn place(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{DLL_PREFIX}{}-{}{DLL_SUFFIX}", self.library, env!("CARGO_PKG_VERSION")))
    }

    /// The command that builds it.
    pub(super) fn command(&self, checkout: &Path, folder: &Path, target: &Path) -> Vec<String> {
        let manifest = checkout.join(self.folder).join("Cargo.toml").display().to_string();
        let told = self.tells.iter().map(|(variable, names)| format!("{variable}={}", folder.join(names).display()));
        let mut argv: Vec<String> = ["env".to_owned()].into_iter().chain(told).collect();
        let target = target.display().to_string();
        let words = ["cargo", "build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", &target];
        argv.extend(words.map(str::to_owned));
        if !self.features.is_empty() {
            argv.extend(["--no-default-features", "--features", &self.features.join(",")].map(str::to_owned));
        }
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
