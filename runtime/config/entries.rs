//! Values that are keys with values of their own: targets of metrics, limits of agreement; and values in messages.

use serde_json::Value;

use super::ConfigProblem;
use super::yaml::{Content, Node};
use crate::metric;

/// Checks the limits of agreement for one precision.
pub(super) fn limits(precision: &str, node: &Node) -> Result<(), ConfigProblem> {
    let refused = |what: &str, expects: String, found| ConfigProblem::Limit { what: what.to_owned(), expects, found };
    if !metric::AGREEMENT_PRECISIONS.contains(&precision) {
        let expects = format!("a precision ({})", metric::AGREEMENT_PRECISIONS.join(", "));
        return Err(refused(precision, expects, format!("`{precision}`")));
    }
    let Content::Map(entries) = &node.content else {
        return Err(refused(precision, "limits such as `{relative_l2: 0.05}`".to_owned(), found(node)));
    };
    for (name, entry) in entries {
        let Some((_, range)) = metric::AGREEMENT_LIMITS.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = metric::AGREEMENT_LIMITS.iter().map(|(name, _)| *name).collect();
            return Err(refused(precision, format!("limits by name ({})", names.join(", ")), format!("`{name}`")));
        };
        if !number(entry).is_some_and(|number| range.contains(&number)) {
            let (from, to) = (*range.start(), *range.end());
            let upper = if to < f64::MAX { format!(" to {to}") } else { String::new() };
            return Err(refused(name, format!("a number from {from}{upper}"), found(entry)));
        }
    }
    Ok(())
}

/// The number that a node holds.
fn number(node: &Node) -> Option<f64> {
    match &node.content {
        Content::Scalar { value: Value::Number(number), .. } => number.as_f64(),
        _ => None,
    }
}

/// The least value that `metric` must reach: a number that the metric can have.
pub(super) fn target(metric: &str, node: &Node) -> Result<f64, ConfigProblem> {
    let range = metric::range(metric);
    number(node).filter(|number| range.contains(number)).ok_or_else(|| {
        let (from, to) = (*range.start(), *range.end());
        let expects = if to < f64::MAX { format!("a number from {from} to {to}") } else { "a number".to_owned() };
        ConfigProblem::Target { metric: metric.to_owned(), expects, found: found(node) }
    })
}

/// What stands where a value of another type should.
pub(super) fn found(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "keys with values".to_owned(),
        Content::Scalar { value: Value::Null, .. } => "null".to_owned(),
        Content::Scalar { text, plain: false, .. } => format!("the text `\"{}\"`", shown(text)),
        Content::Scalar { text, .. } => format!("`{}`", shown(text)),
    }
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    /// Characters that are shown.
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}
