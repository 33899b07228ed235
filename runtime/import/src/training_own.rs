//! Converts the configuration of a training that exists here: overlays with a section for each size, and the names that are
//! refused or unknown.

use std::collections::BTreeSet;
use std::path::PathBuf;

use indexmap::IndexMap;
use serde_json::Value;

use super::file::{FileContent, NewFile, Replacement};
use super::python::{Assignment, PythonFile};
use super::report::KeyChange;
use super::training::{Benchmark, VendorConfigs};
use super::training_values::{is_of_the_case, is_setting, node, settings, typed_values, vendor_may_set};
use super::tree::{Conversion, IMPORTED, schema_line};
use super::yaml_text::{is_same, line, text};
use flagperf_config::{ConfigFile, Content, Finding, Node, Origin, Place, SettingsFile, read_text};

/// The comment below the first lines of an overlay.
const BATCHES: &str = "# A batch is that of all devices of a size together. See docs/import-flagperf.md.\n";

/// Converts the configuration of a case that exists here.
pub(super) fn convert_own_case(benchmark: &Benchmark, conversion: &mut Conversion<'_>) {
    let checkout = conversion.import.checkout;
    let read = |path: &str| ConfigFile::read(&checkout.join(path), checkout);
    let standard = match read(&SettingsFile::TRAINING.path(&benchmark.case)) {
        Ok(standard) => standard,
        Err(finding) => return conversion.problems.push(finding),
    };
    let parameters = read(&format!("configs/{}/parameters.yaml", benchmark.case)).ok();
    report_base(benchmark, &standard, parameters.as_ref(), conversion);
    for configs in &benchmark.vendors {
        configs.sizes.iter().for_each(|size| report_names(benchmark, &size.file, parameters.as_ref(), conversion));
        convert_sizes(benchmark, configs, &standard.entries, &standard.name, conversion);
    }
}

/// Reports the values of `_base.py` that the case here does not have.
fn report_base(
    benchmark: &Benchmark,
    standard: &ConfigFile,
    parameters: Option<&ConfigFile>,
    conversion: &mut Conversion<'_>,
) {
    let values = typed_values(&standard.entries, true);
    // Without a vendor, the batch of one device says nothing about that of all.
    let base = settings(benchmark, &benchmark.base, 1, |_| true, &mut Vec::new());
    for setting in base.iter().filter(|setting| !setting.key.ends_with("batch_size")) {
        if let Some(own) = values.get(setting.key).filter(|own| **own != setting.value) {
            let reason = format!("{} has `{}: {own}`, which stays", standard.name, setting.key);
            conversion.add_assignment(setting.name, &setting.assignment, KeyChange::Kept, &reason);
        }
    }
    for (name, assignment) in set_names(&benchmark.base).filter(|(name, _)| !is_setting(name)) {
        if is_of_the_case(name) && !has(parameters, name) {
            let reason = format!("{} states when a training ends, which stays", standard.name);
            conversion.add_assignment(name, assignment, KeyChange::Kept, &reason);
        } else {
            report_parameter(name, assignment, parameters, KeyChange::Kept, conversion);
        }
    }
    report_unread(&benchmark.base, conversion);
}

/// Reports a name that only the scripts of a case read.
fn report_parameter(
    name: &str,
    assignment: &Assignment,
    parameters: Option<&ConfigFile>,
    change: KeyChange,
    conversion: &mut Conversion<'_>,
) {
    let own = parameters.and_then(|file| Some((file, file.entries.get(name)?)));
    match (own, &assignment.value) {
        (Some((_, here)), Ok(value)) if is_same(here, &node(value)) => {}
        (Some((file, here)), _) => {
            let reason =
                format!("{} has another value, which is the same for every vendor and stays", file.origin(here));
            conversion.add_assignment(name, assignment, change, &reason);
        }
        (None, Ok(_)) => {
            let reason = "the case here has no such key: what is the same for every vendor belongs to its parameters.yaml, and \
                          what an engine reads to `options` in vendor.yaml";
            conversion.add_assignment(name, assignment, KeyChange::NoEquivalent, reason);
        }
        (None, Err(reason)) => {
            let reason = format!("its value is not read, because an import executes nothing: {reason}");
            conversion.add_assignment(name, assignment, KeyChange::NoEquivalent, &reason);
        }
    }
}

