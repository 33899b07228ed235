//! Every effective value with the place it comes from, for `flagperf plan`.

use crate::config::{Config, Sourced, display};

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `site`, or the case: `resnet50:candle`.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Where it comes from: `configs/host.yaml:5`, `--set batch_size=4`, `default`.
    pub origin: String,
}

/// Every effective value of a configuration: the site's, then each case's.
pub fn rows(config: &Config) -> Vec<Row> {
    let row = |section: &str, key: &str, value: String, origin: &crate::config::Origin| Row {
        section: section.to_owned(),
        key: key.to_owned(),
        value,
        origin: origin.to_string(),
    };
    let mut rows: Vec<Row> =
        config.site_values.iter().map(|(key, v)| row("site", key, display(&v.value), &v.origin)).collect();
    for case in &config.cases {
        let section = case.key.value.to_string();
        let Sourced { value: data, origin } = &case.data_dir;
        rows.push(row(&section, "data", data.display().to_string(), origin));
        rows.push(row(&section, "framework", case.key.value.framework.clone(), &case.key.origin));
        rows.extend(case.values().map(|(key, v)| row(&section, key, display(&v.value), &v.origin)));
    }
    rows
}
