//! Crates of this checkout that wrap a library as an engine plug-in.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{InstallError, not_writable};
use flagperf_host::{Ending, run_to_end};

/// A crate that is built next to the unpacked library and records that location, so that it finds the library at run
/// time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PluginCrate {
    /// The crate's folder in the checkout.
    pub(super) folder: &'static str,
    /// The name of the shared library that cargo builds, without prefix and suffix.
    pub(super) library: &'static str,
    /// The cargo features to build with; the default features when the list is empty.
    pub(super) features: &'static [&'static str],
    /// The environment variables of the build that locate the library, each with a folder relative to the unpacked
    /// wheels.
    pub(super) environment: &'static [(&'static str, &'static str)],
}

impl PluginCrate {
    /// Returns where the plug-in is kept. The name contains the version of this program, so that a plug-in built by
    /// another version is never used.
    pub(super) fn library_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{DLL_PREFIX}{}-{}{DLL_SUFFIX}", self.library, env!("CARGO_PKG_VERSION")))
    }

    /// Returns the command that builds the crate.
    pub(super) fn command(&self, checkout: &Path, folder: &Path, target: &Path) -> Vec<String> {
        let manifest = checkout.join(self.folder).join("Cargo.toml").display().to_string();
        let variables =
            self.environment.iter().map(|(name, subfolder)| format!("{name}={}", folder.join(subfolder).display()));
        let mut argv: Vec<String> = ["env".to_owned()].into_iter().chain(variables).collect();
        let target = target.display().to_string();
        let words = ["cargo", "build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", &target];
        argv.extend(words.map(str::to_owned));
        if !self.features.is_empty() {
            argv.extend(["--no-default-features", "--features", &self.features.join(",")].map(str::to_owned));
        }
        argv
    }

    /// Builds the crate next to the library, and keeps only the resulting plug-in.
    pub(super) fn build(&self, checkout: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
        let target = tempfile::Builder::new().prefix("build.").tempdir_in(folder).map_err(not_writable(folder))?;
        match run_to_end(&self.command(checkout, folder, target.path()), None, super::INSTALL_TIME_MAX)? {
            Ending::Exited(0) => {}
            ending => return Err(InstallError::Cargo { name: self.library, ending: ending.to_string() }),
        }
        let path = self.library_path(folder);
        let built = target.path().join("release").join(format!("{DLL_PREFIX}{}{DLL_SUFFIX}", self.library));
        fs::rename(built, &path).map_err(not_writable(folder))?;
        Ok(path)
    }
}
