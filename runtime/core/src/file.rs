//! Writes files whole or not at all, opens files in the folder of a run, and checks that paths stay in a folder.
//! Plug-ins and programs of vendors can write to the folder of a run too, so links in it are not followed and FIFOs are
//! not waited for.
//!
//! Knows nothing about the contents of the files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use tempfile::{Builder, NamedTempFile};

/// What the name of a file from [`stage`] ends with.
pub const STAGED_SUFFIX: &str = ".part";

/// Creates a file. An existing file or link at `path` is removed; the target of a link is left unchanged.
///
/// # Errors
/// When the file cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)
}

/// Writes a temporary file beside `path` and flushes it to disk; the caller moves it to its name, so that nobody reads half of
/// it. It is removed unless it is moved. Without `permissions`, everybody may read and write it, as far as the umask allows.
///
/// # Errors
/// When the folder is not writable or the disk is full; then no file is left behind.
pub fn stage(content: &[u8], path: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let prefix = format!("{}.", name.display());
    let all = Permissions::from_mode(0o666);
    let mut file = Builder::new().prefix(&prefix).suffix(STAGED_SUFFIX).permissions(all).tempfile_in(folder)?;
    file.write_all(content)?;
    permissions.map_or(Ok(()), |permissions| file.as_file().set_permissions(permissions))?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Opens a file for appending, and creates it if it does not exist.
///
/// # Errors
/// When the file cannot be opened or is a link.
pub fn append(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("another program replaced the file with a link"));
    }
    OpenOptions::new().create(true).append(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)
}

/// Checks that `path` still refers to the open file.
///
/// # Errors
/// When the file at `path` was removed or replaced.
pub fn check_same(file: &File, path: &Path) -> io::Result<()> {
    let opened = file.metadata()?;
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(io::Error::other(format!("another program removed the file `{}`", path.display())));
        }
        found => found?,
    };
    if (opened.dev(), opened.ino()) == (found.dev(), found.ino()) {
        return Ok(());
    }
    Err(io::Error::other(format!("another program replaced the file `{}`", path.display())))
}

/// Returns what to do about an error in writing to a folder, by the kind of the I/O error that caused it.
pub fn write_hint(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let kind = causes.find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::StorageFull) => "the disk is full: free some space",
        Some(io::ErrorKind::QuotaExceeded) => "the disk quota of this user is used up: free some space",
        Some(io::ErrorKind::FileTooLarge) => "the file reached the largest size of files of this process (`ulimit -f`)",
        Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            "the folder does not exist: did another program remove it during the run?"
        }
        Some(io::ErrorKind::PermissionDenied) => {
            "this user may not write there: check the owner and the mode of the folder"
        }
        Some(io::ErrorKind::ReadOnlyFilesystem) => "the file system is mounted read-only",
        _ => "is the disk full, or the folder not writable?",
    }
}

/// Returns whether a relative path names something in its folder, whatever that folder is.
pub fn is_inside(path: &Path) -> bool {
    path.file_name().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_place_of_a_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [link, dangling, theirs, nothing] =
            ["link", "dangling", "theirs", "nothing"].map(|n| folder.path().join(n));
        fs::write(&theirs, "theirs").unwrap();
        symlink(&theirs, &link).unwrap();
        symlink(&nothing, &dangling).unwrap();
        for link in [&link, &dangling] {
            assert_eq!(append(link).unwrap_err().to_string(), "another program replaced the file with a link");
            create(link).unwrap().write_all(b"ours").unwrap();
            assert_eq!(fs::read_to_string(link).unwrap(), "ours");
        }
        assert_eq!((fs::read_to_string(&theirs).unwrap().as_str(), nothing.exists()), ("theirs", false));
        append(&link).unwrap().write_all(b" and more").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "ours and more");
    }

    #[test]
    fn a_replaced_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = create(&path).unwrap();
        check_same(&file, &path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        let message = check_same(&file, &path).unwrap_err().to_string();
        assert_eq!(message, format!("another program replaced the file `{}`", path.display()));
    }

    #[test]
    fn the_hint_of_a_write_error_is_that_of_its_cause() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write")]
        struct Wrapped(#[source] io::Error);
        let hint = |kind: io::ErrorKind| write_hint(&Wrapped(kind.into()));
        assert_eq!(hint(io::ErrorKind::StorageFull), "the disk is full: free some space");
        let removed = fs::write("/no/such/folder/file", "").unwrap_err();
        assert!(write_hint(&removed).starts_with("the folder does not exist"));
        assert!(write_hint(&io::Error::new(removed.kind(), "with a path")).starts_with("the folder does not exist"));
        assert!(hint(io::ErrorKind::PermissionDenied).starts_with("this user may not write there"));
        assert_eq!(hint(io::ErrorKind::Other), "is the disk full, or the folder not writable?");
    }

    #[test]
    fn a_path_that_leaves_its_folder_is_recognised() {
        assert!(is_inside(Path::new("a/b.json")));
        for path in ["", "/etc/passwd", "../x", "a/../../x", "."] {
            assert!(!is_inside(Path::new(path)), "{path}");
        }
    }
}
