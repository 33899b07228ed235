//! Chooses the cases to run, with their frameworks and data folders.

use std::path::{Path, PathBuf};

use super::case::default_data_folder;
use super::file::ConfigFile;
use super::yaml::Content;
use super::{
    CaseKey, Finding, KEYS_FOLDER, Origin, Overrides, SHARED_SCRIPTS, Sourced, Vendor, list_names, unknown_case,
};

/// An entry of `CASES`: a case and its data folder.
type ListedCase = (Sourced<CaseKey>, Sourced<PathBuf>);

/// A case to run and its data folder, if one is given or has the case's name.
pub(super) type SelectedCase = (Sourced<CaseKey>, Option<Sourced<PathBuf>>);

/// Chooses the cases to run: those of `CASES`, or those that `--case` selects.
pub(super) fn choose_cases(
    host: &ConfigFile,
    root: &Path,
    vendor: Option<&Vendor>,
    overrides: &Overrides,
    findings: &mut Vec<Finding>,
) -> Vec<SelectedCase> {
    let folders = case_folders(root);
    let listed = read_case_list(host, root, findings);
    let mut keys: Vec<Sourced<CaseKey>> = Vec::new();
    let mut names = overrides.cases.clone();
    if names.is_empty() {
        // host.yaml lists the frameworks of its own vendor. Another one, given by `--vendor`, chooses the framework of a
        // case whose listed one it lacks, as for `--case NAME`; but the key of a training names the hardware of its vendor.
        let other = vendor.filter(|vendor| overrides.vendor.is_some() && default_framework(vendor).is_some());
        let lacks = |key: &Sourced<CaseKey>| {
            key.value.training.is_none() && other.is_some_and(|vendor| vendor.framework(&key.value).is_none())
        };
        names.extend(listed.iter().filter(|(key, _)| lacks(key)).map(|(key, _)| key.value.case.clone()));
        keys.extend(listed.iter().map(|(key, _)| key.clone()).filter(|key| !lacks(key)));
    }
    for name in &names {
        match resolve_case_argument(name, &listed, &folders, vendor, findings) {
            // Two arguments may select the same case, such as `a` and `a:interpreter`; it runs once.
            Ok(selected) => selected.into_iter().for_each(|key| {
                if !keys.iter().any(|other| other.value == key.value) {
                    keys.push(key);
                }
            }),
            Err(finding) => findings.push(finding),
        }
    }
    let mut chosen = Vec::new();
    for key in keys {
        match check_case_exists(&key.value.case, &key.origin, &folders) {
            Ok(()) => {
                let data = find_data_folder(&key, &listed, root, overrides);
                chosen.push((key, data));
            }
            Err(finding) => findings.push(finding),
        }
    }
    if overrides.cases.is_empty() && listed.is_empty() && !host.entries.get("CASES").is_some_and(has_entries) {
        let hint = "add a line such as `\"resnet50:interpreter\": \"datasets/drawn/generated\"`, or give --case";
        findings.push(Finding::error(host.top(), "`CASES` is empty").with_hint(hint));
    }
    chosen
}

/// Reads the entries of `CASES`; keys that are not valid case keys become findings.
fn read_case_list(host: &ConfigFile, root: &Path, findings: &mut Vec<Finding>) -> Vec<ListedCase> {
    let Some(Content::Map(entries)) = host.entries.get("CASES").map(|node| &node.content) else { return Vec::new() };
    let mut listed = Vec::new();
    for (text, node) in entries {
        let origin = host.origin(node);
        match (text.parse::<CaseKey>(), node.value().as_str()) {
            (Ok(key), Some(data)) => {
                listed.push((Sourced::new(key, origin.clone()), Sourced::new(root.join(data), origin)));
            }
            (Err(refused), _) => findings.push(refused.at(origin)),
            // The wrong type of `CASES` has already been reported.
            (_, None) => {}
        }
    }
    listed
}

