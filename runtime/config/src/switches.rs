//! The switches of a case: settings whose effects `flagperf ablate` measures.
//!
//! A switch may change what `--set` may change, and nothing else; whether an engine has an option is found when it is used.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Finding;
use super::entries::describe_node;
use super::yaml::{Content, Node};

/// Largest number of switches of a case. An ablation of `n` switches measures up to `3n - 1` combinations.
pub(super) const SWITCHES_MAX: usize = 16;
/// Longest name of a switch, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 32;
/// Keys by which results are judged, so that no switch may set them, and the list of switches itself.
const REFUSED: [&str; 7] =
    ["switches", "agreement", "target_accuracy", "target_samples", "target_index", "no_validation", "scenario"];
const EXAMPLE: &str = "for example `switches: [{name: amp, off: {fp16: false}, on: {fp16: true}}]`";

/// Settings that are changed together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    pub name: String,
    /// The values of the settings while the switch is off.
    pub off: IndexMap<String, Value>,
    /// The values of the same settings while it is on.
    pub on: IndexMap<String, Value>,
}

impl Switch {
    /// Returns the switches in the value of the key `switches`, in the order of the file.
    pub fn of_value(value: &Value) -> Vec<Switch> {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }

    /// Returns the settings for one of the two positions, as `--set` has them.
    pub fn settings(&self, is_on: bool) -> impl Iterator<Item = String> {
        let values = if is_on { &self.on } else { &self.off };
        values.iter().map(|(key, value)| format!("{key}={value}"))
    }
}

/// Checks the value of `switches`, and returns what is wrong with the first entry that cannot be used.
pub(super) fn check_switches(node: &Node) -> Result<(), Finding> {
    let Content::List(entries) = &node.content else {
        return Err(refused(format!("must be a list, not {}", describe_node(node))));
    };
    if entries.len() > SWITCHES_MAX {
        return Err(refused(format!("has {} entries (at most {SWITCHES_MAX})", entries.len())));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut keys: IndexMap<&str, &str> = IndexMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let (name, settings) = read_entry(entry).map_err(|reason| refused(format!("entry {}: {reason}", index + 1)))?;
        if names.contains(&name) {
            return Err(refused(format!("two entries have the name `{name}`")));
        }
        for key in settings {
            if let Some((set, other)) = keys.iter().find(|(set, _)| is_same_setting(key, set)) {
                let spelling = if *set == key { String::new() } else { format!(" (as `{set}`)") };
                return Err(refused(format!("`{other}` and `{name}` both set `{key}`{spelling}")));
            }
            keys.insert(key, name);
        }
        names.push(name);
    }
    Ok(())
}

/// Returns whether two keys may set the same: an option is also set by its name after that of its engine, `rten.threads`.
fn is_same_setting(a: &str, b: &str) -> bool {
    let option_of = |key: &str, other: &str| key.split_once('.').is_some_and(|(_, option)| option == other);
    a == b || option_of(a, b) || option_of(b, a)
}

fn refused(reason: String) -> Finding {
    Finding::unplaced(format!("`switches`: {reason}")).with_hint(EXAMPLE)
}

