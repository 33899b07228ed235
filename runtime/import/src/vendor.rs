//! Converts a vendor: an engine class becomes a compiler that the adaptor of sidecars runs, an image becomes a recipe.
//!
//! A vendor.yaml that exists only gains entries, and no file with an engine's code is replaced: they are the vendor's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::file::{FileContent, Replacement};
use super::report::KeyChange;
use super::tree::{Conversion, IMPORTED, schema_line};
use super::yaml_text::{text, value_text};
use flagperf_config::{CaseKey, EngineEntry, SITE, Vendor, display_name, read_text};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_plan::ADAPTOR;
use flagperf_scaffold::add_entry;

/// Folders of the source.
pub(super) const ENGINES: &str = "inference_engine";
pub(super) const IMAGES: &str = "docker_images";
/// The class of an engine, and the argument of it with the path of the ONNX file.
const CLASS: &str = "class InferModel";
const ONNX_ARGUMENT: &str = "onnx_path";
/// The file that sets environment variables, of a vendor and of a case.
pub(super) const VARIABLES: &str = "environment_variables.sh";
/// The framework that is part of this program.
const OWN_FRAMEWORK: &str = "interpreter";

/// The engine classes of a vendor and the modules beside them.
#[derive(Default)]
struct SourceEngines {
    compilers: Vec<Compiler>,
    /// The files that define no engine class.
    modules: Vec<PathBuf>,
}

/// A compiler of the source.
struct Compiler {
    name: String,
    /// The class file in the source.
    from: PathBuf,
    source: String,
}

impl Compiler {
    /// Returns the argument of the adaptor that names the file, relative to the vendor's folder.
    fn file(&self) -> String {
        format!("engines/{}.py", self.name)
    }

    /// Returns the line of vendor.yaml.
    fn entry(&self) -> String {
        let mut entry = json!({"engine": "sidecar", "command": ["python3", "-m", ADAPTOR, self.file()],
            "options": {"threads": 0}});
        // A class whose text never mentions the argument again takes the model.
        if self.source.matches(ONNX_ARGUMENT).count() == 1 {
            entry["opens_onnx"] = false.into();
        }
        format!("{}: {}", text(&self.name), value_text(&entry))
    }
}

/// A vendor.yaml that gains entries.
struct Description {
    path: PathBuf,
    /// The vendor before the import.
    vendor: Vendor,
    text: String,
    /// Whether entries are added, or only reported.
    is_extended: bool,
    exists: bool,
}

impl Description {
    /// Reads the vendor.yaml of a vendor, or begins a new one. One that cannot be used becomes a finding.
    fn of(name: &str, conversion: &mut Conversion<'_>) -> Option<Self> {
        let import = conversion.import;
        let path = Path::new("vendors").join(name).join("vendor.yaml");
        let own = import.checkout.join(&path);
        let exists = own.symlink_metadata().is_ok();
        let current = match exists {
            true => read_text(&own, &display_name(&own, import.checkout)),
            false => Ok(new_description(name)),
        };
        let read = current.and_then(|text| Ok((Vendor::parse(import.checkout, name, &text)?, text)));
        let (vendor, text) = read.map_err(|finding| conversion.problems.push(finding)).ok()?;
        let is_extended = import.replaces || has_only_a_monitor(&vendor) || text.contains(IMPORTED.trim_end());
        // The inference may have extended it already.
        let converted = conversion.files.iter().find(|file| file.path == path).and_then(|file| match &file.content {
            FileContent::Text(text) => Some((Vendor::parse(import.checkout, name, text).ok()?, text.clone())),
            FileContent::Keys { .. } => None,
        });
        let (vendor, text) = converted.unwrap_or((vendor, text));
        Some(Description { path, vendor, text, is_extended, exists })
    }

    /// Keeps the framework that was the first one as the default.
    fn keep_default(&mut self, first: Option<&str>) {
        if let (Some(first), None) = (first, &self.vendor.default_framework) {
            let default = format!("\ndefault_framework: {}\nframeworks:", text(first));
            self.text = self.text.replacen("\nframeworks:", &default, 1);
        }
    }

    /// Adds an entry to a list, if entries are added. Returns whether it was added.
    fn add(&mut self, list: &str, entry: &str) -> bool {
        let added = self.is_extended.then(|| add_entry(&self.text, list, entry)).flatten();
        added.map(|text| self.text = text).is_some()
    }
}

