//! The effective values with their origins, for `flagperf plan` and the record.

use std::path::Path;

use serde_json::Value;

use flagperf_config::{CaseConfig, Config, EngineEntry, Origin, Sourced, Vendor};

/// One effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    /// `site`, or the case: `resnet50:interpreter`.
    pub section: String,
    /// The key. An option that only the vendor sets is prefixed with its engine: `rten.threads`. If framework and compiler
    /// have the same name, its role follows: `mock.sleep_ms (compiler)`.
    pub key: String,
    /// The value, of the type that it has in YAML.
    pub value: Value,
    /// The origin of the value: `configs/host.yaml:5`, `--set batch_size=4`, `default`.
    pub origin: Origin,
}

impl EffectiveValue {
    fn new(section: &str, key: &str, value: impl Into<Value>, origin: &Origin) -> Self {
        EffectiveValue { section: section.to_owned(), key: key.to_owned(), value: value.into(), origin: origin.clone() }
    }
}

/// Returns every effective value of a configuration: those of the site, then those of each case.
pub fn effective_values(config: &Config) -> Vec<EffectiveValue> {
    let mut rows: Vec<EffectiveValue> = config
        .site_values
        .iter()
        .map(|(key, v)| EffectiveValue::new("site", key, v.value.clone(), &v.origin))
        .collect();
    if let Some(visible) = &config.visible {
        rows.push(EffectiveValue::new("site", "visible_devices", visible.display(), &visible.origin));
    }
    for case in &config.cases {
        let section = case.key.value.to_string();
        let Sourced { value: data, origin } = &case.data_dir;
        rows.push(EffectiveValue::new(&section, "data", data.display().to_string(), origin));
        rows.push(EffectiveValue::new(&section, "framework", case.key.value.framework.clone(), &case.key.origin));
        rows.extend(case.values().map(|(key, v)| EffectiveValue::new(&section, key, v.value.clone(), &v.origin)));
        if let Some(vendor) = &config.vendor {
            rows.extend(engine_values(&section, case, vendor));
        }
    }
    rows
}

/// Returns the engines behind framework and compiler, and the options that only the vendor sets.
fn engine_values(section: &str, case: &CaseConfig, vendor: &Vendor) -> Vec<EffectiveValue> {
    let framework = vendor.framework(&case.key.value);
    // A training has no compiler.
    let compiler = case.settings.get("compiler").and_then(|compiler| compiler.value.as_str());
    let compiler = compiler.and_then(|name| vendor.compilers.get_key_value(name));
    let mut rows = Vec::new();
    let is_shared = framework.zip(compiler).is_some_and(|((framework, _), (compiler, _))| framework == compiler);
    let sides = [("frameworks", " (framework)", framework), ("compilers", " (compiler)", compiler)];
    for (side, role, (name, entry)) in sides.into_iter().filter_map(|(side, role, entry)| Some((side, role, entry?))) {
        let role = if is_shared { role } else { "" };
        let EngineEntry { engine, library, options, .. } = entry;
        let origin = vendor.origin(&[side, name]);
        rows.push(EffectiveValue::new(section, &format!("{name}.engine{role}"), engine.clone(), &origin));
        if let Some(library) = library {
            let origin = vendor.origin(&[side, name, "library"]);
            let folder = if entry.backend().is_some() { Path::new("") } else { &vendor.folder };
            let library = folder.join(library).display().to_string();
            rows.push(EffectiveValue::new(section, &format!("{name}.library{role}"), library, &origin));
        }
        for (option, value) in options {
            let qualified = format!("{name}.{option}");
            if [option, &qualified].iter().any(|key| case.vendor_values.contains_key(*key)) {
                continue;
            }
            let origin = vendor.origin(&[side, name, "options", option]);
            rows.push(EffectiveValue::new(section, &format!("{qualified}{role}"), value.clone(), &origin));
        }
    }
    rows
}
