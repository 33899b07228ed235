//! `vendors/<vendor>/vendor.yaml`: what a vendor brings. Knows no vendor.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use super::file::{File, display_name};
use super::yaml::{Content, Node};
use super::{ConfigProblem, Finding, Origin};
use crate::units::{Bytes, FlopsPerSecond};

/// What a vendor brings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vendor {
    /// The name of its folder.
    pub name: String,
    /// One line on what it is.
    pub about: String,
    /// What validates when a case is asked for without a framework; with one framework it is that.
    #[serde(default)]
    pub default_framework: Option<String>,
    /// What validates, by the name in `CASES`.
    pub frameworks: IndexMap<String, EngineEntry>,
    /// What infers, by the name under `compiler`.
    pub compilers: IndexMap<String, EngineEntry>,
    /// Its devices and their peaks.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Variable that says which devices a process sees.
    #[serde(default)]
    pub visible_devices: Option<String>,
    /// Options that give a container its devices.
    #[serde(default)]
    pub container_options: Option<String>,
    /// The row in the table of monitors that asks its devices about themselves; none for devices that say nothing.
    #[serde(default)]
    pub monitor: Option<String>,
    /// Libraries that `flagperf backend install` gets for it, by name.
    #[serde(default)]
    pub backends: IndexMap<String, BackendEntry>,
    /// Its folder, where relative paths of its engines count from.
    #[serde(skip)]
    pub folder: PathBuf,
    #[serde(skip)]
    file: Option<File>,
}

/// A framework or compiler of a vendor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineEntry {
    /// The row in the table of engines.
    pub engine: String,
    /// The shared library that it is in, for an engine that a vendor brings as a plug-in; counts from the vendor's folder.
    /// `backend:NAME` is the one that `flagperf backend install NAME` builds.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// Program and arguments of the process that it is, for an engine that a vendor brings as a sidecar; the process
    /// starts in the vendor's folder.
    #[serde(default)]
    pub command: Vec<String>,
    /// The options that it knows, with their defaults; null leaves it to the engine.
    #[serde(default)]
    pub options: IndexMap<String, Value>,
    /// Whether it opens the ONNX file; if not, `exist_onnx_path` may be a placeholder. With validation, a sidecar then gets
    /// the exported graph as a module.
    #[serde(default = "opens_onnx")]
    pub opens_onnx: bool,
}

impl EngineEntry {
    /// NAME of `library: backend:NAME`.
    pub fn backend(&self) -> Option<&str> {
        self.library.as_ref()?.to_str()?.strip_prefix("backend:")
    }
}

/// A library that a vendor's engines need.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendEntry {
    /// What it is for.
    pub about: String,
    /// The version that was tried.
    pub version: String,
    /// The package of Python that it is in; none when the user must have the library already.
    #[serde(default)]
    pub package: Option<PackageEntry>,
    /// The crate of the vendor's that makes it an engine.
    #[serde(default)]
    pub plugin: Option<PluginEntry>,
}

/// A package of Python with a library.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageEntry {
    /// Its name.
    pub name: String,
    /// SHA-256 of the wheel for each processor, hexadecimal.
    pub wheels: IndexMap<String, String>,
    /// The library inside it, without the version behind its name.
    pub library: String,
}

/// A crate that makes an engine of a library.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginEntry {
    /// Its folder, in the vendor's.
    pub folder: String,
    /// The shared library that cargo makes of it, without prefix and suffix.
    pub library: String,
    /// The features that it is built with; its default ones when there are none.
    #[serde(default)]
    pub features: Vec<String>,
    /// Variables that tell the build where the library is, and the folders of the package that they name.
    #[serde(default)]
    pub tells: IndexMap<String, String>,
}

const fn opens_onnx() -> bool {
    true
}

/// A device of a vendor, with its figures from the data sheet. What is not said is unknown.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name in reports.
    pub name: String,
    /// It is this device when the detected name holds one of these, any letter case.
    pub matches: Vec<String>,
    /// Memory, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<Bytes>,
    /// Memory bandwidth, in bytes a second.
    #[serde(default)]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Peak without sparsity by precision (`f16`, `f32`); a multiply-add counts as two.
    #[serde(default)]
    pub peak_flops_per_s: IndexMap<String, FlopsPerSecond>,
    /// Where the figures are published.
    pub source: String,
}

/// The peak that a measurement is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// The device's name in vendor.yaml.
    pub device: String,
    /// Operations a second.
    pub flops_per_s: FlopsPerSecond,
    /// Where the figure is published.
    pub source: String,
}

impl Vendor {
    /// Reads `vendors/<name>/vendor.yaml` under `root`.
    ///
    /// # Errors
    /// A missing or malformed file.
    pub fn read(root: &Path, name: &str) -> Result<Vendor, Finding> {
        let path = root.join("vendors").join(name).join("vendor.yaml");
        let file = File::read(&path, root)?;
        let refused = |line, column, reason| {
            let origin = Origin::File { file: display_name(&path, root), line, column };
            Finding::error(origin, ConfigProblem::Yaml { reason })
        };
        let text = std::fs::read_to_string(&path).map_err(|cause| refused(1, 1, cause.to_string()))?;
        let vendor: Vendor = serde_yaml::from_str(&text).map_err(|cause| {
            let (line, column) = cause.location().map_or((1, 1), |place| (place.line(), place.column()));
            let reason = cause.to_string();
            refused(line, column, reason.split(" at line ").next().unwrap_or(&reason).to_owned())
        })?;
        if vendor.name != name {
            return Err(refused(1, 1, format!("`name` is `{}`, the folder is `{name}`", vendor.name)));
        }
        Ok(Vendor { folder: root.join("vendors").join(name), file: Some(file), ..vendor })
    }

    /// Where the keys at `path` stand in vendor.yaml: `["compilers", "rten"]`.
    pub fn origin(&self, path: &[&str]) -> Origin {
        let Some(file) = &self.file else { return Origin::Default };
        let mut entries = &file.entries;
        let mut found: Option<&Node> = None;
        for key in path {
            let Some(node) = entries.get(*key) else { break };
            found = Some(node);
            let Content::Map(below) = &node.content else { break };
            entries = below;
        }
        found.map_or_else(|| file.top(), |node| file.origin(node))
    }

    /// The framework for a key such as `pytorch_1.13`, with its name here: by the full name, else without the version.
    pub fn framework(&self, key: &super::CaseKey) -> Option<(&String, &EngineEntry)> {
        let entry = |name: &str| self.frameworks.get_key_value(name);
        entry(&key.framework).or_else(|| entry(key.framework_name()))
    }

    /// Names of options that any of its engines knows.
    pub fn option_names(&self) -> impl Iterator<Item = &str> {
        self.frameworks.values().chain(self.compilers.values()).flat_map(|e| e.options.keys().map(String::as_str))
    }

    /// The device in the list that a detected name stands for.
    pub fn device(&self, detected: &str) -> Option<&Device> {
        let detected = detected.to_lowercase();
        self.devices.iter().find(|device| device.matches.iter().any(|part| detected.contains(&part.to_lowercase())))
    }

    /// The peak of a detected device in a precision (`f16`, `f32`); `None` is unknown.
    pub fn peak(&self, detected: &str, precision: &str) -> Option<Peak> {
        let device = self.device(detected)?;
        let flops_per_s = *device.peak_flops_per_s.get(precision)?;
        Some(Peak { device: device.name.clone(), flops_per_s, source: device.source.clone() })
    }
}
