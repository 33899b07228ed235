//! The content of one changed file: keys of YAML, functions of scripts, rows of a table, or only the path.

use std::rc::Rc;

use super::findings::{Comparison, FunctionChange, KeyChange, ReviewFinding};
use super::graph::NoOutline;
use super::keys;
use super::pattern::Pattern;
use super::policy::Judgement;
use super::result_row::differences;
use super::reviewer::ReviewContext;
use super::role::{Outcome, Role};
use super::rows::{ChangedLine, ResultRow, changed_lines, changed_rows};
use super::scripts;
use super::tree::{Change, Side, Unreadable};
use flagperf_config::SettingsFile;
use flagperf_script::ScriptOutline;

/// Most findings about the keys or the rows of one file; another one counts the rest.
const FINDINGS_MAX: usize = 50;

/// A script before and after the change.
pub(super) struct Outlines {
    pub(super) file: String,
    pub(super) before: Option<Rc<ScriptOutline>>,
    pub(super) after: Option<Rc<ScriptOutline>>,
}

/// What the review of the content of a file found.
pub(super) struct ContentReview {
    pub(super) compared: Comparison,
    pub(super) findings: Vec<ReviewFinding>,
    pub(super) keys: Vec<KeyChange>,
    pub(super) functions: Vec<FunctionChange>,
    pub(super) outlines: Option<Outlines>,
}

impl ContentReview {
    fn new(compared: Comparison, findings: Vec<ReviewFinding>) -> Self {
        ContentReview { compared, findings, keys: Vec::new(), functions: Vec::new(), outlines: None }
    }

    /// Returns the review of a file that is not compared because too many files changed.
    pub(super) fn skipped(change: &Change, judgement: &Judgement, role: &Role) -> Self {
        let mut review = by_path(change, judgement);
        review.compared = Comparison::NotCompared;
        if has_structure(change) {
            let message = "too many files changed: the content was not compared".to_owned();
            review.findings.push(not_compared(change, role, None, message));
        }
        review
    }
}

/// Returns whether the content of a file is compared, not only its path.
fn has_structure(change: &Change) -> bool {
    [".yaml", ".yml", ".rhai"].iter().any(|ending| change.path().text().ends_with(ending))
}

/// Reviews the content of a file.
pub(super) fn review_content(context: &ReviewContext<'_>, change: &Change, judgement: &Judgement) -> ContentReview {
    let is_file = |side: Option<&Side>| side.is_none_or(|side| side.kind.is_file() && side.path.is_utf8());
    let name = change.path().text();
    if !is_file(change.before()) || !is_file(change.after()) {
        return by_path(change, judgement);
    }
    match name {
        name if name.ends_with(".rhai") => review_script(context, change, judgement),
        name if name.ends_with(".yaml") || name.ends_with(".yml") => review_keys(context, change, judgement),
        _ if judgement.is_own_rows => review_rows(context, change, judgement),
        _ => by_path(change, judgement),
    }
}

/// Judges a file by its path.
fn by_path(change: &Change, judgement: &Judgement) -> ContentReview {
    let message = match (change.before(), change) {
        (Some(before), Change::Renamed { .. }) => format!("the file is renamed from {}", before.path),
        _ => format!("the file is {}", change.word()),
    };
    let finding = (judgement.outcome != Outcome::Allowed).then(|| finding(change, judgement, None, message));
    ContentReview::new(Comparison::Path, finding.into_iter().collect())
}

/// Judges a file that only differs in layout, and possibly in its name.
fn by_layout(change: &Change, judgement: &Judgement) -> ContentReview {
    let mut review = match change {
        Change::Renamed { .. } => by_path(change, judgement),
        _ => ContentReview::new(Comparison::LayoutOnly, Vec::new()),
    };
    review.compared = Comparison::LayoutOnly;
    review.findings.push(finding(change, judgement, None, "only layout, comments or order changed".to_owned()));
    review
}

fn finding(change: &Change, judgement: &Judgement, line: Option<usize>, message: String) -> ReviewFinding {
    let (outcome, rule) = (judgement.outcome.clone(), judgement.rule.clone());
    let hint = if outcome == Outcome::Allowed { String::new() } else { judgement.explanation.clone() };
    ReviewFinding { outcome, rule, file: change.path().clone(), line, message, hint }
}

/// Returns the finding about a file whose content should have been compared.
fn not_compared(change: &Change, role: &Role, line: Option<usize>, message: String) -> ReviewFinding {
    let outcome = if *role == Role::Maintainer { Outcome::Allowed } else { Outcome::Needs(Role::Maintainer) };
    ReviewFinding {
        outcome,
        rule: "not-compared".to_owned(),
        file: change.path().clone(),
        line,
        message,
        hint: String::new(),
    }
}

