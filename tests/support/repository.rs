//! A git repository made without the program git.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::Path;

use gix::ObjectId;
use gix::bstr::BStr;
use gix::objs::tree::EntryKind;
use tempfile::TempDir;

/// A git repository in a temporary folder, without files outside `.git`.
pub struct TestRepository {
    folder: TempDir,
    git: gix::Repository,
}

/// An entry of a new tree: its path, its kind, and its content; no content removes it.
pub type NewEntry<'e> = (&'e [u8], EntryKind, Option<&'e [u8]>);

/// Returns a text file for a new tree.
pub fn text<'e>(path: &'e str, content: &'e str) -> NewEntry<'e> {
    (path.as_bytes(), EntryKind::Blob, Some(content.as_bytes()))
}

/// Returns the removal of a file for a new tree.
pub fn gone(path: &str) -> NewEntry<'_> {
    (path.as_bytes(), EntryKind::Blob, None)
}

impl TestRepository {
    /// Creates an empty repository.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let git = gix::init(folder.path()).expect("a repository can be made");
        TestRepository { folder, git }
    }

    /// Returns the folder that contains `.git`.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Commits to a branch the tree of the first parent with some entries changed. Returns the commit.
    pub fn commit(&self, branch: &str, parents: &[ObjectId], entries: &[NewEntry<'_>]) -> ObjectId {
        let start = parents.first().map(|parent| self.git.find_commit(*parent).expect("a commit"));
        let start = start.map(|commit| commit.tree_id().expect("a tree").detach());
        let start = start.unwrap_or_else(|| self.git.empty_tree().id);
        let mut editor = self.git.edit_tree(start).expect("a tree can be edited");
        for (path, kind, content) in entries {
            let path: &BStr = (*path).into();
            match content {
                // The content of a submodule is a commit that this repository need not have.
                Some(_) if *kind == EntryKind::Commit => {
                    editor.upsert(path, *kind, ObjectId::from_bytes_or_panic(&[1; 20]))
                }
                Some(content) => editor.upsert(path, *kind, self.git.write_blob(content).expect("a blob")),
                None => editor.remove(path),
            }
            .expect("an entry can be changed");
        }
        let tree = editor.write().expect("a tree can be written").detach();
        self.commit_tree(branch, tree, parents)
    }

    /// Commits the tree of a commit again to a branch, as a shallow clone has it: with a parent that does not exist here.
    pub fn commit_cut(&self, branch: &str, tree_of: ObjectId) -> ObjectId {
        let tree = self.git.find_commit(tree_of).expect("a commit").tree_id().expect("a tree").detach();
        let cut = self.commit_tree(branch, tree, &[ObjectId::from_bytes_or_panic(&[2; 20])]);
        std::fs::write(self.path().join(".git/shallow"), format!("{cut}\n")).expect("the repository can be written");
        cut
    }

    fn commit_tree(&self, branch: &str, tree: ObjectId, parents: &[ObjectId]) -> ObjectId {
        let author = gix::actor::SignatureRef::from_bytes(b"A <a@example.org> 1700000000 +0000").expect("a signature");
        let commit = self.git.new_commit_as(author, author, "a change", tree, parents.to_vec()).expect("a commit");
        let id = commit.id().detach();
        let any = gix::refs::transaction::PreviousValue::Any;
        self.git.reference(format!("refs/heads/{branch}"), id, any, "test").expect("a branch can be set");
        id
    }
}
