//! The policy: which role may change which paths, keys and functions.
//!
//! Reads review.yaml. Knows no repository: the caller decides which version of the file applies.

use indexmap::IndexMap;

use super::pattern::{Bindings, Pattern};
use super::role::{Decision, Decisions, Outcome, Role};
use flagperf_config::{Content, Node, list_names, nearest, parse_yaml};

/// The policy file, relative to the root of the repository.
pub const POLICY_FILE: &str = "review.yaml";

/// The rule of a path that no rule of the policy mentions.
const UNLISTED: &str = "unlisted";

/// The names of the checks of scripts and of other files, for which a policy has decisions.
pub const CHECKS: [&str; 8] = [
    "script-syntax",
    "unused-truth",
    "replaced-truth",
    "engine-not-run",
    "conditional-run",
    "fewer-rows",
    "loader-variable",
    "published-record",
];

/// A policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    paths: Vec<Rule>,
    keys: Vec<Rule>,
    functions: Vec<Rule>,
    checks: IndexMap<String, Decisions>,
    pub(super) submission: Option<SubmissionRule>,
}

/// A rule: what it is about, and what it decides.
#[derive(Clone, Debug)]
struct Rule {
    name: String,
    /// The line of the rule in the policy, and what it is about.
    explanation: String,
    files: Vec<Pattern>,
    /// Patterns of keys or functions; empty for a rule about paths.
    names: Vec<Pattern>,
    /// Whether a vendor may change only rows that begin with its name, in tables of the file.
    is_own_rows: bool,
    decisions: Decisions,
}

/// What a vendor has to submit with an adaptation.
#[derive(Clone, Debug)]
pub(super) struct SubmissionRule {
    /// The files of an adaptation.
    pub(super) adaptation: Vec<Pattern>,
    /// The files of engines, and those that match but belong to none.
    pub(super) engines: Vec<Pattern>,
    pub(super) no_engines: Vec<Pattern>,
    pub(super) records: Pattern,
    /// The name of the log beside each record.
    pub(super) log: String,
    /// The file with the table of results of a case.
    pub(super) table: String,
}

impl SubmissionRule {
    /// Returns whether a file is a record, or lies in the folder of one.
    pub(super) fn is_published(&self, path: &str) -> bool {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let name = self.records.text().rsplit('/').next().unwrap_or_default();
        self.records.matches(&format!("{folder}/{name}")).is_some()
    }
}

/// A mistake in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{POLICY_FILE}:{line}: {reason}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// Lower-case description of the mistake.
    pub reason: String,
}

/// What the policy decides about a path, a key or a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) rule: String,
    /// What a reader has to know about the rule.
    pub(super) explanation: String,
    pub(super) outcome: Outcome,
    pub(super) bindings: Bindings,
    pub(super) is_own_rows: bool,
}

type Fallible<T> = Result<T, PolicyError>;

fn error(node: &Node, reason: impl Into<String>) -> PolicyError {
    PolicyError { line: node.place.line, reason: reason.into() }
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// On malformed YAML, and on unknown keys and decisions.
    pub fn parse(text: &str) -> Fallible<Policy> {
        let root = parse_yaml(text).map_err(|cause| PolicyError { line: cause.place.line, reason: cause.reason })?;
        let mut policy = Policy::default();
        for (key, node) in map(&root)? {
            match key.as_str() {
                "paths" => policy.paths = rules(node, None)?,
                "keys" => policy.keys = rules(node, Some("keys"))?,
                "functions" => policy.functions = rules(node, Some("functions"))?,
                "checks" => policy.checks = checks(node)?,
                "submission" => policy.submission = Some(submission(node)?),
                _ => return Err(unknown(key, node, &["paths", "keys", "functions", "checks", "submission"])),
            }
        }
        Ok(policy)
    }

    /// Judges a change of a path.
    pub(super) fn judge_path(&self, path: &str, role: &Role) -> Judgement {
        let unlisted = || Judgement {
            rule: UNLISTED.to_owned(),
            explanation: format!("no rule of {POLICY_FILE} matches this path"),
            outcome: Decisions::default().outcome(role, None),
            bindings: Bindings::default(),
            is_own_rows: false,
        };
        judge(&self.paths, path, None, role).unwrap_or_else(unlisted)
    }

    /// Judges a change of a key, by the rules about keys only.
    pub(super) fn judge_key(&self, path: &str, key: &str, role: &Role) -> Option<Judgement> {
        judge(&self.keys, path, Some(key), role)
    }

    /// Judges a change of a function, by the rules about functions only.
    pub(super) fn judge_function(&self, path: &str, function: &str, role: &Role) -> Option<Judgement> {
        judge(&self.functions, path, Some(function), role)
    }

    /// Judges what a check of [`CHECKS`] found in a file that belongs to `owner`, if to a vendor.
    pub(super) fn judge_check(&self, check: &str, role: &Role, owner: Option<&str>) -> Outcome {
        self.checks.get(check).copied().unwrap_or_default().outcome(role, owner)
    }
}

