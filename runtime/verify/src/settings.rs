//! Compares the settings of a run with the configuration files that it read.

use std::collections::BTreeSet;
use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;

use super::CaseReport;
use super::difference::compare;
use flagperf_config::{
    CaseKey, Content, Environment, Origin, Overrides, SettingsFile, default_data_folder, env, find_parameter,
    is_size_section, load, parse_yaml,
};
use flagperf_core::file::is_inside;
use flagperf_core::run_files::{RECORD_FILE, SOURCES_FOLDER};
use flagperf_plan::effective_values;
use flagperf_result::{DeviceRecord, Record, Setting, departure_text};

/// A setting with which a case ran and which its files set otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferentSetting {
    pub key: String,
    /// The file that sets it.
    pub file: String,
    /// The value of the run.
    pub used: Value,
    /// The value of the file.
    pub committed: Value,
}

/// Returns the settings of a run, as in its record, that the files of the case set otherwise. `training_key` is that of the
/// record, and `read` returns the text of a file of the checkout.
pub fn different_settings(
    vendor: &str,
    case: &str,
    training_key: Option<&str>,
    settings: &Value,
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<DifferentSetting> {
    let size = training_key.and_then(|key| key.parse::<CaseKey>().ok()).and_then(|key| key.size());
    // A record has every key of the file of its settings.
    let has_all = |file: &SettingsFile| file.keys.iter().all(|key| settings.get(key.name).is_some());
    let own = SettingsFile::ALL.into_iter().find(has_all).unwrap_or(SettingsFile::INFERENCE);
    // The first file that sets a key decides.
    let files = [own.overlay_path(case, vendor), own.path(case), format!("configs/{case}/parameters.yaml")];
    let (mut seen, mut different) = (BTreeSet::new(), Vec::new());
    for file in files {
        let Some(root) = read(&file).and_then(|text| parse_yaml(&text).ok()) else { continue };
        let Content::Map(entries) = root.content else { continue };
        let (sections, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(key, _)| is_size_section(&own, key));
        // The section of the size decides before the keys for every size.
        let section = sections.into_iter().find(|(key, _)| Some(key) == size.as_ref());
        let section =
            section.and_then(|(_, node)| if let Content::Map(keys) = node.content { Some(keys) } else { None });
        for (key, node) in section.into_iter().flatten().chain(entries) {
            let used = &settings[&key]["value"];
            let known = own.find(&key).or(find_parameter(&key));
            let committed = known.and_then(|known| known.kind.read(&node)).unwrap_or_else(|| node.value());
            let is_different = settings.get(&key).is_none() || !used.is_null() && !is_same_value(used, &committed);
            if seen.insert(key.clone()) && is_different {
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

/// Reads the stored configuration files as the run did, with the arguments that the origins of the settings name, and compares the
/// settings, the departures and the figures of the devices with the record.
pub(super) fn check_settings(folder: &Path, record: &Record, report: &mut CaseReport) {
    let root = folder.join(SOURCES_FOLDER);
    let config = match load(&root, &overrides(&root, record)) {
        Ok(config) => config,
        Err(findings) => {
            return report.give_up(format!("the configuration in `{SOURCES_FOLDER}` cannot be read: {findings}"));
        }
    };
    let rows = effective_values(&config);
    // A case may be listed with several numbers of devices; the line in host.yaml tells which of them this result is of.
    let data = record.settings.get("data");
    let is_of_record = |section: &str| {
        let own = rows.iter().find(|row| row.section == section && row.key == "data");
        own.is_some_and(|own| Some(&of_checkout(&own.value, &own.origin, &root, record)) == data)
    };
    let all = || config.cases.iter().filter(|own| own.key.value.case == record.case);
    let Some(case) = all().find(|case| is_of_record(&case.key.value.to_string())).or_else(|| all().next()) else {
        return report.add(SOURCES_FOLDER, format!("the configuration of `{}` has errors", record.case), None, None);
    };
    let own = rows.iter().filter(|row| row.section == "site" || row.section == case.key.value.to_string());
    let own = own.map(|row| (row.key.clone(), of_checkout(&row.value, &row.origin, &root, record)));
    let mut expected: IndexMap<String, Setting> = own.collect();
    // No file states where the checkout is, what `--case` gave, and what the environment makes visible.
    let stated = |key: &str| record.settings.get(key).cloned();
    if let (Some(own), Some(stated)) = (expected.get_mut("FLAGPERF_PATH"), stated("FLAGPERF_PATH")) {
        own.value = stated.value;
    }
    if let (Some(own), Some(stated)) = (expected.get_mut("framework"), stated("framework")) {
        own.origin = stated.origin;
    }
    if let (Some(own), Some(stated)) = (expected.get_mut("visible_devices"), stated("visible_devices")) {
        *own = stated;
    }
    // Without an entry in `CASES`, the data may be in the checkout, of which the result has no copy.
    if stated("data").is_some_and(|data| data.origin == Origin::Default.to_string()) {
        let value: Value = default_data_folder(&root, &record.case).display().to_string().into();
        expected.insert("data".to_owned(), of_checkout(&value, &Origin::Default, &root, record));
    }
    compare(report, RECORD_FILE, "settings", &expected, &record.settings);
    let departures = case.values().filter(|(key, _)| case.departures.contains(key));
    let departures: Vec<String> = departures.map(|(key, value)| departure_text(key, &value.value)).collect();
    compare(report, RECORD_FILE, "departures", &departures, &record.departures);
    for (host, vendor) in record.hosts.iter().zip(&config.vendor) {
        let devices = DeviceRecord::of_phases(&record.phases, &host.machine, vendor);
        compare(report, RECORD_FILE, "hosts[0].devices", &devices, &host.devices);
    }
}

/// Returns the arguments and variables of the run that the origins of its settings name.
fn overrides(root: &Path, record: &Record) -> Overrides {
    let setting = |key: &str, origin: &str| {
        let setting = record.settings.get(key).filter(|setting| setting.origin == origin)?;
        setting.value.as_str().map(str::to_owned)
    };
    let mut set: Vec<String> = Vec::new();
    for argument in record.settings.values().filter_map(|setting| setting.origin.strip_prefix("--set ")) {
        if !set.iter().any(|known| known == argument) {
            set.push(argument.to_owned());
        }
    }
    let host_file = host_file(root, record);
    Overrides {
        config: Some(root.join(host_file.as_ref().map_or(HOST_FILE, |(path, _)| path))),
        host_file_name: host_file.map(|(_, name)| name),
        vendor: setting("VENDOR", "--vendor"),
        cases: vec![record.key()],
        data: setting("data", "--data").map(Into::into),
        set,
        environment: Environment {
            log_level: setting(env::LOG_LEVEL, &format!("${}", env::LOG_LEVEL)),
            log_call_information: record
                .settings
                .get(LOG_CALLS)
                .filter(|setting| setting.origin == format!("${LOG_CALLS}"))
                .map(|setting| setting.value.to_string()),
            ..Environment::default()
        },
        is_copy: true,
        ..Overrides::default()
    }
}

/// A key of host.yaml that an environment variable of the same name replaces, beside [`env::LOG_LEVEL`].
const LOG_CALLS: &str = "LOG_CALL_INFORMATION";
/// The host.yaml of a checkout.
const HOST_FILE: &str = "configs/host.yaml";

/// Returns the copy of a host.yaml that is not that of the checkout, and its name in origins.
fn host_file(root: &Path, record: &Record) -> Option<(String, String)> {
    let Some(copies) = std::fs::read_dir(root.join("site")).ok() else {
        let of_case = ["configs/", "scripts/", "vendors/"];
        let mut files = record.provenance.config_files_sha256.keys();
        let other = files.find(|name| !of_case.iter().any(|folder| name.starts_with(folder)))?;
        return Some((other.clone(), other.clone()));
    };
    let copy = copies.flatten().next()?.file_name().into_string().ok()?;
    let files = record.settings.values().filter_map(|setting| Some(setting.origin.rsplit_once(':')?.0));
    let is_name = |file: &&str| {
        let path = Path::new(file);
        path.file_name().is_some_and(|name| name == &*copy) && !is_inside(path)
    };
    let name = files.into_iter().find(is_name).unwrap_or(&copy).to_owned();
    Some((format!("site/{copy}"), name))
}

/// Returns a computed setting. A path in the folder of the copies becomes that in the checkout of the run.
fn of_checkout(value: &Value, origin: &Origin, root: &Path, record: &Record) -> Setting {
    let checkout = record.settings.get("FLAGPERF_PATH").and_then(|setting| setting.value.as_str());
    let below = value.as_str().and_then(|path| Path::new(path).strip_prefix(root).ok()).zip(checkout);
    let path = below.map(|(below, checkout)| Value::from(Path::new(checkout).join(below).display().to_string()));
    Setting { value: path.unwrap_or_else(|| value.clone()), origin: origin.to_string() }
}