/// Reports the names in a configuration of a vendor that its overlay does not set.
fn report_names(
    benchmark: &Benchmark,
    file: &PythonFile,
    parameters: Option<&ConfigFile>,
    conversion: &mut Conversion<'_>,
) {
    for (name, assignment) in set_names(file) {
        if is_of_the_case(name) && !has(parameters, name) {
            let reason = "only the author of a case sets it, because it defines what is measured";
            conversion.add_assignment(name, assignment, KeyChange::Refused, reason);
        } else if !is_setting(name) {
            report_parameter(name, assignment, parameters, KeyChange::Refused, conversion);
        } else if !vendor_may_set(benchmark, name) {
            let reason = "FlagPerf's mutable_params.py does not list it, so no vendor may set it";
            conversion.add_assignment(name, assignment, KeyChange::Refused, reason);
        }
    }
    report_unread(file, conversion);
}

/// Returns the names of a file that set something, which `None` does not.
fn set_names(file: &PythonFile) -> impl Iterator<Item = (&String, &Assignment)> {
    file.names.iter().filter(|(_, assignment)| assignment.value != Ok(Value::Null))
}

fn has(parameters: Option<&ConfigFile>, name: &str) -> bool {
    parameters.is_some_and(|file| file.entries.contains_key(name))
}

fn report_unread(file: &PythonFile, conversion: &mut Conversion<'_>) {
    for (file, line, text) in &file.unread {
        conversion.add_line((file, *line), text, KeyChange::NoEquivalent, "an import executes no statement");
    }
}

/// Writes the overlay of a vendor with a section for each size: the values that differ from the standard case.
pub(super) fn convert_sizes(
    benchmark: &Benchmark,
    configs: &VendorConfigs,
    standard: &IndexMap<String, Node>,
    standard_name: &str,
    conversion: &mut Conversion<'_>,
) {
    let path = PathBuf::from(SettingsFile::TRAINING.overlay_path(&benchmark.case, &configs.vendor));
    let checkout = conversion.import.checkout;
    let current = match checkout.join(&path).symlink_metadata().is_ok() {
        true => match ConfigFile::read(&checkout.join(&path), checkout) {
            Ok(file) => Some(file),
            Err(finding) => return conversion.problems.push(finding),
        },
        false => None,
    };
    let standard = typed_values(standard, true);
    let common = current.as_ref().map(|file| typed_values(&file.entries, false)).unwrap_or_default();
    let mut sections = IndexMap::new();
    let mut reported = BTreeSet::new();
    for size in &configs.sizes {
        let mut section = IndexMap::new();
        let mut findings = Vec::new();
        let may_set = |name: &str| vendor_may_set(benchmark, name);
        for setting in settings(benchmark, &size.file, size.all_devices(), may_set, &mut findings) {
            match (standard.get(setting.key) == Some(&setting.value), common.get(setting.key)) {
                (_, Some(own)) if *own == setting.value => {}
                (true, Some(own)) => {
                    let reason = format!(
                        "{} has `{}: {own}` for every size, which stays; {standard_name} has FlagPerf's value",
                        path.display(),
                        setting.key
                    );
                    conversion.add_assignment(setting.name, &setting.assignment, KeyChange::Kept, &reason);
                }
                (true, None) => {}
                (false, _) => drop(section.insert(setting.key.to_owned(), setting.node)),
            }
        }
        // What several sizes import is wrong once.
        findings.retain(|finding| reported.insert(finding.to_string()));
        report_wrong(benchmark, findings, conversion);
        sections.insert(size.name.clone(), section);
    }
    let from = conversion.import.source.training_name(&benchmark.vendor_folder(&configs.vendor));
    match current {
        None => {
            let header = schema_line(3, "training_overlay") + IMPORTED + BATCHES;
            let text = header + &sections_text(&sections);
            conversion.add_text(path, from, text, Replacement::ByForce);
        }
        Some(current) => extend(&current, &sections, from, path, conversion),
    }
}

