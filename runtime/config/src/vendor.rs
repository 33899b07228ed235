//! `vendors/<vendor>/vendor.yaml`: a vendor's engines, devices and libraries. Knows no particular vendor.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::Value;

use super::decoder::DecoderEntry;
use super::file::{ConfigFile, display_name, read_text};
use super::section::{OPTIONAL_TEXT, SectionKind, TEXT, TEXT_MAP, TEXTS, read_section, section};
use super::yaml::{Content, Node};
use super::{Finding, MonitorCommand, Origin, Sourced, ValueKind, Values};
use flagperf_core::units::{Bytes, FlopsPerSecond};

section! {
    /// A vendor's description.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Vendor {
        /// the name of the vendor's folder
        required(TEXT) name: String,
        /// one line that describes the devices
        required(TEXT) about: String,
        /// the framework of a case for which none is given
        optional(OPTIONAL_TEXT, "null") default_framework: Option<String>,
        /// the frameworks, by their names in `CASES`
        required(SectionKind::Sections(EngineEntry::KEYS)) frameworks: IndexMap<String, EngineEntry>,
        /// the compilers, by their names under `compiler`
        required(SectionKind::Sections(EngineEntry::KEYS)) compilers: IndexMap<String, EngineEntry>,
        /// the devices and their peak rates
        optional(SectionKind::List(VendorDevice::KEYS), "[]") devices: Vec<VendorDevice>,
        /// the environment variable that selects the devices visible to a process
        optional(SectionKind::Value(ValueKind::Variable), "null") visible_devices: Option<String>,
        /// the options that give a container access to the devices
        optional(OPTIONAL_TEXT, "null") container_options: Option<String>,
        /// the monitor that reads the devices: a row of `monitors` in `flagperf doctor`
        optional(OPTIONAL_TEXT, "null") monitor: Option<String>,
        /// the command whose output the vendor's monitor.rhai reads, if `monitor` is null or does not work
        optional(SectionKind::Section(MonitorCommand::KEYS), "null") monitor_command: Option<MonitorCommand>,
        /// the libraries that `flagperf backend install` installs
        optional(SectionKind::Sections(BackendEntry::KEYS), "{}") backends: IndexMap<String, BackendEntry>,
        /// the libraries by which an engine finds the vendor's operators; `flagperf operator build` builds them for each
        optional(SectionKind::Sections(OperatorShell::KEYS), "{}") operator_shells: IndexMap<String, OperatorShell>,
        /// the decoders of images, by their names under `decoder`; `flagperf decoder build` builds them
        optional(SectionKind::Sections(DecoderEntry::KEYS), "{}") decoders: IndexMap<String, DecoderEntry>,
        own {
            /// The vendor's folder; relative paths of its engines start here.
            pub folder: PathBuf,
            pub(super) file: Option<ConfigFile>,
        }
    }
}

section! {
    /// A framework or compiler of a vendor.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EngineEntry {
        /// the engine: a row of `flagperf list engines`
        required(TEXT) engine: String,
        /// the shared library of a plug-in, relative to the vendor's folder; `backend:NAME` is the one that `flagperf
        /// backend install NAME` builds
        optional(OPTIONAL_TEXT, "null") library: Option<PathBuf>,
        /// the program and the arguments of a sidecar, which starts in the vendor's folder
        optional(TEXTS, "[]") command: Vec<String>,
        /// the engine's options with their defaults; null is the engine's own default
        optional(SectionKind::Options, "{}") options: IndexMap<String, Value>,
        /// whether the engine opens the ONNX file; if not, `exist_onnx_path` may be any text
        optional(SectionKind::Boolean, "true") opens_onnx: bool,
    }
}

impl EngineEntry {
    /// Returns NAME of `library: backend:NAME`.
    pub fn backend(&self) -> Option<&str> {
        self.library.as_ref()?.to_str()?.strip_prefix("backend:")
    }
}

