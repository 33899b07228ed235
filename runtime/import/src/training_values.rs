//! FlagPerf's names of the settings of a training, and the values that a configuration has for them.

use indexmap::IndexMap;
use serde_json::Value;

use super::python::{Assignment, PythonFile};
use super::training::Benchmark;
use super::yaml_text::value_text;
use flagperf_config::{Finding, Node, Origin, SettingsFile, parse_yaml};

/// A setting of training.yaml that a vendor may change.
pub(super) struct Named {
    pub(super) key: &'static str,
    /// FlagPerf's names of it; of several, the first one that is set counts.
    pub(super) names: &'static [&'static str],
    /// Whether FlagPerf's value is that of one device, and the one here that of all together.
    is_per_device: bool,
    /// Whether the standard value of FlagPerf counts if the vendor has none: what the figures of the case depend on.
    has_standard: bool,
}

const fn named(key: &'static str, names: &'static [&'static str], is_per_device: bool, has_standard: bool) -> Named {
    Named { key, names, is_per_device, has_standard }
}

/// The settings, but for the precision.
pub(super) const SETTINGS: [Named; 6] = [
    named("batch_size", &["train_batch_size", "per_device_train_batch_size", "batch_size"], true, true),
    named("eval_batch_size", &["eval_batch_size", "per_device_eval_batch_size"], true, true),
    named("learning_rate", &["learning_rate", "lr"], false, true),
    named("gradient_accumulation_steps", &["gradient_accumulation_steps", "accumulate_steps"], false, true),
    named("num_workers", &["num_workers", "dataloader_num_workers"], false, false),
    named("log_freq", &["log_freq"], false, false),
];

/// The setting for the precision, and FlagPerf's flags that select one.
pub(super) const PRECISION: &str = "precision";
pub(super) const PRECISIONS: [(&str, &str); 3] = [("bf16", "bf16"), ("fp16", "fp16"), ("amp", "fp16")];

/// Names of settings that only the author of a case sets here.
const OF_THE_CASE: [&str; 10] = [
    "max_epoch",
    "max_epochs",
    "epochs",
    "num_epochs",
    "train_epochs",
    "max_steps",
    "max_samples_termination",
    "eval_interval_samples",
    "eval_steps",
    "seed",
];
/// How a name begins that ends a training.
pub(super) const TARGET: &str = "target_";

/// Returns whether a name defines what is measured.
pub(super) fn is_of_the_case(name: &str) -> bool {
    OF_THE_CASE.contains(&name) || name.starts_with(TARGET)
}

/// Returns whether a vendor sets a setting here by this name.
pub(super) fn is_setting(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.names.contains(&name)) || PRECISIONS.iter().any(|(flag, _)| *flag == name)
}

/// A value of FlagPerf for a setting here.
pub(super) struct Setting {
    pub(super) key: &'static str,
    /// FlagPerf's name.
    pub(super) name: &'static str,
    pub(super) assignment: Assignment,
    pub(super) node: Node,
    /// The value by the type of the key.
    pub(super) value: Value,
}

/// Returns the values of a configuration for `devices` devices, of names that it may set. One that cannot be read is a finding.
pub(super) fn settings(
    benchmark: &Benchmark,
    file: &PythonFile,
    devices: u64,
    may_set: impl Fn(&str) -> bool,
    findings: &mut Vec<Finding>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for Named { key, names, is_per_device, has_standard } in SETTINGS {
        let own = names.iter().filter(|name| may_set(name)).find_map(|&name| set(file, name));
        let standard = || names.iter().find_map(|&name| set(&benchmark.base, name));
        let Some((name, assignment)) = own.or_else(|| standard().filter(|_| has_standard)) else { continue };
        let value = assignment.value.clone().map(|value| match value.as_u64() {
            Some(count) if is_per_device => Value::from(count.saturating_mul(devices)),
            _ => value,
        });
        match value
            .map_err(|reason| wrong(name, &assignment, &reason))
            .and_then(|value| typed(key, name, &assignment, &value))
        {
            Ok((node, value)) => settings.push(Setting { key, name, assignment, node, value }),
            Err(finding) => findings.push(finding),
        }
    }
    settings.extend(precision(benchmark, file, may_set));
    settings
}

