//! Rules about the entries of a tree that hold in every policy: names, links, other repositories.

use super::findings::ReviewFinding;
use super::role::{Outcome, Role};
use super::tree::{Change, EntryKind, FilePath, Side, Snapshot};

/// Most bytes of a link's target.
const TARGET_BYTES_MAX: usize = 4096;

/// Checks the entry that a change leaves.
pub(super) fn check_entry(change: &Change, role: &Role, after: &dyn Snapshot) -> Vec<ReviewFinding> {
    let Some(side) = change.after() else { return Vec::new() };
    let mut findings = Vec::new();
    let mut add = |rule: &str, outcome: Outcome, message: String, hint: &str| {
        let (rule, file, hint) = (rule.to_owned(), side.path.clone(), hint.to_owned());
        findings.push(ReviewFinding { outcome, rule, file, line: None, message, hint });
    };
    if side.path.text().split('/').any(|name| ["", ".", "..", ".git"].contains(&name)) {
        let message = "the path has a name that no file may have".to_owned();
        add("file-names", Outcome::Refused, message, "git itself cannot check out such a tree");
    }
    if !side.path.is_utf8() {
        let message = "the name of the file is not UTF-8, so its content was not compared".to_owned();
        add("file-names", for_others(role), message, "rename the file");
    }
    match side.kind {
        EntryKind::Submodule => {
            let message = "another repository is added or changed; its content was not compared".to_owned();
            add("submodules", for_others(role), message, "");
        }
        EntryKind::Link => {
            if let Some(message) = link_fault(side, after) {
                add("links", for_others(role), message, "let the link stay in its folder, or copy the file");
            }
        }
        EntryKind::Executable if change.before().is_some_and(|before| before.kind == EntryKind::File) => {
            add("file-mode", Outcome::Allowed, "the file becomes executable".to_owned(), "");
        }
        EntryKind::File | EntryKind::Executable => {}
    }
    findings
}

/// Returns the outcome of what only maintainers may do.
fn for_others(role: &Role) -> Outcome {
    match role {
        Role::Maintainer => Outcome::Allowed,
        Role::CaseAuthor => Outcome::Needs(Role::Maintainer),
        Role::Vendor(_) => Outcome::Refused,
    }
}

/// Returns why a link is refused: it leads out of the folder that contains it.
fn link_fault(link: &Side, after: &dyn Snapshot) -> Option<String> {
    let target = match after.read(link.path.text()) {
        Ok(target) if target.len() <= TARGET_BYTES_MAX => target,
        Ok(_) => return Some("the target of the link is too long".to_owned()),
        Err(reason) => return Some(format!("the target of the link cannot be read: {reason}")),
    };
    let target = FilePath::new(&target);
    let mut names: Vec<&str> = link.path.folder().split('/').filter(|name| !name.is_empty()).collect();
    let root = top_folder(&names).join("/");
    if target.text().starts_with('/') {
        return Some(format!("the link leads to the absolute path `{target}`"));
    }
    for name in target.text().split('/') {
        match name {
            "" | "." => {}
            ".." if names.pop().is_none() => return Some(format!("the link leads out of the repository: `{target}`")),
            ".." => {}
            name => names.push(name),
        }
        if top_folder(&names).join("/") != root {
            return Some(format!("the link leads out of `{root}`: `{target}`"));
        }
    }
    None
}

/// Returns the folder that a link must not leave: that of a vendor or of a case, which has two names.
fn top_folder<'n>(names: &[&'n str]) -> Vec<&'n str> {
    names.iter().take(2).copied().collect()
}
