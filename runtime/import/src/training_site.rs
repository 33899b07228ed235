//! Converts FlagPerf's test_conf.py and cluster_conf.py into keys of host.yaml. Those of the inference's host.yaml come first.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;

use super::file::{FileContent, NewFile, Replacement};
use super::host::{CHECKOUT_KEY, add_container, host_header};
use super::python::{Assignment, PythonFile};
use super::report::{KeyChange, KeyReport};
use super::source::{CONFIGS, SourceTree};
use super::training::Benchmark;
use super::training_values::node;
use super::tree::Conversion;
use super::yaml_text::is_same;
use flagperf_config::{CaseKey, Content, Finding, Node, Origin, SITE, Scale, is_local};
use flagperf_core::description::PROGRAM_ENGINE;

const FILES: [&str; 2] = ["test_conf.py", "cluster_conf.py"];
/// Fields of FlagPerf's key of a case, which ignores what follows.
const KEY_FIELDS: usize = 6;

/// The files with the site.
pub(super) struct SiteFiles(Vec<PythonFile>);

impl SiteFiles {
    /// Reads the files. A missing one is a finding.
    pub(super) fn read(source: &SourceTree, conversion: &mut Conversion<'_>) -> Self {
        let mut files = Vec::new();
        for name in FILES {
            let path = Path::new("run_benchmarks").join("config").join(name);
            if !source.has(&path) {
                let finding = source.finding(&path, 0, "this file is missing", "its hosts or cases are not imported");
                conversion.problems.push(finding);
            } else if let Some(file) = PythonFile::read(source, &path, &mut conversion.problems) {
                files.push(file);
            }
        }
        SiteFiles(files)
    }

    /// Returns the vendor whose devices FlagPerf measures.
    pub(super) fn vendor(&self) -> Option<&str> {
        self.0.iter().find_map(|file| file.value("VENDOR")?.as_str())
    }
}

/// Adds what the files say to host.yaml.
pub(super) fn convert_site(
    files: &SiteFiles,
    source: &SourceTree,
    benchmarks: &[Benchmark],
    conversion: &mut Conversion<'_>,
) {
    let path = Path::new(CONFIGS).join("host.yaml");
    let at = conversion.files.iter().position(|file| file.path == path);
    let mut entries = match at.map(|at| &conversion.files[at].content) {
        Some(FileContent::Keys { entries, .. }) => entries.clone(),
        _ => IndexMap::new(),
    };
    for file in &files.0 {
        for (name, assignment) in &file.names {
            add_key(name, assignment, benchmarks, &mut entries, conversion);
        }
        for (file, line, text) in &file.unread {
            conversion.add_line((file, *line), text, KeyChange::NoEquivalent, "an import executes no statement");
        }
    }
    match at {
        Some(at) => {
            if let FileContent::Keys { entries: own, .. } = &mut conversion.files[at].content {
                *own = entries;
            }
        }
        None if files.0.is_empty() => {}
        None => {
            add_container(&path, &mut entries, conversion);
            let content = FileContent::Keys { header: host_header(), entries };
            let from = source.name(Path::new("run_benchmarks/config"));
            conversion.files.push(NewFile { path, from, content, replacement: Replacement::ByForce });
        }
    }
}

