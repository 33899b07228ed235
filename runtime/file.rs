//! Files in the folder of a run, which plug-ins and vendors' programs can write in, too: no link that one of them puts
//! there is followed, and no FIFO is waited for.
//!
//! Knows nothing of what is in them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Makes a file anew. Whatever has its name loses it, a link as such: what it points to stays as it is.
///
/// # Errors
/// When the file cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)
}

/// Opens a file to append to, made when there is none.
///
/// # Errors
/// When it cannot be opened, or is a link.
pub fn append(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("somebody has put a link there"));
    }
    OpenOptions::new().create(true).append(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)
}

/// Checks that `path` is still the file that was opened.
///
/// # Errors
/// When it is gone, or another one.
pub fn check_same(file: &File, path: &Path) -> io::Result<()> {
    let (opened, found) = (file.metadata()?, fs::symlink_metadata(path)?);
    if (opened.dev(), opened.ino()) == (found.dev(), found.ino()) {
        return Ok(());
    }
    Err(io::Error::other(format!("somebody has put another file in place of `{}`", path.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_place_of_a_file_is_never_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let [link, dangling, theirs, nothing] =
            ["link", "dangling", "theirs", "nothing"].map(|n| folder.path().join(n));
        fs::write(&theirs, "theirs").unwrap();
        symlink(&theirs, &link).unwrap();
        symlink(&nothing, &dangling).unwrap();
        for link in [&link, &dangling] {
            assert_eq!(append(link).unwrap_err().to_string(), "somebody has put a link there");
            create(link).unwrap().write_all(b"ours").unwrap();
            assert_eq!(fs::read_to_string(link).unwrap(), "ours");
        }
        assert_eq!((fs::read_to_string(&theirs).unwrap().as_str(), nothing.exists()), ("theirs", false));
        append(&link).unwrap().write_all(b" and more").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "ours and more");
    }

    #[test]
    fn a_file_that_was_replaced_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = create(&path).unwrap();
        check_same(&file, &path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        let told = check_same(&file, &path).unwrap_err().to_string();
        assert_eq!(told, format!("somebody has put another file in place of `{}`", path.display()));
    }
}
