//! The JSON Schemas of the YAML files in docs/schemas, generated from the tables of keys. An editor reads them through the
//! first line of each file.

use indexmap::IndexSet;
use serde_json::{Map, Value, json};

use super::overlay::RESERVED;
use super::scenario;
use super::section::{SectionKey, SectionKind};
use super::switches::{NAME_BYTES_MAX, SWITCHES_MAX};
use super::vendor::PEAKS;
use super::{
    ConfigKey, DatasetDescription, OperatorDescription, Owner, PARAMETERS, Prices, SITE, ServedModel, SettingsFile,
    ValueKind, Vendor, yaml,
};
use flagperf_core::metric;
use flagperf_core::precision::Precision;

/// The names of the schemas of YAML files, each with its text.
pub(crate) fn schemas() -> [(&'static str, Value); 11] {
    let [inference, training] = SettingsFile::ALL;
    let of_settings = names(SettingsFile::ALL.iter().flat_map(|file| file.keys));
    [
        ("host", closed("host.yaml: where and how a site runs", SITE)),
        ("configurations", closed("configurations.yaml: the settings of a case", inference.keys)),
        ("training", closed("training.yaml: the settings of a case that is trained", training.keys)),
        ("parameters", open("parameters.yaml: what the scripts of a case read", PARAMETERS, of_settings)),
        ("overlay", overlay("an overlay: what a vendor changes in a case", inference)),
        ("training_overlay", sized_overlay("an overlay: what a vendor changes in the training of a case", training)),
        ("dataset", titled("dataset.yaml: the files of a dataset", section(DatasetDescription::KEYS))),
        ("vendor", titled("vendor.yaml: a vendor's engines and devices", section(Vendor::KEYS))),
        ("operator", titled("operator.yaml: an operator that a vendor brings", section(OperatorDescription::KEYS))),
        ("model", titled("model.yaml: how a model of a model store is served", section(ServedModel::KEYS))),
        ("prices", titled("prices of devices, for `flagperf pareto`", section(Prices::KEYS))),
    ]
}

/// Returns the names of keys, each once: the files of settings share some.
fn names<'k>(keys: impl Iterator<Item = &'k ConfigKey>) -> Vec<&'static str> {
    keys.map(|key| key.name).collect::<IndexSet<_>>().into_iter().collect()
}

/// The default of a key in an overlay is the value of the standard case.
fn without_default(key: ConfigKey) -> ConfigKey {
    ConfigKey { default: Some("null"), ..key }
}

/// Returns the schema of a file that has only the keys of a table.
fn closed(title: &str, keys: &[ConfigKey]) -> Value {
    let mut schema = mapping(keys);
    schema["additionalProperties"] = false.into();
    titled(title, schema)
}

/// Returns the schema of a file that may have keys of its own, but neither those of host.yaml, in any letter case, nor
/// `refused` ones.
fn open(title: &str, keys: &[ConfigKey], refused: Vec<&str>) -> Value {
    let mut schema = mapping(keys);
    let refused: Vec<&str> = refused.into_iter().chain(RESERVED).collect();
    let of_site: Vec<String> = SITE.iter().map(|key| in_any_case(key.name)).collect();
    let of_site = format!("^({})$", of_site.join("|"));
    schema["propertyNames"] = json!({"not": {"anyOf": [{"enum": refused}, {"pattern": of_site}]}});
    titled(title, schema)
}

/// Returns the schema of the overlays of a file.
fn overlay(title: &str, file: SettingsFile) -> Value {
    let of_vendor = |key: &&ConfigKey| key.owner == Owner::CaseOrVendor;
    let keys: Vec<ConfigKey> = file.keys.iter().filter(of_vendor).map(|key| without_default(*key)).collect();
    let others = SettingsFile::ALL.iter().flat_map(|other| other.keys);
    let others = others.filter(|key| !keys.iter().any(|own| own.name == key.name));
    open(title, &keys, names(others.chain(PARAMETERS)))
}

/// Returns the schema of the overlays of a file that may have a section of the same keys for each size.
fn sized_overlay(title: &str, file: SettingsFile) -> Value {
    let mut schema = overlay(title, file);
    let section = json!({
        "type": "object",
        "properties": schema["properties"].clone(),
        "propertyNames": schema["propertyNames"].clone(),
    });
    schema["patternProperties"] = json!({"^.+x[0-9]+x[0-9]+$": section});
    schema
}

