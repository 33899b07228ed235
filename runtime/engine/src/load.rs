//! What an engine loads, and with which settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_onnx::Graph;
use indexmap::IndexMap;

use flagperf_core::measure::Clock;
use flagperf_core::tensor::DType;

/// The model that a session is loaded from.
#[derive(Clone, Copy, Debug)]
pub enum Artifact<'a> {
    /// A graph in memory, for frameworks.
    Graph(&'a Graph),
    /// An ONNX file, for compilers.
    Onnx(&'a Path),
    /// A file that the compiler wrote earlier (`exist_compiler_path`).
    Compiled(&'a Path),
}

/// The settings for loading one session.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The vendor's folder; relative paths in `library` and `command` are resolved against it.
    pub folder: PathBuf,
    /// The shared library, for an engine that the vendor brings as a plug-in.
    pub library: Option<PathBuf>,
    /// The folder for temporary files, which nothing needs once the process has ended.
    pub scratch: PathBuf,
    /// Program and arguments, for an engine that the vendor brings as a sidecar.
    pub command: Vec<String>,
    /// The number of threads to compute with; 0 selects the engine's default.
    pub threads: usize,
    /// The number of rows in a full batch.
    pub batch_size: usize,
    /// The floating-point type to compute in. An engine that does not support it returns an error.
    pub precision: DType,
    /// Further options from the vendor's overlay, under the engine's own names.
    pub extra: IndexMap<String, serde_json::Value>,
    /// The merged configuration of the case, for engines that pass it on to the vendor's code.
    pub config: IndexMap<String, serde_json::Value>,
    /// The clock for [`Session::operator_times`](crate::Session::operator_times) of an engine that has none of its own; `None` when
    /// they are not kept.
    pub profile: Option<Arc<dyn Clock>>,
}

impl Default for LoadOptions {
    /// Batches of one row in fp32; everything else is left to the engine.
    fn default() -> Self {
        LoadOptions {
            folder: PathBuf::new(),
            library: None,
            scratch: std::env::temp_dir(),
            command: Vec::new(),
            threads: 0,
            batch_size: 1,
            precision: DType::F32,
            extra: IndexMap::new(),
            config: IndexMap::new(),
            profile: None,
        }
    }
}