/// Converts a vendor.
pub(super) fn convert_vendor(name: &str, conversion: &mut Conversion<'_>) {
    let engines = read_engines(name, conversion);
    let frameworks = convert_images(name, conversion);
    let Some(mut description) = Description::of(name, conversion) else { return };
    add_compilers(&engines, &mut description, conversion);
    add_frameworks(&frameworks, &mut description, conversion);
    let from = conversion.import.source.name(&Path::new(ENGINES).join(name));
    let Description { path, text, exists, .. } = description;
    let replacement = if exists { Replacement::Always } else { Replacement::ByForce };
    conversion.add_text(path, from, text, replacement);
}

/// Adds to a vendor the framework that starts the training program of a case.
pub(super) fn add_program(name: &str, conversion: &mut Conversion<'_>) {
    let Some(mut description) = Description::of(name, conversion) else { return };
    if description.vendor.frameworks.contains_key(PROGRAM_ENGINE) {
        return;
    }
    let first = description.vendor.frameworks.keys().next().cloned();
    let entry = format!("{PROGRAM_ENGINE}: {}", value_text(&json!({"engine": PROGRAM_ENGINE})));
    let from = conversion.import.source.training_name(Path::new(name));
    if !description.add("frameworks", &entry) {
        let reason =
            format!("{} has no such framework: add `{entry}`, or import with --force", description.path.display());
        return conversion.add_line((&from, 0), PROGRAM_ENGINE, KeyChange::NoEquivalent, &reason);
    }
    description.keep_default(first.as_deref());
    let Description { path, text, exists, .. } = description;
    let replacement = if exists { Replacement::Always } else { Replacement::ByForce };
    match conversion.files.iter_mut().find(|file| file.path == path) {
        Some(file) => file.content = FileContent::Text(text),
        None => conversion.add_text(path, from, text, replacement),
    }
}

/// Returns whether a vendor has nothing but a monitor.
fn has_only_a_monitor(vendor: &Vendor) -> bool {
    vendor.monitor_command.is_some()
        && vendor.compilers.is_empty()
        && vendor.devices.is_empty()
        && vendor.backends.is_empty()
}

/// Reads the engine classes of a vendor, and converts what is beside them.
fn read_engines(vendor: &str, conversion: &mut Conversion<'_>) -> SourceEngines {
    let folder = Path::new(ENGINES).join(vendor);
    let source = conversion.import.source;
    let mut engines = SourceEngines::default();
    for entry in source.entries(&folder, &mut conversion.problems) {
        let from = folder.join(&entry.name);
        let stem = entry.name.strip_suffix(".py").filter(|_| !entry.is_folder);
        if entry.is_folder && source.has(&from.join("setup.py")) {
            let reason = "nothing builds it here: build it in the image of the vendor";
            conversion.add_name(&from.join("setup.py"), &entry.name, reason);
        } else if let Some(stem) = stem {
            let Some(source) = source.text(&from, &mut conversion.problems) else { continue };
            match source.contains(CLASS) {
                true => engines.compilers.push(Compiler { name: stem.to_owned(), from, source }),
                false => engines.modules.push(from),
            }
        } else if entry.name == VARIABLES {
            conversion.copy(&from, &Path::new("vendors").join(vendor).join(VARIABLES), Replacement::ByForce);
        } else {
            engines.modules.extend(source.files(&from, &mut conversion.problems));
        }
    }
    engines
}

/// Converts the recipes of a vendor's images, and returns its frameworks: without versions, each with the names that it has.
fn convert_images(vendor: &str, conversion: &mut Conversion<'_>) -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(IMAGES).join(vendor);
    let source = conversion.import.source;
    let mut frameworks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in source.entries(&folder, &mut conversion.problems) {
        let path = folder.join(&entry.name);
        if !entry.is_folder {
            let reason = format!(
                "`monitor` or `monitor_command` of vendors/{vendor}/vendor.yaml reads the devices, and the program computes \
                 the figures"
            );
            conversion.add_name(&path, &entry.name, &reason);
            continue;
        }
        let key = CaseKey::new("", &entry.name);
        frameworks.entry(key.framework_name().to_owned()).or_default().push(entry.name);
        for file in source.files(&path, &mut conversion.problems) {
            conversion.copy(&file, &file, Replacement::ByForce);
        }
    }
    frameworks
}

