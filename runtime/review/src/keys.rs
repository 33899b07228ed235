//! Differences of YAML files, key by key.

use indexmap::IndexMap;
use serde_json::Value;

use super::findings::KeyChange;
use super::tree::{FilePath, Snapshot};
use flagperf_config::{
    Content, Node, Owner, SettingsFile, YamlError, check_key_owner, display_value, find_parameter, is_size_section,
    parse_yaml,
};
use flagperf_core::text::{one_line, truncate};

/// Longest value that a review shows, in bytes.
pub(super) const VALUE_BYTES: usize = 200;

/// Most keys of one file that are compared: more are a mistake, and their comparison would fill the report.
const KEYS_MAX: usize = 20_000;

/// A single value: typed, as written, and its line.
struct Leaf {
    value: Value,
    text: String,
    line: usize,
}

type Values = IndexMap<String, Leaf>;

/// Returns the keys whose values differ between two versions of a file; an absent version has none.
///
/// # Errors
/// When a version is no YAML.
pub(super) fn compare(file: &FilePath, before: Option<&str>, after: Option<&str>) -> Result<Vec<KeyChange>, YamlError> {
    let values = |text: Option<&str>| text.map_or(Ok(Values::new()), flatten);
    // A malformed earlier version is compared as an empty one: only the change is judged.
    let (before, after) = (values(before).unwrap_or_default(), values(after)?);
    let change = |key: &str, before: Option<&Leaf>, after: Option<&Leaf>| KeyChange {
        file: file.clone(),
        line: after.map(|leaf| leaf.line),
        key: key.to_owned(),
        before: before.map(|leaf| shown(&leaf.text)),
        after: after.map(|leaf| shown(&leaf.text)),
    };
    let changed = after.iter().filter(|(key, leaf)| before.get(*key).is_none_or(|before| before.value != leaf.value));
    let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let changed = changed.map(|(key, value)| change(key, before.get(key), Some(value)));
    Ok(changed.chain(gone.map(|(key, value)| change(key, Some(value), None))).collect())
}

/// Returns a value on one line, shortened.
pub(super) fn shown(value: &str) -> String {
    truncate(&one_line(value), VALUE_BYTES).into_owned()
}

/// Returns the single values of a file by their full keys.
fn flatten(text: &str) -> Result<Values, YamlError> {
    let root = parse_yaml(text)?;
    let mut values = Values::new();
    add(String::new(), &root, root.place.line, &mut values);
    Ok(values)
}

fn add(key: String, node: &Node, line: usize, values: &mut Values) {
    if values.len() >= KEYS_MAX {
        return;
    }
    match &node.content {
        Content::Map(entries) if !entries.is_empty() => {
            for (name, node) in entries {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                add(key, node, node.place.line, values);
            }
        }
        // A short list of single values reads better as one value.
        Content::List(items) if items.iter().any(|item| !matches!(item.content, Content::Scalar { .. })) => {
            for (index, item) in items.iter().enumerate() {
                add(format!("{key}[{index}]"), item, item.place.line, values);
            }
        }
        // An empty file, or one without keys.
        Content::Map(_) if key.is_empty() => {}
        _ if key.is_empty() && node.is_null() => {}
        content => {
            let value = node.value();
            let text = match content {
                Content::Scalar { text, .. } if !value.is_null() => text.clone(),
                _ => display_value(&value),
            };
            values.insert(key, Leaf { value, text, line });
        }
    }
}

/// Returns why no overlay of a case may set a key; `None` if one may. `file` is the one that the overlay changes, and
/// `after` has the other files of the case.
pub(super) fn overlay_refusal(file: &SettingsFile, key: &str, case: &str, after: &dyn Snapshot) -> Option<String> {
    // The overlay of a training has sections for sizes.
    let mut sections = key.match_indices('.').filter(|(at, _)| is_size_section(file, &key[..*at]));
    let key = sections.next().map_or(key, |(at, _)| &key[at + 1..]);
    let name = key.split(['.', '[']).next().unwrap_or_default();
    let parameters = format!("configs/{case}/parameters.yaml");
    if let Err(finding) = check_key_owner(name) {
        return Some(finding.message);
    }
    let own = file.find(name);
    if let Some(other) = SettingsFile::of_key(name).filter(|_| own.is_none()) {
        return Some(format!("`{name}` belongs to {}", other.name));
    }
    if find_parameter(name).is_some() || own.is_some_and(|key| key.owner == Owner::Case) {
        return Some(format!("`{name}` defines how the case is measured: only the author of a case sets it"));
    }
    let own = after.text(&parameters).ok().and_then(|text| flatten(&text).ok()).unwrap_or_default();
    own.keys()
        .any(|own| own.split(['.', '[']).next() == Some(name))
        .then(|| format!("`{name}` is a key of {parameters}, which is the same for every vendor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: Option<&str>, after: Option<&str>) -> Vec<String> {
        let found = compare(&"a.yaml".into(), before, after).unwrap();
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let line = |change: &KeyChange| change.line.map_or("-".to_owned(), |line| line.to_string());
        found
            .into_iter()
            .map(|c| format!("{} {} {} {}", line(&c), c.key.clone(), or_none(c.before), or_none(c.after)))
            .collect()
    }

    #[test]
    fn keys_are_compared_by_their_typed_values_whatever_the_layout() {
        assert_eq!(
            changes(
                Some("a: 1\nb: {c: x}\nd: [1, 2]\ne: 4\n"),
                Some("# note\nb:\n  c: \"y\"\nd: [1, 3]\na: 1.5\nf: 1\n")
            ),
            ["3 b.c x y", "4 d [1,2] [1,3]", "5 a 1 1.5", "6 f - 1", "- e 4 -"]
        );
        assert_eq!(changes(Some("a: 1\nb: 2\n"), Some("# note\nb: 2\na:   1\n")), [""; 0]);
        assert_eq!(changes(None, Some("a:\n  - b: 1\n")), ["2 a[0].b - 1"]);
        assert_eq!(changes(Some("a: 1\n"), None), ["- a 1 -"]);
        assert_eq!(changes(Some("a: [\n"), Some("a: 1\n")), ["1 a - 1"]);
    }

    #[test]
    fn long_values_and_control_characters_are_made_safe() {
        let long = format!("a: \"{}\\e[2J\"\n", "x".repeat(1000));
        let found = changes(None, Some(&long));
        assert!(found[0].ends_with(" more bytes)") && found[0].len() < 300, "{found:?}");
        assert_eq!(changes(None, Some("a: \"\\e[2J\"\n")), [r"1 a - \u{1b}[2J"]);
    }
}
