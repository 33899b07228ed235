//! Converts a vendor: an engine class becomes a compiler that the adaptor of sidecars runs, an image becomes a recipe.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::file::{FileContent, NewFile};
use super::tree::{Conversion, IMPORTED, schema_line};
use super::yaml_text::{text, value_text};
use flagperf_config::{CaseKey, EngineEntry, SITE, Scale, Vendor};
use flagperf_plan::ADAPTOR;
use flagperf_scaffold::add_compiler;

/// Folders of the source.
pub(super) const ENGINES: &str = "inference_engine";
pub(super) const IMAGES: &str = "docker_images";
/// The class of an engine, and the argument of it with the path of the ONNX file.
const CLASS: &str = "class InferModel";
const ONNX_ARGUMENT: &str = "onnx_path";
const RECIPE: &str = "Dockerfile";
/// The framework of a vendor that names none that this program knows: it is part of this program.
const OWN_FRAMEWORK: &str = "interpreter";

/// A compiler of the source.
struct Compiler {
    name: String,
    /// The class file in the source.
    from: PathBuf,
    source: String,
}

/// Converts a vendor.
pub(super) fn convert_vendor(name: &str, conversion: &mut Conversion<'_>) {
    let compilers = compilers(name, conversion);
    let frameworks = convert_images(name, conversion);
    let path = Path::new("vendors").join(name).join("vendor.yaml");
    let current = flagperf_core::regular_file::read_regular_text(&conversion.import.checkout.join(&path), 1 << 20).ok();
    let known = conversion.import.catalogue.vendors.get(name);
    match (known, current) {
        (Some(vendor), Some(current)) if !current.contains(IMPORTED) && !has_only_a_monitor(vendor.as_ref()) => {
            extend_vendor((vendor.as_ref(), current), &path, &compilers, &frameworks, conversion);
        }
        _ => {
            let from = conversion.import.source.name(&Path::new(ENGINES).join(name));
            let known = known.and_then(Option::as_ref).filter(|vendor| has_only_a_monitor(Some(vendor)));
            let content = FileContent::Text(description(name, &compilers, &frameworks, known, conversion));
            let completes = known.is_some();
            conversion.files.push(NewFile { path: path.clone(), from, content, completes });
            for compiler in &compilers {
                add_class(compiler, &path, conversion);
            }
        }
    }
}

/// Returns whether a vendor has nothing but a monitor, which an import keeps.
fn has_only_a_monitor(vendor: Option<&Vendor>) -> bool {
    vendor.is_some_and(|vendor| {
        vendor.monitor_command.is_some()
            && vendor.compilers.is_empty()
            && vendor.devices.is_empty()
            && vendor.backends.is_empty()
    })
}

/// Returns the files of a vendor that define an engine class.
fn compilers(vendor: &str, conversion: &mut Conversion<'_>) -> Vec<Compiler> {
    let folder = Path::new(ENGINES).join(vendor);
    let source = conversion.import.source;
    let mut found = Vec::new();
    for entry in source.entries(&folder, &mut conversion.problems) {
        let from = folder.join(&entry.name);
        let Some(name) = entry.name.strip_suffix(".py").filter(|_| !entry.is_folder) else {
            if entry.is_folder && source.has(&from.join("setup.py")) {
                let reason = "nothing builds it here: build it in the image of the vendor";
                conversion.add_name(&from.join("setup.py"), &entry.name, reason);
            }
            continue;
        };
        let Some(text) = source.text(&from, &mut conversion.problems) else { continue };
        if text.contains(CLASS) {
            found.push(Compiler { name: name.to_owned(), from, source: text });
        }
    }
    found
}

/// Converts the recipes of a vendor's images, and returns its frameworks: without versions, each with the names that it has.
fn convert_images(vendor: &str, conversion: &mut Conversion<'_>) -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(IMAGES).join(vendor);
    let source = conversion.import.source;
    let mut frameworks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let entries = source.entries(&folder, &mut conversion.problems);
    for framework in entries.into_iter().filter(|entry| entry.is_folder).map(|entry| entry.name) {
        let path = folder.join(&framework);
        let key = CaseKey { case: String::new(), framework: framework.clone(), scale: Scale::ONE };
        frameworks.entry(key.framework_name().to_owned()).or_default().push(framework);
        if source.has(&path.join(RECIPE))
            && let Some(text) = source.text(&path.join(RECIPE), &mut conversion.problems)
        {
            let from = source.name(&path.join(RECIPE));
            conversion.files.push(NewFile {
                path: path.join(RECIPE),
                from,
                content: FileContent::Text(text),
                completes: false,
            });
        }
        for entry in source.entries(&path, &mut conversion.problems) {
            if entry.name.ends_with("_install.sh") {
                let reason = "no script is run in an image here: add its commands to the Dockerfile";
                conversion.add_name(&path.join(&entry.name), &entry.name, reason);
            }
        }
    }
    frameworks
}

