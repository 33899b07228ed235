//! A review as text for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::output::counted;
use flagperf_core::text::{escape_lines, one_line};
use flagperf_report::wrap;
use flagperf_review::{
    AdaptationCost, CalledFunction, FunctionChange, FunctionChangeKind, JudgedAs, KeyChange, LiteralChange, Outcome,
    Review, ReviewFinding, Verdict,
};

/// Most entries of each section.
const ENTRIES_MAX: usize = 100;
/// Most constants of one function.
const LITERALS_MAX: usize = 8;

/// Formats a review, at most `columns` characters wide: findings, changed functions and keys, costs, the verdict.
pub(super) fn terminal_text(review: &Review, columns: usize) -> String {
    let mut text = String::new();
    for (title, findings) in by_outcome(&review.findings) {
        add_section(&mut text, &title, findings.into_iter().map(finding_lines));
    }
    add_section(&mut text, "changed functions", review.functions.iter().map(function_lines));
    add_section(&mut text, "changed keys", review.keys.iter().map(|key| format!("  {}\n", key_line(key))));
    add_section(&mut text, "cost of adapting", review.costs.iter().map(|cost| format!("  {}\n", cost_line(cost))));
    for note in &review.notes {
        let _ = writeln!(text, "note: {}", one_line(note));
    }
    let _ = writeln!(text, "{}", judged_line(review));
    let wrapped = |line: &str| if line.starts_with('|') { line.to_owned() } else { wrap(line, columns) };
    escape_lines(&text).split('\n').map(wrapped).collect::<Vec<_>>().join("\n")
}

/// Returns the findings with the same outcome together, the gravest first, each group with its title.
pub(super) fn by_outcome(findings: &[ReviewFinding]) -> Vec<(String, Vec<&ReviewFinding>)> {
    let mut groups: Vec<(String, Vec<&ReviewFinding>)> = Vec::new();
    for finding in findings {
        let title = match &finding.outcome {
            Outcome::Allowed => "notes".to_owned(),
            other => other.to_string(),
        };
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, group)) => group.push(finding),
            None => groups.push((title, vec![finding])),
        }
    }
    groups
}

/// Returns the verdict, and as whom and for which commits it was reached.
pub(super) fn judged_line(review: &Review) -> String {
    let needed = review.findings.iter().filter_map(|finding| match &finding.outcome {
        Outcome::Needs(role) => Some(role.to_string()),
        _ => None,
    });
    let needed: BTreeSet<String> = needed.collect();
    let verdict = match review.verdict {
        Verdict::Needs => format!("needs the agreement of {}", needed.into_iter().collect::<Vec<_>>().join(" and ")),
        other => other.phrase().to_owned(),
    };
    let JudgedAs { role, reason, .. } = &review.judged_as;
    let short = |commit: &str| commit[..commit.len().min(12)].to_owned();
    let range = review.commits.as_ref();
    let range = range.map(|commits| format!(" ({}..{})", short(&commits.base), short(&commits.head)));
    format!(
        "{verdict}: {} changed{}, judged as {role}: {}",
        counted(review.changed_files, "file"),
        range.unwrap_or_default(),
        one_line(reason)
    )
}

fn add_section(text: &mut String, title: &str, entries: impl ExactSizeIterator<Item = String>) {
    let number = entries.len();
    if number == 0 {
        return;
    }
    let _ = writeln!(text, "{title} ({number})");
    text.extend(entries.take(ENTRIES_MAX));
    if number > ENTRIES_MAX {
        let _ = writeln!(text, "  {} more (--json lists all)", number - ENTRIES_MAX);
    }
    text.push('\n');
}

fn place(finding: &ReviewFinding) -> String {
    let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{line}", finding.file)
}

