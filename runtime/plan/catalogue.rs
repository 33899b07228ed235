//! What exists: engines in this build; vendors, cases and container recipes on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{EngineChoice, FoundModel, find_model};
use crate::config::Vendor;
use crate::tensor::DType;

/// What exists, as far as planning and listing ask.
pub struct Catalogue {
    /// The table of engines.
    pub engines: Vec<KnownEngine>,
    /// The names of the table of monitors.
    pub monitors: Vec<&'static str>,
    /// Folders in `vendors/`; `None` for one whose vendor.yaml cannot be read.
    pub vendors: BTreeMap<String, Option<Vendor>>,
    /// Folders in `configs/` and `scripts/`.
    pub cases: BTreeMap<String, CaseFolder>,
    /// Folders in `docker_images/` that hold a Dockerfile, as `<vendor>/<framework>`.
    pub recipes: BTreeSet<String>,
    /// The libraries that `flagperf backend install` gets; where, when they are installed.
    pub backends: Vec<(String, Option<PathBuf>)>,
    /// What an engine does not take of its options, as far as that shows without a model.
    pub check_options: CheckOptions,
    /// Whether a file or folder exists, or will: see [`Catalogue::read`].
    pub exists: Box<dyn Fn(&Path) -> bool>,
    /// Finds the model that a path names.
    pub find_model: Box<dyn Fn(&Path) -> FoundModel>,
}

/// Checks the options of an engine for a precision.
pub type CheckOptions = Box<dyn Fn(&EngineChoice, DType) -> Result<(), RefusedOption>>;

/// An option that an engine does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOption {
    /// The option; empty when it is not one option that is wrong.
    pub option: String,
    /// What is wrong.
    pub message: String,
}

/// A row of the table of engines.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownEngine {
    /// Its name.
    pub name: String,
    /// One line on what it is.
    pub about: String,
    /// Whether it can validate.
    pub framework: bool,
    /// Whether it can infer.
    pub compiler: bool,
    /// Floating-point types that it computes in.
    pub precisions: Vec<DType>,
    /// Whether it is a process that the vendor brings.
    pub takes_command: bool,
    /// Whether it is in a shared library that the vendor brings.
    pub takes_library: bool,
    /// Whether it loads a file that it made earlier.
    pub takes_compiled: bool,
}

/// A case on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseFolder {
    /// Whether it has a folder in `configs/`.
    pub configured: bool,
    /// The files of its folder in `scripts/`.
    pub scripts: BTreeSet<String>,
    /// The vendors that have an overlay for it.
    pub overlays: BTreeSet<String>,
}

impl Catalogue {
    /// Looks at the checkout at `root`. Reads vendor.yaml of every vendor and nothing else but names.
    ///
    /// A folder `generated` exists when the description of its dataset does, because it is made on first use.
    pub fn read(root: &Path, engines: Vec<KnownEngine>) -> Catalogue {
        let mut cases: BTreeMap<String, CaseFolder> = BTreeMap::new();
        for name in folders(&root.join("configs")) {
            let overlays = files(&root.join("configs").join(&name).join("vendor_config"));
            let vendors = overlays.iter().filter_map(|file| file.strip_suffix("_configurations.yaml"));
            let overlays = vendors.map(str::to_owned).collect();
            cases.insert(name, CaseFolder { configured: true, overlays, ..CaseFolder::default() });
        }
        let with_scripts =
            folders(&root.join("scripts")).into_iter().map(|name| (files(&root.join("scripts").join(&name)), name));
        for (scripts, name) in with_scripts.filter(|(scripts, _)| scripts.contains("dataloader.rhai")) {
            cases.entry(name).or_default().scripts = scripts;
        }
        let vendors = folders(&root.join("vendors")).into_iter().map(|name| (Vendor::read(root, &name).ok(), name));
        let recipes = root.join("docker_images");
        let frameworks = folders(&recipes).into_iter().flat_map(|vendor| {
            folders(&recipes.join(&vendor)).into_iter().map(move |framework| format!("{vendor}/{framework}"))
        });
        Catalogue {
            engines,
            monitors: Vec::new(),
            backends: Vec::new(),
            cases,
            vendors: vendors.map(|(vendor, name)| (name, vendor)).collect(),
            recipes: frameworks
                .filter(|recipe| root.join("docker_images").join(recipe).join("Dockerfile").is_file())
                .collect(),
            check_options: Box::new(|_, _| Ok(())),
            exists: Box::new(present),
            find_model: Box::new(find_model),
        }
    }

    /// Where the backend of this name is installed; `None` when there is no such backend.
    pub fn backend(&self, name: &str) -> Option<&Option<PathBuf>> {
        self.backends.iter().find(|(backend, _)| backend == name).map(|(_, library)| library)
    }

    /// The engine of this name.
    pub fn engine(&self, name: &str) -> Option<&KnownEngine> {
        self.engines.iter().find(|engine| engine.name == name)
    }
}

fn present(path: &Path) -> bool {
    let drawn = || path.ends_with("generated") && path.with_file_name("dataset.yaml").is_file();
    path.exists() || drawn()
}

fn folders(path: &Path) -> Vec<String> {
    names(path, |entry| entry.is_dir()).into_iter().collect()
}

fn files(path: &Path) -> BTreeSet<String> {
    names(path, |entry| entry.is_file())
}

fn names(path: &Path, wanted: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return BTreeSet::new() };
    let wanted = entries.flatten().filter(|entry| wanted(&entry.path()));
    wanted.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