/// Returns what the last rule decides that matches; the last of its patterns that match names the vendor and the case.
fn judge(rules: &[Rule], path: &str, name: Option<&str>, role: &Role) -> Option<Judgement> {
    let is_about = |rule: &&Rule| name.is_none_or(|name| rule.names.iter().any(|pattern| matches_name(pattern, name)));
    let bindings = |rule: &Rule| rule.files.iter().rev().find_map(|pattern| pattern.matches(path));
    let (rule, bindings) = rules.iter().rev().filter(is_about).find_map(|rule| Some((rule, bindings(rule)?)))?;
    let outcome = rule.decisions.outcome(role, bindings.vendor.as_deref());
    let (rule_name, explanation) = (rule.name.clone(), rule.explanation.clone());
    Some(Judgement { rule: rule_name, explanation, outcome, bindings, is_own_rows: rule.is_own_rows })
}

/// Returns whether a pattern matches a key or one of the keys that contain it, or a function.
fn matches_name(pattern: &Pattern, name: &str) -> bool {
    let ends = name.char_indices().filter(|(_, c)| ['.', '['].contains(c)).map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().any(|end| pattern.matches(&name[..end].replace('/', "_")).is_some())
}

fn rules(node: &Node, names: Option<&str>) -> Fallible<Vec<Rule>> {
    let mut known = vec!["about", "match", "vendor", "other-vendor", "case-author", "maintainer"];
    known.extend(names.or(Some("own-rows")));
    map(node)?.iter().map(|(name, node)| rule(name, node, names, &known)).collect()
}

fn rule(name: &str, node: &Node, names: Option<&str>, known: &[&str]) -> Fallible<Rule> {
    let entries = map(node)?;
    if let Some((key, node)) = entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(unknown(key, node, known));
    }
    let matching = entries.get("match").ok_or_else(|| error(node, format!("rule `{name}` lacks the key `match`")))?;
    let about = entries.get("about").map(text).transpose()?.map(|about| format!(": {about}")).unwrap_or_default();
    let mut rule = Rule {
        name: name.to_owned(),
        explanation: format!("rule `{name}` in {POLICY_FILE}:{}{about}", node.place.line),
        files: patterns(matching)?,
        names: Vec::new(),
        is_own_rows: entries.get("own-rows").is_some_and(|node| node.value() == true),
        decisions: decisions(entries)?,
    };
    if let Some(key) = names {
        let node = entries.get(key).ok_or_else(|| error(node, format!("rule `{name}` lacks the key `{key}`")))?;
        rule.names = patterns(node)?;
    }
    Ok(rule)
}

fn decisions(entries: &IndexMap<String, Node>) -> Fallible<Decisions> {
    let mut decisions = Decisions::default();
    let read = |key: &str, place: &mut Decision| -> Fallible<()> {
        if let Some(node) = entries.get(key) {
            *place = Decision::parse(text(node)?).map_err(|reason| error(node, reason))?;
        }
        Ok(())
    };
    read("vendor", &mut decisions.vendor)?;
    if decisions.vendor != Decision::Allowed {
        decisions.other_vendor = decisions.vendor;
    }
    read("other-vendor", &mut decisions.other_vendor)?;
    read("case-author", &mut decisions.case_author)?;
    read("maintainer", &mut decisions.maintainer)?;
    Ok(decisions)
}

fn checks(node: &Node) -> Fallible<IndexMap<String, Decisions>> {
    let mut checks = IndexMap::new();
    for (name, node) in map(node)? {
        if !CHECKS.contains(&name.as_str()) {
            return Err(unknown(name, node, &CHECKS));
        }
        let known = ["about", "vendor", "other-vendor", "case-author", "maintainer"];
        let entries = map(node)?;
        if let Some((key, node)) = entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(unknown(key, node, &known));
        }
        checks.insert(name.clone(), decisions(entries)?);
    }
    Ok(checks)
}

