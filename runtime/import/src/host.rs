//! Converts FlagPerf's host.yaml.

use std::collections::BTreeSet;
use std::path::Path;

use super::file::{FileContent, NewFile, Replacement};
use super::report::KeyChange;
use super::source::CONFIGS;
use super::tree::{Conversion, IMPORTED, schema_line};
use flagperf_config::{CaseKey, ConfigFile, Content, Finding, Node, Place, SITE};

/// The key that names FlagPerf's own folder.
pub(super) const CHECKOUT_KEY: &str = "FLAGPERF_PATH";

/// The key for containers, and its value for what FlagPerf does.
const CONTAINER: &str = "CONTAINER";
const DOCKER: &str = "docker";

/// Converts host.yaml. Keys that this program lacks, and the folder of FlagPerf, are left out.
pub(super) fn convert_host(conversion: &mut Conversion<'_>, cases: &BTreeSet<String>) {
    let below = Path::new(CONFIGS).join("host.yaml");
    let source = conversion.import.source;
    if !source.has(&below) {
        let finding = source.finding(&below, 0, "this file is missing", "its sites and cases are not imported");
        return conversion.problems.push(finding);
    }
    let Some(file) = source.read(&below, &mut conversion.problems) else { return };
    let mut entries = indexmap::IndexMap::new();
    for (name, node) in &file.entries {
        if name == CHECKOUT_KEY {
            let reason =
                "it names the folder of FlagPerf; flagperf uses the checkout that contains the current directory";
            conversion.add_key((&file, node), name, KeyChange::NoEquivalent, reason);
            continue;
        }
        let Some(key) = SITE.iter().find(|key| key.name == name) else {
            conversion.add_key((&file, node), name, KeyChange::NoEquivalent, "host.yaml has no such key here");
            continue;
        };
        let node =
            if name == "CASES" { checked_cases(&file, node, cases, &mut conversion.problems) } else { node.clone() };
        // Without a case, those of a host.yaml that exists stay.
        if name == "CASES" && matches!(&node.content, Content::Map(kept) if kept.is_empty()) {
            continue;
        }
        match key.read(&node) {
            Ok(_) => drop(entries.insert(name.clone(), node)),
            Err(finding) => conversion.problems.push(finding.at(file.origin(&node))),
        }
    }
    add_container(&below, &mut entries, conversion);
    let content = FileContent::Keys { header: host_header(), entries };
    let (from, replacement) = (file.name.to_string(), Replacement::ByForce);
    conversion.files.push(NewFile { path: below, from, content, replacement });
}

/// Returns the comments at the beginning of an imported host.yaml.
pub(super) fn host_header() -> String {
    schema_line(1, "host") + IMPORTED + "# configs/README.md explains the keys.\n"
}

/// Adds the key for containers, which FlagPerf lacks because it always uses them. A value that is in the checkout stays.
pub(super) fn add_container(
    below: &Path,
    entries: &mut indexmap::IndexMap<String, Node>,
    conversion: &mut Conversion<'_>,
) {
    let checkout = conversion.import.checkout;
    let current = ConfigFile::read(&checkout.join(below), checkout).ok();
    match current.as_ref().and_then(|file| Some((file, file.entries.get(CONTAINER)?))) {
        Some((_, node)) if node.value() == DOCKER => {}
        Some((file, node)) => {
            let reason = format!(
                "FlagPerf runs every case in a container; {} has another value, which stays: `{CONTAINER}: {DOCKER}` runs as \
                 FlagPerf does",
                file.origin(node)
            );
            conversion.keep_name(below, CONTAINER, &reason);
        }
        None => {
            let content = Content::Scalar { text: DOCKER.to_owned(), plain: true, value: DOCKER.into() };
            entries.insert(CONTAINER.to_owned(), Node { content, place: Place { line: 0, column: 0 } });
        }
    }
}

/// Returns `CASES` without the entries that name no case of the source.
fn checked_cases(file: &ConfigFile, node: &Node, cases: &BTreeSet<String>, problems: &mut Vec<Finding>) -> Node {
    let Content::Map(listed) = &node.content else { return node.clone() };
    let mut kept = listed.clone();
    kept.retain(|key, entry| match key.parse::<CaseKey>() {
        Ok(parsed) if cases.contains(&parsed.case) => true,
        Ok(parsed) => {
            let message = format!("`CASES`: case `{}` has no folder with a configurations.yaml", parsed.case);
            problems.push(Finding::error(file.origin(entry), message).with_hint("the entry is left out"));
            false
        }
        Err(finding) => {
            problems.push(finding.at(file.origin(entry)));
            false
        }
    });
    Node { content: Content::Map(kept), place: node.place }
}
