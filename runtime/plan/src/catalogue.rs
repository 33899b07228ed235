//! The catalogue: the engines of this build, and the vendors, cases and container recipes on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular_text;
use indexmap::IndexMap;
use serde_json::Value;

use super::{EngineChoice, FoundModel, find_model};
use flagperf_config::{
    ContainerOptions, DATASET_FILE, DatasetDescription, Finding, KEYS_FOLDER, SHARED_SCRIPTS, SettingsFile, Vendor,
};
use flagperf_core::description::{ConfigRead, EngineDescription};
use flagperf_core::tensor::DType;

/// Maximum size of a profile of system calls; that of Docker has 15 KB.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// The engines, vendors, cases and recipes that exist, as needed for plans and lists.
pub struct Catalogue {
    /// The table of engines.
    pub engines: Vec<EngineDescription>,
    /// The names of the table of monitors.
    pub monitors: Vec<&'static str>,
    /// Those of them that identify the device of an engine.
    pub device_monitors: Vec<&'static str>,
    /// Folders in `vendors/`; `None` for a vendor whose vendor.yaml cannot be read.
    pub vendors: BTreeMap<String, Option<Vendor>>,
    /// Folders in `configs/` and `scripts/`.
    pub cases: BTreeMap<String, CaseFolder>,
    /// The shared scripts, by name: `lib/classification`.
    pub shared_scripts: BTreeSet<String>,
    /// Folders in `docker_images/` with a Dockerfile, as `<vendor>/<framework>`.
    pub recipes: BTreeSet<String>,
    /// The libraries that `flagperf backend install` can install, each with its path if it is installed.
    pub backends: Vec<(String, Option<PathBuf>)>,
    /// Checks what the description of an engine's options cannot express.
    pub check_options: CheckOptions,
    /// Describes the engine of a choice as this machine has it: an engine that a vendor brings describes itself.
    pub describe: DescribeEngine,
    /// Returns whether a file or folder exists or will be created: see [`Catalogue::read`].
    pub exists: Box<dyn Fn(&Path) -> bool>,
    /// Returns whether a regular file exists.
    pub is_file: Box<dyn Fn(&Path) -> bool>,
    /// Returns whether it is certain that a file or folder does not exist. A container engine also sees paths that this
    /// process may not see.
    pub is_absent: Box<dyn Fn(&Path) -> bool>,
    /// Reads a profile of system calls for containers; `None` if another machine has the file.
    pub read_profile: ReadProfile,
    /// Checks that a container engine answers and can start containers with the options. Called only for a run in containers.
    pub check_container_engine: CheckContainerEngine,
    /// Finds the model to which a path refers.
    pub find_model: Box<dyn Fn(&Path) -> FoundModel>,
}

/// A function that checks that a container engine answers. Its findings are about the options: those with which the engine starts no
/// container, and the rights with which a container is none.
pub type CheckContainerEngine = Box<dyn Fn(&ContainerOptions) -> Result<Vec<Finding>, UnavailableEngine>>;

/// A function that reads a profile of system calls. An error is the end of a sentence about the file.
pub type ReadProfile = Box<dyn Fn(&Path) -> Result<Option<String>, String>>;

/// A function that checks the options of an engine for a precision, and for the values of a case.
pub type CheckOptions = Box<dyn Fn(&EngineChoice, DType, &IndexMap<String, Value>) -> Result<(), RefusedOption>>;

/// An option, or a value of the case, that an engine rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOption {
    /// Name of the option or key; empty when the error is not about a single one.
    pub option: String,
    /// The error message.
    pub message: String,
}

/// A function that describes the engine of a choice.
pub type DescribeEngine = Box<dyn Fn(&EngineChoice) -> Result<EngineOnMachine, UnavailableEngine>>;

/// An engine as this machine has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineOnMachine {
    /// The engine's description of itself; `None` if its row of the table says everything.
    pub description: Option<EngineDescription>,
    /// Its version; `None` if unknown.
    pub version: Option<String>,
    /// The keys of `config` that the class of a sidecar reads.
    pub config_reads: Vec<ConfigRead>,
}

/// Why an engine cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableEngine {
    /// What is missing or failed.
    pub reason: String,
    /// How to get it.
    pub remedy: String,
}

