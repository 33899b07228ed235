//! Which cases run, with which framework and on which data.

use std::path::{Path, PathBuf};

use super::file::File;
use super::yaml::Content;
use super::{CaseKey, ConfigProblem, Finding, Origin, Overrides, Sourced, Vendor, known, nearest};

/// A case to run and where its data lies.
type Chosen = (Sourced<CaseKey>, Sourced<PathBuf>);

/// The cases to run: those of `CASES`, or what `--case` names.
pub(super) fn choose(
    host: &File,
    root: &Path,
    vendor: Option<&Vendor>,
    overrides: &Overrides,
    findings: &mut Vec<Finding>,
) -> Vec<Chosen> {
    let folders = folders(root);
    let listed = listed(host, root, findings);
    let keys = match &overrides.case {
        None => Ok(listed.iter().map(|(key, _)| key.clone()).collect()),
        Some(name) => asked(name, &listed, &folders, vendor, findings),
    };
    let keys = keys.unwrap_or_else(|finding| {
        findings.push(finding);
        Vec::new()
    });
    let mut chosen = Vec::new();
    for key in keys {
        match known_case(&key.value.case, &key.origin, &folders).and_then(|()| data(&key, &listed, overrides)) {
            Ok(data) => chosen.push((key, data)),
            Err(finding) => findings.push(finding),
        }
    }
    if overrides.case.is_none() && listed.is_empty() && !host.entries.get("CASES").is_some_and(has_entries) {
        findings.push(Finding::error(host.top(), ConfigProblem::NoCases));
    }
    chosen
}

/// The entries of `CASES`; keys that name no case become findings.
fn listed(host: &File, root: &Path, findings: &mut Vec<Finding>) -> Vec<Chosen> {
    let Some(Content::Map(entries)) = host.entries.get("CASES").map(|node| &node.content) else { return Vec::new() };
    let mut listed = Vec::new();
    for (text, node) in entries {
        let origin = host.origin(node);
        match (text.parse(), node.value().as_str()) {
            (Ok(key), Some(data)) => {
                listed.push((Sourced::new(key, origin.clone()), Sourced::new(root.join(data), origin)));
            }
            (Err(problem), _) => findings.push(Finding::error(origin, problem)),
            // The type of `CASES` was refused already.
            (_, None) => {}
        }
    }
    listed
}

/// What `--case NAME[:FRAMEWORK]` means. Without a framework it is what `CASES` says for this case, as far as the
/// vendor has it, else the framework that the vendor names for this, else its only one.
fn asked(
    name: &str,
    listed: &[Chosen],
    folders: &[String],
    vendor: Option<&Vendor>,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Sourced<CaseKey>>, Finding> {
    let origin = Origin::CommandLine(format!("--case {name}"));
    if name.contains(':') {
        let key = name.parse().map_err(|problem: ConfigProblem| Finding::error(origin.clone(), problem))?;
        return Ok(vec![Sourced::new(key, origin)]);
    }
    known_case(name, &origin, folders)?;
    let of_case = || listed.iter().map(|(key, _)| key).filter(|key| key.value.case == name);
    let fits = |key: &&Sourced<CaseKey>| vendor.is_none_or(|vendor| vendor.framework(&key.value).is_some());
    let fitting: Vec<Sourced<CaseKey>> = of_case().filter(fits).cloned().collect();
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let without = |v: &Vendor| v.default_framework.clone().or_else(|| only(v.frameworks.keys()).map(str::to_owned));
    if let Some((vendor, framework)) = vendor.and_then(|v| Some((v, without(v)?))) {
        let case = name.to_owned();
        let only = vendor.frameworks.len() == 1;
        let note = ConfigProblem::VendorsFramework {
            case: case.clone(),
            framework: framework.clone(),
            which: if only { "only" } else { "default" },
            vendor: vendor.name.clone(),
        };
        let place = vendor.origin(&["frameworks", &framework]);
        findings.push(Finding::info(place.clone(), note));
        return Ok(vec![Sourced::new(CaseKey { case, framework }, place)]);
    }
    let unfitting: Vec<Sourced<CaseKey>> = of_case().cloned().collect();
    if unfitting.is_empty() {
        let known = known(vendor.iter().flat_map(|vendor| vendor.frameworks.keys()).map(String::as_str));
        return Err(Finding::error(origin, ConfigProblem::NoFramework { case: name.to_owned(), known }));
    }
    Ok(unfitting)
}

/// Where the data of a case lies: `--data`, its entry in `CASES`, another entry of the same case.
fn data(key: &Sourced<CaseKey>, listed: &[Chosen], overrides: &Overrides) -> Result<Sourced<PathBuf>, Finding> {
    if let Some(data) = &overrides.data {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.clone());
        return Ok(Sourced::new(data, Origin::CommandLine("--data".to_owned())));
    }
    let same_key = listed.iter().find(|(other, _)| other.value == key.value);
    let same_case = || listed.iter().find(|(other, _)| other.value.case == key.value.case);
    same_key
        .or_else(same_case)
        .map(|(_, data)| data.clone())
        .ok_or_else(|| Finding::error(key.origin.clone(), ConfigProblem::NoData { case: key.value.case.clone() }))
}

fn known_case(case: &str, origin: &Origin, folders: &[String]) -> Result<(), Finding> {
    if folders.iter().any(|folder| folder == case) {
        return Ok(());
    }
    let names = || folders.iter().map(String::as_str);
    let nearest = nearest(case, names()).map(str::to_owned);
    let problem = ConfigProblem::UnknownCase { case: case.to_owned(), known: known(names()), nearest };
    Err(Finding::error(origin.clone(), problem))
}

/// The cases that have a folder in `configs/`, sorted.
fn folders(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join("configs")) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn only<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let first = names.next()?;
    names.next().is_none().then_some(first)
}

fn has_entries(node: &super::yaml::Node) -> bool {
    !matches!(&node.content, Content::Map(entries) if entries.is_empty())
}
