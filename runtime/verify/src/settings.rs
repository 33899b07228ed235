//! Compares the settings of a run with the configuration files that it read.

use std::collections::BTreeSet;
use std::path::Path;

use flagperf_core::regular_file::read_regular_text;
use serde_json::Value;

use super::CaseReport;
use flagperf_config::{Content, find_parameter, find_setting, parse_yaml};
use flagperf_core::run_files::{RECORD_FILE, SOURCES_FOLDER};
use flagperf_result::Record;

/// Largest configuration file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A setting with which a case ran and which its files set otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferentSetting {
    /// The key.
    pub key: String,
    /// The file that sets it.
    pub file: String,
    /// The value of the run.
    pub used: Value,
    /// The value of the file.
    pub committed: Value,
}

/// Returns the settings of a run, as in its record, that the files of the case set otherwise. `read` returns the text of a
/// file of the checkout.
pub fn different_settings(
    vendor: &str,
    case: &str,
    settings: &Value,
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<DifferentSetting> {
    // The first file that sets a key decides.
    let files = [
        format!("configs/{case}/vendor_config/{vendor}_configurations.yaml"),
        format!("configs/{case}/configurations.yaml"),
        format!("configs/{case}/parameters.yaml"),
    ];
    let (mut seen, mut different) = (BTreeSet::new(), Vec::new());
    for file in files {
        let Some(root) = read(&file).and_then(|text| parse_yaml(&text).ok()) else { continue };
        let Content::Map(entries) = root.content else { continue };
        for (key, node) in entries {
            let used = &settings[&key]["value"];
            let known = find_setting(&key).or(find_parameter(&key));
            let committed = known.and_then(|known| known.kind.read(&node)).unwrap_or_else(|| node.value());
            if seen.insert(key.clone()) && !used.is_null() && !is_same_value(used, &committed) {
                different.push(DifferentSetting { key, file: file.clone(), used: used.clone(), committed });
            }
        }
    }
    different
}

/// Returns whether two values are equal; a number is equal to its text, because some settings are texts in records.
fn is_same_value(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).to_lowercase();
    let number = |value: &Value| text(value).parse::<f64>().ok();
    one == other || text(one) == text(other) || number(one).is_some() && number(one) == number(other)
}

/// Checks that every setting that the stored files set otherwise is a departure.
pub(super) fn check_settings(folder: &Path, record: &Record, report: &mut CaseReport) {
    let sources = folder.join(SOURCES_FOLDER);
    let read = |file: &str| read_regular_text(&sources.join(file), FILE_BYTES_MAX).ok();
    let settings = serde_json::to_value(&record.settings).unwrap_or_default();
    let departures: BTreeSet<&str> =
        record.departures.iter().filter_map(|departure| departure.split('=').next()).map(str::trim).collect();
    for DifferentSetting { key, file, used, committed } in
        different_settings(&record.vendor, &record.case, &settings, &read)
    {
        if !departures.contains(key.as_str()) {
            let place = format!("setting `{key}`, which `{SOURCES_FOLDER}/{file}` sets");
            report.add(RECORD_FILE, place, Some(committed.to_string()), Some(used.to_string()));
        }
    }
}