/// Returns the texts of a file before and after the change.
fn texts(context: &ReviewContext<'_>, change: &Change) -> Result<(Option<String>, Option<String>), Unreadable> {
    let before = change.before().map(|side| context.before.text(side.path.text()));
    let after = change.after().map(|side| context.after.text(side.path.text())).transpose()?;
    // What an unreadable version contained is not judged, only what the change leaves.
    Ok((before.and_then(Result::ok), after))
}

fn review_keys(context: &ReviewContext<'_>, change: &Change, judgement: &Judgement) -> ContentReview {
    let refuse = |line: Option<usize>, message: String| {
        let mut review = by_path(change, judgement);
        review.compared = Comparison::NotCompared;
        review.findings.push(not_compared(change, context.role, line, message));
        review
    };
    let (before, after) = match texts(context, change) {
        Ok(texts) => texts,
        Err(reason) => return refuse(None, reason.to_string()),
    };
    // A file that is gone, or of which only the name or the mode differs.
    if after.is_none() || before == after {
        return by_path(change, judgement);
    }
    let changes = match keys::compare(change.path(), before.as_deref(), after.as_deref()) {
        Ok(changes) => changes,
        Err(mistake) => return refuse(Some(mistake.place.line), format!("the file is not YAML: {mistake}")),
    };
    if changes.is_empty() {
        return by_layout(change, judgement);
    }
    let judged: Vec<ReviewFinding> =
        changes.iter().filter_map(|key| judge_key(context, change, judgement, key)).collect();
    let mut review = ContentReview::new(Comparison::Keys, shortened(change, judged, "keys"));
    review.keys = changes;
    review
}

/// Judges a changed key: by the program's own table for overlays, by a rule about keys, or else by the rule about the path.
fn judge_key(
    context: &ReviewContext<'_>,
    change: &Change,
    judgement: &Judgement,
    key: &KeyChange,
) -> Option<ReviewFinding> {
    let path = change.path().text();
    let message = match (&key.before, &key.after) {
        (Some(before), Some(after)) => format!("`{}` changes from `{before}` to `{after}`", key.key),
        (None, Some(after)) => format!("`{}` is added with the value `{after}`", key.key),
        (before, None) => format!("`{}` is removed; it was `{}`", key.key, before.as_deref().unwrap_or_default()),
    };
    if let Some((file, case)) = overlay_of(path).filter(|_| key.after.is_some())
        && let Some(reason) = keys::overlay_refusal(&file, &key.key, &case, context.after)
    {
        let rule = Judgement { outcome: Outcome::Refused, rule: "key-owner".to_owned(), ..judgement.clone() };
        return Some(ReviewFinding { hint: reason, ..finding(change, &rule, key.line, message) });
    }
    let judged = context.policy.judge_key(path, &key.key, context.role).unwrap_or_else(|| judgement.clone());
    (judged.outcome != Outcome::Allowed).then(|| finding(change, &judged, key.line, message))
}

/// Returns the file that a vendor's overlay at this path changes, and its case.
fn overlay_of(path: &str) -> Option<(SettingsFile, String)> {
    SettingsFile::ALL.into_iter().find_map(|file| {
        let pattern = Pattern::parse(&file.overlay_path("<case>", "<vendor>")).ok()?;
        Some((file, pattern.matches(path)?.case?))
    })
}

/// Keeps the first findings about parts of a file, and counts the others.
fn shortened(change: &Change, mut findings: Vec<ReviewFinding>, what: &str) -> Vec<ReviewFinding> {
    if findings.len() > FINDINGS_MAX {
        findings.sort_by(|one, other| other.outcome.cmp(&one.outcome));
        let more = findings.len() - FINDINGS_MAX;
        findings.truncate(FINDINGS_MAX);
        let last = findings.last().cloned();
        findings.extend(last.map(|last| ReviewFinding {
            file: change.path().clone(),
            line: None,
            message: format!("{more} more {what} of this file are not listed"),
            ..last
        }));
    }
    findings
}