/// A case on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseFolder {
    /// Whether it has a folder in `configs/`.
    pub configured: bool,
    /// The entries of its folder in `scripts/` other than folders. Whether one can be read is checked when it is read.
    pub scripts: BTreeSet<String>,
    /// The names of its files of settings, each with the vendors that have an overlay for it. A case without any has
    /// configurations.yaml, which is then missing.
    pub settings: BTreeMap<&'static str, BTreeSet<String>>,
}

impl CaseFolder {
    /// Returns the vendors with an overlay for a file of settings; `None` when the case does not have the file.
    pub fn overlays(&self, file: &SettingsFile) -> Option<&BTreeSet<String>> {
        self.settings.get(file.name)
    }
}

impl Catalogue {
    /// Reads the checkout at `root`. Of all files, only the vendor.yaml of each vendor is opened.
    ///
    /// A folder `generated` counts as existing when the description of its dataset exists: the dataset is generated on
    /// first use.
    pub fn read(root: &Path, engines: Vec<EngineDescription>) -> Catalogue {
        let mut cases: BTreeMap<String, CaseFolder> = BTreeMap::new();
        let is_case = |name: &String| name != SHARED_SCRIPTS && name != KEYS_FOLDER;
        for name in folders(&root.join("configs")).into_iter().filter(is_case) {
            let settings = read_settings(&root.join("configs").join(&name));
            cases.insert(name, CaseFolder { configured: true, settings, ..CaseFolder::default() });
        }
        for name in folders(&root.join("scripts")).into_iter().filter(|name| name != SHARED_SCRIPTS) {
            // A folder with the name of a script is reported when it is read.
            let is_script = |entry: &Path| !entry.is_dir() || entry.extension().is_some_and(|end| end == "rhai");
            let scripts = entry_names(&root.join("scripts").join(&name), is_script);
            if cases.contains_key(&name) || scripts.contains("dataloader.rhai") {
                cases.entry(name).or_default().scripts = scripts;
            }
        }
        let shared = entry_names(&root.join("scripts").join(SHARED_SCRIPTS), |_| true);
        let shared = shared.iter().filter_map(|file| file.strip_suffix(".rhai"));
        let vendors = folders(&root.join("vendors")).into_iter().map(|name| (Vendor::read(root, &name).ok(), name));
        let recipes = root.join("docker_images");
        let frameworks = folders(&recipes).into_iter().flat_map(|vendor| {
            folders(&recipes.join(&vendor)).into_iter().map(move |framework| format!("{vendor}/{framework}"))
        });
        Catalogue {
            engines,
            monitors: Vec::new(),
            device_monitors: Vec::new(),
            backends: Vec::new(),
            cases,
            shared_scripts: shared.map(|name| format!("{SHARED_SCRIPTS}/{name}")).collect(),
            vendors: vendors.map(|(vendor, name)| (name, vendor)).collect(),
            recipes: frameworks
                .filter(|recipe| root.join("docker_images").join(recipe).join("Dockerfile").is_file())
                .collect(),
            check_options: Box::new(|_, _, _| Ok(())),
            describe: Box::new(|_| Ok(EngineOnMachine::default())),
            exists: Box::new(exists_or_is_generated),
            is_file: Box::new(Path::is_file),
            is_absent: Box::new(|path| matches!(path.try_exists(), Ok(false))),
            read_profile: Box::new(|path| read_profile(path).map(Some)),
            check_container_engine: Box::new(|_| Ok(Vec::new())),
            find_model: Box::new(find_model),
        }
    }

    /// Returns a catalogue of the same checkout in which everything exists that belongs to the machine: libraries,
    /// datasets, models and engines.
    #[must_use]
    pub fn with_every_machine_part(self) -> Catalogue {
        let library = |(name, found): (String, Option<PathBuf>)| (name, found.or(Some(PathBuf::new())));
        Catalogue {
            backends: self.backends.into_iter().map(library).collect(),
            describe: Box::new(|_| Ok(EngineOnMachine::default())),
            exists: Box::new(|_| true),
            is_absent: Box::new(|_| false),
            read_profile: Box::new(|_| Ok(None)),
            check_container_engine: Box::new(|_| Ok(Vec::new())),
            find_model: Box::new(|path| FoundModel::At(path.to_owned())),
            ..self
        }
    }

