//! What exactly was measured: hashes of everything that a figure depends on.

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::hash::hash_file;
use crate::host::THIS_PROGRAM;

/// Hashes (SHA-256, hexadecimal) and versions. `None` where there is nothing to hash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this program.
    pub flagperf: String,
    /// The compiler that built it.
    pub rustc: String,
    /// The program's file, as it was started: every worker is started from the same one.
    pub binary_sha256: Option<String>,
    /// The case's scripts and those they share, by path from the scripts' folder.
    pub scripts_sha256: IndexMap<String, String>,
    /// The merged configuration, as JSON.
    pub config_sha256: String,
    /// The model files that inference opened, by path.
    pub model_sha256: IndexMap<String, String>,
    /// The files that validation read weights from, by path. Weights of an ONNX file are in [`Self::model_sha256`].
    pub weights_sha256: IndexMap<String, String>,
    /// The dataset's index.
    pub dataset_sha256: Option<String>,
    /// The last hash of the chain in `events.jsonl`.
    pub events_sha256: String,
}

impl Provenance {
    /// What is known of the program itself.
    pub fn of_this_program() -> Self {
        Provenance {
            flagperf: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("FLAGPERF_RUSTC").to_owned(),
            binary_sha256: hash_file(Path::new(THIS_PROGRAM)).ok(),
            ..Provenance::default()
        }
    }
}