fn review_rows(context: &ReviewContext<'_>, change: &Change, judgement: &Judgement) -> ContentReview {
    if judgement.outcome != Outcome::Allowed || *context.role == Role::Maintainer {
        return by_path(change, judgement);
    }
    let (Ok((before, after)), false) = (texts(context, change), matches!(change, Change::Renamed { .. })) else {
        return by_path(change, &Judgement { outcome: Outcome::Needs(Role::Maintainer), ..judgement.clone() });
    };
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let judged = |(line, outcome, message): (usize, Outcome, String)| {
        finding(change, &Judgement { outcome, ..judgement.clone() }, Some(line), message)
    };
    let of_text = match context.role {
        Role::Vendor(vendor) => other_lines(vendor, &before, &after),
        _ => Vec::new(),
    };
    let mut findings: Vec<ReviewFinding> = of_text.into_iter().map(judged).collect();
    findings.extend(unproven_rows(context, change, &before, &after).into_iter().map(judged));
    findings.dedup();
    ContentReview::new(Comparison::Rows, shortened(change, findings, "lines"))
}

/// Judges the changed lines that are no rows of the vendor.
fn other_lines(vendor: &str, before: &str, after: &str) -> Vec<(usize, Outcome, String)> {
    let lines = changed_lines(before, after).into_iter().filter_map(|(line, kind)| match kind {
        ChangedLine::Row(own) if own == vendor => None,
        ChangedLine::Row(other) => {
            Some((line, Outcome::Refused, format!("a row of `{}` is changed", keys::shown(&other))))
        }
        ChangedLine::Text => {
            let message = "text beside the vendor's own rows is changed".to_owned();
            Some((line, Outcome::Needs(Role::CaseAuthor), message))
        }
    });
    lines.collect()
}

/// Judges the changed rows of results: a row is allowed only if it follows from a record that the same change adds and that `verify`
/// accepts.
fn unproven_rows(
    context: &ReviewContext<'_>,
    change: &Change,
    before: &str,
    after: &str,
) -> Vec<(usize, Outcome, String)> {
    let (added, removed) = changed_rows(before, after);
    let folder = change.path().folder();
    let is_proven = |row: &ResultRow| {
        let record = row.record(folder);
        let record = context.accepted.iter().find(|accepted| Some(&accepted.path) == record.as_ref());
        record.is_some_and(|record| differences(&row.columns, &row.cells, &record.value).is_empty())
    };
    let mut unproven: Vec<(usize, String)> = Vec::new();
    for row in added.iter().filter(|row| !is_proven(row)) {
        let message = "a row of results is added or changed, and follows from no record that this change adds and `verify` accepts";
        unproven.push((row.line, message.to_owned()));
    }
    for row in &removed {
        let shown = keys::shown(&row.cells.join(" | "));
        unproven.push((1, format!("a row of results is removed or changed: `{shown}`")));
    }
    unproven.into_iter().map(|(line, message)| (line, Outcome::Needs(Role::Maintainer), message)).collect()
}

fn review_script(context: &ReviewContext<'_>, change: &Change, judgement: &Judgement) -> ContentReview {
    let (before, after) = context.trees;
    let old = change.before().and_then(|side| before.outline(side.path.text()).ok());
    let new = match change.after().map(|side| after.outline(side.path.text())).transpose() {
        Ok(new) => new,
        Err(NoOutline::Unreadable(reason)) => {
            let mut review = by_path(change, judgement);
            review.compared = Comparison::NotCompared;
            review.findings.push(not_compared(change, context.role, None, reason.to_string()));
            return review;
        }
        Err(NoOutline::Syntax(problem)) => return unparsed(context, change, judgement, problem.line, &problem.reason),
    };
    let functions = scripts::compare(change.path(), old.as_deref(), new.as_deref());
    if functions.is_empty() && change.after().is_some() {
        let is_same = texts(context, change).is_ok_and(|(before, after)| before == after);
        return if is_same { by_path(change, judgement) } else { by_layout(change, judgement) };
    }
    // Each function is judged when those that only moved are known.
    let mut review = ContentReview::new(Comparison::Functions, Vec::new());
    if matches!(change, Change::Renamed { .. }) || functions.is_empty() {
        review.findings = by_path(change, judgement).findings;
    }
    review.functions = functions;
    review.outlines = Some(Outlines { file: change.path().text().to_owned(), before: old, after: new });
    review
}

/// Returns the review of a script that does not parse.
fn unparsed(
    context: &ReviewContext<'_>,
    change: &Change,
    judgement: &Judgement,
    line: usize,
    reason: &str,
) -> ContentReview {
    let mut review = by_path(change, judgement);
    review.compared = Comparison::NotCompared;
    let outcome = context.policy.judge_check("script-syntax", context.role, judgement.bindings.vendor.as_deref());
    review.findings.push(ReviewFinding {
        outcome,
        rule: "script-syntax".to_owned(),
        file: change.path().clone(),
        line: (line > 0).then_some(line),
        message: format!("the script cannot be parsed: {}", keys::shown(reason)),
        hint: String::new(),
    });
    review
}
