//! Converts the overlays of a case.
//!
//! What FlagPerf itself refuses is converted unchanged, so that `lint` reports it with the case and the vendor.

use std::path::Path;

use indexmap::IndexMap;

use super::case::SourceCase;
use super::file::{FileContent, NewFile, Replacement};
use super::report::KeyChange;
use super::source::CONFIGS;
use super::tree::{Conversion, IMPORTED, schema_line};
use flagperf_config::{ConfigFile, Finding, Node, Owner, SettingsFile, check_key_owner, find_parameter, is_reserved};

/// Folder of the overlays of a case.
pub(super) const OVERLAYS: &str = "vendor_config";
/// How the file name of an overlay ends.
pub(super) const OVERLAY_END: &str = "_configurations.yaml";

/// What becomes of a key of an overlay.
enum Converted {
    /// It has this name.
    As(String),
    /// It is left out.
    Nothing(&'static str),
    /// Its value is wrong.
    Wrong(Finding),
}

/// Converts the overlay of a vendor for a case.
pub(super) fn convert_overlay(case: &str, vendor: &str, files: &SourceCase, conversion: &mut Conversion<'_>) {
    let path = Path::new(CONFIGS).join(case).join(OVERLAYS).join(format!("{vendor}{OVERLAY_END}"));
    let Some(file) = conversion.import.source.read(&path, &mut conversion.problems) else { return };
    let compiler = compiler(&file, files);
    let mut entries: IndexMap<String, Node> = IndexMap::new();
    for (name, node) in &file.entries {
        match convert_key(name, (&file, node), files, compiler.as_deref()) {
            Converted::As(key) => {
                if key != *name {
                    let reason = "a parameter of the case here has its name; with the name of the compiler, it is an option of \
                                  its engine";
                    conversion.rename_key((&file, node), name, &key, reason);
                }
                entries.insert(key, node.clone());
            }
            Converted::Nothing(reason) => conversion.add_key((&file, node), name, KeyChange::NoEquivalent, reason),
            Converted::Wrong(finding) => conversion.problems.push(finding),
        }
    }
    let header = schema_line(3, "overlay") + IMPORTED;
    let content = FileContent::Keys { header, entries };
    conversion.files.push(NewFile { path, from: file.name.to_string(), content, replacement: Replacement::ByForce });
}

fn convert_key(
    name: &str,
    (file, node): (&ConfigFile, &Node),
    files: &SourceCase,
    compiler: Option<&str>,
) -> Converted {
    let has = |file: &Option<ConfigFile>| file.as_ref().is_some_and(|file| file.entries.contains_key(name));
    if let Some(setting) = SettingsFile::INFERENCE.find(name) {
        return match setting.read(node) {
            _ if setting.owner == Owner::Case => {
                Converted::Nothing("only the author of a case sets it, because it defines what is measured")
            }
            Ok(_) => Converted::As(name.to_owned()),
            Err(finding) => Converted::Wrong(finding.at(file.origin(node))),
        };
    }
    // FlagPerf refuses an overlay that sets a parameter; so does `lint`, with the case and the vendor.
    if has(&files.parameters) {
        return Converted::As(name.to_owned());
    }
    if find_parameter(name).is_some() {
        return Converted::Nothing("the host reads a parameter of this name, which only the author of a case sets");
    }
    // FlagPerf refuses such a key, too.
    if is_reserved(name) {
        return Converted::As(name.to_owned());
    }
    if check_key_owner(name).is_err() {
        return Converted::Nothing("host.yaml has this key, and only the user of a site sets it");
    }
    match (has(&files.own_parameters), compiler) {
        (false, _) => Converted::As(name.to_owned()),
        (true, Some(compiler)) => Converted::As(format!("{compiler}.{name}")),
        (true, None) => Converted::Nothing("a parameter of the case here has its name, and no compiler reads it"),
    }
}

/// Returns the compiler with which a vendor runs a case.
fn compiler(overlay: &ConfigFile, files: &SourceCase) -> Option<String> {
    let named = overlay.entries.get("compiler");
    let named = named.or_else(|| files.configurations.as_ref()?.entries.get("compiler"))?;
    named.value().as_str().map(str::to_owned)
}
