//! YAML text for values that were read from YAML, so that reading the text gives the same values.

use serde_json::Value;

use flagperf_config::{Content, Node};

/// Words that YAML reads as another value than text.
const WORDS: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "none"];

/// Formats one line with a key and its value, in the form in which the value was written.
pub(super) fn line(key: &str, node: &Node) -> String {
    format!("{}: {}\n", text(key), node_text(node))
}

/// Formats a value as it was written, on one line.
pub(super) fn node_text(node: &Node) -> String {
    match &node.content {
        Content::Scalar { value: Value::Null, plain: true, .. } => "null".to_owned(),
        Content::Scalar { text, plain: true, value } if !value.is_string() || is_plain(text) => text.clone(),
        Content::Scalar { text, .. } => Value::from(text.as_str()).to_string(),
        Content::List(items) => format!("[{}]", items.iter().map(node_text).collect::<Vec<_>>().join(", ")),
        Content::Map(entries) => {
            let entry = |(key, node): (&String, &Node)| format!("{}: {}", text(key), node_text(node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Formats a value on one line.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Array(items) => format!("[{}]", items.iter().map(value_text).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| format!("{}: {}", text(key), value_text(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Formats a text or a key, in quotes unless it is surely read as text without them.
pub(super) fn text(text: &str) -> String {
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
    match begins && is_plain(text) && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

/// Returns whether a text without quotes is read as one word, also within brackets.
fn is_plain(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '*' | '+' | '-');
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric() || matches!(first, '_' | '.' | '/'));
    begins && text.chars().all(allowed) && !text.starts_with("...")
}

/// Returns whether two values are the same, whether or not they are written in the same way.
pub(super) fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.content, &other.content) {
        (Content::Scalar { text: one, value: a, .. }, Content::Scalar { text: other, value: b, .. }) => {
            one == other || a == b || one.eq_ignore_ascii_case(other) && a.is_boolean()
        }
        _ => one.value() == other.value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::parse_yaml;

    #[test]
    fn a_value_is_read_back_as_it_was() {
        for text in [
            "4.12e9",
            "2*512*0.33e9",
            "\"22\"",
            "22",
            "True",
            "yes",
            "null",
            "~",
            "",
            "on",
            "'yes'",
            "\"a: b # c\"",
            "a b",
            "/raid/dataset/ImageNet/",
            "' --gpus all'",
            "[1, x, \"2\"]",
            "{a: {b: [1.5, null]}, \"c d\": {}}",
            "\"\\\"\\n\\t\"",
            "größe",
            "-1",
            ".5",
            "0x10",
            "'*x'",
            "[]",
            "a,b",
            "\"[\"",
            "- x",
            "12:30",
            "\"{\\\"a\\\": 1}\"",
        ] {
            let node = parse_yaml(text).unwrap();
            let back = parse_yaml(&line("key", &node)).unwrap();
            let Content::Map(entries) = &back.content else { panic!("{text}: {back:?}") };
            assert_eq!(entries["key"].value(), node.value(), "{text}");
            let is_plain = |node: &Node| matches!(node.content, Content::Scalar { plain: true, .. });
            if text == "yes" || text == "on" {
                assert!(is_plain(&entries["key"]), "a flag is only read without quotes");
            }
        }
    }

    #[test]
    fn a_key_is_read_back_as_it_was() {
        for key in ["a", "resnet50:pytorch_1.13", "yes", "1", "a b", "#", "größe", "ixrt.image_size", "- a", ""] {
            let Content::Map(entries) = parse_yaml(&line(key, &parse_yaml("1").unwrap())).unwrap().content else {
                panic!("{key}")
            };
            assert_eq!(entries.keys().collect::<Vec<_>>(), [key]);
        }
    }

    #[test]
    fn the_same_value_may_be_written_differently() {
        let is_same = |one: &str, other: &str| is_same(&parse_yaml(one).unwrap(), &parse_yaml(other).unwrap());
        assert!(
            is_same("true", "True") && is_same("\"22\"", "22") && is_same("1.0", "1.00") && is_same("{a: 1}", "{a: 1}")
        );
        assert!(!is_same("true", "false") && !is_same("22", "23") && !is_same("[a]", "[b]") && !is_same("a", "A"));
    }
}