section! {
    /// A library that a vendor's engines need.
    #[derive(Clone, Debug, PartialEq)]
    pub struct BackendEntry {
        /// the purpose of the library
        required(TEXT) about: String,
        /// the version that was tested
        required(TEXT) version: String,
        /// the Python package that contains the library
        optional(SectionKind::Section(PackageEntry::KEYS), "null") package: Option<PackageEntry>,
        /// the vendor's crate that makes an engine of the library
        optional(SectionKind::Section(PluginEntry::KEYS), "null") plugin: Option<PluginEntry>,
    }
}

section! {
    /// A Python package that contains a library.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PackageEntry {
        /// the name of the package
        required(TEXT) name: String,
        /// the SHA-256 of the wheel in hexadecimal, by processor architecture
        required(TEXT_MAP) wheels: IndexMap<String, String>,
        /// the path of the library in the package, without the version suffix
        required(TEXT) library: String,
    }
}

section! {
    /// A crate that makes an engine of a library.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PluginEntry {
        /// the folder of the crate, relative to the vendor's folder
        required(TEXT) folder: String,
        /// the name of the shared library that cargo builds, without prefix and suffix
        required(TEXT) library: String,
        /// the cargo features to build with; without any, the default features
        optional(TEXTS, "[]") features: Vec<String>,
        /// environment variables for the build, each with a folder of the package
        optional(TEXT_MAP, "{}") build_variables as "tells": IndexMap<String, String>,
    }
}

section! {
    /// A library by which an engine finds an operator, built for each operator.
    #[derive(Clone, Debug, PartialEq)]
    pub struct OperatorShell {
        /// the program and its arguments, in the operator's folder; `{headers}` is the folder of `header`, `{vendor}` that of
        /// the vendor, and `{include}` and `{output}` are as in operator.yaml
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) command: Vec<String>,
        /// the header of the engine that it needs
        required(TEXT) header: String,
        /// the folders in which the header is looked for
        optional(TEXTS, "[]") header_folders: Vec<String>,
    }
}

/// The keys of `peak_flops_per_s`.
pub(super) const PEAKS: [&str; 7] = ["f64", "f32", "tf32", "f16", "bf16", "f8", "i8"];

section! {
    /// A vendor's device with the figures of its data sheet. A figure that is not given is unknown.
    #[derive(Clone, Debug, PartialEq)]
    pub struct VendorDevice {
        /// the name in reports
        required(TEXT) name: String,
        /// the full names that the driver reports, in any letter case
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) matches: Vec<String>,
        /// the memory, in bytes
        optional(SectionKind::Bytes, "null") memory_bytes: Option<Bytes>,
        /// the memory bandwidth, in bytes per second
        optional(SectionKind::Rate, "null") bandwidth_bytes_per_s: Option<f64>,
        /// the peak rates without sparsity, by precision; a multiply-add counts as two operations
        optional(SectionKind::Rates, "{}") peak_flops_per_s: IndexMap<String, FlopsPerSecond>,
        /// where the figures are published
        required(TEXT) source: String,
    }
}

impl VendorDevice {
    /// Returns why the entry is invalid; `None` when it is valid.
    fn fault(&self) -> Option<String> {
        let is_known = |name: &String| PEAKS.contains(&name.as_str());
        if self.matches.iter().any(|name| name.trim().is_empty()) {
            return Some("`matches` must list the full names that the driver reports for it".to_owned());
        }
        if let Some(name) = self.peak_flops_per_s.keys().find(|name| !is_known(name)) {
            return Some(format!("`peak_flops_per_s`: unknown precision `{name}` (known: {})", PEAKS.join(", ")));
        }
        let peaks = self.peak_flops_per_s.iter().map(|(name, peak)| (name.as_str(), peak.0));
        let mut figures = peaks.chain(self.bandwidth_bytes_per_s.map(|figure| ("bandwidth_bytes_per_s", figure)));
        let (name, figure) = figures.find(|(_, figure)| !(figure.is_finite() && *figure > 0.0))?;
        Some(format!("`{name}` must be greater than 0, not `{figure}`"))
    }
}

