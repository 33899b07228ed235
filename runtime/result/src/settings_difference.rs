//! The first setting in which two results of one case differ, such as those of two hosts. Where the checkout lies and what
//! the environment of a host sets does not count.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;

use super::Setting;
use flagperf_config::{SITE, display_value};

/// The settings that name the checkout, and the devices that the environment of a host makes visible.
const CHECKOUT: &str = "FLAGPERF_PATH";
const VISIBLE: &str = "visible_devices";

/// Returns the first setting of `found` that is not as in `expected`, as text: `batch_size` is 40 (expected: 4). The settings of
/// host.yaml count only `with_site`: a run that is resumed may have changed them.
pub fn different_setting(
    expected: &IndexMap<String, Setting>,
    found: &IndexMap<String, Setting>,
    with_site: bool,
) -> Option<String> {
    let key = different_keys(expected, found, with_site).next()?;
    let shown = |settings| value_of(settings, key).map_or_else(|| "missing".to_owned(), |value| display_value(&value));
    Some(format!("`{key}` is {} (expected: {})", shown(found), shown(expected)))
}

/// Returns the keys whose values are different in two results.
pub fn different_keys<'s>(
    expected: &'s IndexMap<String, Setting>,
    found: &'s IndexMap<String, Setting>,
    with_site: bool,
) -> impl Iterator<Item = &'s str> {
    let keys = expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key)));
    let is_site = |key: &str| SITE.iter().any(|row| row.name == key);
    let counts = move |key: &&str| ![CHECKOUT, VISIBLE].contains(key) && (with_site || !is_site(key));
    let differs = move |key: &&str| {
        let of_environment = [expected, found].iter().any(|settings| is_of_environment(settings.get(*key)));
        let is_same = expected.get(*key).map(|own| &own.value) == found.get(*key).map(|own| &own.value);
        !of_environment && !is_same && value_of(expected, key) != value_of(found, key)
    };
    keys.map(String::as_str).filter(counts).filter(differs)
}

fn is_of_environment(setting: Option<&Setting>) -> bool {
    setting.is_some_and(|setting| setting.origin.starts_with('$'))
}

/// Returns the value of a setting; a path in the checkout is relative to it.
fn value_of(settings: &IndexMap<String, Setting>, key: &str) -> Option<Value> {
    let value = settings.get(key)?.value.clone();
    let checkout = settings.get(CHECKOUT).and_then(|setting| setting.value.as_str());
    let below = value.as_str().zip(checkout).and_then(|(path, root)| Path::new(path).strip_prefix(root).ok());
    let below = below.map(|below| Value::from(below.display().to_string()));
    Some(below.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(values: &[(&str, Value, &str)]) -> IndexMap<String, Setting> {
        let setting = |(key, value, origin): &(&str, Value, &str)| {
            ((*key).to_owned(), Setting { value: value.clone(), origin: (*origin).to_owned() })
        };
        values.iter().map(setting).collect()
    }

    #[test]
    fn the_first_different_setting_is_named_with_both_values() {
        let planned = settings(&[
            ("FLAGPERF_PATH", json!("/a"), "default"),
            ("HOST_TIMEOUT", json!(60), "configs/host.yaml:2"),
            ("data", json!("/a/datasets/x"), "default"),
            ("batch_size", json!(4), "configs/x/configurations.yaml:1"),
        ]);
        let measured = |changes: &[(&str, Value, &str)]| {
            let mut found = planned.clone();
            found["FLAGPERF_PATH"].value = json!("/b/c");
            found["data"].value = json!("/b/c/datasets/x");
            found.extend(settings(changes));
            [true, false].map(|with_site| different_setting(&planned, &found, with_site))
        };
        assert_eq!(measured(&[]), [None, None]);
        // The command line may name the same folder for every host.
        assert_eq!(measured(&[("data", json!("/a/datasets/x"), "--data")]), [None, None]);
        let batch = Some("`batch_size` is 40 (expected: 4)".to_owned());
        assert_eq!(measured(&[("batch_size", json!(40), "default")]), [batch.clone(), batch]);
        let timeout = Some("`HOST_TIMEOUT` is 5 (expected: 60)".to_owned());
        assert_eq!(measured(&[("HOST_TIMEOUT", json!(5), "default")]), [timeout, None]);
        let added = Some("`own.threads` is 2 (expected: missing)".to_owned());
        assert_eq!(measured(&[("own.threads", json!(2), "default")]), [added.clone(), added]);
        let of_environment =
            [("FLAGPERF_LOG_LEVEL", json!("debug"), "$FLAGPERF_LOG_LEVEL"), ("visible_devices", json!("0"), "x")];
        assert_eq!(measured(&of_environment), [None, None]);
    }
}