fn titled(title: &str, schema: Value) -> Value {
    let mut all = json!({"$schema": "http://json-schema.org/draft-07/schema#", "title": title});
    for (name, value) in schema.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    all
}

/// Returns the schema of a mapping with the keys of a table. A file without content is null and has no keys.
fn mapping(keys: &[ConfigKey]) -> Value {
    let required: Vec<&str> = keys.iter().filter(|key| key.default.is_none()).map(|key| key.name).collect();
    let properties: Map<String, Value> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    match required.is_empty() {
        true => json!({"type": ["object", "null"], "properties": properties}),
        false => json!({"type": "object", "properties": properties, "required": required}),
    }
}

fn property(key: &ConfigKey) -> Value {
    let mut schema = value_schema(key.kind);
    schema["description"] = key.about.into();
    let default = key.default.and_then(|default| key.read(&yaml::parse(default).ok()?).ok());
    if let Some(default) = default.filter(|default| !default.is_null()) {
        schema["default"] = default;
    }
    schema
}

/// Returns the schema of the values that a type accepts. JSON does not tell whether a text was written in quotes.
fn value_schema(kind: ValueKind) -> Value {
    let whole = |from: u64, to: u64| json!({"type": "integer", "minimum": from, "maximum": to});
    match kind {
        ValueKind::Flag => {
            let words = ["yes", "no", "on", "off"].map(in_any_case).join("|");
            json!({"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": format!("^({words})$")}]})
        }
        ValueKind::Count => whole(1, u32::MAX.into()),
        ValueKind::OptionalCount | ValueKind::OptionalFlops => {
            let of_value = if kind == ValueKind::OptionalCount { ValueKind::Count } else { ValueKind::Flops };
            json!({"anyOf": [{"type": "null"}, value_schema(of_value)]})
        }
        ValueKind::PositiveNumber => json!({"type": "number", "exclusiveMinimum": 0}),
        ValueKind::WholeNumber => whole(0, u32::MAX.into()),
        ValueKind::Threads => whole(0, super::THREADS_MAX),
        ValueKind::PerSecond => whole(0, 10),
        ValueKind::Seed => json!({"anyOf": [{"type": "null"}, whole(0, i64::MAX.cast_unsigned())]}),
        ValueKind::Port => json!({"anyOf": [whole(1, u16::MAX.into()), {"type": "string", "pattern": PORT}]}),
        ValueKind::Ports => json!({"type": "array", "items": value_schema(ValueKind::Port)}),
        ValueKind::Text => json!({"type": "string"}),
        ValueKind::OptionalText => json!({"type": ["string", "null"]}),
        ValueKind::Variable => json!({"type": ["string", "null"], "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        ValueKind::Size => json!({"anyOf": [
            {"type": "null"}, {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^ *0*[1-9][0-9]*([kKmMgGtT]?[bB]?) *$"}]}),
        ValueKind::NonEmptyTextList => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        ValueKind::TextList => json!({"type": "array", "items": {"type": "string"}}),
        ValueKind::TextMap => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        ValueKind::Targets => targets(),
        ValueKind::Limits => limits(),
        ValueKind::Switches => switches(),
        ValueKind::Scenario => scenario(),
        ValueKind::RelativePath => json!({"type": "string", "pattern": r"^\.?[^./][^/]*(/\.?[^./][^/]*)*$"}),
        ValueKind::Sha256 => json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        ValueKind::OptionalSha256 => json!({"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}),
        ValueKind::SharedScript => json!({"type": ["string", "null"], "pattern": "^lib/[A-Za-z0-9_-]{1,64}$"}),
        ValueKind::Flops => json!({"anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": format!("^ *{NUMBER}( *[*+] *{NUMBER})* *$")}]}),
        ValueKind::OneOrTwo => json!({"enum": [1, 2, null]}),
        ValueKind::Word(words) => one_word(words),
        ValueKind::OptionalWord(words) => json!({"anyOf": [{"type": "null"}, one_word(words)]}),
    }
}

/// Returns the schema of one of a few words in any letter case.
fn one_word(words: &[&str]) -> Value {
    let pattern = words.iter().copied().map(in_any_case).collect::<Vec<_>>().join("|");
    json!({"anyOf": [{"enum": words}, {"type": "string", "pattern": format!("^({pattern})$")}]})
}

/// A whole number from 1 to 65535.
const PORT: &str = "^0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";

/// A factor of a `flops` expression.
const NUMBER: &str = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?";

fn targets() -> Value {
    let family = |metric: &metric::Metric| {
        let (from, to) = (*metric.range.start(), *metric.range.end());
        let range = json!({"type": "number", "minimum": from, "maximum": to, "description": metric.about});
        (metric.form.pattern(metric.name), range)
    };
    let families: Map<String, Value> = metric::METRICS.iter().map(family).collect();
    json!({"type": "object", "patternProperties": families, "additionalProperties": {"type": "number"}})
}

fn limits() -> Value {
    let limit = |(name, range): &(&str, std::ops::RangeInclusive<f64>)| {
        let mut schema = json!({"type": "number", "minimum": range.start()});
        if *range.end() < f64::MAX {
            schema["maximum"] = (*range.end()).into();
        }
        ((*name).to_owned(), schema)
    };
    let limits: Map<String, Value> = metric::AGREEMENT_LIMITS.iter().map(limit).collect();
    let limits = json!({"type": "object", "properties": limits, "additionalProperties": false});
    let precisions: Map<String, Value> =
        Precision::NAMES.iter().map(|name| ((*name).to_owned(), limits.clone())).collect();
    json!({"type": "object", "properties": precisions, "additionalProperties": false})
}

fn switches() -> Value {
    let settings = json!({"type": "object", "minProperties": 1});
    let name = format!("^[a-z0-9_.-]{{1,{NAME_BYTES_MAX}}}$");
    let parts = json!({"name": {"type": "string", "pattern": name}, "off": settings, "on": settings});
    let switch = json!({"type": "object", "properties": parts, "required": ["name", "off", "on"], "additionalProperties": false});
    json!({"type": "array", "items": switch, "maxItems": SWITCHES_MAX})
}

fn scenario() -> Value {
    let names: Vec<&str> = scenario::names().collect();
    let mut properties: Map<String, Value> = Map::from_iter([("kind".to_owned(), json!({"enum": names}))]);
    for key in scenario::KEYS {
        let mut schema = value_schema(key.kind);
        schema["description"] = key.about.into();
        properties.insert(key.name.to_owned(), schema);
    }
    let mapping =
        json!({"type": "object", "properties": properties, "required": ["kind"], "additionalProperties": false});
    json!({"anyOf": [{"enum": names}, mapping]})
}

/// Returns a pattern that matches a word in any letter case.
fn in_any_case(word: &str) -> String {
    let letter = |c: char| match c.is_ascii_alphabetic() {
        true => format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase()),
        false => c.to_string(),
    };
    word.chars().map(letter).collect()
}