/// The peak rate to which a measurement is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePeak {
    /// The device's name in vendor.yaml.
    pub device: String,
    /// Floating-point operations per second.
    pub flops_per_s: FlopsPerSecond,
    /// Where the figure is published.
    pub source: String,
}

impl Vendor {
    /// Reads `vendors/<name>/vendor.yaml` under `root`.
    ///
    /// # Errors
    /// Fails when the file is missing or malformed.
    pub fn read(root: &Path, name: &str) -> Result<Vendor, Finding> {
        let path = root.join("vendors").join(name).join("vendor.yaml");
        Vendor::parse(root, name, &read_text(&path, &display_name(&path, root))?)
    }

    /// Parses the text of `vendors/<name>/vendor.yaml` under `root`.
    ///
    /// # Errors
    /// Fails when the text is malformed.
    pub fn parse(root: &Path, name: &str, text: &str) -> Result<Vendor, Finding> {
        let folder = root.join("vendors").join(name);
        let file = ConfigFile::parse(text, display_name(&folder.join("vendor.yaml"), root))?;
        let vendor: Vendor = read_section(&file, Vendor::KEYS)?;
        if vendor.name != name {
            let reason = format!("`name` is `{}`, but the folder is `{name}`", vendor.name);
            return Err(Finding::error(file.top(), reason));
        }
        let vendor = Vendor { folder, file: Some(file), ..vendor };
        vendor.check().map(|()| vendor)
    }

    /// Rejects values of the right type that make no sense.
    fn check(&self) -> Result<(), Finding> {
        let fault =
            self.devices.iter().find_map(|device| Some(format!("device `{}`: {}", device.name, device.fault()?)));
        let error = |origin, reason| Err(Finding::error(origin, reason));
        match (fault, self.shared_device_name()) {
            (Some(reason), _) => error(self.origin(&["devices"]), reason),
            (None, Some((origin, reason))) => error(origin, reason),
            (None, None) => Ok(()),
        }
    }

    /// Finds a driver's name that two devices list: it would not tell which of their peak rates applies. Returns the
    /// position of the second device and the reason.
    fn shared_device_name(&self) -> Option<(Origin, String)> {
        let listed = self.devices.iter().enumerate();
        let names: Vec<(usize, &str)> =
            listed.flat_map(|(index, device)| device.matches.iter().map(move |name| (index, name.trim()))).collect();
        names.iter().enumerate().find_map(|(at, (index, name))| {
            let is_same = |(other, known): &&(usize, &str)| other != index && known.eq_ignore_ascii_case(name);
            let (other, _) = names[..at].iter().find(is_same)?;
            let reason = format!(
                "device `{}`: `matches` contains `{name}`, which belongs to device `{}` already ({}); letter case does not \
                 distinguish names",
                self.devices[*index].name,
                self.devices[*other].name,
                self.device_origin(*other)
            );
            Some((self.device_origin(*index), reason))
        })
    }

    /// Returns the position of `matches` of a device in vendor.yaml.
    fn device_origin(&self, index: usize) -> Origin {
        let devices = self.file.as_ref().and_then(|file| Some((file, file.entries.get("devices")?)));
        let Some((file, Node { content: Content::List(items), .. })) = devices else { return Origin::Default };
        match items.get(index).map(|item| &item.content) {
            Some(Content::Map(keys)) => keys.get("matches").map_or_else(|| file.top(), |node| file.origin(node)),
            _ => file.top(),
        }
    }

    /// Returns the position of the keys at `path`, such as `["compilers", "rten"]`, in vendor.yaml.
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

    /// Returns the framework for a case key such as `pytorch_1.13` and its name in vendor.yaml: the one with the full
    /// name, or else the one with the name without the version.
    pub fn framework(&self, key: &super::CaseKey) -> Option<(&String, &EngineEntry)> {
        let entry = |name: &str| self.frameworks.get_key_value(name);
        entry(&key.framework).or_else(|| entry(key.framework_name()))
    }

    /// Iterates over the option names of all of the vendor's engines.
    pub fn option_names(&self) -> impl Iterator<Item = &str> {
        self.frameworks.values().chain(self.compilers.values()).flat_map(|e| e.options.keys().map(String::as_str))
    }

