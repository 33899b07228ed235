//! Values that are mappings (targets of metrics, limits of agreement) or sizes, and the description of values in messages.

use serde_json::Value;

use super::Finding;
use super::yaml::{Content, Node};
use flagperf_core::metric;
use flagperf_core::precision::Precision;

/// Checks the limits of agreement for one precision.
pub(super) fn check_agreement_limits(precision: &str, node: &Node) -> Result<(), Finding> {
    let refused = |what: &str, expected: String, found: String| {
        Finding::unplaced(format!("`agreement`: `{what}` must be {expected}, not {found}"))
            .with_hint("for example `agreement: {fp16: {relative_l2: 0.05, cosine: 0.99}}`")
    };
    if !Precision::NAMES.contains(&precision) {
        let expected = format!("a precision (known: {})", Precision::NAMES.join(", "));
        return Err(refused(precision, expected, format!("`{precision}`")));
    }
    let Content::Map(entries) = &node.content else {
        return Err(refused(precision, "limits such as `{relative_l2: 0.05}`".to_owned(), describe_node(node)));
    };
    for (name, entry) in entries {
        let Some((_, range)) = metric::AGREEMENT_LIMITS.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = metric::AGREEMENT_LIMITS.iter().map(|(name, _)| *name).collect();
            return Err(refused(
                precision,
                format!("limits by name (known: {})", names.join(", ")),
                format!("`{name}`"),
            ));
        };
        if !number(entry).is_some_and(|number| range.contains(&number)) {
            let (from, to) = (*range.start(), *range.end());
            let expected = match to < f64::MAX {
                true => format!("a number from {from} to {to}"),
                false => format!("a number of at least {from}"),
            };
            return Err(refused(name, expected, describe_node(entry)));
        }
    }
    Ok(())
}

/// Returns the number in a node.
fn number(node: &Node) -> Option<f64> {
    match &node.content {
        Content::Scalar { value: Value::Number(number), .. } => number.as_f64(),
        _ => None,
    }
}

/// Returns whether a target for `metric` is a value that the metric can have.
pub(super) fn is_target(metric: &str, node: &Node) -> bool {
    number(node).is_some_and(|number| metric::range(metric).contains(&number))
}

/// Checks the target for `metric` in the value of `key`.
pub(super) fn check_target(key: &str, metric: &str, node: &Node) -> Result<(), Finding> {
    if is_target(metric, node) {
        return Ok(());
    }
    let range = metric::range(metric);
    let (from, to) = (*range.start(), *range.end());
    let expected = if to < f64::MAX { format!("a number from {from} to {to}") } else { "a number".to_owned() };
    let found = describe_node(node);
    let hint = format!("for example `{key}: {{top1: 0.76}}`, without quotes or percent signs");
    Err(Finding::unplaced(format!("`{key}`: `{metric}` must be {expected}, not {found}")).with_hint(hint))
}

/// Lists words as alternatives: `` `fail` or `count` ``.
pub(super) fn list_alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Describes a value of the wrong type, for a message.
pub(super) fn describe_node(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a mapping".to_owned(),
        Content::Scalar { value: Value::Null, .. } => "null".to_owned(),
        Content::Scalar { text, plain: false, .. } => format!("the string `\"{}\"`", shorten(text)),
        Content::Scalar { text, .. } => format!("`{}`", shorten(text)),
    }
}

/// Returns the beginning of a text, for a message.
fn shorten(text: &str) -> String {
    /// Maximum number of characters shown.
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

/// Parses a number of bytes such as `32G`, `512m` or `1024`. Units are powers of 1024, as in Docker.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