/// Returns the name of a switch, and the keys of its settings.
fn read_entry(entry: &Node) -> Result<(&str, Vec<&str>), String> {
    let Content::Map(parts) = &entry.content else {
        return Err(format!("must be a mapping with `name`, `off` and `on`, not {}", describe_node(entry)));
    };
    if let Some(unknown) = parts.keys().find(|part| !["name", "off", "on"].contains(&part.as_str())) {
        return Err(format!("unknown key `{unknown}` (known: name, off, on)"));
    }
    let part = |name: &str| parts.get(name).ok_or_else(|| format!("`{name}` is missing"));
    let named = part("name")?;
    let is_name = |text: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.');
        (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(allowed)
    };
    let Content::Scalar { text: name, value: Value::String(_), .. } = &named.content else {
        return Err(format!("`name` must be text, not {}", describe_node(named)));
    };
    if !is_name(name) {
        return Err(format!(
            "`name` must be 1 to {NAME_BYTES_MAX} lower-case letters, digits, `_`, `-` and `.`, not {}",
            describe_node(named)
        ));
    }
    let settings = |position: &str| match &part(position)?.content {
        Content::Map(settings) if !settings.is_empty() => Ok(settings),
        _ => Err(format!("`{position}` of `{name}` must be settings such as `{{batch_size: 1}}`")),
    };
    let (off, on) = (settings("off")?, settings("on")?);
    let one_sided = |these: &IndexMap<String, Node>, others: &IndexMap<String, Node>| {
        these.keys().find(|key| !others.contains_key(*key)).cloned()
    };
    for (key, has, lacks) in [(one_sided(off, on), "off", "on"), (one_sided(on, off), "on", "off")] {
        if let Some(key) = key {
            return Err(format!("`{has}` of `{name}` sets `{key}`, and `{lacks}` does not"));
        }
    }
    if off.iter().all(|(key, value)| value.value() == on[key].value()) {
        return Err(format!("`off` and `on` of `{name}` have the same values"));
    }
    if let Some(key) = off.keys().find(|key| REFUSED.contains(&key.as_str())) {
        return Err(format!("`{name}` sets `{key}`, by which results are judged"));
    }
    Ok((name, off.keys().map(String::as_str).collect()))
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn reason(text: &str) -> Option<String> {
        check_switches(&yaml::parse(text).unwrap()).err().map(|finding| finding.message)
    }

    #[test]
    fn switches_are_settings_in_the_order_of_the_file() {
        let text = "[{name: amp, off: {precision: fp32}, on: {precision: bf16}}, {name: batch, off: {batch_size: 1}, on: {batch_size: 16}}]";
        assert_eq!(reason(text), None);
        let switches = Switch::of_value(&yaml::parse(text).unwrap().value());
        assert_eq!(switches.iter().map(|switch| switch.name.as_str()).collect::<Vec<_>>(), ["amp", "batch"]);
        assert_eq!(switches[0].settings(true).collect::<Vec<_>>(), ["precision=\"bf16\""]);
        assert_eq!(switches[1].settings(false).collect::<Vec<_>>(), ["batch_size=1"]);
        assert!(reason("[]").is_none() && Switch::of_value(&Value::Null).is_empty());
    }

    #[test]
    fn switches_that_change_nothing_or_change_one_setting_twice_are_refused() {
        let one = "{name: a, off: {x: 1}, on: {x: 2}}";
        for (text, expected) in [
            ("3".to_owned(), "must be a list, not `3`"),
            ("[3]".to_owned(), "entry 1: must be a mapping"),
            ("[{name: a, off: {x: 1}}]".to_owned(), "entry 1: `on` is missing"),
            ("[{name: a, off: {x: 1}, on: {x: 2}, then: 1}]".to_owned(), "unknown key `then`"),
            ("[{name: 3, off: {x: 1}, on: {x: 2}}]".to_owned(), "`name` must be text"),
            ("[{name: A b, off: {x: 1}, on: {x: 2}}]".to_owned(), "lower-case letters"),
            ("[{name: a, off: {}, on: {x: 2}}]".to_owned(), "`off` of `a` must be settings"),
            ("[{name: a, off: {x: 1}, on: {y: 2}}]".to_owned(), "`off` of `a` sets `x`, and `on` does not"),
            ("[{name: a, off: {x: 1}, on: {x: 1, y: 2}}]".to_owned(), "`on` of `a` sets `y`, and `off` does not"),
            ("[{name: a, off: {x: 1}, on: {x: 1}}]".to_owned(), "have the same values"),
            (
                "[{name: a, off: {switches: 1}, on: {switches: 2}}]".to_owned(),
                "sets `switches`, by which results are judged",
            ),
            (format!("[{one}, {one}]"), "two entries have the name `a`"),
            (format!("[{one}, {{name: b, off: {{x: 3}}, on: {{x: 4}}}}]"), "`a` and `b` both set `x`"),
            (
                format!("[{one}, {{name: b, off: {{rten.x: 3}}, on: {{rten.x: 4}}}}]"),
                "`a` and `b` both set `rten.x` (as `x`)",
            ),
            (format!("[{}]", vec![one; 17].join(", ")), "has 17 entries (at most 16)"),
        ] {
            assert!(reason(&text).is_some_and(|found| found.contains(expected)), "{text}: {:?}", reason(&text));
        }
    }
}