/// Adds the compilers that a vendor lacks, with the files of their classes.
fn add_compilers(engines: &SourceEngines, description: &mut Description, conversion: &mut Conversion<'_>) {
    let folder = description.path.with_file_name("engines");
    let mut has_class = false;
    // Each entry becomes the first one.
    for compiler in engines.compilers.iter().rev() {
        let known = description.vendor.compilers.get(&compiler.name);
        if known.is_some_and(|entry| !entry.command.contains(&compiler.file())) {
            let reason = format!(
                "{} has a compiler of this name with another engine, which stays; to use this class as well, copy the file to \
                 its folder `engines`, and add it to `compilers` under another name",
                description.path.display()
            );
            conversion.keep_name(&compiler.from, &compiler.name, &reason);
        } else if known.is_some() || description.add("compilers", &compiler.entry()) {
            has_class = true;
            conversion.copy(&compiler.from, &folder.join(format!("{}.py", compiler.name)), Replacement::Never);
        } else {
            let reason = format!(
                "{} has no such compiler: copy the file to its folder `engines` and add `{}` to `compilers`, or import with \
                 --force",
                description.path.display(),
                compiler.entry()
            );
            conversion.add_name(&compiler.from, &compiler.name, &reason);
        }
    }
    let source_folder = Path::new(ENGINES).join(&description.vendor.name);
    for module in &engines.modules {
        let below = module.strip_prefix(&source_folder).unwrap_or(module);
        match has_class {
            true => conversion.copy(module, &folder.join(below), Replacement::Never),
            false => conversion.add_name(module, &below.display().to_string(), "no engine class beside it is imported"),
        }
    }
}

/// Adds the frameworks that a vendor lacks. Those that it has stay, and one of them stays the default.
fn add_frameworks(
    frameworks: &BTreeMap<String, Vec<String>>,
    description: &mut Description,
    conversion: &mut Conversion<'_>,
) {
    let known: Vec<String> = description.vendor.frameworks.keys().cloned().collect();
    let mut has_new = false;
    for (name, folders) in frameworks.iter().rev().filter(|(name, _)| !known.contains(name)) {
        let entry = format!("{}: {}", text(name), value_text(&framework_entry(name, conversion)));
        match description.add("frameworks", &entry) {
            true => has_new = true,
            false => {
                let folder = Path::new(IMAGES).join(&description.vendor.name).join(&folders[0]);
                let reason = format!("{} has no such framework: add `{entry}`", description.path.display());
                conversion.add_name(&folder, name, &reason);
            }
        }
    }
    if has_new {
        description.keep_default(known.first().map(String::as_str));
    }
}

/// Returns the text of the vendor.yaml of a vendor without engines.
fn new_description(name: &str) -> String {
    let framework = json!({"engine": OWN_FRAMEWORK, "options": {"threads": 0}});
    [
        schema_line(2, "vendor").trim_end(),
        IMPORTED.trim_end(),
        "# vendors/README.md says how to complete it.",
        &format!("name: {}", text(name)),
        "about: imported from FlagPerf; describe the devices here in one line",
        "# FlagPerf runs validation in its framework on the vendor's device. Here each framework runs as its entry says.",
        "frameworks:",
        &format!("    {OWN_FRAMEWORK}: {}", value_text(&framework)),
        "# FlagPerf's classes, unchanged. `options` may list keys that a class reads, with their defaults.",
        "compilers: {}",
        "# The devices, with the peaks from their data sheets.",
        "devices: []",
        "monitor: null",
    ]
    .join("\n")
        + "\n"
}

/// Returns the entry of a framework: that of the vendor that host.yaml has by default, if it has the framework, or else the
/// framework that is part of this program.
fn framework_entry(name: &str, conversion: &Conversion<'_>) -> serde_json::Value {
    let default = SITE.iter().find(|key| key.name == "VENDOR").and_then(|key| key.default).unwrap_or_default();
    let vendor = conversion.import.catalogue.vendors.get(default).and_then(Option::as_ref);
    let entry = vendor.and_then(|vendor| vendor.frameworks.get(name));
    // A path would be relative to the folder of the other vendor.
    let is_portable =
        |entry: &&EngineEntry| entry.command.is_empty() && (entry.library.is_none() || entry.backend().is_some());
    match entry.filter(is_portable) {
        Some(EngineEntry { engine, library: Some(library), options, .. }) => {
            json!({"engine": engine, "library": library, "options": options})
        }
        Some(EngineEntry { engine, options, .. }) => json!({"engine": engine, "options": options}),
        None => json!({"engine": OWN_FRAMEWORK, "options": {"threads": 0}}),
    }
}
