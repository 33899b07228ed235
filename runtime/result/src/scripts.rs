//! Hashes of the scripts of a case. The walk through their folder is bounded, and links that lead out of it are not
//! followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;

use flagperf_core::hash::hash_bytes;

/// Limits of the walk; a scripts folder is far smaller.
const ENTRIES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 16;
const BYTES_MAX: u64 = 64 << 20;

/// SHA-256, hexadecimal, and content of every script of a case.
#[derive(Debug, Default)]
pub struct ScriptHashes {
    /// Hashes by path relative to the folder that contains the folder of the case and `lib`, in byte order.
    pub sha256: IndexMap<String, String>,
    /// The content of the same scripts.
    pub texts: IndexMap<String, Vec<u8>>,
    /// The files and folders that could not be hashed, with the reasons.
    pub problems: Vec<String>,
}

/// Hashes every script (`.rhai`) of a case, in its folder and below, and the scripts in `lib` beside it, which all
/// cases share. Links are followed within the folder that contains both.
pub fn hash_scripts(case: &Path) -> ScriptHashes {
    let base = case.parent().unwrap_or(case);
    let within = [base, case].iter().filter_map(|folder| fs::canonicalize(folder).ok()).collect();
    let mut walk =
        ScriptWalk { base, within, visited: BTreeSet::new(), entries: 0, bytes: 0, hashes: ScriptHashes::default() };
    let shared = Some(base.join("lib")).filter(|shared| shared.is_dir());
    // A case that a program trains has no scripts.
    let own = Some(case.to_owned()).filter(|own| fs::symlink_metadata(own).is_ok());
    for folder in [own, shared].into_iter().flatten() {
        walk.walk(&folder, 0);
    }
    walk.hashes.sha256.sort_unstable_keys();
    walk.hashes.texts.sort_unstable_keys();
    walk.hashes
}

struct ScriptWalk<'a> {
    base: &'a Path,
    /// Links that lead out of these folders are not followed.
    within: Vec<PathBuf>,
    /// Visited folders, so that a link to a parent folder does not loop.
    visited: BTreeSet<PathBuf>,
    entries: usize,
    bytes: u64,
    hashes: ScriptHashes,
}

impl ScriptWalk<'_> {
    fn walk(&mut self, folder: &Path, depth: usize) {
        let entries = match self.read_folder(folder, depth) {
            Ok(None) => return,
            Ok(Some(entries)) => entries,
            Err(reason) => return self.add_problem(folder, &reason),
        };
        for entry in entries {
            if self.entries == ENTRIES_MAX {
                return self.add_problem(folder, &format!("there are more than {ENTRIES_MAX} files and folders"));
            }
            self.entries += 1;
            match entry {
                Ok(entry) => self.visit(&entry.path(), depth),
                Err(error) => self.add_problem(folder, &error.to_string()),
            }
        }
    }

    /// Returns the entries of a folder; `None` when it has been visited already.
    fn read_folder(&mut self, folder: &Path, depth: usize) -> Result<Option<fs::ReadDir>, String> {
        let target = self.resolve(folder)?;
        if !self.visited.insert(target) {
            return Ok(None);
        }
        if depth > DEPTH_MAX {
            return Err(format!("the folder is nested more than {DEPTH_MAX} levels deep"));
        }
        fs::read_dir(folder).map(Some).map_err(|error| error.to_string())
    }

    fn visit(&mut self, path: &Path, depth: usize) {
        if path.is_dir() {
            self.walk(path, depth + 1);
        } else if path.extension().is_some_and(|extension| extension == "rhai") {
            match self.read_script(path) {
                Ok(text) => {
                    let name = self.relative_name(path);
                    self.hashes.sha256.insert(name.clone(), hash_bytes(&text));
                    self.hashes.texts.insert(name, text);
                }
                Err(reason) => self.add_problem(path, &reason),
            }
        }
    }

    fn read_script(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let target = self.resolve(path)?;
        let bytes_left = BYTES_MAX - self.bytes;
        if fs::metadata(&target).is_ok_and(|file| file.len() > bytes_left) {
            return Err(format!("the scripts exceed {BYTES_MAX} bytes in total"));
        }
        let text = read_regular(&target, bytes_left).map_err(|error| error.to_string())?;
        self.bytes += text.len() as u64;
        Ok(text)
    }

    /// Resolves the links of a path and checks that they do not lead out of the scripts folder.
    fn resolve(&self, path: &Path) -> Result<PathBuf, String> {
        let target = fs::canonicalize(path).map_err(|error| error.to_string())?;
        if self.within.iter().any(|folder| target.starts_with(folder)) {
            return Ok(target);
        }
        Err(format!("the link leads out of the scripts folder, to `{}`", target.display()))
    }

    fn add_problem(&mut self, path: &Path, reason: &str) {
        let name = self.relative_name(path);
        self.hashes.problems.push(format!("`{name}` is not in scripts_sha256: {reason}"));
    }

    fn relative_name(&self, path: &Path) -> String {
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
    fn only_the_scripts_of_the_case_and_of_lib_are_hashed() {
        let files =
            ["case/model.rhai", "case/README.md", "case/mock/forward.rhai", "lib/norm.rhai", "other/model.rhai"];
        let folder = folder(&files);
        let hashes = hash_scripts(&folder.path().join("case"));
        assert_eq!(names(&hashes), ["case/mock/forward.rhai", "case/model.rhai", "lib/norm.rhai"]);
        assert_eq!(hashes.problems, [""; 0]);
    }

    #[test]
    fn scripts_that_cannot_be_hashed_are_named_and_the_others_are_hashed() {
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
        let problems = hashes.problems.join("\n").replace(&*outside.path().to_string_lossy(), "[OUTSIDE]");
        insta::assert_snapshot!(problems, @r"
        `case/dangling.rhai` is not in scripts_sha256: No such file or directory (os error 2)
        `case/itself.rhai` is not in scripts_sha256: Too many levels of symbolic links (os error 40)
        `case/out.rhai` is not in scripts_sha256: the link leads out of the scripts folder, to `[OUTSIDE]/secret.rhai`
        `case/out` is not in scripts_sha256: the link leads out of the scripts folder, to `[OUTSIDE]`
        `case/socket.rhai` is not in scripts_sha256: is a socket, not a regular file
        ");
    }

    #[test]
    fn links_to_parent_folders_do_not_loop() {
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
    fn a_script_that_exceeds_the_limit_is_named() {
        let folder = folder(&["case/model.rhai"]);
        fs::File::create(folder.path().join("case/sparse.rhai")).unwrap().set_len(1 << 40).unwrap();
        let hashes = hash_scripts(&folder.path().join("case"));
        assert_eq!(names(&hashes), ["case/model.rhai"]);
        assert_eq!(
            hashes.problems,
            ["`case/sparse.rhai` is not in scripts_sha256: the scripts exceed 67108864 bytes in total"]
        );
    }
}
