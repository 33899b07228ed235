//! A git repository: resolves a range, and compares its two trees.

use std::path::Path;

use gix::bstr::BString;
use gix::object::tree::diff::ChangeDetached;
use gix::objs::tree::{EntryKind as GitKind, EntryMode};

use super::range::{HistoryError, Range};
use super::tree::CommitTree;
use flagperf_review::{Change, EntryKind, FILE_BYTES_MAX, FilePath, Side};

/// The names of the main branch, in the order in which they are tried.
const MAIN_BRANCHES: [&str; 5] = ["origin/HEAD", "origin/main", "origin/master", "main", "master"];

/// Most files for which renames with changed content are searched: every removed file is compared with every added one.
const RENAMES_MAX: usize = 200;

/// Bytes of the cache for objects that are read again.
const CACHE_BYTES: usize = 64 << 20;

/// A git repository that is read.
pub struct Repository {
    git: gix::Repository,
}

/// The two trees of a range and what differs between them.
pub struct RangeComparison<'r> {
    /// The commit before: where head and base separated, in hexadecimal.
    pub base: String,
    /// The commit after, in hexadecimal.
    pub head: String,
    pub before: CommitTree<'r>,
    pub after: CommitTree<'r>,
    /// What differs.
    pub changes: Vec<Change>,
    /// Remarks about the comparison.
    pub notes: Vec<String>,
}

fn unreadable(error: impl std::fmt::Display) -> HistoryError {
    HistoryError::Unreadable { reason: error.to_string() }
}

impl Repository {
    /// Opens the repository that contains a folder. Settings of the user and the environment are not read.
    ///
    /// # Errors
    /// When the folder is in no repository.
    pub fn open(folder: &Path) -> Result<Repository, HistoryError> {
        let settings = ["core.useReplaceRefs=false".to_owned(), format!("core.bigFileThreshold={FILE_BYTES_MAX}")];
        let options = || gix::open::Options::isolated().config_overrides(settings.iter().map(String::as_str));
        let trust = gix::sec::trust::Mapping { full: options(), reduced: options() };
        let opened =
            gix::ThreadSafeRepository::discover_opts(folder, gix::discover::upwards::Options::default(), trust);
        let mut git = opened
            .map_err(|error| HistoryError::NoRepository {
                folder: folder.display().to_string(),
                reason: error.to_string(),
            })?
            .to_thread_local();
        git.object_cache_size_if_unset(CACHE_BYTES);
        Ok(Repository { git })
    }

    /// Compares the trees of a range: that of the commit where head and base separated, and that of head.
    ///
    /// # Errors
    /// When a revision is unknown, when the two have no common commit, or when an object cannot be read.
    pub fn compare(&self, range: &Range) -> Result<RangeComparison<'_>, HistoryError> {
        let head = self.commit(&range.head)?;
        let (name, base) = self.base_commit(range)?;
        let bases = match self.git.merge_bases_many(base, &[head]) {
            // A commit that a shallow clone lacks.
            Err(_) if self.is_shallow() => Vec::new(),
            found => found.map_err(unreadable)?,
        };
        let Some(base) = bases.first().map(|id| id.detach()) else {
            let is_shallow = self.is_shallow();
            return Err(HistoryError::NoMergeBase { base: name, head: range.head.clone(), is_shallow });
        };
        let mut notes = Vec::new();
        if bases.len() > 1 {
            notes.push(format!("`{name}` and `{}` separated at several commits; {base} is used", range.head));
        }
        if self.is_shallow() {
            notes.push("this clone is shallow: commits that it lacks were not considered".to_owned());
        }
        let tree = |id| CommitTree::open(&self.git, id);
        let (before, after) = (tree(base)?, tree(head)?);
        let changes = self.changes(&before, &after, &mut notes)?;
        Ok(RangeComparison { base: base.to_string(), head: head.to_string(), before, after, changes, notes })
    }

    fn is_shallow(&self) -> bool {
        self.git.is_shallow().unwrap_or(false)
    }

    /// Returns the commit of the base of a range, with its name.
    fn base_commit(&self, range: &Range) -> Result<(String, gix::ObjectId), HistoryError> {
        if let Some(name) = &range.base {
            return Ok((name.clone(), self.commit(name)?));
        }
        let found = MAIN_BRANCHES.iter().find_map(|name| Some(((*name).to_owned(), self.commit(name).ok()?)));
        found.ok_or_else(|| HistoryError::NoMainBranch { tried: MAIN_BRANCHES.map(str::to_owned).to_vec() })
    }

    /// Returns the commit that a revision names.
    fn commit(&self, revision: &str) -> Result<gix::ObjectId, HistoryError> {
        let unknown = || HistoryError::UnknownRevision { revision: revision.to_owned(), is_shallow: self.is_shallow() };
        let id = self.git.rev_parse_single(revision).map_err(|_| unknown())?;
        let commit = id.object().ok().and_then(|object| object.peel_to_kind(gix::objs::Kind::Commit).ok());
        Ok(commit.ok_or_else(unknown)?.id)
    }

    fn changes(
        &self,
        before: &CommitTree<'_>,
        after: &CommitTree<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Change>, HistoryError> {
        let rewrites = gix::diff::Rewrites { copies: None, limit: RENAMES_MAX, ..gix::diff::Rewrites::default() };
        let compare = |rewrites| {
            let options = gix::diff::Options::default().with_rewrites(rewrites);
            self.git.diff_tree_to_tree(before.root(), after.root(), options)
        };
        let found = compare(Some(rewrites)).or_else(|_| {
            notes.push("renames were not searched, because a file cannot be read".to_owned());
            compare(None)
        });
        let mut changes: Vec<Change> = found.map_err(unreadable)?.into_iter().filter_map(change).collect();
        changes.sort_by(|one, other| one.path().cmp(other.path()));
        let number = |is: fn(&Change) -> bool| changes.iter().filter(|change| is(change)).count();
        let (added, removed) = (number(|c| matches!(c, Change::Added(_))), number(|c| matches!(c, Change::Removed(_))));
        if added.saturating_mul(removed) > RENAMES_MAX * RENAMES_MAX {
            notes.push(format!(
                "{added} files were added and {removed} removed: files that were renamed and changed are among both"
            ));
        }
        Ok(changes)
    }
}

/// Returns a change of a file; `None` for one of a folder.
fn change(found: ChangeDetached) -> Option<Change> {
    Some(match found {
        ChangeDetached::Addition { location, entry_mode, .. } => Change::Added(side(&location, entry_mode)?),
        ChangeDetached::Deletion { location, entry_mode, .. } => Change::Removed(side(&location, entry_mode)?),
        ChangeDetached::Modification { location, previous_entry_mode, entry_mode, .. } => {
            match (side(&location, previous_entry_mode), side(&location, entry_mode)) {
                (Some(before), Some(after)) => Change::Modified { before, after },
                (None, Some(after)) => Change::Added(after),
                (Some(before), None) => Change::Removed(before),
                (None, None) => return None,
            }
        }
        ChangeDetached::Rewrite { source_location, source_entry_mode, location, entry_mode, .. } => {
            Change::Renamed { before: side(&source_location, source_entry_mode)?, after: side(&location, entry_mode)? }
        }
    })
}

fn side(location: &BString, mode: EntryMode) -> Option<Side> {
    let kind = match mode.kind() {
        GitKind::Tree => return None,
        GitKind::Blob => EntryKind::File,
        GitKind::BlobExecutable => EntryKind::Executable,
        GitKind::Link => EntryKind::Link,
        GitKind::Commit => EntryKind::Submodule,
    };
    Some(Side { path: FilePath::new(location), kind })
}
