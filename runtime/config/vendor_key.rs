//! The keys of vendor.yaml: name, type and purpose. A file with other keys, such as one for another version of flagperf,
//! is refused with the key and its line.

use super::entries::describe_node;
use super::yaml::{Content, Node, Place};
use super::{ConfigProblem, ValueKind, list_names, nearest};

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
    optional("options", VendorKind::Options, "the engine's options with their defaults; null is the engine's own default"),
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

/// Checks the top-level keys of a vendor.yaml and those of its sections. An error has the position of the key.
pub(super) fn check_vendor(entries: &indexmap::IndexMap<String, Node>, top: Place) -> Result<(), (Place, ConfigProblem)> {
    check_section(VENDOR, entries, "", top)
}

fn check_section(
    keys: &'static [VendorKey],
    entries: &indexmap::IndexMap<String, Node>,
    section: &str,
    place: Place,
) -> Result<(), (Place, ConfigProblem)> {
    let path = |name: &str| if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
    for (name, node) in entries {
        let key = keys.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| (node.place, unknown_key(keys, name, path(name))))?;
        check_value(key.kind, node, &path(name))?;
    }
    let missing = keys.iter().find(|key| key.is_required && !entries.contains_key(key.name));
    missing.map_or(Ok(()), |key| Err((place, ConfigProblem::Missing { key: path(key.name), about: key.about })))
}

fn check_value(kind: VendorKind, node: &Node, path: &str) -> Result<(), (Place, ConfigProblem)> {
    let refused = || {
        let (key, expected, found) = (path.to_owned(), kind.expected(), describe_node(node));
        Err((node.place, ConfigProblem::Type { key, expected, found }))
    };
    let number = || node.value().is_number();
    match (kind, &node.content) {
        (VendorKind::Section(keys), Content::Map(entries)) => check_section(keys, entries, path, node.place),
        (VendorKind::Sections(keys), Content::Map(sections)) => {
            sections.iter().try_for_each(|(name, section)| check_value(VendorKind::Section(keys), section, &format!("{path}.{name}")))
        }
        (VendorKind::List(keys), Content::List(items)) => items.iter().enumerate().try_for_each(|(index, item)| {
            check_value(VendorKind::Section(keys), item, &format!("{path}[{index}]"))
        }),
        (VendorKind::Rates, Content::Map(rates)) => {
            rates.iter().try_for_each(|(name, rate)| check_value(VendorKind::Rate, rate, &format!("{path}.{name}")))
        }
        (VendorKind::Options, Content::Map(_)) => Ok(()),
        (VendorKind::Value(value), _) if value.read(node).is_some() => Ok(()),
        (VendorKind::Boolean, _) if node.value().is_boolean() => Ok(()),
        (VendorKind::Bytes, _) if node.is_null() || node.value().is_u64() => Ok(()),
        (VendorKind::Rate, _) if node.is_null() || number() => Ok(()),
        _ => refused(),
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