    /// Iterates over the options that entries list, each after the name of its entry: `rten.threads`.
    pub(super) fn qualified_names(&self) -> impl Iterator<Item = String> {
        let entries = self.frameworks.iter().chain(&self.compilers);
        entries.flat_map(|(name, entry)| entry.options.keys().map(move |option| format!("{name}.{option}")))
    }

    /// Returns whether a name is that of an option: alone, one that an entry lists (`threads`); after the name of an
    /// entry, any (`rten.threads`), because the engine may have options that its entry does not list. The plan knows them.
    pub fn has_option(&self, name: &str) -> bool {
        self.option_defaults(name).next().is_some() || self.options_of_entries(name).next().is_some()
    }

    /// Iterates over the entries that a name such as `rten.threads` may mean, each with the name of the option.
    pub fn options_of_entries<'n>(&'n self, name: &'n str) -> impl Iterator<Item = (&'n EngineEntry, &'n str)> {
        let entries = self.frameworks.iter().chain(&self.compilers);
        entries.filter_map(move |(entry_name, entry)| Some((entry, option_of_entry(name, entry_name)?)))
    }

    /// Returns the value of an option that no `--set` has set: the value in `own` (the overlay's, which is the same for
    /// all engines), or else the default of the engines, if they all have the same.
    pub(super) fn option_value(&self, name: &str, own: &Values) -> Option<Sourced<Value>> {
        let mut defaults = self.option_defaults(name);
        let (option, first) = defaults.next()?;
        match own.get(option) {
            Some(own) => Some(own.clone()),
            None => defaults.all(|(_, other)| other.value == first.value).then_some(first),
        }
    }

    /// Iterates over the options that a name means: with the engine's name (`rten.threads`) that engine's, without it
    /// (`threads`) those of all engines. Each has its name without the engine's, its default and the line of it.
    fn option_defaults<'n>(&'n self, name: &'n str) -> impl Iterator<Item = (&'n str, Sourced<Value>)> {
        let sides = [("frameworks", &self.frameworks), ("compilers", &self.compilers)];
        let entries = sides.into_iter().flat_map(|(side, entries)| entries.iter().map(move |entry| (side, entry)));
        entries.filter_map(move |(side, (engine, entry))| {
            let qualified = option_of_entry(name, engine);
            let option = qualified.filter(|option| entry.options.contains_key(*option)).unwrap_or(name);
            let value = entry.options.get(option)?.clone();
            Some((option, Sourced::new(value, self.origin(&[side, engine, "options", option]))))
        })
    }

    /// Finds the device with a detected name. An engine may put its own name before the driver's, as in
    /// `cuda:0 NVIDIA H200`.
    pub fn device(&self, detected: &str) -> Option<&VendorDevice> {
        let name = driver_name(detected);
        self.devices.iter().find(|device| device.matches.iter().any(|whole| whole.trim().eq_ignore_ascii_case(name)))
    }

    /// Returns the peak rate of a detected device in an arithmetic (`f16`, `f32`, `tf32`); `None` when it is unknown.
    pub fn peak(&self, detected: &str, precision: &str) -> Option<DevicePeak> {
        let device = self.device(detected)?;
        let flops_per_s = *device.peak_flops_per_s.get(precision)?;
        Some(DevicePeak { device: device.name.clone(), flops_per_s, source: device.source.clone() })
    }
}

/// Returns the name of a device without the engine's name before it: `NVIDIA H200` of `cuda:0 NVIDIA H200`.
pub(super) fn driver_name(detected: &str) -> &str {
    let by_engine = detected.split_once(' ').filter(|(engines_name, _)| engines_name.contains(':'));
    by_engine.map_or(detected, |(_, name)| name).trim()
}

