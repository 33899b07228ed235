//! The tree of a commit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gix::objs::tree::EntryKind as GitKind;

use super::range::HistoryError;
use flagperf_review::{FILE_BYTES_MAX, Name, Snapshot, Unreadable};

/// The tree of a commit.
pub struct CommitTree<'r> {
    git: &'r gix::Repository,
    root: gix::Tree<'r>,
    /// The folders that have been read, by path.
    folders: RefCell<HashMap<String, Rc<Folder>>>,
}

/// The entries of a folder, by name. Names that are not UTF-8 are left out.
type Folder = HashMap<String, (GitKind, gix::ObjectId)>;

impl<'r> CommitTree<'r> {
    pub(super) fn open(git: &'r gix::Repository, commit: gix::ObjectId) -> Result<Self, HistoryError> {
        let unreadable = |error: gix::Error| HistoryError::Unreadable { reason: error.to_string() };
        let root = git.find_commit(commit).and_then(|commit| commit.tree()).map_err(unreadable)?;
        Ok(CommitTree { git, root, folders: RefCell::default() })
    }

    pub(super) fn root(&self) -> &gix::Tree<'r> {
        &self.root
    }

    /// Returns the entries of a folder; empty if it does not exist.
    ///
    /// # Errors
    /// When an object cannot be read.
    fn folder(&self, path: &str) -> Result<Rc<Folder>, Unreadable> {
        if let Some(known) = self.folders.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        let tree = match path {
            "" => Some(self.root.clone()),
            path => match self.entry(path)? {
                Some((GitKind::Tree, id)) => Some(self.git.find_tree(id).map_err(failed)?),
                _ => None,
            },
        };
        let mut folder = Folder::new();
        for entry in tree.iter().flat_map(gix::Tree::iter) {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = std::str::from_utf8(entry.filename()) {
                folder.insert(name.to_owned(), (entry.kind(), entry.object_id()));
            }
        }
        let folder = Rc::new(folder);
        self.folders.borrow_mut().insert(path.to_owned(), Rc::clone(&folder));
        Ok(folder)
    }

    fn entry(&self, path: &str) -> Result<Option<(GitKind, gix::ObjectId)>, Unreadable> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(self.folder(folder)?.get(name).copied())
    }
}

fn failed(error: impl std::fmt::Display) -> Unreadable {
    Unreadable::Failed(error.to_string())
}

impl Snapshot for CommitTree<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unreadable> {
        let (kind, id) = self.entry(path)?.ok_or(Unreadable::Missing)?;
        if !matches!(kind, GitKind::Blob | GitKind::BlobExecutable | GitKind::Link) {
            return Err(Unreadable::Missing);
        }
        let bytes = self.git.find_header(id).map_err(failed)?.size();
        if bytes > FILE_BYTES_MAX {
            return Err(Unreadable::TooLarge(bytes));
        }
        Ok(self.git.find_object(id).map_err(failed)?.detach().data)
    }

    fn list(&self, folder: &str) -> Vec<Name> {
        let Ok(entries) = self.folder(folder) else { return Vec::new() };
        let name = |(text, (kind, _)): (&String, &(GitKind, gix::ObjectId))| Name {
            text: text.clone(),
            is_folder: *kind == GitKind::Tree,
        };
        let mut names: Vec<Name> = entries.iter().map(name).collect();
        names.sort_by(|one, other| one.text.cmp(&other.text));
        names
    }
}
