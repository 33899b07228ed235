//! Writes the files of a new case, vendor or engine: all of them, or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use tempfile::TempDir;

use super::ScaffoldError;
use flagperf_core::file;

/// Something new: its files, a file that changes, and the commands to type next.
#[derive(Debug, Default)]
pub struct Scaffold {
    files: Vec<(PathBuf, String)>,
    /// The file that changes.
    changed: Option<ChangedFile>,
    /// The commands to type next, in order.
    pub next: Vec<String>,
}

/// A file that exists, with its text before and after.
#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    before: String,
    after: String,
}

impl Scaffold {
    /// Adds a new file, at a path relative to the checkout.
    pub(super) fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<String>) {
        self.files.push((path.into(), text.into()));
    }

    /// Returns the text of a new file.
    pub(super) fn text(&self, path: &Path) -> Option<&str> {
        self.files.iter().find(|(own, _)| own == path).map(|(_, text)| text.as_str())
    }

    /// Replaces the text of a file that exists, at a path relative to the checkout.
    pub(super) fn change(&mut self, path: impl Into<PathBuf>, before: String, after: String) {
        self.changed = Some(ChangedFile { path: path.into(), before, after });
    }

    /// Iterates over the paths of the new files, then that of the file that changes.
    pub fn paths(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        let new = self.files.iter().map(|(path, _)| (path.as_path(), "created"));
        new.chain(self.changed.iter().map(|file| (file.path.as_path(), "changed")))
    }

    /// Writes the files into the checkout at `root`: first into a folder of their own beside their places, from which
    /// they then move.
    ///
    /// # Errors
    /// When a file exists already or cannot be written; nothing has then been created or changed.
    pub fn write(&self, root: &Path) -> Result<(), ScaffoldError> {
        if self.paths().next().is_none() {
            return Ok(());
        }
        if let Some((path, _)) = self.files.iter().find(|(path, _)| is_taken(&root.join(path))) {
            return Err(ScaffoldError::Exists { path: path.clone() });
        }
        let stage = self.stage(root)?;
        let mut placed = Placed::default();
        for part in self.parts(root) {
            let (from, to) = (stage.path().join(&part), root.join(&part));
            move_to(&from, &to).map_err(|cause| match cause.kind() {
                // Another process has created it since it was looked for.
                io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                    ScaffoldError::Exists { path: part.clone() }
                }
                _ => ScaffoldError::Write { path: part.clone(), cause },
            })?;
            placed.0.push(to);
        }
        if let Some(file) = &self.changed {
            replace(root, file)?;
        }
        placed.0.clear();
        Ok(())
    }

    /// Writes the files into a temporary folder in the checkout, so that moving them is one step for each.
    fn stage(&self, root: &Path) -> Result<TempDir, ScaffoldError> {
        let stage = tempfile::Builder::new().prefix(".flagperf-new-").tempdir_in(root);
        let stage = stage.map_err(|cause| ScaffoldError::Write { path: root.to_owned(), cause })?;
        for (path, text) in &self.files {
            write_file(&stage.path().join(path), text)
                .map_err(|cause| ScaffoldError::Write { path: path.clone(), cause })?;
        }
        Ok(stage)
    }

    /// Returns what moves, without duplicates: for each file, its outermost folder that does not exist yet, or else the
    /// file itself.
    fn parts(&self, root: &Path) -> Vec<PathBuf> {
        let mut parts: Vec<PathBuf> = Vec::new();
        for (path, _) in &self.files {
            let new = path.ancestors().take_while(|part| !is_taken(&root.join(part))).last();
            let part = new.unwrap_or(path);
            if !parts.iter().any(|known| known == part) {
                parts.push(part.to_owned());
            }
        }
        parts
    }
}

/// The files and folders that are in their places. Dropping the list removes them again.
#[derive(Default)]
struct Placed(Vec<PathBuf>);

impl Drop for Placed {
    fn drop(&mut self) {
        for path in &self.0 {
            // The error that led here is reported; one of its removal would say no more.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// Returns whether something, even a broken link, has this path.
fn is_taken(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Moves a file or a folder to a path at which there is nothing, also if another process looks for it at the same time.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // Some file systems cannot; the paths were free a moment ago.
        Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(from, to),
        Err(Errno::EXDEV) => copy_to(from, to),
        moved => moved.map_err(io::Error::from),
    }
}

/// Copies a file or a folder to another file system: first beside its place, so that it appears there in one step.
fn copy_to(from: &Path, to: &Path) -> io::Result<()> {
    let stage = tempfile::Builder::new().prefix(".flagperf-new-").tempdir_in(to.parent().unwrap_or(to))?;
    let copied = stage.path().join("copied");
    copy_all(from, &copied)?;
    move_to(&copied, to)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    fs::read_dir(from)?.try_for_each(|entry| {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))
    })
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text)
}