/// Returns the schema of a section.
fn section(keys: &[SectionKey]) -> Value {
    let properties: Map<String, Value> = keys
        .iter()
        .map(|key| {
            let mut schema = section_schema(key.kind);
            schema["description"] = key.about.into();
            (key.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = keys.iter().filter(|key| key.default.is_none()).map(|key| key.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn section_schema(kind: SectionKind) -> Value {
    match kind {
        SectionKind::Value(kind) => value_schema(kind),
        SectionKind::Counts => json!({"type": "array", "items": value_schema(ValueKind::Count)}),
        SectionKind::Boolean => json!({"type": "boolean"}),
        SectionKind::Bytes => json!({"type": ["integer", "null"], "minimum": 0}),
        SectionKind::Rate => json!({"type": ["number", "null"], "exclusiveMinimum": 0}),
        SectionKind::Number => json!({"type": "number", "minimum": 0}),
        SectionKind::Rates => {
            let rate = |name: &&str| ((*name).to_owned(), json!({"type": "number", "exclusiveMinimum": 0}));
            let rates: Map<String, Value> = PEAKS.iter().map(rate).collect();
            json!({"type": "object", "additionalProperties": false, "properties": rates})
        }
        SectionKind::Options => json!({"type": "object"}),
        SectionKind::Section(keys) => section(keys),
        SectionKind::Sections(keys) => json!({"type": "object", "additionalProperties": section(keys)}),
        SectionKind::List(keys) => json!({"type": "array", "items": section(keys)}),
    }
}