fn submission(node: &Node) -> Fallible<SubmissionRule> {
    let entries = map(node)?;
    let known = ["about", "adaptation", "engines", "no-engines", "records", "log", "table"];
    if let Some((key, node)) = entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(unknown(key, node, &known));
    }
    let part = |key: &str| entries.get(key).ok_or_else(|| error(node, format!("`submission` lacks the key `{key}`")));
    let records = part("records")?;
    Ok(SubmissionRule {
        adaptation: patterns(part("adaptation")?)?,
        engines: entries.get("engines").map(patterns).transpose()?.unwrap_or_default(),
        no_engines: entries.get("no-engines").map(patterns).transpose()?.unwrap_or_default(),
        records: Pattern::parse(text(records)?).map_err(|reason| error(records, reason))?,
        log: text(part("log")?)?.to_owned(),
        table: text(part("table")?)?.to_owned(),
    })
}

fn unknown(key: &str, node: &Node, known: &[&str]) -> PolicyError {
    let near = nearest(key, known.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
    let near = near.unwrap_or_else(|| format!(" (known: {})", list_names(known.iter().copied())));
    error(node, format!("unknown key `{key}`{near}"))
}

fn map(node: &Node) -> Fallible<&IndexMap<String, Node>> {
    match &node.content {
        Content::Map(entries) => Ok(entries),
        _ => Err(error(node, "expected a mapping of keys to values")),
    }
}

fn text(node: &Node) -> Fallible<&str> {
    match &node.content {
        Content::Scalar { text, .. } => Ok(text),
        _ => Err(error(node, "expected a string")),
    }
}

fn patterns(node: &Node) -> Fallible<Vec<Pattern>> {
    let Content::List(items) = &node.content else { return Err(error(node, "expected a list of patterns")) };
    let parse = |item: &Node| Pattern::parse(text(item)?).map_err(|reason| error(item, reason));
    items.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(policy: &str, path: &str, role: &str) -> String {
        let found = Policy::parse(policy).unwrap().judge_path(path, &role.parse().unwrap());
        format!("{}: {}", found.rule, found.outcome)
    }

    const POLICY: &str = "paths:\n  all:\n    match: ['**']\n    vendor: refused\n  own:\n    match: ['vendors/<vendor>/**']\n    \
                          vendor: allowed\n    case-author: needs vendor\n";

    #[test]
    fn the_last_rule_that_matches_decides() {
        assert_eq!(judged(POLICY, "vendors/acme/x", "vendor:acme"), "own: allowed");
        assert_eq!(judged(POLICY, "vendors/acme/x", "vendor:other"), "own: refused");
        assert_eq!(judged(POLICY, "vendors/acme/x", "case-author"), "own: needs vendor:acme");
        assert_eq!(judged(POLICY, "runtime/x", "vendor:acme"), "all: refused");
        assert_eq!(judged(POLICY, "runtime/x", "maintainer"), "all: allowed");
        assert_eq!(judged("{}", "runtime/x", "vendor:acme"), "unlisted: refused");
        let reversed =
            "paths:\n  own: {match: ['vendors/**'], vendor: allowed}\n  all: {match: ['**'], vendor: refused}\n";
        assert_eq!(judged(reversed, "vendors/acme/x", "vendor:acme"), "all: refused");
    }

    #[test]
    fn the_last_pattern_of_a_rule_that_matches_names_the_vendor() {
        let policy = "paths:\n  own:\n    match: ['a/<vendor>/**', 'a/*/<vendor>.txt']\n    vendor: allowed\n";
        assert_eq!(judged(policy, "a/acme/x", "vendor:acme"), "own: allowed");
        assert_eq!(judged(policy, "a/other/acme.txt", "vendor:acme"), "own: allowed");
        assert_eq!(judged(policy, "a/acme/other.txt", "vendor:acme"), "own: refused");
    }

    #[test]
    fn a_rule_about_a_key_is_about_what_the_key_contains() {
        let text = "keys:\n  goal: {match: ['**'], keys: ['target_*']}\n";
        let policy = Policy::parse(text).unwrap();
        let vendor = "vendor:acme".parse().unwrap();
        assert!(policy.judge_key("a", "target_accuracy.top1", &vendor).is_some());
        assert!(policy.judge_key("a", "targets[0]", &vendor).is_none());
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, line, reason) in [
            ("paths:\n  a:\n    match: ['**']\n    vendor: maybe\n", 4, "`maybe` is no decision"),
            ("paths:\n  a:\n    vendor: allowed\n", 2, "rule `a` lacks the key `match`"),
            ("pahts: {}\n", 1, "unknown key `pahts`; did you mean `paths`?"),
            ("checks:\n  unused-trut: {}\n", 2, "unknown key `unused-trut`; did you mean `unused-truth`?"),
            ("paths: [\n", 2, ""),
        ] {
            let found = Policy::parse(text).unwrap_err();
            assert_eq!(found.line, line, "{text}: {found}");
            assert!(found.reason.starts_with(reason), "{text}: {found}");
        }
    }
}
