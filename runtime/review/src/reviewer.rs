//! Computes the findings of a review from a policy, two trees, their changes and a role.

use std::collections::{BTreeSet, HashMap};

use super::content::{ContentReview, Outlines, review_content};
use super::cost::costs;
use super::entries::check_entry;
use super::findings::{Comparison, FileReview, FunctionChange, JudgedAs, Review, ReviewFinding, SCHEMA, Verdict};
use super::graph::{FunctionKey, ScriptTree};
use super::judge::{choose_role, judge_change};
use super::loader::loader_variables;
use super::policy::{Judgement, Policy, SubmissionRule};
use super::published::{OutdatedRow, outdated_rows};
use super::role::{Outcome, Role};
use super::scripts::{STATEMENTS, join_moved};
use super::submission::{NewRecord, accepted_records, check_submission, new_records};
use super::suspicion::{Suspicion, check_evaluators, check_forward};
use super::tree::{Change, Snapshot};
use flagperf_script::{FunctionOutline, ScriptParser};

/// Most files whose content is compared; the others are judged by their paths, and a finding says so.
pub const COMPARED_MAX: usize = 20_000;

/// What is reviewed.
pub struct ReviewRequest<'r> {
    /// The policy that applies: that of the tree before.
    pub policy: &'r Policy,
    /// The tree before.
    pub before: &'r dyn Snapshot,
    /// The tree after.
    pub after: &'r dyn Snapshot,
    /// What differs between the two.
    pub changes: &'r [Change],
    /// As whom the change is judged; `None` to infer it from the changed files.
    pub role: Option<&'r Role>,
    /// Parses scripts.
    pub parser: &'r ScriptParser,
}

/// Reviews a change.
pub fn review(request: &ReviewRequest<'_>) -> Review {
    let judged_as = choose_role(request.role, request.policy, request.changes);
    let [old, new] = [request.before, request.after].map(|snapshot| ScriptTree::new(snapshot, request.parser));
    let rule = request.policy.submission.as_ref();
    let vendor = if let Role::Vendor(vendor) = &judged_as.role { Some(vendor.as_str()) } else { None };
    let records = rule.map(|rule| new_records(rule, vendor, request.changes, request.after)).unwrap_or_default();
    let accepted = rule.map(|rule| accepted_records(rule, &records, request.after)).unwrap_or_default();
    let mut reviewer = Reviewer {
        request,
        role: &judged_as.role,
        trees: (&old, &new),
        accepted: &accepted,
        parts: Parts::default(),
        outlines: Vec::new(),
    };
    request.changes.iter().enumerate().for_each(|(at, change)| reviewer.review_change(at, change));
    reviewer.review_functions();
    reviewer.review_published();
    let Parts { mut findings, files, keys, functions, mut notes } = reviewer.parts;
    if let (Some(rule), Some(vendor)) = (rule, vendor) {
        findings.extend(check_submission(rule, vendor, request.changes, &records, request.after));
    }
    findings.extend(unknown_author(&judged_as, request.changes));
    let costs = costs(request.policy, request.changes, &records, (request.after, &new));
    findings.sort_by(|one, other| other.outcome.cmp(&one.outcome));
    notes.extend(request.changes.is_empty().then(|| "nothing changed".to_owned()));
    let changed_files = request.changes.len();
    let verdict = verdict(&findings);
    Review {
        schema: SCHEMA,
        commits: None,
        verdict,
        judged_as,
        changed_files,
        findings,
        files,
        keys,
        functions,
        costs,
        notes,
    }
}

/// Returns the finding about a change that belongs to no vendor, and of which nobody said that the author of a case made it.
fn unknown_author(judged_as: &JudgedAs, changes: &[Change]) -> Option<ReviewFinding> {
    let first = changes.first().filter(|_| !judged_as.is_given && judged_as.role == Role::CaseAuthor)?;
    Some(ReviewFinding {
        outcome: Outcome::Needs(Role::CaseAuthor),
        rule: "role".to_owned(),
        file: first.path().clone(),
        line: None,
        message: format!("nobody said whose change this is ({})", judged_as.reason),
        hint: "if the author of the case made it, give --as case-author".to_owned(),
    })
}

