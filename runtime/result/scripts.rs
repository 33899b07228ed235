//! Hashes of a case's scripts. The walk through their folder is bounded, and links do not lead out of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flagperf_onnx::read_regular;
use indexmap::IndexMap;

use crate::hash::hash_bytes;

/// Limits of a walk; a folder of scripts is far smaller.
const ENTRIES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 16;
const BYTES_MAX: u64 = 64 << 20;

/// SHA-256 of every script of a case.
#[derive(Debug, Default)]
pub struct ScriptHashes {
    /// By path from the folder that holds the case's scripts and `lib`, in byte order.
    pub sha256: IndexMap<String, String>,
    /// What could not be hashed, each with its reason.
    pub problems: Vec<String>,
}

/// Hashes every script (`.rhai`) of a case, in its folder and below, and those in `lib` beside it that all cases share.
/// Links are followed within the folder that holds both.
pub fn hash_scripts(case: &Path) -> ScriptHashes {
    let base = case.parent().unwrap_or(case);
    let within = [base, case].iter().filter_map(|folder| fs::canonicalize(folder).ok()).collect();
    let mut walk = Walk { base, within, seen: BTreeSet::new(), entries: 0, bytes: 0, found: ScriptHashes::default() };
    let shared = Some(base.join("lib")).filter(|shared| shared.is_dir());
    for folder in [Some(case.to_owned()), shared].into_iter().flatten() {
        walk.folder(&folder, 0);
    }
    walk.found.sha256.sort_unstable_keys();
    walk.found
}

