//! The keys of vendor.yaml: name, type and purpose.

use super::ValueKind;
use super::section::{OPTIONAL_TEXT, SectionKey, SectionKind, TEXT, TEXT_MAP, TEXTS, optional, required};

/// The keys of vendor.yaml. Each has a field of the same name in `Vendor`.
pub const VENDOR: &[SectionKey] = &[
    required("name", TEXT, "the name of the vendor's folder"),
    required("about", TEXT, "one line that describes the devices"),
    optional("default_framework", OPTIONAL_TEXT, "the framework of a case for which none is given"),
    required("frameworks", SectionKind::Sections(ENGINE_ENTRY), "the frameworks, by their names in `CASES`"),
    required("compilers", SectionKind::Sections(ENGINE_ENTRY), "the compilers, by their names under `compiler`"),
    optional("devices", SectionKind::List(DEVICE), "the devices and their peak rates"),
    optional(
        "visible_devices",
        SectionKind::Value(ValueKind::Variable),
        "the environment variable that selects the devices visible to a process",
    ),
    optional("container_options", OPTIONAL_TEXT, "the options that give a container access to the devices"),
    optional("monitor", OPTIONAL_TEXT, "the monitor that reads the devices: a row of `monitors` in `flagperf doctor`"),
    optional(
        "monitor_command",
        SectionKind::Section(MONITOR_COMMAND),
        "the command whose output the vendor's monitor.rhai reads, if `monitor` is null or does not work",
    ),
    optional("backends", SectionKind::Sections(BACKEND), "the libraries that `flagperf backend install` installs"),
];

/// The keys of a command that prints the state of devices.
const MONITOR_COMMAND: &[SectionKey] = &[
    required("command", SectionKind::Value(ValueKind::NonEmptyTextList), "the program and its arguments"),
    optional(
        "interval_s",
        SectionKind::Value(ValueKind::Count),
        "the shortest time between two runs of the command, in seconds; by default 5",
    ),
];

/// The keys of a framework or compiler.
const ENGINE_ENTRY: &[SectionKey] = &[
    required("engine", TEXT, "the engine: a row of `flagperf list engines`"),
    optional(
        "library",
        OPTIONAL_TEXT,
        "the shared library of a plug-in, relative to the vendor's folder; `backend:NAME` is the one that `flagperf backend install NAME` builds",
    ),
    optional("command", TEXTS, "the program and the arguments of a sidecar, which starts in the vendor's folder"),
    optional(
        "options",
        SectionKind::Options,
        "the engine's options with their defaults; null is the engine's own default",
    ),
    optional(
        "opens_onnx",
        SectionKind::Boolean,
        "whether the engine opens the ONNX file; if not, `exist_onnx_path` may be any text",
    ),
];

/// The keys of a device.
const DEVICE: &[SectionKey] = &[
    required("name", TEXT, "the name in reports"),
    required(
        "matches",
        SectionKind::Value(ValueKind::NonEmptyTextList),
        "the full names that the driver reports, in any letter case",
    ),
    optional("memory_bytes", SectionKind::Bytes, "the memory, in bytes"),
    optional("bandwidth_bytes_per_s", SectionKind::Rate, "the memory bandwidth, in bytes per second"),
    optional(
        "peak_flops_per_s",
        SectionKind::Rates,
        "the peak rates without sparsity, by precision; a multiply-add counts as two operations",
    ),
    required("source", TEXT, "where the figures are published"),
];

/// The keys of a library that `flagperf backend install` installs.
const BACKEND: &[SectionKey] = &[
    required("about", TEXT, "the purpose of the library"),
    required("version", TEXT, "the version that was tested"),
    optional("package", SectionKind::Section(PACKAGE), "the Python package that contains the library"),
    optional("plugin", SectionKind::Section(PLUGIN), "the vendor's crate that makes an engine of the library"),
];

/// The keys of a Python package.
const PACKAGE: &[SectionKey] = &[
    required("name", TEXT, "the name of the package"),
    required("wheels", TEXT_MAP, "the SHA-256 of the wheel in hexadecimal, by processor architecture"),
    required("library", TEXT, "the path of the library in the package, without the version suffix"),
];

/// The keys of a crate.
const PLUGIN: &[SectionKey] = &[
    required("folder", TEXT, "the folder of the crate, relative to the vendor's folder"),
    required("library", TEXT, "the name of the shared library that cargo builds, without prefix and suffix"),
    optional("features", TEXTS, "the cargo features to build with; without any, the default features"),
    optional("tells", TEXT_MAP, "environment variables for the build, each with a folder of the package"),
];