/// Resolves `--case NAME[:FRAMEWORK]`. Without FRAMEWORK it selects the entries of `CASES` for this case whose
/// framework the vendor has, or else the vendor's default framework, or else the vendor's only framework.
fn resolve_case_argument(
    name: &str,
    listed: &[ListedCase],
    folders: &[String],
    vendor: Option<&Vendor>,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Sourced<CaseKey>>, Finding> {
    let origin = Origin::CommandLine(format!("--case {name}"));
    if name.contains(':') {
        let key = name.parse().map_err(|refused: Finding| refused.at(origin.clone()))?;
        return Ok(vec![Sourced::new(key, origin)]);
    }
    check_case_exists(name, &origin, folders)?;
    let of_case = || listed.iter().map(|(key, _)| key).filter(|key| key.value.case == name);
    let vendor_has = |key: &&Sourced<CaseKey>| vendor.is_none_or(|vendor| vendor.framework(&key.value).is_some());
    let supported: Vec<Sourced<CaseKey>> = of_case().filter(vendor_has).cloned().collect();
    if !supported.is_empty() {
        for key in &supported {
            let framework = &key.value.framework;
            let message = format!("case `{name}` runs with `{framework}`, which `CASES` names for it");
            findings.push(Finding::info(key.origin.clone(), message));
        }
        return Ok(supported);
    }
    if let Some((vendor, framework)) = vendor.and_then(|v| Some((v, default_framework(v)?))) {
        let which = if vendor.frameworks.len() == 1 { "only" } else { "default" };
        let message =
            format!("case `{name}` runs with `{framework}`, the {which} framework of vendor `{}`", vendor.name);
        let place = vendor.origin(&["frameworks", &framework]);
        findings.push(Finding::info(place.clone(), message));
        return Ok(vec![Sourced::new(CaseKey::new(name, &framework), place)]);
    }
    let unsupported: Vec<Sourced<CaseKey>> = of_case().cloned().collect();
    if unsupported.is_empty() && vendor.is_some() {
        let known = list_names(vendor.iter().flat_map(|vendor| vendor.frameworks.keys()).map(String::as_str));
        return Err(Finding::error(origin, format!("no framework for case `{name}`"))
            .with_hint(format!("give --case {name}:FRAMEWORK (known: {known})")));
    }
    Ok(unsupported)
}

/// Returns the framework of a case for which none is given: the vendor's default one, or else its only one.
fn default_framework(vendor: &Vendor) -> Option<String> {
    vendor.default_framework.clone().or_else(|| single_name(vendor.frameworks.keys()).map(str::to_owned))
}

/// Returns the data folder of a case: `--data`, or else that of its entry in `CASES`, or else that of another entry for
/// the same case, or else `datasets/<case>` if it exists.
fn find_data_folder(
    key: &Sourced<CaseKey>,
    listed: &[ListedCase],
    root: &Path,
    overrides: &Overrides,
) -> Option<Sourced<PathBuf>> {
    if let Some(data) = &overrides.data {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.clone());
        return Some(Sourced::new(data, Origin::CommandLine("--data".to_owned())));
    }
    let same_key = listed.iter().find(|(other, _)| other.value == key.value);
    let same_case = || listed.iter().find(|(other, _)| other.value.case == key.value.case);
    let own = || {
        let folder = default_data_folder(root, &key.value.case);
        folder.is_dir().then(|| Sourced::new(folder, Origin::Default))
    };
    same_key.or_else(same_case).map(|(_, data)| data.clone()).or_else(own)
}

fn check_case_exists(case: &str, origin: &Origin, folders: &[String]) -> Result<(), Finding> {
    if folders.iter().any(|folder| folder == case) {
        return Ok(());
    }
    Err(unknown_case(case, folders.iter().map(String::as_str)).at(origin.clone()))
}

/// Returns the names of the folders in `configs/`, one for each case, sorted.
fn case_folders(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join("configs")) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != SHARED_SCRIPTS && name != KEYS_FOLDER)
        .collect();
    names.sort();
    names
}

fn single_name<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let first = names.next()?;
    names.next().is_none().then_some(first)
}

fn has_entries(node: &super::yaml::Node) -> bool {
    !matches!(&node.content, Content::Map(entries) if entries.is_empty())
}
