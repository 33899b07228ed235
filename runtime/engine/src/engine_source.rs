//! An engine as a vendor configures it: where its code is, and its options.

use std::path::{Path, PathBuf};

use flagperf_config::{EngineEntry, Vendor};
use flagperf_core::tensor::DType;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::backend::Backend;
use super::{Engine, LoadOptions, UnknownEngine, find};

/// An engine of a vendor, as a process loads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineSource {
    /// The row in the table of engines.
    pub engine: String,
    /// The vendor's folder.
    pub folder: PathBuf,
    /// The shared library of a plug-in.
    pub library: Option<PathBuf>,
    /// The program and the arguments of a sidecar.
    pub command: Vec<String>,
    /// The threads for the computation; 0 is the engine's default.
    pub threads: u32,
    /// The options of the engine.
    pub options: IndexMap<String, Value>,
}

impl EngineSource {
    /// Returns the engine of an entry of vendor.yaml, in the checkout at `root`. The number of threads is among its options.
    ///
    /// # Errors
    /// When `flagperf backend install` has not installed its library.
    pub fn of_entry(root: &Path, vendor: &Vendor, entry: &EngineEntry) -> Result<Self, String> {
        let EngineEntry { engine, library, command, options, .. } = entry;
        let installed = |name: &str| {
            let library = Backend::find(root, name).and_then(|row| row.installed());
            library.ok_or_else(|| format!("the library `{name}` is not installed: `flagperf backend install {name}`"))
        };
        let library = match entry.backend() {
            Some(backend) => Some(installed(backend)?),
            None => library.as_ref().map(|library| vendor.folder.join(library)),
        };
        let options = options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let (engine, folder, command) = (engine.clone(), vendor.folder.clone(), command.clone());
        Ok(EngineSource { engine, folder, library, command, threads: 0, options })
    }

    /// Returns the row of the table of engines.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn find_engine(&self) -> Result<&'static dyn Engine, UnknownEngine> {
        find(&self.engine)
    }

    /// Returns the settings for loading a graph that computes in a type, with a folder for temporary files.
    pub fn load_options(&self, precision: DType, scratch: &Path) -> LoadOptions {
        LoadOptions {
            folder: self.folder.clone(),
            library: self.library.clone(),
            scratch: scratch.to_owned(),
            command: self.command.clone(),
            threads: self.threads as usize,
            precision,
            extra: self.options.clone(),
            ..LoadOptions::default()
        }
    }
}
