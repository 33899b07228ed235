//! The sessions that runs of this user have given up, so that a later run on the same host removes their files.
//!
//! Only this machine knows that nobody needs these files any more: the record of the replica is written, and `resume`
//! does not run its case again. Only the host knows whether the process of the session has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flagperf_config::cache_folder;
use flagperf_core::file;

/// Age at which a session is forgotten: hosts then remove it by themselves.
const AGE_MAX: Duration = Duration::from_secs(8 * 24 * 3600);
/// Longest name of a host that is read, in bytes.
const HOST_BYTES_MAX: u64 = 1000;

/// The list of given-up sessions: a folder with a file for each, which contains the name of its host.
pub(super) struct GivenUpSessions {
    /// `None` when the user has no cache folder.
    folder: Option<PathBuf>,
}

impl GivenUpSessions {
    /// Returns the list in the user's cache folder.
    pub(super) fn of_user() -> Self {
        GivenUpSessions { folder: cache_folder().map(|cache| cache.join("given_up")) }
    }

    /// Adds a session. An error is only logged: the host removes the session after a week.
    pub(super) fn add(&self, session: &str, host: &str) {
        let Some(folder) = &self.folder else { return };
        let path = folder.join(session);
        let staged = fs::create_dir_all(folder).and_then(|()| file::stage(host.as_bytes(), &path, None));
        if let Err(error) = staged.and_then(|file| file.persist(&path).map_err(|error| error.error)) {
            tracing::warn!(%error, "the given-up session `{session}` cannot be noted, so its files stay on host `{host}` for a week");
        }
    }

    /// Removes a session whose files are removed.
    pub(super) fn remove(&self, session: &str) {
        self.folder.iter().for_each(|folder| drop(fs::remove_file(folder.join(session))));
    }

    /// Returns the sessions on a host, and forgets old ones.
    pub(super) fn on_host(&self, host: &str) -> Vec<String> {
        let entries = self.folder.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let mut sessions = Vec::new();
        for path in entries.map(|entry| entry.path()) {
            if is_old(&path) {
                let _ = fs::remove_file(&path);
            } else if flagperf_core::regular_file::read_regular(&path, HOST_BYTES_MAX)
                .is_ok_and(|found| found == host.as_bytes())
            {
                sessions.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        sessions
    }
}

fn is_old(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > AGE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_listed_for_their_host_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let list = GivenUpSessions { folder: Some(folder.path().join("given_up")) };
        assert_eq!(list.on_host("h1"), [""; 0]);
        for (session, host) in [("a", "h1"), ("b", "h2"), ("c", "h1")] {
            list.add(session, host);
        }
        list.remove("c");
        assert_eq!((list.on_host("h1"), list.on_host("h2")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    }
}