fn verdict(findings: &[ReviewFinding]) -> Verdict {
    match findings.iter().map(|finding| &finding.outcome).max() {
        None | Some(Outcome::Allowed) => Verdict::Allowed,
        Some(Outcome::Needs(_)) => Verdict::Needs,
        Some(Outcome::Refused) => Verdict::Refused,
    }
}

#[derive(Default)]
struct Parts {
    findings: Vec<ReviewFinding>,
    files: Vec<FileReview>,
    keys: Vec<super::findings::KeyChange>,
    functions: Vec<FunctionChange>,
    notes: Vec<String>,
}

struct Reviewer<'r> {
    request: &'r ReviewRequest<'r>,
    role: &'r Role,
    trees: (&'r ScriptTree<'r>, &'r ScriptTree<'r>),
    accepted: &'r [NewRecord],
    parts: Parts,
    outlines: Vec<Outlines>,
}

impl Reviewer<'_> {
    fn review_change(&mut self, at: usize, change: &Change) {
        let judgement = judge_change(self.request.policy, change, self.role);
        self.parts.findings.extend(check_entry(change, self.role, self.request.after));
        let is_published = |rule: &SubmissionRule| change.paths().iter().all(|path| rule.is_published(path.text()));
        let is_data = self.request.policy.submission.as_ref().is_some_and(is_published);
        let trees = (self.request.before, self.request.after);
        for (line, name) in loader_variables(change, trees).into_iter().filter(|_| !is_data) {
            let message = format!("`{name}` may load code that no record contains");
            let suspicion = Suspicion { check: "loader-variable", file: change.path().clone(), line, message };
            let finding = self.judge_suspicion(suspicion);
            self.parts.findings.extend((finding.outcome != Outcome::Allowed).then_some(finding));
        }
        let context = ReviewContext {
            policy: self.request.policy,
            role: self.role,
            before: self.request.before,
            after: self.request.after,
            trees: self.trees,
            accepted: self.accepted,
        };
        let content = match at < COMPARED_MAX {
            true => review_content(&context, change, &judgement),
            false => ContentReview::skipped(change, &judgement, self.role),
        };
        self.parts.findings.extend(content.findings);
        self.parts.keys.extend(content.keys);
        self.parts.functions.extend(content.functions);
        self.outlines.extend(content.outlines);
        self.parts.files.push(FileReview {
            file: change.path().clone(),
            renamed_from: change.before().map(|side| side.path.clone()).filter(|path| path != change.path()),
            change: change.word(),
            rule: judgement.rule,
            outcome: judgement.outcome,
            compared: content.compared,
        });
    }

    /// Judges changes of files with which published results were measured.
    fn review_published(&mut self) {
        let Some(rule) = &self.request.policy.submission else { return };
        let files = self.parts.files.iter().filter(|file| file.compared != Comparison::LayoutOnly);
        let paths: Vec<String> = files
            .map(|file| file.renamed_from.as_ref().unwrap_or(&file.file).text().to_owned())
            .filter(|path| path.starts_with("scripts/") || path.starts_with("configs/"))
            .collect();
        let changed = paths.iter().map(String::as_str).collect();
        for row in outdated_rows(&rule.table, &changed, (self.request.before, self.request.after)) {
            let OutdatedRow { table, line, record, file } = row;
            let message = format!(
                "the result of this row can no longer be reproduced: {record} was made with the earlier `{file}`"
            );
            let check = "published-record";
            let finding = self.judge_suspicion(Suspicion { check, file: table.as_str().into(), line, message });
            let hint = "measure again, or remove the row".to_owned();
            self.parts.findings.push(ReviewFinding { hint, ..finding });
        }
    }

    /// Judges the changed functions, after those that only moved are known.
    fn review_functions(&mut self) {
        if self.outlines.is_empty() {
            return;
        }
        let mut functions = std::mem::take(&mut self.parts.functions);
        let outlines: HashMap<&str, &Outlines> =
            self.outlines.iter().map(|script| (script.file.as_str(), script)).collect();
        join_moved(&mut functions, |is_later, change| find_function(&outlines, is_later, change));
        let changed: BTreeSet<FunctionKey> =
            functions.iter().map(|change| (change.file.text().to_owned(), change.function.clone())).collect();
        let timed = self.timed_functions();
        for change in &mut functions {
            change.is_timed = timed.contains(&(change.file.text().to_owned(), change.function.clone()))
                // What a script imports decides what its functions call.
                || change.function == STATEMENTS && timed.iter().any(|(file, _)| file == change.file.text());
        }
        for change in &functions {
            let finding = self.judge_function(change);
            self.parts.findings.extend(finding);
        }
        let (before, after) = self.trees;
        let changed = self.with_all_of_changed_imports(changed);
        let mut suspicions = check_forward(before, after, &changed);
        suspicions.extend(check_evaluators(before, after, &changed));
        for suspicion in suspicions {
            let finding = self.judge_suspicion(suspicion);
            self.parts.findings.push(finding);
        }
        self.parts.functions = functions;
    }

    /// Adds all functions of the scripts whose statements outside functions changed: their imports may lead elsewhere.
    fn with_all_of_changed_imports(&self, mut changed: BTreeSet<FunctionKey>) -> BTreeSet<FunctionKey> {
        for script in &self.outlines {
            if changed.contains(&(script.file.clone(), STATEMENTS.to_owned())) {
                let functions = script.after.iter().flat_map(|outline| &outline.functions);
                changed.extend(functions.map(|function| (script.file.clone(), function.name.clone())));
            }
        }
        changed
    }

    fn timed_functions(&self) -> BTreeSet<FunctionKey> {
        let (before, after) = self.trees;
        let of_tree = |tree: &ScriptTree<'_>| -> BTreeSet<FunctionKey> {
            tree.forward_functions().iter().flat_map(|function| tree.reachable(function)).collect()
        };
        of_tree(before).union(&of_tree(after)).cloned().collect()
    }

    /// Judges a changed function: by a rule about functions, or else by the rule about the path.
    fn judge_function(&self, change: &FunctionChange) -> Option<ReviewFinding> {
        let policy = self.request.policy;
        let by_path = || policy.judge_path(change.file.text(), self.role);
        let judged = policy.judge_function(change.file.text(), &change.function, self.role).unwrap_or_else(by_path);
        let Judgement { rule, outcome, explanation, .. } = judged;
        (outcome != Outcome::Allowed).then(|| ReviewFinding {
            outcome,
            rule,
            file: change.file.clone(),
            line: change.line,
            message: describe_function(change),
            hint: explanation,
        })
    }

    fn judge_suspicion(&self, suspicion: Suspicion) -> ReviewFinding {
        let Suspicion { check, file, line, message } = suspicion;
        let owner = self.request.policy.judge_path(file.text(), self.role).bindings.vendor;
        let outcome = self.request.policy.judge_check(check, self.role, owner.as_deref());
        ReviewFinding { outcome, rule: check.to_owned(), file, line: Some(line), message, hint: String::new() }
    }
}

