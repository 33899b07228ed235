//! Finds sockets in the folders that a container would see. Through a socket, a container reaches the process behind
//! it, even if the folder is mounted read-only.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Largest number of files and folders that are examined.
const ENTRIES_MAX: usize = 100_000;

/// Returns why a container must not see the file or folder `path`; `None` if neither it nor anything below it is a socket. `engine`
/// is the socket of the container engine, which gives whoever reaches it all rights on this machine.
pub fn socket_exposure(path: &Path, engine: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    if fs::canonicalize(engine).is_ok_and(|engine| engine.starts_with(&path)) {
        return Some(format!("the socket of the container engine, `{}`, would be reachable", engine.display()));
    }
    if fs::symlink_metadata(&path).ok()?.file_type().is_socket() {
        return Some("it is a socket".to_owned());
    }
    let (mut folders, mut entries) = (vec![path], 0);
    while let Some(folder) = folders.pop() {
        // A folder that this user cannot read is not readable in the container, either. Links do not leave the mounted folder.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => {
                    return Some(format!("it contains the socket `{}`", entry.path().display()));
                }
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => {}
            }
            if entries > ENTRIES_MAX {
                return Some(format!("it contains more than {ENTRIES_MAX} files, among which sockets may be"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_at_any_depth_and_behind_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["plain/below", "deep/er", "engine"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("plain/below/file"), "").unwrap();
        let _listeners = ["deep/er/s", "engine/e"].map(|name| UnixListener::bind(path(name)).unwrap());
        std::os::unix::fs::symlink(path("deep"), path("link")).unwrap();
        let found = |name: &str| socket_exposure(&path(name), &path("engine/e")).unwrap_or_default();
        let folder = fs::canonicalize(folder.path()).unwrap();
        assert_eq!((found("plain"), found("none")), (String::new(), String::new()));
        for name in ["deep", "link"] {
            assert_eq!(found(name), format!("it contains the socket `{}`", folder.join("deep/er/s").display()));
        }
        assert_eq!(found("deep/er/s"), "it is a socket");
        for name in ["", "engine", "engine/e"] {
            assert!(found(name).starts_with("the socket of the container engine, `"), "{}", found(name));
        }
    }
}
