//! The state of the checkout in git: the revision, and whether files differ from it.
//!
//! The index of git and its filters are not trusted: the files of the revision are compared byte by byte, and the folders that a
//! run reads may contain no other file, whether git ignores it or not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use flagperf_host::read_output;
use flagperf_result::Provenance;

/// Largest part of git's output about changed files that is read: its first lines and one changed file decide.
const STATUS_BYTES_MAX: u64 = 64 << 10;
/// Largest list of the files of a revision, and of their hashes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Number of files that one call of git hashes: their paths are arguments.
const FILES_HASHED: usize = 500;
/// Folders of which a run reads every file, and how deep: of a dataset only its description is read.
const READ_FOLDERS: [(&str, u32); 5] = [
    ("configs", DEPTH_MAX),
    ("docker_images", DEPTH_MAX),
    ("scripts", DEPTH_MAX),
    ("vendors", DEPTH_MAX),
    ("datasets", 1),
];
/// Deepest folder in them, and the largest number of files and folders.
const DEPTH_MAX: u32 = 32;
const ENTRIES_MAX: usize = 100_000;
/// The mode of a symbolic link in a commit.
const LINK_MODE: &str = "120000";
/// Environment variables that lead git to another repository.
const VARIABLES: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
];

/// The state of the checkout; unknown without git, or outside a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutState {
    /// The commit that is checked out, in hexadecimal.
    pub revision: Option<String>,
    /// Whether every file is as in that commit, and none is untracked; files that git ignores count in the folders that a run reads.
    pub is_clean: Option<bool>,
    /// The first difference: a file, and how it differs.
    #[serde(default)]
    pub difference: Option<String>,
}

impl CheckoutState {
    /// Returns the state of the checkout at `root`.
    pub fn read(root: &Path) -> Self {
        let Some(git) = root.to_str().map(Git) else { return CheckoutState::default() };
        let status = ["status", "--porcelain=v2", "--branch", "--untracked-files=normal"];
        let Some(output) = git.read(&status, STATUS_BYTES_MAX) else { return CheckoutState::default() };
        let state = Self::parse(&String::from_utf8_lossy(&output));
        if state.revision.is_none() || state.difference.is_some() {
            return state;
        }
        match first_difference(root, &git) {
            Some(difference) => CheckoutState { is_clean: Some(difference.is_none()), difference, ..state },
            None => CheckoutState { is_clean: None, ..state },
        }
    }

    /// Returns the state with the hash and the versions of this program.
    pub fn provenance(self) -> Provenance {
        Provenance {
            git_revision: self.revision,
            git_clean: self.is_clean,
            git_difference: self.difference,
            ..Provenance::of_this_program()
        }
    }

    /// Reads git's output: header lines that begin with `#`, then one line for each file that differs, which ends with its path.
    fn parse(status: &str) -> Self {
        let revision = status.lines().find_map(|line| line.strip_prefix("# branch.oid "));
        let is_hash = |text: &&str| text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let changed = status.lines().find(|line| !line.starts_with('#'));
        let difference = changed.map(|line| match line.strip_prefix("? ") {
            Some(path) => format!("`{path}` is not in it"),
            // The path follows seven fields, and its earlier name a tab.
            None => format!(
                "`{}` differs",
                line.splitn(9, ' ').last().unwrap_or_default().split('\t').next().unwrap_or_default()
            ),
        });
        CheckoutState {
            revision: revision.filter(is_hash).map(str::to_owned),
            is_clean: Some(difference.is_none()),
            difference,
        }
    }
}

/// Runs git in a folder.
struct Git<'r>(&'r str);

