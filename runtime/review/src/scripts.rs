//! Differences of scripts, function by function.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::findings::{CalledFunction, FunctionChange, FunctionChangeKind, LiteralChange};
use super::keys::shown;
use super::tree::FilePath;
use flagperf_script::{FunctionOutline, NodeKind, ScriptOutline, SyntaxNode, packages_of};

/// The name under which the statements outside all functions are listed.
pub(super) const STATEMENTS: &str = "statements";

/// Most constants listed for one function.
const LITERALS_MAX: usize = 50;

/// Most nodes whose order is compared: the comparison of larger trees takes too long, and lists no constants.
const NODES_MAX: usize = 20_000;

/// Returns how the functions of a script differ; an absent version has none.
pub(super) fn compare(
    file: &FilePath,
    before: Option<&ScriptOutline>,
    after: Option<&ScriptOutline>,
) -> Vec<FunctionChange> {
    let empty = ScriptOutline::default();
    let (old, new) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let mut changes = Vec::new();
    for function in &new.functions {
        let earlier = old.find(&function.name, function.parameters.len());
        match earlier {
            Some(earlier) if earlier.has_same_tree(function) => {}
            Some(earlier) => {
                changes.push(change(file, FunctionChangeKind::Changed, Some((earlier, old)), Some((function, new))));
            }
            None => changes.push(change(file, FunctionChangeKind::Added, None, Some((function, new)))),
        }
    }
    for function in &old.functions {
        if new.find(&function.name, function.parameters.len()).is_none() {
            changes.push(change(file, FunctionChangeKind::Removed, Some((function, old)), None));
        }
    }
    let [one, two] = [old, new].map(statements);
    if !one.has_same_tree(&two) || old.imports != new.imports {
        let of = |outline: &ScriptOutline| !outline.statements.is_empty();
        let kind = match (of(old), of(new)) {
            (false, _) => FunctionChangeKind::Added,
            (_, false) => FunctionChangeKind::Removed,
            _ => FunctionChangeKind::Changed,
        };
        changes.push(change(file, kind, Some((&one, old)), Some((&two, new))));
    }
    changes
}

/// Returns the statements outside all functions as a function.
fn statements(outline: &ScriptOutline) -> FunctionOutline {
    FunctionOutline {
        name: STATEMENTS.to_owned(),
        parameters: Vec::new(),
        is_private: false,
        line: outline.statements.first().map_or(1, |first| first.line),
        nodes: outline.statements.clone(),
    }
}

type Version<'v> = Option<(&'v FunctionOutline, &'v ScriptOutline)>;

fn change(file: &FilePath, kind: FunctionChangeKind, before: Version<'_>, after: Version<'_>) -> FunctionChange {
    let nodes = |version: Version<'_>| version.map(|(function, _)| function.nodes.clone()).unwrap_or_default();
    let called = |version: Version<'_>| version.map(|(function, outline)| calls(function, outline)).unwrap_or_default();
    let (old, new) = (called(before), called(after));
    let named = after.or(before).map(|(function, _)| function.name.clone()).unwrap_or_default();
    FunctionChange {
        file: file.clone(),
        line: after.map(|(function, _)| function.line),
        function: named,
        change: kind,
        moved_from: None,
        is_timed: false,
        calls_added: new.difference(&old).cloned().collect(),
        calls_removed: old.difference(&new).cloned().collect(),
        // Every constant of a function that is new or gone is new or gone, too.
        literals: if kind == FunctionChangeKind::Changed {
            literals(&nodes(before), &nodes(after))
        } else {
            Vec::new()
        },
    }
}