/// Replaces a file with its permissions, unless another program has changed it; a link keeps pointing to it.
fn replace(root: &Path, file: &ChangedFile) -> Result<(), ScaffoldError> {
    let write = || {
        let path = root.join(&file.path).canonicalize()?;
        let new = file::stage(file.after.as_bytes(), &path, Some(path.metadata()?.permissions()))?;
        if fs::read_to_string(&path)? != file.before {
            return Ok(false);
        }
        new.persist(&path).map(|_| true).map_err(|failed| failed.error)
    };
    match write() {
        Ok(true) => Ok(()),
        Ok(false) => Err(ScaffoldError::ChangedMeanwhile { path: file.path.clone() }),
        Err(cause) => Err(ScaffoldError::Write { path: file.path.clone(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn scaffold(paths: &[&str]) -> Scaffold {
        let mut scaffold = Scaffold::default();
        paths.iter().for_each(|path| scaffold.add(path, "new"));
        scaffold
    }

    #[test]
    fn files_move_into_folders_that_exist_and_into_new_ones() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("configs/a")).unwrap();
        fs::write(root.path().join("list"), "old").unwrap();
        let mut scaffold = scaffold(&["configs/a/x", "configs/b/deep/y", "configs/b/z", "new/w"]);
        scaffold.change("list", "old".to_owned(), "changed".to_owned());
        scaffold.write(root.path()).unwrap();
        for path in ["configs/a/x", "configs/b/deep/y", "configs/b/z", "new/w"] {
            assert_eq!(fs::read_to_string(root.path().join(path)).unwrap(), "new", "{path}");
        }
        assert_eq!(fs::read_to_string(root.path().join("list")).unwrap(), "changed");
        assert_eq!(names(root.path()), ["configs", "list", "new"], "nothing else is left");
    }

    #[test]
    fn a_file_that_exists_stays_and_nothing_is_created() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("configs")).unwrap();
        std::os::unix::fs::symlink("gone", root.path().join("configs/link")).unwrap();
        let error = scaffold(&["new/w", "configs/link"]).write(root.path()).unwrap_err();
        assert_eq!(error.to_string(), "`configs/link` exists already");
        assert_eq!(names(root.path()), ["configs"]);
    }

    #[test]
    fn what_another_process_created_in_the_meantime_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["ours", "theirs"] {
            fs::write(at(name), name).unwrap();
            fs::create_dir(at(&format!("{name}-folder"))).unwrap();
        }
        for (from, to) in [("ours", "theirs"), ("ours-folder", "theirs-folder")] {
            assert_eq!(move_to(&at(from), &at(to)).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{to}");
        }
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs");
        move_to(&at("ours-folder"), &at("new")).unwrap();
    }

    #[test]
    fn a_folder_is_copied_to_another_file_system() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("from/below")).unwrap();
        fs::write(at("from/below/file"), "text").unwrap();
        copy_to(&at("from"), &at("to")).unwrap();
        assert_eq!(fs::read_to_string(at("to/below/file")).unwrap(), "text");
        assert_eq!(copy_to(&at("from"), &at("to")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(root.path()), ["from", "to"]);
    }

    #[test]
    fn files_that_are_in_their_places_are_removed_when_a_later_one_fails() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let error = scaffold(&["new/w", "file/below"]).write(root.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `file/below`: "), "{error}");
        assert_eq!(names(root.path()), ["file"]);
        let mut scaffold = scaffold(&["new/w"]);
        scaffold.change("missing", String::new(), String::new());
        let error = scaffold.write(root.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `missing`: "), "{error}");
        assert_eq!(names(root.path()), ["file"]);
    }

    #[test]
    fn a_changed_file_keeps_its_permissions_and_its_link_and_what_another_program_wrote() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let change = |before: &str| {
            let file = ChangedFile { path: "link".into(), before: before.to_owned(), after: "new".to_owned() };
            replace(root.path(), &file)
        };
        assert_eq!(change("older").unwrap_err().to_string(), "another program changed `link` at the same time");
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(root.path()).len()), ("old", 2));
        change("old").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
    }
}