impl Git<'_> {
    /// Returns the output of a command of git; `None` when it fails or the output has `bytes_max` bytes or more.
    fn read(&self, arguments: &[&str], bytes_max: u64) -> Option<Vec<u8>> {
        let environment = VARIABLES.iter().flat_map(|name| ["-u", name]);
        // Neither a lock nor a helper of the repository, nor objects in place of others: a run changes nothing in it and starts
        // nothing for it.
        let git = ["git", "--no-optional-locks", "--no-replace-objects", "-c", "core.fsmonitor=false", "-C", self.0];
        let argv: Vec<&str> =
            ["env"].into_iter().chain(environment).chain(git).chain(arguments.iter().copied()).collect();
        read_output(&argv, bytes_max)
    }

    /// Returns the files of the commit that is checked out, below the folder, by path.
    fn files(&self) -> Option<BTreeMap<String, TreeEntry>> {
        let output = self.read(&["ls-tree", "-r", "-l", "-z", "HEAD"], LIST_BYTES_MAX)?;
        if output.len() as u64 >= LIST_BYTES_MAX {
            return None;
        }
        let text = String::from_utf8(output).ok()?;
        text.split_terminator('\0').map(TreeEntry::parse).collect()
    }

    /// Returns the hashes of regular files as git computes them, without its filters.
    fn hash(&self, paths: &[&str]) -> Option<Vec<String>> {
        let output = self.read(&[&["hash-object", "--no-filters", "--"], paths].concat(), LIST_BYTES_MAX)?;
        let hashes: Vec<String> = String::from_utf8(output).ok()?.lines().map(str::to_owned).collect();
        (hashes.len() == paths.len()).then_some(hashes)
    }
}

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TreeEntry {
    mode: String,
    hash: String,
    /// Size in bytes; `None` for another repository.
    size: Option<u64>,
}

impl TreeEntry {
    /// Parses `MODE TYPE HASH SIZE<tab>PATH`.
    fn parse(line: &str) -> Option<(String, TreeEntry)> {
        let (head, path) = line.split_once('\t')?;
        let [mode, _, hash, size] = head.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let entry = TreeEntry { mode: mode.to_owned(), hash: hash.to_owned(), size: size.parse().ok() };
        Some((path.to_owned(), entry))
    }
}

/// Returns the first file that is not as in the commit that is checked out, with how it differs; the outer `None` when git does not
/// tell what the commit contains.
fn first_difference(root: &Path, git: &Git<'_>) -> Option<Option<String>> {
    let files = git.files()?;
    let mut hashed = Vec::new();
    let whole = root.canonicalize().ok()?;
    for (path, entry) in &files {
        let found = fs::symlink_metadata(root.join(path)).ok();
        let is_same = match (&*entry.mode, found) {
            (LINK_MODE, Some(found)) if found.is_symlink() => {
                let target = fs::read_link(root.join(path)).ok()?;
                git.read(&["cat-file", "blob", &entry.hash], LIST_BYTES_MAX)? == target.as_os_str().as_bytes()
            }
            ("100644" | "100755", Some(found)) if found.is_file() && Some(found.len()) == entry.size => {
                hashed.push((path.as_str(), entry.hash.as_str()));
                true
            }
            _ => false,
        };
        if !is_same {
            return Some(Some(format!("`{path}` differs")));
        }
        if entry.mode == LINK_MODE && leads_out(&whole, path, &files) {
            return Some(Some(format!("`{path}` leads to what is not in it")));
        }
    }
    for files in hashed.chunks(FILES_HASHED) {
        let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        let hashes = git.hash(&paths)?;
        if let Some(((path, _), _)) = files.iter().zip(hashes).find(|((_, expected), found)| expected != found) {
            return Some(Some(format!("`{path}` differs")));
        }
    }
    Some(READ_FOLDERS.iter().find_map(|(folder, depth)| first_unknown_file(root, folder, *depth, &files)))
}