/// What the review of one file needs.
pub(super) struct ReviewContext<'r> {
    pub(super) policy: &'r Policy,
    pub(super) role: &'r Role,
    pub(super) before: &'r dyn Snapshot,
    pub(super) after: &'r dyn Snapshot,
    pub(super) trees: (&'r ScriptTree<'r>, &'r ScriptTree<'r>),
    /// The records that the change adds and in which nothing is wrong.
    pub(super) accepted: &'r [NewRecord],
}

fn find_function<'o>(
    outlines: &HashMap<&str, &'o Outlines>,
    is_later: bool,
    change: &FunctionChange,
) -> Option<&'o FunctionOutline> {
    let script = outlines.get(change.file.text())?;
    let outline = if is_later { &script.after } else { &script.before };
    let mut functions = outline.as_ref()?.functions.iter();
    functions.find(|own| own.name == change.function && (!is_later || Some(own.line) == change.line))
}

/// Describes a changed function in a finding.
fn describe_function(change: &FunctionChange) -> String {
    use super::findings::FunctionChangeKind::{Added, Changed, Moved, Removed};
    let how = match (change.change, &change.moved_from) {
        (Added, _) => "is new".to_owned(),
        (Removed, _) => "is removed".to_owned(),
        (Moved, Some(from)) => format!("is moved, unchanged, from {from}"),
        (Changed | Moved, _) => "is changed".to_owned(),
    };
    let timed = if change.is_timed { " (in the timed path)" } else { "" };
    format!("`{}` {how}{timed}", change.function)
}