/// Reports the values that are not imported. A program of FlagPerf reads them itself.
fn report_wrong(benchmark: &Benchmark, findings: Vec<Finding>, conversion: &mut Conversion<'_>) {
    for finding in findings {
        match &finding.origin {
            Origin::File { file, line, .. } if !benchmark.is_own => {
                let reason = format!("{}; FlagPerf's program reads it itself", finding.message);
                conversion.add_line((file, *line), &benchmark.case, KeyChange::NoEquivalent, &reason);
            }
            _ => conversion.problems.push(finding),
        }
    }
}

/// Formats sections, one line for each key.
fn sections_text<'s>(sections: impl IntoIterator<Item = (&'s String, &'s IndexMap<String, Node>)>) -> String {
    let section = |(name, entries): (&String, &IndexMap<String, Node>)| {
        let lines: String = entries.iter().map(|(key, node)| format!("    {}", line(key, node))).collect();
        match lines.is_empty() {
            true => format!("# As the standard case.\n{}: {{}}\n", text(name)),
            false => format!("{}:\n{lines}", text(name)),
        }
    };
    sections.into_iter().map(section).collect()
}

/// Adds the sections that an overlay lacks. Those that it has are the vendor's, and are changed only by force.
fn extend(
    current: &ConfigFile,
    sections: &IndexMap<String, IndexMap<String, Node>>,
    from: String,
    path: PathBuf,
    conversion: &mut Conversion<'_>,
) {
    let mut entries = current.entries.clone();
    let mut is_changed = false;
    for (name, section) in sections {
        let Some(Node { content: Content::Map(own), .. }) = entries.get_mut(name) else { continue };
        for (key, node) in section {
            match own.get(key) {
                Some(here) if is_same(here, node) => {}
                _ if conversion.import.replaces => {
                    own.insert(key.clone(), node.clone());
                    is_changed = true;
                }
                here => {
                    let own = match here {
                        Some(here) => format!("{} has another value", current.origin(here)),
                        None => format!("the section of {} has no such key", current.name),
                    };
                    let reason = format!("{own}, which stays without --force");
                    conversion.add_line((&from, 0), &format!("{name}.{key}"), KeyChange::Kept, &reason);
                }
            }
        }
    }
    let missing: IndexMap<_, _> = sections.iter().filter(|(name, _)| !current.entries.contains_key(*name)).collect();
    if is_changed {
        let map = |section: &IndexMap<String, Node>| Node {
            content: Content::Map(section.clone()),
            place: Place { line: 0, column: 0 },
        };
        entries.extend(missing.into_iter().map(|(name, section)| (name.clone(), map(section))));
        let content = FileContent::Keys { header: schema_line(3, "training_overlay") + IMPORTED + BATCHES, entries };
        return conversion.files.push(NewFile { path, from, content, replacement: Replacement::ByForce });
    }
    let checkout = conversion.import.checkout;
    let before = match read_text(&checkout.join(&path), &current.name) {
        Ok(before) => before,
        Err(finding) => return conversion.problems.push(finding),
    };
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let heading = if missing.is_empty() { String::new() } else { format!("{end}{IMPORTED}{BATCHES}") };
    let after = before + &heading + &sections_text(missing);
    // A file in another form, such as one mapping in braces, cannot be extended by lines.
    match ConfigFile::parse(&after, current.name.clone()) {
        Ok(_) => conversion.add_text(path, from, after, Replacement::Always),
        Err(finding) => conversion.problems.push(finding.with_hint("write the file with one line for each key")),
    }
}
