//! Converts a case: configurations.yaml and parameters.yaml.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::file::{FileContent, NewFile, Replacement};
use super::report::{CaseReport, KeyChange};
use super::source::{BENCHMARKS, CONFIGS, Entry};
use super::tree::{Conversion, IMPORTED, schema_line};
use super::vendor::VARIABLES;
use super::yaml_text::is_same;
use flagperf_config::{ConfigFile, Node, SETTINGS, SettingsFile, check_parameter_name, find_parameter, missing_key};

const CONFIGURATIONS: &str = "configurations.yaml";
const PARAMETERS: &str = "parameters.yaml";
/// Names of the files with the packages that the cases in Python need.
const REQUIREMENTS: &str = "requirements.txt";
const VENDOR_REQUIREMENTS_END: &str = "_requirements.txt";
/// Parameters that have another name here.
const RENAMED: [(&str, &str); 1] = [("random_seed", "seed")];

/// The files of a case of the source; `None` for one that cannot be used.
pub(super) struct SourceCase {
    pub(super) configurations: Option<ConfigFile>,
    pub(super) parameters: Option<ConfigFile>,
    /// The parameters of the case in the checkout.
    pub(super) own_parameters: Option<ConfigFile>,
}

/// Converts the files of a case, and returns them for the overlays.
pub(super) fn convert_case(case: &str, vendors: Vec<String>, conversion: &mut Conversion<'_>) -> SourceCase {
    let folder = Path::new(CONFIGS).join(case);
    let import = conversion.import;
    let configurations = import.source.read(&folder.join(CONFIGURATIONS), &mut conversion.problems);
    let has_parameters = import.source.has(&folder.join(PARAMETERS));
    let parameters = match has_parameters {
        true => import.source.read(&folder.join(PARAMETERS), &mut conversion.problems),
        false => None,
    };
    let has_scripts = import.catalogue.cases.get(case).is_some_and(|case| !case.scripts.is_empty());
    let own_parameters = ConfigFile::read(&import.checkout.join(&folder).join(PARAMETERS), import.checkout).ok();
    if let Some(file) = &configurations {
        convert_configurations(file, folder.join(CONFIGURATIONS), conversion);
    }
    match &own_parameters {
        // The scripts of the case read the parameters that are here.
        Some(own) if has_scripts => parameters.iter().for_each(|file| compare_parameters(file, own, conversion)),
        _ if has_parameters && parameters.is_none() => {}
        _ => convert_parameters(parameters.as_ref(), folder.join(PARAMETERS), conversion),
    }
    convert_requirements(case, conversion);
    conversion.cases.push(CaseReport { case: case.to_owned(), needs_scripts: !has_scripts, vendors });
    SourceCase { configurations, parameters, own_parameters }
}

fn convert_configurations(file: &ConfigFile, path: PathBuf, conversion: &mut Conversion<'_>) {
    let mut entries = IndexMap::new();
    for (name, node) in &file.entries {
        match SettingsFile::INFERENCE.find(name).map(|setting| setting.read(node)) {
            Some(Ok(_)) => drop(entries.insert(name.clone(), node.clone())),
            Some(Err(finding)) => conversion.problems.push(finding.at(file.origin(node))),
            None => {
                let reason = "every case has the same keys here; what a script reads belongs to parameters.yaml, and what an \
                              engine reads to overlays";
                conversion.add_key((file, node), name, KeyChange::NoEquivalent, reason);
            }
        }
    }
    for key in SETTINGS.iter().filter(|key| key.default.is_none() && !file.entries.contains_key(key.name)) {
        conversion.problems.push(missing_key(key.name, key.about).at(file.top()));
    }
    add_file(path, file, "configurations", entries, conversion);
}

/// Converts the parameters of a case without scripts here; all of them are free, but some have names that mean something.
fn convert_parameters(file: Option<&ConfigFile>, path: PathBuf, conversion: &mut Conversion<'_>) {
    let Some(file) = file else {
        let from = conversion.import.source.name(path.parent().unwrap_or(&path));
        let text = schema_line(2, "parameters") + IMPORTED;
        return conversion.add_text(path, from, text, Replacement::ByForce);
    };
    let mut entries: IndexMap<String, Node> = IndexMap::new();
    for (name, node) in &file.entries {
        let renamed = new_name(name).filter(|new| !file.entries.contains_key(*new));
        let key = renamed.unwrap_or(name);
        let checked = match find_parameter(key) {
            Some(parameter) => parameter.read(node).map(drop),
            None => check_parameter_name(key),
        };
        match checked {
            Ok(()) => {
                if let Some(new) = renamed {
                    conversion.rename_key((file, node), name, new, "the host reads it under this name");
                }
                entries.insert(key.to_owned(), node.clone());
            }
            Err(finding) => conversion.problems.push(finding.at(file.origin(node))),
        }
    }
    add_file(path, file, "parameters", entries, conversion);
}

/// Converts the files that prepare Python for a case: the requirements of a vendor, and environment variables.
fn convert_requirements(case: &str, conversion: &mut Conversion<'_>) {
    let source = conversion.import.source;
    let folder = Path::new(BENCHMARKS).join(case);
    for framework in source.entries(&folder, &mut conversion.problems).into_iter().filter(|entry| entry.is_folder) {
        let folder = folder.join(&framework.name);
        for Entry { name, .. } in source.entries(&folder, &mut conversion.problems) {
            let from = folder.join(&name);
            if name == REQUIREMENTS {
                let reason = "it is for the case in Python, which scripts replace; packages that an engine needs belong to the \
                              image or to <vendor>_requirements.txt";
                conversion.add_name(&from, &name, reason);
            } else if name == VARIABLES || name.ends_with(VENDOR_REQUIREMENTS_END) {
                let to = Path::new("scripts").join(case).join(&framework.name).join(&name);
                conversion.copy(&from, &to, Replacement::ByForce);
            }
        }
    }
}

/// Reports the parameters that the case here does not have with the same value.
fn compare_parameters(file: &ConfigFile, own: &ConfigFile, conversion: &mut Conversion<'_>) {
    for (name, node) in &file.entries {
        let key = new_name(name).unwrap_or(name);
        match own.entries.get(key) {
            Some(here) if is_same(here, node) => {}
            Some(here) => {
                let reason = format!("{} has another value, which stays", own.origin(here));
                conversion.add_key((file, node), name, KeyChange::Kept, &reason);
            }
            None => {
                let reason = format!("the scripts of the case here read other parameters ({})", own.name);
                conversion.add_key((file, node), name, KeyChange::NoEquivalent, &reason);
            }
        }
    }
}

fn new_name(name: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

fn add_file(
    path: PathBuf,
    file: &ConfigFile,
    schema: &str,
    entries: IndexMap<String, Node>,
    conversion: &mut Conversion<'_>,
) {
    let header = schema_line(2, schema) + IMPORTED;
    let content = FileContent::Keys { header, entries };
    conversion.files.push(NewFile { path, from: file.name.to_string(), content, replacement: Replacement::ByForce });
}