/// Returns the functions that a function calls, without the script's own.
fn calls(function: &FunctionOutline, outline: &ScriptOutline) -> BTreeSet<CalledFunction> {
    let owned = |packages: Vec<&'static str>| packages.into_iter().map(str::to_owned).collect();
    let called = function.nodes.iter().filter_map(|node| match &node.kind {
        // The call with which a closure captures variables, which nobody writes.
        NodeKind::Call { name, .. } if name == "curry" => None,
        NodeKind::Call { namespace, name } if namespace.is_empty() => {
            let is_own = outline.functions.iter().any(|own| own.name == *name);
            (!is_own).then(|| CalledFunction { name: name.clone(), packages: owned(packages_of(name)) })
        }
        NodeKind::Call { namespace, name } => Some(match outline.imports.get(namespace) {
            Some(shared) => CalledFunction { name: format!("{shared}::{name}"), packages: Vec::new() },
            None => CalledFunction { name: format!("{namespace}::{name}"), packages: vec![namespace.clone()] },
        }),
        NodeKind::Method(name) => {
            let is_own = outline.functions.iter().any(|own| own.name == *name);
            (!is_own).then(|| CalledFunction { name: name.clone(), packages: owned(packages_of(name)) })
        }
        _ => None,
    });
    called.collect()
}

/// Returns the constants that differ between two trees, in the order of the later one.
fn literals(before: &[SyntaxNode], after: &[SyntaxNode]) -> Vec<LiteralChange> {
    if before.len() + after.len() > NODES_MAX {
        return Vec::new();
    }
    let labels = |nodes: &[SyntaxNode]| nodes.iter().map(|node| node.label.clone()).collect::<Vec<_>>();
    let mut changes = Vec::new();
    for operation in capture_diff_slices(Algorithm::Myers, &labels(before), &labels(after)) {
        if matches!(operation, DiffOp::Equal { .. }) {
            continue;
        }
        let is_literal = |node: &&SyntaxNode| node.kind == NodeKind::Literal;
        let old: Vec<_> = before[operation.old_range()].iter().filter(is_literal).collect();
        let new: Vec<_> = after[operation.new_range()].iter().filter(is_literal).collect();
        for at in 0..old.len().max(new.len()) {
            let text = |node: Option<&&SyntaxNode>| node.map(|node| shown(&node.label));
            let line = new.get(at).map(|node| node.line);
            changes.push(LiteralChange { line, before: text(old.get(at)), after: text(new.get(at)) });
        }
    }
    changes.truncate(LITERALS_MAX);
    changes
}

/// Replaces a removed and an added function with the same tree by a moved one, also between files. `find` returns a
/// function of the earlier (false) or the later (true) trees.
pub(super) fn join_moved<'o>(
    changes: &mut Vec<FunctionChange>,
    find: impl Fn(bool, &FunctionChange) -> Option<&'o FunctionOutline>,
) {
    let of_kind = |changes: &[FunctionChange], kind| -> Vec<usize> {
        (0..changes.len()).filter(|at| changes[*at].change == kind && changes[*at].function != STATEMENTS).collect()
    };
    let mut removed: HashMap<u64, Vec<usize>> = HashMap::new();
    for at in of_kind(changes, FunctionChangeKind::Removed) {
        let old = find(false, &changes[at]);
        old.into_iter().for_each(|old| removed.entry(fingerprint(old)).or_default().push(at));
    }
    let mut joined = HashSet::new();
    for added in of_kind(changes, FunctionChangeKind::Added) {
        let Some(new) = find(true, &changes[added]) else { continue };
        let Some(candidates) = removed.get_mut(&fingerprint(new)) else { continue };
        let same = |at: &usize| find(false, &changes[*at]).is_some_and(|old| old.has_same_tree(new));
        let Some(place) = candidates.iter().position(same) else { continue };
        let from = candidates.remove(place);
        let (file, function) = (changes[from].file.clone(), changes[from].function.clone());
        changes[added].change = FunctionChangeKind::Moved;
        changes[added].moved_from = Some(format!("{file}: {function}"));
        changes[added].calls_added.clear();
        joined.insert(from);
    }
    let mut at = 0;
    changes.retain(|_| {
        at += 1;
        !joined.contains(&(at - 1))
    });
}

/// Returns a number that is equal for functions with the same tree.
fn fingerprint(function: &FunctionOutline) -> u64 {
    let mut hasher = DefaultHasher::new();
    function.parameters.hash(&mut hasher);
    function.nodes.iter().for_each(|node| (node.depth, &node.label).hash(&mut hasher));
    hasher.finish()
}
