//! Converts FlagPerf's host.yaml.

use std::collections::BTreeSet;
use std::path::Path;

use super::file::{FileContent, NewFile};
use super::report::KeyChange;
use super::source::CONFIGS;
use super::tree::{Conversion, IMPORTED, schema_line};
use flagperf_config::{CaseKey, ConfigFile, Content, Finding, Node, SITE};

/// The key that names FlagPerf's own folder.
const CHECKOUT_KEY: &str = "FLAGPERF_PATH";

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
        match key.read(&node) {
            Ok(_) => drop(entries.insert(name.clone(), node)),
            Err(finding) => conversion.problems.push(finding.at(file.origin(&node))),
        }
    }
    let header = schema_line(1, "host") + IMPORTED + "# configs/README.md explains the keys.\n";
    let content = FileContent::Keys { header, entries, keeps_other_keys: true };
    conversion.files.push(NewFile { path: below, from: file.name.to_string(), content, completes: false });
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