/// Returns the option in a key that begins with the name of an engine's entry: `threads` in `rten.threads`.
pub fn option_of_entry<'k>(key: &'k str, entry_name: &str) -> Option<&'k str> {
    key.strip_prefix(entry_name)?.strip_prefix('.').filter(|option| !option.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Checkout;
    use super::super::section::SectionKey;
    use super::*;

    #[test]
    fn invalid_figures_of_a_device_are_refused() {
        let message = |device: &str| {
            let vendor = format!("name: chip\nabout: a\nframeworks: {{}}\ncompilers: {{}}\ndevices:\n    - {device}\n");
            let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &vendor);
            Vendor::read(checkout.root(), "chip").unwrap_err().to_string()
        };
        for (device, reason) in [
            ("matches: [\" \"], ", "`matches` must list the full names that the driver reports for it"),
            (
                "matches: [x], peak_flops_per_s: {fp16: 1e12}, ",
                "`peak_flops_per_s`: unknown precision `fp16` (known: f64, f32, tf32, f16, bf16, f8, i8)",
            ),
            ("matches: [x], peak_flops_per_s: {f16: 0}, ", "`f16` must be greater than 0, not `0`"),
            ("matches: [x], peak_flops_per_s: {f16: -2e12}, ", "`f16` must be greater than 0, not `-2000000000000`"),
            ("matches: [x], bandwidth_bytes_per_s: -1, ", "`bandwidth_bytes_per_s` must be greater than 0, not `-1`"),
        ] {
            let device = format!("{{name: Chip 1, {device}source: sheet}}");
            assert_eq!(message(&device), format!("vendors/chip/vendor.yaml:5: device `Chip 1`: {reason}"));
        }
    }

    #[test]
    fn a_name_that_two_devices_match_is_refused_with_both_lines() {
        let vendor = "name: chip\nabout: a\nframeworks: {}\ncompilers: {}\ndevices:\n    \
                      - {name: Chip 1, matches: [CHIP-1 80GB, CHIP-1], source: s}\n    - name: Chip 2\n      source: s\n      \
                      matches:\n          - CHIP-2\n          - \" Chip-1 80gb\"\n";
        let read = |text: &str| {
            Vendor::read(Checkout::new().with("vendors/chip/vendor.yaml", text).root(), "chip").map(|_| ())
        };
        assert_eq!(
            read(vendor).unwrap_err().to_string(),
            "vendors/chip/vendor.yaml:9: device `Chip 2`: `matches` contains `Chip-1 80gb`, which belongs to device \
             `Chip 1` already (vendors/chip/vendor.yaml:6); letter case does not distinguish names"
        );
        read(&vendor.replace("Chip-1 80gb", "CHIP-1 40GB")).unwrap();
        read(&vendor.replace("CHIP-1 80GB, CHIP-1", "CHIP-1, chip-1")).unwrap();
    }

    #[test]
    fn the_variable_of_visible_devices_must_be_a_valid_name() {
        let vendor = "name: chip\nabout: a\nframeworks: {}\ncompilers: {}\nvisible_devices: A=B\n";
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", vendor);
        assert_eq!(
            Vendor::read(checkout.root(), "chip").unwrap_err().to_string(),
            "vendors/chip/vendor.yaml:5: `visible_devices` must be the name of an environment variable, or null, not `A=B`"
        );
    }

    #[test]
    fn the_vendor_without_a_device_explains_every_key_of_a_vendor_and_of_an_engine() {
        let text = include_str!("../../../vendors/mock/vendor.yaml");
        let mut keys: Vec<&SectionKey> = Vendor::KEYS.iter().collect();
        for key in Vendor::KEYS.iter().filter(|key| ["frameworks", "devices"].contains(&key.name)) {
            if let SectionKind::Sections(below) | SectionKind::List(below) = key.kind {
                keys.extend(below);
            }
        }
        assert!(keys.len() > Vendor::KEYS.len() + 8, "the keys of engines and devices, too");
        for key in keys {
            assert!(text.contains(key.name), "vendors/mock/vendor.yaml does not explain `{}`", key.name);
        }
    }

    #[test]
    fn a_device_is_recognised_only_by_its_full_name() {
        let vendor = Vendor::read(&crate::fixture::repository(), "nvidia").unwrap();
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
