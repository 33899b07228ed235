//! The state of the checkout in git: the revision, and whether files differ from it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use flagperf_host::read_output;
use flagperf_result::Provenance;

/// Largest part of git's output that is read: its first lines and one changed file decide.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// The state of the checkout; unknown without git, or outside a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutState {
    /// The commit that is checked out, in hexadecimal.
    pub revision: Option<String>,
    /// Whether every file is as in that commit and none is untracked, apart from those that git ignores.
    pub is_clean: Option<bool>,
}

impl CheckoutState {
    /// Asks git for the state of the checkout at `root`.
    pub fn read(root: &Path) -> Self {
        let Some(root) = root.to_str() else { return CheckoutState::default() };
        // Neither a lock nor a helper of the repository: a run changes nothing in it and starts nothing for it.
        let git = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", root];
        let status = ["status", "--porcelain=v2", "--branch", "--untracked-files=normal"];
        let output = read_output(&[&git[..], &status[..]].concat(), OUTPUT_BYTES_MAX);
        output.map(|output| Self::parse(&String::from_utf8_lossy(&output))).unwrap_or_default()
    }

    /// Returns the state with the hash and the versions of this program.
    pub fn provenance(self) -> Provenance {
        Provenance { git_revision: self.revision, git_clean: self.is_clean, ..Provenance::of_this_program() }
    }

    /// Reads git's output: header lines that begin with `#`, then one line for each file that differs.
    fn parse(status: &str) -> Self {
        let revision = status.lines().find_map(|line| line.strip_prefix("# branch.oid "));
        let is_hash = |text: &&str| text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        CheckoutState {
            revision: revision.filter(is_hash).map(str::to_owned),
            is_clean: Some(status.lines().all(|line| line.starts_with('#'))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_and_changed_files_are_read_from_gits_output() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let status = format!("# branch.oid {hash}\n# branch.head main\n");
        let clean = CheckoutState { revision: Some(hash.to_owned()), is_clean: Some(true) };
        assert_eq!(CheckoutState::parse(&status), clean);
        for changed in ["? new.rhai", "1 .M N... 100644 100644 100644 a b scripts/a.rhai"] {
            let state = CheckoutState::parse(&format!("{status}{changed}\n"));
            assert_eq!(state, CheckoutState { is_clean: Some(false), ..clean.clone() });
        }
        assert_eq!(CheckoutState::parse("# branch.oid (initial)\n").revision, None);
    }

    #[test]
    fn outside_a_repository_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CheckoutState::read(folder.path()), CheckoutState::default());
        assert_eq!(CheckoutState::read(Path::new("/no/such/folder")), CheckoutState::default());
    }
}
