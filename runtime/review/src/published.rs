//! Finds published records that a change makes impossible to reproduce: those of runs with files that the change leaves otherwise.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::rows::ResultRow;
use super::tree::Snapshot;
use flagperf_core::hash::hash_bytes;

/// A row of results whose record a change makes impossible to reproduce.
pub(super) struct OutdatedRow {
    /// The file with the table.
    pub(super) table: String,
    pub(super) line: usize,
    pub(super) record: String,
    /// The first file that differs.
    pub(super) file: String,
}

/// Returns the rows of all cases whose records were made with the earlier content of the `changed` files. `table` is the path of the
/// table of a case, with `<case>`.
pub(super) fn outdated_rows(
    table: &str,
    changed: &BTreeSet<&str>,
    (before, after): (&dyn Snapshot, &dyn Snapshot),
) -> Vec<OutdatedRow> {
    let hash = |tree: &dyn Snapshot, file: &str| tree.read(file).ok().map(|bytes| hash_bytes(&bytes));
    let changed: BTreeMap<&str, String> =
        changed.iter().filter_map(|file| Some((*file, hash(before, file)?))).collect();
    if changed.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for case in after.list("scripts").into_iter().filter(|name| name.is_folder) {
        let table = table.replace("<case>", &case.text);
        let folder = table.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        for row in ResultRow::find_all(&after.text(&table).unwrap_or_default()) {
            let Some(record) = row.record(&folder) else { continue };
            let value: Value =
                after.read(&record).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
            let file = changed.iter().find(|(file, hash)| recorded_hash(&value, file) == Some(hash.as_str()));
            if let Some((file, _)) = file {
                found.push(OutdatedRow { table: table.clone(), line: row.line, record, file: (*file).to_owned() });
            }
        }
    }
    found
}

/// Returns the hash of a script or of a configuration file in a record.
fn recorded_hash<'r>(record: &'r Value, file: &str) -> Option<&'r str> {
    let provenance = &record["provenance"];
    let script = file.strip_prefix("scripts/").and_then(|name| provenance["scripts_sha256"][name].as_str());
    script.or_else(|| provenance["config_files_sha256"][file].as_str())
}