fn finding_lines(finding: &ReviewFinding) -> String {
    let mut lines = format!("  {}  [{}]\n    {}\n", place(finding), finding.rule, one_line(&finding.message));
    match finding.hint.split_once(": |") {
        // A row of a table must stay on one line to be copied.
        Some((what, row)) => drop(writeln!(lines, "    hint: {}:\n|{}", one_line(what), one_line(row))),
        None if finding.hint.is_empty() => {}
        None => drop(writeln!(lines, "    hint: {}", one_line(&finding.hint))),
    }
    lines
}

fn function_lines(change: &FunctionChange) -> String {
    let mut lines = format!("  {}\n", function_line(change));
    for detail in function_details(change) {
        let _ = writeln!(lines, "    {detail}");
    }
    lines
}

/// Describes a changed function on one line.
pub(super) fn function_line(change: &FunctionChange) -> String {
    let line = change.line.map(|line| format!(":{line}")).unwrap_or_default();
    let how = match (change.change, &change.moved_from) {
        (FunctionChangeKind::Added, _) => "new".to_owned(),
        (FunctionChangeKind::Removed, _) => "removed".to_owned(),
        (FunctionChangeKind::Moved, Some(from)) => format!("moved, unchanged, from {}", one_line(from)),
        (FunctionChangeKind::Changed | FunctionChangeKind::Moved, _) => "changed".to_owned(),
    };
    let timed = if change.is_timed { ", in the timed path" } else { "" };
    format!("{}{line} {}: {how}{timed}", change.file, one_line(&change.function))
}

/// Describes the calls and the constants that differ, each on one line.
pub(super) fn function_details(change: &FunctionChange) -> Vec<String> {
    let mut details = Vec::new();
    let names = |calls: &[CalledFunction]| calls.iter().map(called).collect::<Vec<_>>().join(", ");
    for (word, calls) in [("new calls", &change.calls_added), ("removed calls", &change.calls_removed)] {
        details.extend((!calls.is_empty()).then(|| format!("{word}: {}", names(calls))));
    }
    details.extend(change.literals.iter().take(LITERALS_MAX).map(literal_line));
    let more = change.literals.len().saturating_sub(LITERALS_MAX);
    details.extend((more > 0).then(|| format!("{more} more constants (--json lists all)")));
    details
}

fn called(call: &CalledFunction) -> String {
    let name = one_line(&call.name);
    match call.packages.is_empty() || name.contains("::") {
        true => name.into_owned(),
        false => format!("{name} ({})", call.packages.join(", ")),
    }
}

fn literal_line(change: &LiteralChange) -> String {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let line = change.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("constant: {line}{before} is changed to {after}"),
        (before, None) => format!("constant: {line}{} is removed", or_none(before)),
        (None, after) => format!("constant: {line}{} is added", or_none(after)),
    }
}

/// Describes a changed key on one line.
pub(super) fn key_line(change: &KeyChange) -> String {
    let line = change.line.map(|line| format!(":{line}")).unwrap_or_default();
    let how = match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{before} is changed to {after}"),
        (None, Some(after)) => format!("{after} (new)"),
        (before, None) => format!("removed (was {})", before.as_deref().unwrap_or_default()),
    };
    format!("{}{line} {}: {how}", change.file, one_line(&change.key))
}

/// Describes the cost of an adaptation on one line.
pub(super) fn cost_line(cost: &AdaptationCost) -> String {
    let named = |number: usize, word: &str, names: &[String]| match names {
        [] => counted(number, word),
        names => format!("{} ({})", counted(number, word), names.join(", ")),
    };
    let mut parts = vec![
        named(cost.keys.len(), "key", &cost.keys),
        named(cost.functions.len(), "function", &cost.functions),
        counted(cost.script_lines, "line") + " of scripts",
    ];
    parts.extend((!cost.requirements.is_empty()).then(|| "requirements of its own".to_owned()));
    parts.push(match (cost.nodes_off_device, cost.nodes) {
        (Some(off), Some(all)) => format!("{off} of {all} nodes not on the device"),
        _ => "nodes not on the device: unknown".to_owned(),
    });
    one_line(&format!("{} with {}: {}", cost.case, cost.vendor, parts.join("; "))).into_owned()
}