fn add_key(
    name: &str,
    assignment: &Assignment,
    benchmarks: &[Benchmark],
    entries: &mut IndexMap<String, Node>,
    conversion: &mut Conversion<'_>,
) {
    let finding = |message: String| {
        let origin = Origin::File { file: assignment.file.as_str().into(), line: assignment.line, column: 0 };
        Finding::error(origin, message)
    };
    let Some(key) = SITE.iter().find(|key| key.name == name && name != CHECKOUT_KEY) else {
        let reason = match name {
            CHECKOUT_KEY => "it names the folder of FlagPerf; the parameter `flagperf_folder` of a case does so here",
            _ => "host.yaml has no such key here",
        };
        return conversion.add_assignment(name, assignment, KeyChange::NoEquivalent, reason);
    };
    let value = match &assignment.value {
        Ok(value) => value,
        Err(reason) => {
            let message = format!("the value of `{name}` is not imported: {reason}");
            return conversion.problems.push(finding(message).with_hint("set it in host.yaml by hand"));
        }
    };
    if name == "CASES" {
        return add_cases(value, assignment, benchmarks, entries, conversion);
    }
    let read = node(value);
    if let Err(refused) = key.read(&read) {
        return conversion.problems.push(finding(refused.message).with_hint("set it in host.yaml by hand"));
    }
    match entries.get(name) {
        Some(own) if is_same(own, &read) => {}
        // Only the placeholder of a list of hosts names this machine.
        Some(own) if name != "HOSTS" || !is_this_machine(own) => {
            let reason = "FlagPerf's inference has another value in its host.yaml, which is imported";
            conversion.add_assignment(name, assignment, KeyChange::Kept, reason);
        }
        _ => drop(entries.insert(name.to_owned(), read)),
    }
}

fn is_this_machine(hosts: &Node) -> bool {
    let Content::List(hosts) = &hosts.content else { return false };
    hosts.iter().all(|host| host.value().as_str().is_some_and(is_local))
}

/// Adds the cases, under the names that they have here.
fn add_cases(
    value: &Value,
    assignment: &Assignment,
    benchmarks: &[Benchmark],
    entries: &mut IndexMap<String, Node>,
    conversion: &mut Conversion<'_>,
) {
    let Some(listed) = value.as_object() else { return };
    let mut cases = match entries.get("CASES").map(|cases| &cases.content) {
        Some(Content::Map(cases)) => cases.clone(),
        _ => IndexMap::new(),
    };
    for (text, folder) in listed {
        match own_key(text, benchmarks) {
            Ok((key, reason)) => {
                let key = key.to_string();
                if key != *text {
                    let (file, line) = (assignment.file.clone(), Some(assignment.line));

                    let (name, to, change) = (text.clone(), Some(key.clone()), KeyChange::Renamed);
                    conversion.keys.push(KeyReport { file, line, key: name, change, to, reason });
                }
                cases.insert(key, node(folder));
            }
            Err(reason) => {
                let origin = Origin::File { file: assignment.file.as_str().into(), line: assignment.line, column: 0 };
                let message = format!("`CASES`: `{text}`: {reason}");
                conversion.problems.push(Finding::error(origin, message).with_hint("the entry is left out"));
            }
        }
    }
    if !cases.is_empty() {
        entries.insert("CASES".to_owned(), Node { content: Content::Map(cases), ..node(value) });
    }
}

/// Returns the key that a case of FlagPerf has here, and why it may be another one.
fn own_key(text: &str, benchmarks: &[Benchmark]) -> Result<(CaseKey, String), String> {
    let fields: Vec<&str> = text.split(':').take(KEY_FIELDS).collect();
    let key: CaseKey = fields.join(":").parse().map_err(|finding: Finding| finding.message)?;
    let training = key.training.as_ref().ok_or("it is not the key of a training")?;
    // FlagPerf ends the name of the framework at the first underscore.
    let framework = key.framework.split('_').next().unwrap_or_default();
    let is_of = |benchmark: &&Benchmark| benchmark.model == key.case && benchmark.framework == framework;
    let benchmark = benchmarks.iter().find(is_of).ok_or("FlagPerf has no such case that can be imported")?;
    let size = format!("{}x{}", training.hardware, key.scale);
    let has_size = benchmark.vendors.iter().any(|configs| configs.sizes.iter().any(|own| own.name == size));
    if !has_size {
        return Err(format!("no vendor has a configuration for the size {size}"));
    }
    if benchmark.is_own {
        return Ok((key, "what follows the sixth part means nothing".to_owned()));
    }
    let Scale { hosts, devices } = key.scale;
    let own = CaseKey {
        case: benchmark.case.clone(),
        framework: PROGRAM_ENGINE.to_owned(),
        scale: Scale::ONE,
        training: key.training.clone(),
    };
    let reason = "the case starts FlagPerf's program as one device; `--set` chooses the size";
    Ok((own, format!("{reason}: nnodes={hosts}, nproc={devices}")))
}
