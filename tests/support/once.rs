//! What several tests need and none changes, made once for all of them: nextest runs each test in a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support;

/// Folders of earlier runs of the tests are removed after this time.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Returns a folder that `make` has filled, once for all tests that run together.
pub fn once_per_run(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&all).expect("a folder");
    let lock = File::create(all.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let run = support::variable("NEXTEST_RUN_ID").unwrap_or_else(|| format!("process-{}", std::process::id()));
    let folder = all.join(run);
    if !folder.join("complete").exists() {
        for other in fs::read_dir(&all).expect("a folder").flatten() {
            let age = other.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > AGE_MAX) || other.path() == folder {
                let _ = fs::remove_dir_all(other.path());
            }
        }
        fs::create_dir_all(&folder).expect("a folder");
        make(&folder);
        fs::write(folder.join("complete"), "").expect("a file");
    }
    folder
}
