//! Trees in memory, and reviews of them, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tree::{Change, EntryKind, FILE_BYTES_MAX, FilePath, Name, Side, Snapshot, Unreadable};
use super::{Policy, Review, ReviewRequest, review};
use flagperf_core::measure::MonotonicClock;
use flagperf_script::ScriptParser;

/// A tree whose files are in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryTree(BTreeMap<String, (EntryKind, Vec<u8>)>);

impl MemoryTree {
    /// Creates a tree of text files.
    pub(super) fn new<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Self {
        files.into_iter().fold(MemoryTree::default(), |tree, (path, text)| tree.with(path, text))
    }

    /// Adds or replaces a file.
    pub(super) fn with(self, path: &str, text: &str) -> Self {
        self.with_entry(path, EntryKind::File, text.as_bytes())
    }

    /// Adds or replaces an entry.
    pub(super) fn with_entry(mut self, path: &str, kind: EntryKind, content: &[u8]) -> Self {
        self.0.insert(path.to_owned(), (kind, content.to_vec()));
        self
    }

    /// Removes a file.
    pub(super) fn without(mut self, path: &str) -> Self {
        self.0.remove(path).unwrap();
        self
    }

    /// Returns what differs in another tree. A file with the same content under another name is renamed.
    pub(super) fn changes(&self, after: &MemoryTree) -> Vec<Change> {
        let side = |path: &str, kind: EntryKind| Side { path: FilePath::from(path), kind };
        let mut removed: BTreeSet<&String> = self.0.keys().filter(|path| !after.0.contains_key(*path)).collect();
        let mut changes = Vec::new();
        for (path, (kind, content)) in &after.0 {
            let new = side(path, *kind);
            if let Some((old_kind, old)) = self.0.get(path) {
                if (old_kind, old) != (kind, content) {
                    changes.push(Change::Modified { before: side(path, *old_kind), after: new });
                }
                continue;
            }
            let same = removed.iter().find(|old| self.0[**old].1 == *content).copied();
            match same {
                Some(old) => {
                    removed.remove(old);
                    changes.push(Change::Renamed { before: side(old, self.0[old].0), after: new });
                }
                None => changes.push(Change::Added(new)),
            }
        }
        changes.extend(removed.into_iter().map(|path| Change::Removed(side(path, self.0[path].0))));
        changes
    }
}

impl Snapshot for MemoryTree {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unreadable> {
        let (_, content) = self.0.get(path).ok_or(Unreadable::Missing)?;
        match content.len() as u64 {
            size if size > FILE_BYTES_MAX => Err(Unreadable::TooLarge(size)),
            _ => Ok(content.clone()),
        }
    }

    fn list(&self, folder: &str) -> Vec<Name> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.0.keys().filter_map(|path| path.strip_prefix(&prefix));
        let names: BTreeSet<(String, bool)> = below
            .map(|rest| rest.split_once('/').map_or((rest.to_owned(), false), |(name, _)| (name.to_owned(), true)))
            .collect();
        names.into_iter().map(|(text, is_folder)| Name { text, is_folder }).collect()
    }
}

/// Returns the policy of the repository.
pub(super) fn policy() -> Policy {
    Policy::parse(include_str!("../../../review.yaml")).unwrap()
}

/// Returns a parser of scripts.
pub(super) fn parser() -> ScriptParser {
    ScriptParser::new(Arc::new(MonotonicClock::start()))
}

/// Reviews what differs between two trees by the policy of the repository.
pub(super) fn reviewed(before: &MemoryTree, after: &MemoryTree, role: Option<&str>) -> Review {
    let role = role.map(|role| role.parse().unwrap());
    let (policy, parser, changes) = (policy(), parser(), before.changes(after));
    let changes = changes.as_slice();
    review(&ReviewRequest { policy: &policy, before, after, changes, role: role.as_ref(), parser: &parser })
}

/// Returns the findings as lines: `outcome rule file:line message`.
pub(super) fn lines(review: &Review) -> Vec<String> {
    let line = |line: Option<usize>| line.map(|line| format!(":{line}")).unwrap_or_default();
    let text =
        |f: &super::ReviewFinding| format!("{} | {} | {}{} | {}", f.outcome, f.rule, f.file, line(f.line), f.message);
    review.findings.iter().map(text).collect()
}