    /// Looks up a backend by name: `None` when it is unknown, `Some(None)` when it is not installed, else its path.
    pub fn backend(&self, name: &str) -> Option<&Option<PathBuf>> {
        self.backends.iter().find(|(backend, _)| backend == name).map(|(_, library)| library)
    }

    /// Returns the engine with this name.
    pub fn engine(&self, name: &str) -> Option<&EngineDescription> {
        self.engines.iter().find(|engine| engine.name == name)
    }
}

/// Returns the files of settings in the folder of a case, each with the vendors that have an overlay for it.
fn read_settings(folder: &Path) -> BTreeMap<&'static str, BTreeSet<String>> {
    let (own, overlays) = (entry_names(folder, |entry| !entry.is_dir()), files(&folder.join("vendor_config")));
    let vendors = |file: &SettingsFile| {
        let vendors = overlays.iter().filter_map(|name| file.vendor_of_overlay(name));
        (file.name, vendors.map(str::to_owned).collect())
    };
    let found: BTreeMap<_, _> = SettingsFile::ALL.iter().filter(|file| own.contains(file.name)).map(vendors).collect();
    if found.is_empty() { BTreeMap::from([vendors(&SettingsFile::INFERENCE)]) } else { found }
}

/// Reads a profile of system calls as `docker run` does: it must be JSON, and is sent without spaces.
fn read_profile(path: &Path) -> Result<String, String> {
    if !path.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    let text = read_regular_text(path, PROFILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::Other | io::ErrorKind::InvalidData => error.to_string(),
        _ => format!("cannot be read: {error}"),
    })?;
    let profile = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text);
    let profile = profile.map_err(|error| format!("is not a JSON object: {error}"))?;
    Ok(serde_json::Value::from(profile).to_string())
}

fn exists_or_is_generated(path: &Path) -> bool {
    path.exists() || is_generated_on_first_use(path)
}

/// Returns the error about a file or folder that is not on this machine; `what` is its kind.
pub(super) fn missing_file(what: &str, path: &Path) -> Finding {
    Finding::unplaced(format!("{what} `{}` does not exist", path.display())).on_machine()
}

/// The folder of a dataset that is generated on first use, beside its dataset.yaml.
const GENERATED: &str = "generated";
/// Number of full batches that a pass over a generated dataset has at least.
pub const FULL_BATCHES_MIN: u64 = 8;
/// Largest number of samples of a folder that is generated for a large batch.
const GENERATED_MAX: u64 = 2048;

/// Returns whether a folder is that of a dataset which is generated on first use.
pub fn is_generated_on_first_use(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_generated = name.strip_prefix(GENERATED).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    is_generated && folder.with_file_name(DATASET_FILE).is_file()
}

/// Returns the folder that a case with this batch size reads: if `folder` is that of a generated dataset with fewer than
/// eight full batches, a larger one beside it with its number of samples in its name, such as `generated-2048`.
pub fn folder_for_batches(folder: &Path, batch_size: u32) -> PathBuf {
    let wanted = (FULL_BATCHES_MIN * u64::from(batch_size)).min(GENERATED_MAX);
    let description = || DatasetDescription::read(&folder.with_file_name(DATASET_FILE), folder).ok();
    let is_smaller = |dataset: DatasetDescription| dataset.generator.and(dataset.samples).is_some_and(|n| n < wanted);
    match folder.ends_with(GENERATED) && description().is_some_and(is_smaller) {
        true => folder.with_file_name(format!("{GENERATED}-{wanted}")),
        false => folder.to_owned(),
    }
}

fn folders(path: &Path) -> Vec<String> {
    entry_names(path, |entry| entry.is_dir()).into_iter().collect()
}

fn files(path: &Path) -> BTreeSet<String> {
    entry_names(path, |entry| entry.is_file())
}

fn entry_names(path: &Path, wanted: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return BTreeSet::new() };
    let wanted = entries.flatten().filter(|entry| wanted(&entry.path()));
    wanted.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