/// Returns the precision, if the vendor sets one of its flags.
fn precision(benchmark: &Benchmark, file: &PythonFile, may_set: impl Fn(&str) -> bool) -> Option<Setting> {
    let mut flags = PRECISIONS.into_iter().filter(|(flag, _)| may_set(flag));
    let (name, assignment) = flags.find_map(|(flag, _)| set(file, flag))?;
    let is_set = |flag: &'static str| {
        let own = set(file, flag).filter(|_| may_set(flag)).or_else(|| set(&benchmark.base, flag));
        own.is_some_and(|(_, assignment)| assignment.value == Ok(Value::Bool(true)))
    };
    let precision = PRECISIONS.into_iter().find(|(flag, _)| is_set(flag)).map_or("fp32", |(_, precision)| precision);
    let (node, value) = typed(PRECISION, name, &assignment, &precision.into()).ok()?;
    Some(Setting { key: PRECISION, name, assignment, node, value })
}

/// Returns whether FlagPerf lets a vendor change a name. The programs of FlagPerf take every name.
pub(super) fn vendor_may_set(benchmark: &Benchmark, name: &str) -> bool {
    let is_listed = |names: &Vec<String>| names.iter().any(|listed| listed == name);
    !benchmark.is_own || benchmark.mutable.as_ref().is_none_or(is_listed)
}

/// Returns a name of a file with what it stands for. As in FlagPerf, `None` sets nothing.
fn set(file: &PythonFile, name: &'static str) -> Option<(&'static str, Assignment)> {
    let assignment = file.names.get(name).filter(|assignment| assignment.value != Ok(Value::Null))?;
    Some((name, assignment.clone()))
}

fn typed(key: &str, name: &str, assignment: &Assignment, value: &Value) -> Result<(Node, Value), Finding> {
    let node = node(value);
    let setting = SettingsFile::TRAINING.find(key).expect("a name of the table is a key of training.yaml");
    let read = setting.read(&node).map_err(|finding| wrong(name, assignment, &finding.message))?;
    Ok((node, read))
}

/// Returns the finding about a value that is no value of a setting.
fn wrong(name: &str, assignment: &Assignment, reason: &str) -> Finding {
    let origin = Origin::File { file: assignment.file.as_str().into(), line: assignment.line, column: 0 };
    Finding::error(origin, format!("the value of `{name}` is not imported: {reason}"))
        .with_hint("set it in the overlay by hand")
}

/// Returns a value as it is read from YAML.
pub(super) fn node(value: &Value) -> Node {
    parse_yaml(&value_text(value)).expect("a value that was formatted as YAML is YAML")
}

/// Returns the values of the settings in a file of settings or an overlay, by the types of their keys. The standard values of
/// keys that are left out are those of flagperf if `has_defaults`.
pub(super) fn typed_values(entries: &IndexMap<String, Node>, has_defaults: bool) -> IndexMap<&'static str, Value> {
    let value = |key: &str| {
        let setting = SettingsFile::TRAINING.find(key)?;
        let default = || setting.default.filter(|_| has_defaults).and_then(|default| parse_yaml(default).ok());
        setting.read(&entries.get(key).cloned().or_else(default)?).ok()
    };
    let keys = SETTINGS.iter().map(|setting| setting.key);
    let mut values: IndexMap<_, _> = keys.filter_map(|key| Some((key, value(key)?))).collect();
    let of_flag = || value("fp16").map(|is_half| Value::from(if is_half == true { "fp16" } else { "fp32" }));
    if let Some(precision) = value(PRECISION).filter(|precision| !precision.is_null()).or_else(of_flag) {
        values.insert(PRECISION, precision);
    }
    values
}