/// Reports what a vendor of the checkout lacks. With `--force`, adds the compilers to its vendor.yaml.
fn extend_vendor(
    (vendor, current): (Option<&Vendor>, String),
    path: &Path,
    compilers: &[Compiler],
    frameworks: &BTreeMap<String, Vec<String>>,
    conversion: &mut Conversion<'_>,
) {
    let Some(vendor) = vendor else { return };
    let mut changed = current.clone();
    for compiler in compilers.iter().filter(|compiler| !vendor.compilers.contains_key(&compiler.name)) {
        let entry = compiler_entry(compiler);
        match add_compiler(&changed, &entry).filter(|_| conversion.import.replaces) {
            Some(text) => {
                changed = text;
                add_class(compiler, path, conversion);
            }
            None => {
                let reason = format!(
                    "{} has no such compiler: copy the file to its folder `engines` and add `{entry}` to `compilers`, or \
                     import with --force",
                    path.display()
                );
                conversion.add_name(&compiler.from, &compiler.name, &reason);
            }
        }
    }
    let names = frameworks.iter().filter(|(name, _)| !vendor.frameworks.contains_key(*name));
    for (name, folders) in names {
        let folder = Path::new(IMAGES).join(&vendor.name).join(&folders[0]);
        conversion.add_name(&folder, name, &format!("{} has no such framework", path.display()));
    }
    if changed != current {
        let from = conversion.import.source.name(&Path::new(ENGINES).join(&vendor.name));
        conversion.files.push(NewFile {
            path: path.to_owned(),
            from,
            content: FileContent::Text(changed),
            completes: false,
        });
    }
}

fn add_class(compiler: &Compiler, vendor_file: &Path, conversion: &mut Conversion<'_>) {
    let path = vendor_file.with_file_name("engines").join(format!("{}.py", compiler.name));
    let from = conversion.import.source.name(&compiler.from);
    conversion.files.push(NewFile {
        path,
        from,
        content: FileContent::Text(compiler.source.clone()),
        completes: false,
    });
}

/// Returns the line of vendor.yaml for a compiler.
fn compiler_entry(compiler: &Compiler) -> String {
    let mut entry = json!({"engine": "sidecar",
        "command": ["python3", "-m", ADAPTOR, format!("engines/{}.py", compiler.name)], "options": {"threads": 0}});
    // A class whose text never mentions the argument again takes the model.
    if compiler.source.matches(ONNX_ARGUMENT).count() == 1 {
        entry["opens_onnx"] = false.into();
    }
    format!("{}: {}", text(&compiler.name), value_text(&entry))
}

/// Returns the text of a new vendor.yaml; `known` is the vendor if it has a monitor already.
fn description(
    name: &str,
    compilers: &[Compiler],
    frameworks: &BTreeMap<String, Vec<String>>,
    known: Option<&Vendor>,
    conversion: &Conversion<'_>,
) -> String {
    let own = BTreeMap::from([(OWN_FRAMEWORK.to_owned(), Vec::new())]);
    let frameworks = if frameworks.is_empty() { &own } else { frameworks };
    let mut lines = vec![
        schema_line(2, "vendor").trim_end().to_owned(),
        IMPORTED.trim_end().to_owned(),
        "# vendors/README.md says how to complete it.".to_owned(),
        format!("name: {}", text(name)),
        known.map_or_else(
            || "about: imported from FlagPerf; describe the devices here in one line".to_owned(),
            |known| format!("about: {}", text(&known.about)),
        ),
    ];
    if let (Some(first), true) = (frameworks.keys().next(), frameworks.len() > 1) {
        lines.push(format!("default_framework: {}", text(first)));
    }
    lines.push("# Validation: FlagPerf runs its model in this framework on the vendor's device. Here it runs as the entry says.".into());
    lines.push("frameworks:".to_owned());
    for framework in frameworks.keys() {
        lines.push(format!("    {}: {}", text(framework), value_text(&framework_entry(framework, conversion))));
    }
    if compilers.is_empty() {
        lines.push("compilers: {}".to_owned());
    } else {
        lines.push(
            "# FlagPerf's classes, unchanged. `options` may list keys that a class reads, with their defaults.".into(),
        );
        lines.push("compilers:".to_owned());
        lines.extend(compilers.iter().map(|compiler| format!("    {}", compiler_entry(compiler))));
    }
    lines.extend(
        ["# The devices, with the peaks from their data sheets.", "devices: []", "monitor: null"].map(str::to_owned),
    );
    if let Some(command) = known.and_then(|known| known.monitor_command.as_ref()) {
        let entry = json!({"command": command.command, "interval_s": command.interval_s});
        lines.push(format!("monitor_command: {}", value_text(&entry)));
    }
    if let Some(variable) = known.and_then(|known| known.visible_devices.as_ref()) {
        lines.push(format!("visible_devices: {}", text(variable)));
    }
    lines.join("\n") + "\n"
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
