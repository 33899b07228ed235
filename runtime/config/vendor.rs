//! `vendors/<vendor>/vendor.yaml`: what a vendor brings. Knows no vendor.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use super::file::{File, display_name, read_text};
use super::key::is_variable;
use super::yaml::{Content, Node};
use super::{ConfigProblem, Finding, Kind, Origin};
use crate::tensor::DType;
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
    /// The names that its driver gives it, whole, in any letter case: a part of a name may be another device's.
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

impl Device {
    /// What makes its entry useless, or its figures wrong.
    fn fault(&self) -> Option<String> {
        let precision = |name: &str| name.parse::<DType>().is_ok_and(DType::is_float);
        if self.matches.is_empty() || self.matches.iter().any(|name| name.trim().is_empty()) {
            return Some("`matches` must be the whole names that the driver gives it".to_owned());
        }
        if let Some(name) = self.peak_flops_per_s.keys().find(|name| !precision(name)) {
            return Some(format!("`peak_flops_per_s`: `{name}` is no precision (known: f64, f32, f16, bf16)"));
        }
        let peaks = self.peak_flops_per_s.iter().map(|(name, peak)| (name.as_str(), peak.0));
        let mut figures = peaks.chain(self.bandwidth_bytes_per_s.map(|figure| ("bandwidth_bytes_per_s", figure)));
        let (name, figure) = figures.find(|(_, figure)| !(figure.is_finite() && *figure > 0.0))?;
        Some(format!("`{name}` must be more than 0, not `{figure}`"))
    }
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
        let file_name = display_name(&path, root);
        let text = read_text(&path, &file_name)?;
        let file = File::parse(&text, file_name)?;
        let refused = |line, column, reason| {
            let origin = Origin::File { file: display_name(&path, root), line, column };
            Finding::error(origin, ConfigProblem::Yaml { reason })
        };
        let vendor: Vendor = serde_yaml::from_str(&text).map_err(|cause| {
            let (line, column) = cause.location().map_or((1, 1), |place| (place.line(), place.column()));
            let reason = cause.to_string();
            refused(line, column, reason.split(" at line ").next().unwrap_or(&reason).to_owned())
        })?;
        if vendor.name != name {
            return Err(refused(1, 1, format!("`name` is `{}`, the folder is `{name}`", vendor.name)));
        }
        let vendor = Vendor { folder: root.join("vendors").join(name), file: Some(file), ..vendor };
        vendor.check().map(|()| vendor)
    }

    /// Refuses what has the right type and means nothing.
    fn check(&self) -> Result<(), Finding> {
        if let Some(name) = self.visible_devices.as_ref().filter(|name| !is_variable(name)) {
            let key = "visible_devices";
            let found = format!("`{name}`");
            let problem = ConfigProblem::Type { key: key.to_owned(), expects: Kind::Variable.expects(), found };
            return Err(Finding::error(self.origin(&[key]), problem));
        }
        let fault =
            self.devices.iter().find_map(|device| Some(format!("device `{}`: {}", device.name, device.fault()?)));
        fault.map_or(Ok(()), |reason| Err(Finding::error(self.origin(&["devices"]), ConfigProblem::Yaml { reason })))
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

    /// The device in the list that a detected name stands for. An engine's own name may stand before that of the driver:
    /// `cuda:0 NVIDIA H200`.
    pub fn device(&self, detected: &str) -> Option<&Device> {
        let by_engine = detected.split_once(' ').filter(|(engines_name, _)| engines_name.contains(':'));
        let name = by_engine.map_or(detected, |(_, name)| name).trim();
        self.devices.iter().find(|device| device.matches.iter().any(|whole| whole.eq_ignore_ascii_case(name)))
    }

    /// The peak of a detected device in a precision (`f16`, `f32`); `None` is unknown.
    pub fn peak(&self, detected: &str, precision: &str) -> Option<Peak> {
        let device = self.device(detected)?;
        let flops_per_s = *device.peak_flops_per_s.get(precision)?;
        Some(Peak { device: device.name.clone(), flops_per_s, source: device.source.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Checkout;
    use super::*;

    #[test]
    fn figures_of_a_device_that_mean_nothing_are_refused() {
        let said = |device: &str| {
            let vendor = format!("name: chip\nabout: a\nframeworks: {{}}\ncompilers: {{}}\ndevices:\n    - {device}\n");
            let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &vendor);
            Vendor::read(checkout.root(), "chip").unwrap_err().to_string()
        };
        for (device, reason) in [
            ("matches: [], ", "`matches` must be the whole names that the driver gives it"),
            ("matches: [\" \"], ", "`matches` must be the whole names that the driver gives it"),
            (
                "matches: [x], peak_flops_per_s: {fp16: 1e12}, ",
                "`peak_flops_per_s`: `fp16` is no precision (known: f64, f32, f16, bf16)",
            ),
            ("matches: [x], peak_flops_per_s: {f16: 0}, ", "`f16` must be more than 0, not `0`"),
            ("matches: [x], peak_flops_per_s: {f16: -2e12}, ", "`f16` must be more than 0, not `-2000000000000`"),
            ("matches: [x], bandwidth_bytes_per_s: -1, ", "`bandwidth_bytes_per_s` must be more than 0, not `-1`"),
        ] {
            let device = format!("{{name: Chip 1, {device}source: sheet}}");
            assert_eq!(said(&device), format!("vendors/chip/vendor.yaml:5: device `Chip 1`: {reason}"));
        }
    }

    #[test]
    fn the_variable_of_visible_devices_is_a_name() {
        let vendor = "name: chip\nabout: a\nframeworks: {}\ncompilers: {}\nvisible_devices: A=B\n";
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", vendor);
        assert_eq!(
            Vendor::read(checkout.root(), "chip").unwrap_err().to_string(),
            "vendors/chip/vendor.yaml:5: `visible_devices` must be the name of an environment variable, or null, not `A=B`"
        );
    }

    #[test]
    fn a_device_is_known_by_its_whole_name_alone() {
        let vendor = Vendor::read(Path::new(env!("CARGO_MANIFEST_DIR")), "nvidia").unwrap();
        for (detected, device) in [
            ("NVIDIA H200", Some("H200 SXM")),
            ("cuda:0 NVIDIA H200", Some("H200 SXM")),
            ("NVIDIA H200 NVL", None),
            ("NVIDIA GH200 480GB", None),
            ("NVIDIA H100 80GB HBM3", Some("H100 SXM")),
            ("NVIDIA H100 PCIe", None),
            ("NVIDIA H100 NVL", None),
            ("cuda:0 NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
            ("NVIDIA A100-SXM4-80GB", Some("A100 SXM 80GB")),
            ("NVIDIA A100-SXM4-40GB", Some("A100 SXM 40GB")),
            ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),
            ("NVIDIA A100 80GB PCIe", Some("A100 PCIe 80GB")),
            ("NVIDIA A100-PCIE-40GB", Some("A100 PCIe 40GB")),
            ("NVIDIA L40S", Some("L40S")),
            ("NVIDIA L40", None),
            ("cuda:0", None),
            ("", None),
        ] {
            assert_eq!(vendor.device(detected).map(|found| found.name.as_str()), device, "{detected}");
        }
    }
}
