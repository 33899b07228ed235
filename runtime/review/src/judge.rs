//! Determines the role for which a change is judged, and the outcome for each path.

use std::collections::BTreeSet;

use super::findings::JudgedAs;
use super::policy::{Judgement, Policy};
use super::role::{Outcome, Role};
use super::tree::Change;

/// Returns the role as which a change is judged: the given one, or the one that the changed files suggest.
pub(super) fn choose_role(given: Option<&Role>, policy: &Policy, changes: &[Change]) -> JudgedAs {
    let judged = |role: Role, is_given: bool, reason: String| JudgedAs { role, is_given, reason };
    if let Some(role) = given {
        return judged(role.clone(), true, "the role given with --as".to_owned());
    }
    let paths = || changes.iter().flat_map(|change| change.paths());
    let owner = |path: &str| policy.judge_path(path, &Role::CaseAuthor).bindings.vendor;
    let owners: BTreeSet<String> = paths().filter_map(|path| owner(path.text())).collect();
    let Some(name) = owners.first() else {
        return judged(Role::CaseAuthor, false, "no changed file belongs to a vendor".to_owned());
    };
    if owners.len() > 1 {
        let names: Vec<&str> = owners.iter().map(String::as_str).collect();
        let reason = format!("the changed files belong to several vendors: {}", names.join(", "));
        return judged(Role::CaseAuthor, false, reason);
    }
    let role = Role::Vendor(name.clone());
    let is_closed = |path: &&super::tree::FilePath| policy.judge_path(path.text(), &role).outcome == Outcome::Refused;
    match paths().find(is_closed) {
        Some(path) => {
            let reason = format!("`{path}` belongs neither to vendor `{name}` nor to a place that vendors may change");
            judged(Role::CaseAuthor, false, reason)
        }
        None => judged(role, false, format!("every changed file belongs to vendor `{name}` or to a shared place")),
    }
}

/// Judges a change by its paths: by the gravest outcome of the path before and the path after.
pub(super) fn judge_change(policy: &Policy, change: &Change, role: &Role) -> Judgement {
    let judged = change.paths().into_iter().map(|path| policy.judge_path(path.text(), role));
    judged.reduce(|one, other| if other.outcome > one.outcome { other } else { one }).expect("a change has a path")
}