struct Walk<'a> {
    base: &'a Path,
    /// Links do not lead out of these folders.
    within: Vec<PathBuf>,
    /// Folders that were walked, so that a link to a folder above ends.
    seen: BTreeSet<PathBuf>,
    entries: usize,
    bytes: u64,
    found: ScriptHashes,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        let entries = match self.enter(folder, depth) {
            Ok(None) => return,
            Ok(Some(entries)) => entries,
            Err(reason) => return self.problem(folder, &reason),
        };
        for entry in entries {
            if self.entries == ENTRIES_MAX {
                return self.problem(folder, &format!("there are more than {ENTRIES_MAX} files and folders"));
            }
            self.entries += 1;
            match entry {
                Ok(entry) => self.entry(&entry.path(), depth),
                Err(error) => self.problem(folder, &error.to_string()),
            }
        }
    }

    /// The entries of a folder that was not walked before.
    fn enter(&mut self, folder: &Path, depth: usize) -> Result<Option<fs::ReadDir>, String> {
        let place = self.place(folder)?;
        if !self.seen.insert(place) {
            return Ok(None);
        }
        if depth > DEPTH_MAX {
            return Err(format!("it is more than {DEPTH_MAX} folders deep"));
        }
        fs::read_dir(folder).map(Some).map_err(|error| error.to_string())
    }

    fn entry(&mut self, path: &Path, depth: usize) {
        if path.is_dir() {
            self.folder(path, depth + 1);
        } else if path.extension().is_some_and(|extension| extension == "rhai") {
            match self.hash(path) {
                Ok(hash) => drop(self.found.sha256.insert(self.name(path), hash)),
                Err(reason) => self.problem(path, &reason),
            }
        }
    }

    fn hash(&mut self, path: &Path) -> Result<String, String> {
        let place = self.place(path)?;
        let room = BYTES_MAX - self.bytes;
        if fs::metadata(&place).is_ok_and(|file| file.len() > room) {
            return Err(format!("with it the scripts have more than {BYTES_MAX} bytes"));
        }
        let text = read_regular(&place, room).map_err(|error| error.to_string())?;
        self.bytes += text.len() as u64;
        Ok(hash_bytes(&text))
    }

    /// Where a path leads to.
    fn place(&self, path: &Path) -> Result<PathBuf, String> {
        let place = fs::canonicalize(path).map_err(|error| error.to_string())?;
        if self.within.iter().any(|folder| place.starts_with(folder)) {
            return Ok(place);
        }
        Err(format!("the link leads out of the folder of scripts, to `{}`", place.display()))
    }

    fn problem(&mut self, path: &Path, reason: &str) {
        let name = self.name(path);
        self.found.problems.push(format!("`{name}` is not in scripts_sha256: {reason}"));
    }

    fn name(&self, path: &Path) -> String {
        path.strip_prefix(self.base).unwrap_or(path).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    fn names(hashes: &ScriptHashes) -> Vec<&String> {
        hashes.sha256.keys().collect()
    }

    #[test]
    fn scripts_of_the_case_and_of_lib_are_hashed_and_nothing_else_is() {
        let files =
            ["case/model.rhai", "case/README.md", "case/mock/forward.rhai", "lib/norm.rhai", "other/model.rhai"];
        let folder = folder(&files);
        let hashes = hash_scripts(&folder.path().join("case"));
        assert_eq!(names(&hashes), ["case/mock/forward.rhai", "case/model.rhai", "lib/norm.rhai"]);
        assert_eq!(hashes.problems, [""; 0]);
    }

    #[test]
    fn what_cannot_be_hashed_is_named_and_the_rest_is_hashed() {
        let outside = folder(&["secret.rhai"]);
        let folder = folder(&["scripts/case/model.rhai", "scripts/lib/norm.rhai"]);
        let case = folder.path().join("scripts/case");
        symlink("nowhere", case.join("dangling.rhai")).unwrap();
        symlink("itself.rhai", case.join("itself.rhai")).unwrap();
        symlink(outside.path().join("secret.rhai"), case.join("out.rhai")).unwrap();
        symlink(outside.path(), case.join("out")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(case.join("socket.rhai")).unwrap();
        let mut hashes = hash_scripts(&case);
        assert_eq!(names(&hashes), ["case/model.rhai", "lib/norm.rhai"]);
        hashes.problems.sort_unstable();
        let said = hashes.problems.join("\n").replace(&*outside.path().to_string_lossy(), "[OUTSIDE]");
        insta::assert_snapshot!(said, @r"
        `case/dangling.rhai` is not in scripts_sha256: No such file or directory (os error 2)
        `case/itself.rhai` is not in scripts_sha256: Too many levels of symbolic links (os error 40)
        `case/out.rhai` is not in scripts_sha256: the link leads out of the folder of scripts, to `[OUTSIDE]/secret.rhai`
        `case/out` is not in scripts_sha256: the link leads out of the folder of scripts, to `[OUTSIDE]`
        `case/socket.rhai` is not in scripts_sha256: is a socket, not a regular file
        ");
    }

    #[test]
    fn links_to_folders_above_end() {
        let folder = folder(&["scripts/case/model.rhai", "scripts/case/mock/forward.rhai"]);
        let case = folder.path().join("scripts/case");
        symlink(".", case.join("self")).unwrap();
        symlink("../..", case.join("mock/up")).unwrap();
        symlink("/", case.join("root")).unwrap();
        let hashes = hash_scripts(&case);
        assert!(names(&hashes).iter().any(|name| *name == "case/model.rhai"), "{hashes:?}");
        assert!(hashes.problems.iter().any(|problem| problem.starts_with("`case/root` ")), "{hashes:?}");
        assert!(hashes.sha256.len() <= 2, "{hashes:?}");
    }

    #[test]
    fn a_script_beyond_the_limit_is_named() {
        let folder = folder(&["case/model.rhai"]);
        fs::File::create(folder.path().join("case/sparse.rhai")).unwrap().set_len(1 << 40).unwrap();
        let hashes = hash_scripts(&folder.path().join("case"));
        assert_eq!(names(&hashes), ["case/model.rhai"]);
        assert_eq!(
            hashes.problems,
            ["`case/sparse.rhai` is not in scripts_sha256: with it the scripts have more than 67108864 bytes"]
        );
    }
}
