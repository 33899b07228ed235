//! Every effective value with the place it comes from, for `flagperf plan`.

use std::path::Path;

use crate::config::{CaseConfig, Config, EngineEntry, Origin, Sourced, Vendor, display};

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `site`, or the case: `resnet50:candle`.
    pub section: String,
    /// The key; an option that only the vendor sets has its engine before it: `rten.threads`.
    pub key: String,
    /// The value.
    pub value: String,
    /// Where it comes from: `configs/host.yaml:5`, `--set batch_size=4`, `default`.
    pub origin: String,
}

impl Row {
    fn new(section: &str, key: &str, value: String, origin: &Origin) -> Self {
        Row { section: section.to_owned(), key: key.to_owned(), value, origin: origin.to_string() }
    }
}

/// Every effective value of a configuration: the site's, then each case's.
pub fn rows(config: &Config) -> Vec<Row> {
    let mut rows: Vec<Row> =
        config.site_values.iter().map(|(key, v)| Row::new("site", key, display(&v.value), &v.origin)).collect();
    if let Some(visible) = &config.visible {
        rows.push(Row::new("site", "visible_devices", visible.display(), &visible.origin));
    }
    for case in &config.cases {
        let section = case.key.value.to_string();
        let Sourced { value: data, origin } = &case.data_dir;
        rows.push(Row::new(&section, "data", data.display().to_string(), origin));
        rows.push(Row::new(&section, "framework", case.key.value.framework.clone(), &case.key.origin));
        rows.extend(case.values().map(|(key, v)| Row::new(&section, key, display(&v.value), &v.origin)));
        if let Some(vendor) = &config.vendor {
            rows.extend(engine_rows(&section, case, vendor));
        }
    }
    rows
}

/// The engines that stand behind framework and compiler, and the options that only the vendor sets.
fn engine_rows(section: &str, case: &CaseConfig, vendor: &Vendor) -> Vec<Row> {
    let framework = vendor.framework(&case.key.value);
    let compiler = case.settings["compiler"].value.as_str().and_then(|name| vendor.compilers.get_key_value(name));
    let mut rows = Vec::new();
    let sides = [("frameworks", framework), ("compilers", compiler)];
    for (side, (name, entry)) in sides.into_iter().filter_map(|(s, e)| Some((s, e?))) {
        let EngineEntry { engine, library, options, .. } = entry;
        let origin = vendor.origin(&[side, name]);
        rows.push(Row::new(section, &format!("{name}.engine"), engine.clone(), &origin));
        if let Some(library) = library {
            let origin = vendor.origin(&[side, name, "library"]);
            let folder = if entry.backend().is_some() { Path::new("") } else { &vendor.folder };
            let library = folder.join(library).display().to_string();
            rows.push(Row::new(section, &format!("{name}.library"), library, &origin));
        }
        for (option, value) in options.iter().filter(|(option, _)| !case.own.contains_key(*option)) {
            let origin = vendor.origin(&[side, name, "options", option]);
            rows.push(Row::new(section, &format!("{name}.{option}"), display(value), &origin));
        }
    }
    rows
}
