//! The keys of vendor.yaml: name, type and purpose. A file with other keys, such as one for another version of flagperf,
//! is refused with the key and its line.

use indexmap::IndexMap;

use super::entries::describe_node;
use super::file::ConfigFile;
use super::yaml::{Content, Node};
use super::{ConfigProblem, Finding, Origin, ValueKind, list_names, nearest};

/// A key of vendor.yaml or of one of its sections.
#[derive(Clone, Copy, Debug)]
pub struct VendorKey {
    /// Name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: VendorKind,
    /// Whether the key must be given.
    pub is_required: bool,
    /// One-line description.
    pub about: &'static str,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum VendorKind {
    /// A single value or a list.
    Value(ValueKind),
    /// `true` or `false`.
    Boolean,
    /// A number of bytes, or null.
    Bytes,
    /// A rate per second, or null.
    Rate,
    /// Rates per second, by precision.
    Rates,
    /// Options of an engine with their defaults: values of any type.
    Options,
    /// A section.
    Section(&'static [VendorKey]),
    /// Sections by name.
    Sections(&'static [VendorKey]),
    /// A list of sections.
    List(&'static [VendorKey]),
}

/// A required key.
const fn required(name: &'static str, kind: VendorKind, about: &'static str) -> VendorKey {
    VendorKey { name, kind, is_required: true, about }
}

/// A key that may be left out.
const fn optional(name: &'static str, kind: VendorKind, about: &'static str) -> VendorKey {
    VendorKey { name, kind, is_required: false, about }
}

const TEXT: VendorKind = VendorKind::Value(ValueKind::Text);
const OPTIONAL_TEXT: VendorKind = VendorKind::Value(ValueKind::OptionalText);
const TEXTS: VendorKind = VendorKind::Value(ValueKind::TextList);
const TEXT_MAP: VendorKind = VendorKind::Value(ValueKind::TextMap);

/// The keys of vendor.yaml. Each has a field of the same name in `Vendor`.
pub const VENDOR: &[VendorKey] = &[
    required("name", TEXT, "the name of the vendor's folder"),
    required("about", TEXT, "one line that describes the devices"),
    optional("default_framework", OPTIONAL_TEXT, "the framework of a case for which none is given"),
    required("frameworks", VendorKind::Sections(ENGINE_ENTRY), "the frameworks, by their names in `CASES`"),
    required("compilers", VendorKind::Sections(ENGINE_ENTRY), "the compilers, by their names under `compiler`"),
    optional("devices", VendorKind::List(DEVICE), "the devices and their peak rates"),
    optional(
        "visible_devices",
        VendorKind::Value(ValueKind::Variable),
        "the environment variable that selects the devices visible to a process",
    ),
    optional("container_options", OPTIONAL_TEXT, "the options that give a container access to the devices"),
    optional("monitor", OPTIONAL_TEXT, "the monitor that reads the devices: a row of `monitors` in `flagperf doctor`"),
    optional("backends", VendorKind::Sections(BACKEND), "the libraries that `flagperf backend install` installs"),
];

/// The keys of a framework or compiler.
const ENGINE_ENTRY: &[VendorKey] = &[
    required("engine", TEXT, "the engine: a row of `flagperf list engines`"),
    optional(
        "library",
        OPTIONAL_TEXT,
        "the shared library of a plug-in, relative to the vendor's folder; `backend:NAME` is the one that `flagperf backend install NAME` builds",
    ),
    optional("command", TEXTS, "the program and the arguments of a sidecar, which starts in the vendor's folder"),
    optional(
        "options",
        VendorKind::Options,
        "the engine's options with their defaults; null is the engine's own default",
    ),
    optional(
        "opens_onnx",
        VendorKind::Boolean,
        "whether the engine opens the ONNX file; if not, `exist_onnx_path` may be any text",
    ),
];

/// The keys of a device.
const DEVICE: &[VendorKey] = &[
    required("name", TEXT, "the name in reports"),
    required(
        "matches",
        VendorKind::Value(ValueKind::NonEmptyTextList),
        "the full names that the driver reports, in any letter case",
    ),
    optional("memory_bytes", VendorKind::Bytes, "the memory, in bytes"),
    optional("bandwidth_bytes_per_s", VendorKind::Rate, "the memory bandwidth, in bytes per second"),
    optional(
        "peak_flops_per_s",
        VendorKind::Rates,
        "the peak rates without sparsity, by precision; a multiply-add counts as two operations",
    ),
    required("source", TEXT, "where the figures are published"),
];

/// The keys of a library that `flagperf backend install` installs.
const BACKEND: &[VendorKey] = &[
    required("about", TEXT, "the purpose of the library"),
    required("version", TEXT, "the version that was tested"),
    optional("package", VendorKind::Section(PACKAGE), "the Python package that contains the library"),
    optional("plugin", VendorKind::Section(PLUGIN), "the vendor's crate that makes an engine of the library"),
];

/// The keys of a Python package.
const PACKAGE: &[VendorKey] = &[
    required("name", TEXT, "the name of the package"),
    required("wheels", TEXT_MAP, "the SHA-256 of the wheel in hexadecimal, by processor architecture"),
    required("library", TEXT, "the path of the library in the package, without the version suffix"),
];

/// The keys of a crate.
const PLUGIN: &[VendorKey] = &[
    required("folder", TEXT, "the folder of the crate, relative to the vendor's folder"),
    required("library", TEXT, "the name of the shared library that cargo builds, without prefix and suffix"),
    optional("features", TEXTS, "the cargo features to build with; without any, the default features"),
    optional("tells", TEXT_MAP, "environment variables for the build, each with a folder of the package"),
];

/// Checks the keys of a vendor.yaml and of its sections, and the types of their values.
pub(super) fn check_vendor(file: &ConfigFile) -> Result<(), Finding> {
    Checker { file }.check_section(VENDOR, &file.entries, "", file.top())
}

/// Checks the sections of a file.
struct Checker<'f> {
    file: &'f ConfigFile,
}

impl Checker<'_> {
    /// Checks the keys of the section at `path`, which begins at `origin`.
    fn check_section(
        &self,
        keys: &'static [VendorKey],
        entries: &IndexMap<String, Node>,
        path: &str,
        origin: Origin,
    ) -> Result<(), Finding> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, node) in entries {
            let key = keys.iter().find(|key| key.name == name);
            let unknown = || Finding::error(self.file.origin(node), unknown_key(keys, name, below(name)));
            self.check_value(key.ok_or_else(unknown)?.kind, node, &below(name))?;
        }
        let missing = keys.iter().find(|key| key.is_required && !entries.contains_key(key.name));
        missing.map_or(Ok(()), |key| {
            Err(Finding::error(origin, ConfigProblem::Missing { key: below(key.name), about: key.about }))
        })
    }

    /// Checks the value of the key at `path`.
    fn check_value(&self, kind: VendorKind, node: &Node, path: &str) -> Result<(), Finding> {
        match (kind, &node.content) {
            (VendorKind::Section(keys), Content::Map(entries)) => {
                self.check_section(keys, entries, path, self.file.origin(node))
            }
            (VendorKind::Sections(keys), Content::Map(sections)) => sections.iter().try_for_each(|(name, section)| {
                self.check_value(VendorKind::Section(keys), section, &format!("{path}.{name}"))
            }),
            (VendorKind::List(keys), Content::List(items)) => items.iter().enumerate().try_for_each(|(index, item)| {
                self.check_value(VendorKind::Section(keys), item, &format!("{path}[{index}]"))
            }),
            (VendorKind::Rates, Content::Map(rates)) => rates
                .iter()
                .try_for_each(|(name, rate)| self.check_value(VendorKind::Rate, rate, &format!("{path}.{name}"))),
            (VendorKind::Options, Content::Map(_)) => Ok(()),
            (VendorKind::Value(value), _) if value.read(node).is_some() => Ok(()),
            (VendorKind::Boolean, _) if node.value().is_boolean() => Ok(()),
            (VendorKind::Bytes, _) if node.is_null() || node.value().is_u64() => Ok(()),
            (VendorKind::Rate, _) if node.is_null() || node.value().is_number() => Ok(()),
            _ => {
                let (key, expected, found) = (path.to_owned(), kind.expected(), describe_node(node));
                Err(Finding::error(self.file.origin(node), ConfigProblem::Type { key, expected, found }))
            }
        }
    }
}

impl VendorKind {
    /// Describes the expected value, for a message.
    const fn expected(self) -> &'static str {
        match self {
            VendorKind::Value(kind) => kind.expected(),
            VendorKind::Boolean => "true or false",
            VendorKind::Bytes => "a whole number of bytes, or null",
            VendorKind::Rate => "a number, or null",
            VendorKind::Rates => "rates by precision, such as `{f16: 989.4e12}`",
            VendorKind::Options => "a mapping of options to their defaults",
            VendorKind::Section(_) => "a mapping of keys to values",
            VendorKind::Sections(_) => "a mapping of names to mappings",
            VendorKind::List(_) => "a list of mappings",
        }
    }
}

fn unknown_key(keys: &[VendorKey], name: &str, path: String) -> ConfigProblem {
    let names = || keys.iter().map(|key| key.name);
    ConfigProblem::UnknownVendorKey {
        key: path,
        nearest: nearest(name, names()).map(str::to_owned),
        known: list_names(names()),
    }
}