/// Returns whether a link leads to something whose content the commit does not contain. One in `datasets` may: data have hashes of their
/// own in the record.
fn leads_out(root: &Path, link: &str, files: &BTreeMap<String, TreeEntry>) -> bool {
    let is_compared = |path: &Path| {
        let folders = READ_FOLDERS.iter().filter(|(_, depth)| *depth == DEPTH_MAX);
        folders.map(|(folder, _)| folder).any(|folder| path.starts_with(folder))
    };
    let target = root.join(link).canonicalize().ok();
    let target = target.as_deref().and_then(|target| target.strip_prefix(root).ok());
    let is_known = target
        .is_some_and(|target| is_compared(target) || target.to_str().is_some_and(|path| files.contains_key(path)));
    is_compared(Path::new(link)) && !is_known
}

/// Returns the first file below a folder that the commit does not contain.
fn first_unknown_file(
    root: &Path,
    folder: &str,
    depth_max: u32,
    files: &BTreeMap<String, TreeEntry>,
) -> Option<String> {
    let mut folders = vec![(folder.to_owned(), 0)];
    let mut entries = 0;
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten() {
            let Ok(entry) = entry else { return Some(format!("`{folder}` cannot be read")) };
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            entries += 1;
            if entries > ENTRIES_MAX {
                return Some(format!("`{path}` and other files were not compared: there are more than {ENTRIES_MAX}"));
            }
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true if depth < depth_max => folders.push((path, depth + 1)),
                // Deeper files of a dataset are data, whose hash is in the record.
                true if depth_max < DEPTH_MAX => {}
                _ if files.contains_key(&path) => {}
                // The rest of a dataset is data, but a link may lead to a description.
                _ if depth_max < DEPTH_MAX && !path.ends_with(".yaml") && !root.join(&path).is_dir() => {}
                _ => return Some(format!("`{path}` is not in it")),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_revision_and_changed_files_are_read_from_gits_output() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let status = format!("# branch.oid {hash}\n# branch.head main\n");
        let clean = CheckoutState { revision: Some(hash.to_owned()), is_clean: Some(true), difference: None };
        assert_eq!(CheckoutState::parse(&status), clean);
        for (changed, difference) in [
            ("? new.rhai", "`new.rhai` is not in it"),
            ("1 .M N... 100644 100644 100644 a b scripts/a b.rhai", "`scripts/a b.rhai` differs"),
        ] {
            let state = CheckoutState::parse(&format!("{status}{changed}\n"));
            let difference = Some(difference.to_owned());
            assert_eq!(state, CheckoutState { is_clean: Some(false), difference, ..clean.clone() });
        }
        assert_eq!(CheckoutState::parse("# branch.oid (initial)\n").revision, None);
    }

    #[test]
    fn outside_a_repository_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CheckoutState::read(folder.path()), CheckoutState::default());
        assert_eq!(CheckoutState::read(Path::new("/no/such/folder")), CheckoutState::default());
    }

    /// A repository with one commit.
    struct Checkout(tempfile::TempDir);

    impl Checkout {
        fn new() -> Self {
            let checkout = Checkout(tempfile::tempdir().unwrap());
            checkout.git(&["init", "-q"]);
            checkout.write(".gitignore", "*.tmp\n/target\n/vendors/**/target\n/datasets/*/generated\n");
            checkout.write("scripts/tiny/model.rhai", "fn model_build() { 1 }\n");
            checkout.write("vendors/acme/engine.py", "print(1)\n");
            checkout.write("datasets/drawn/dataset.yaml", "a: 1\n");
            symlink("engine.py", checkout.path("vendors/acme/link.py")).unwrap();
            checkout.git(&["add", "-A"]);
            checkout.git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"]);
            checkout
        }

        fn git(&self, arguments: &[&str]) {
            let folder = self.0.path().to_str().unwrap();
            read_output(&[&["git", "-C", folder], arguments].concat(), 1 << 20).unwrap();
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.0.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            fs::write(self.path(path), text).unwrap();
        }

        /// Returns the first difference after a change.
        fn after(change: impl FnOnce(&Checkout)) -> Option<String> {
            let checkout = Checkout::new();
            change(&checkout);
            let state = CheckoutState::read(checkout.0.path());
            assert!(state.revision.is_some() && state.is_clean == Some(state.difference.is_none()), "{state:?}");
            state.difference
        }
    }

    const MODEL: &str = "scripts/tiny/model.rhai";
    const OTHER: &str = "fn model_build() { 2 }\n";

    #[test]
    fn an_unchanged_checkout_is_clean_with_build_outputs_and_data() {
        let found = Checkout::after(|checkout| {
            checkout.write("target/release/lib.so", "x");
            checkout.write("datasets/drawn/generated/1.jpg", "x");
            checkout.write("result.tmp", "x");
        });
        assert_eq!(found, None);
    }

    #[test]
    fn a_change_that_the_index_hides_is_a_difference() {
        let differs = Some(format!("`{MODEL}` differs"));
        for flag in ["--assume-unchanged", "--skip-worktree"] {
            let found = Checkout::after(|checkout| {
                checkout.git(&["update-index", flag, MODEL]);
                checkout.write(MODEL, OTHER);
            });
            assert_eq!(found, differs, "{flag}");
        }
        let filtered = Checkout::after(|checkout| {
            checkout.git(&["config", "filter.lie.clean", "printf 'fn model_build() { 1 }\\n'"]);
            checkout.write(".git/info/attributes", "*.rhai filter=lie\n");
            checkout.write(MODEL, OTHER);
        });
        assert_eq!(filtered, differs);
        let longer = Checkout::after(|checkout| {
            checkout.git(&["update-index", "--assume-unchanged", MODEL]);
            checkout.write(MODEL, "fn model_build() { 1 + 1 }\n");
        });
        assert_eq!(longer, differs);
    }

    #[test]
    fn a_file_that_git_ignores_or_excludes_is_a_difference_where_a_run_reads() {
        for (path, exclude) in [
            ("scripts/tiny/other.tmp", false),
            ("vendors/acme/sitecustomize.py", true),
            ("vendors/acme/engine/target/release/hidden.py", false),
            ("vendors/acme/engine/lib.so", true),
            ("configs/tiny/parameters.yaml", true),
            ("docker_images/acme/f/Dockerfile", true),
            ("datasets/drawn/other.yaml", true),
        ] {
            let found = Checkout::after(|checkout| {
                if exclude {
                    checkout.write(".git/info/exclude", "*\n");
                }
                checkout.write(path, "x");
            });
            assert_eq!(found, Some(format!("`{path}` is not in it")));
        }
    }

    #[test]
    fn links_and_special_files_are_compared_and_never_opened() {
        let hidden = |checkout: &Checkout, path: &str| {
            checkout.git(&["update-index", "--assume-unchanged", path]);
            fs::remove_file(checkout.path(path)).unwrap();
        };
        let relinked = Checkout::after(|checkout| {
            hidden(checkout, "vendors/acme/link.py");
            symlink("/etc/passwd", checkout.path("vendors/acme/link.py")).unwrap();
        });
        assert_eq!(relinked, Some("`vendors/acme/link.py` differs".to_owned()));
        let fifo = Checkout::after(|checkout| {
            hidden(checkout, MODEL);
            nix::unistd::mkfifo(&checkout.path(MODEL), nix::sys::stat::Mode::S_IRWXU).unwrap();
        });
        assert_eq!(fifo, Some(format!("`{MODEL}` differs")));
        for target in ["/etc", "../../../..", "../../result", "nowhere"] {
            let led_out = Checkout::after(|checkout| {
                fs::create_dir(checkout.path("result")).unwrap();
                symlink(target, checkout.path("vendors/acme/out")).unwrap();
                checkout.git(&["add", "-A"]);
                checkout.git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "b"]);
            });
            assert_eq!(led_out, Some("`vendors/acme/out` leads to what is not in it".to_owned()), "{target}");
        }
        let linked = Checkout::after(|checkout| {
            checkout.write(".git/info/exclude", "*\n");
            symlink("/etc", checkout.path("scripts/etc")).unwrap();
        });
        assert_eq!(linked, Some("`scripts/etc` is not in it".to_owned()));
    }
}
