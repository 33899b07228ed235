//! Provenance: hashes of everything on which a figure depends.

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::PhaseRecord;
use super::failures::opened_files;
use flagperf_core::event::FileFacts;
use flagperf_core::hash::{Seed, hash_file};
use flagperf_host::THIS_PROGRAM;

/// Hashes (SHA-256, hexadecimal) and versions. `None` when there is nothing to hash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Provenance {
    /// Version of this program.
    pub flagperf: String,
    /// The Rust compiler that built this program.
    pub rustc: String,
    /// The executable file of this program, from which every worker is started too.
    pub binary_sha256: Option<String>,
    /// The commit that is checked out; `None` without git, or outside a repository.
    #[serde(default)]
    pub git_revision: Option<String>,
    /// Whether every file of the checkout is as in that commit, byte by byte, and no other file is in the folders that a run reads;
    /// build outputs of engines and files that git ignores elsewhere do not count.
    #[serde(default)]
    pub git_clean: Option<bool>,
    /// The first file that is not as in that commit, and how it differs; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_difference: Option<String>,
    /// The seed of the order of samples and of the audit, drawn when the case began.
    #[serde(default)]
    #[cfg_attr(feature = "testing", schemars(with = "String"))]
    pub run_seed: Seed,
    /// The scripts of the case and the shared scripts, by path relative to the scripts folder.
    pub scripts_sha256: IndexMap<String, String>,
    /// The merged configuration, as JSON.
    pub config_sha256: String,
    /// The configuration files that were read, by path relative to the checkout.
    #[serde(default)]
    pub config_files_sha256: IndexMap<String, String>,
    /// The model files that inference opened, by path.
    pub model_sha256: IndexMap<String, String>,
    /// The files from which validation read weights, by path. Weights in ONNX files are in [`Self::model_sha256`].
    pub weights_sha256: IndexMap<String, String>,
    /// The index of the dataset.
    pub dataset_sha256: Option<String>,
    /// The last hash of the chain in `events.jsonl`.
    pub events_sha256: String,
    /// The image of the containers of the workers; `None` when they ran directly on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRecord>,
}

/// The image of the containers of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ImageRecord {
    /// Name and tag: `flagperf-inference-cpu-interpreter:0123456789ab`.
    pub name: String,
    /// Id of the image: the digest of its configuration.
    pub id: String,
    /// SHA-256 over the files of the recipe.
    pub recipe_sha256: String,
    /// The images on which the recipe builds.
    pub base: Vec<BaseImageRecord>,
    /// Name and version of the container engine.
    pub engine: String,
    /// Whether the containers had all rights of the machine.
    pub privileged: bool,
    /// With which of its options the containers could reach processes and files of the machine, one fragment each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<String>,
}

/// An image on which a recipe builds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct BaseImageRecord {
    /// The name in the Dockerfile.
    pub name: String,
    /// Id of the image; `None` if the engine no longer had it.
    pub id: Option<String>,
    /// Digests in the registries from which the engine pulled it; empty for an image made on this machine.
    pub digests: Vec<String>,
}

impl Provenance {
    /// Copies the hashes that the workers reported.
    pub fn fill_hashes(&mut self, phases: &[PhaseRecord]) {
        let opened = phases.iter().flat_map(opened_files);
        let hashed = |file: &FileFacts| (file.path.clone(), file.sha256.clone());
        let weights = phases.iter().filter_map(|phase| phase.model.as_ref()).flat_map(|model| &model.weights_files);
        let dataset = phases.iter().find_map(|phase| Some(phase.dataset.as_ref()?.index_sha256.clone()));
        self.model_sha256 = opened.map(hashed).collect();
        self.weights_sha256 = weights.map(hashed).collect();
        self.dataset_sha256 = dataset.filter(|hash| !hash.is_empty());
    }

    /// Returns why a result from this checkout is unofficial; `None` if the checkout does not make it so.
    pub fn unofficial_checkout(&self) -> Option<String> {
        let difference = self.git_difference.iter().map(|difference| format!(": {difference}")).collect::<String>();
        match (&self.git_revision, self.git_clean) {
            (Some(_), Some(true)) => None,
            (Some(_), Some(false)) => Some(format!("the checkout differs from its git revision{difference}")),
            (Some(_), None) => Some("git does not tell whether the checkout is as in its revision".to_owned()),
            _ => Some("the git revision is unknown".to_owned()),
        }
    }

    /// Returns the hash and the versions of this program.
    pub fn of_this_program() -> Self {
        Provenance {
            flagperf: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: env!("FLAGPERF_RUSTC").to_owned(),
            binary_sha256: hash_file(Path::new(THIS_PROGRAM)).ok(),
            ..Provenance::default()
        }
    }
}
