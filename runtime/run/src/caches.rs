//! Drops the machine's page cache before a case, when the site requests it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The file to which `3` is written to make Linux drop its caches.
pub(super) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Time limit of writing everything to disk, so that an unresponsive disk does not stop the run.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Writes everything to disk and drops the page cache, like `sync; echo 3 > /proc/sys/vm/drop_caches`. Returns a
/// warning on failure. `control` is [`DROP_CACHES`], or another file in tests.
pub(super) fn drop_page_cache(control: &Path) -> Option<String> {
    let (sender, outcome) = crossbeam_channel::bounded(1);
    let path = control.to_owned();
    thread::spawn(move || {
        nix::unistd::sync();
        // The receiver is gone when the time limit was exceeded.
        let _ = sender.send(fs::write(path, "3\n"));
    });
    let reason = match outcome.recv_timeout(TIME_LIMIT) {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not finished after {} s", TIME_LIMIT.as_secs()),
    };
    Some(format!(
        "`CLEAR_CACHES: true`, but the page cache was not dropped (`{}`: {reason}): data may be read from memory",
        control.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_dropped_as_flagperf_drops_them() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("drop_caches");
        fs::write(&control, "").unwrap();
        assert_eq!(drop_page_cache(&control), None);
        assert_eq!(fs::read_to_string(control).unwrap(), "3\n");
    }

    #[test]
    fn the_warning_for_caches_that_cannot_be_dropped_has_the_reason() {
        let warning = drop_page_cache(Path::new("/no/such/drop_caches")).unwrap();
        assert_eq!(
            warning,
            "`CLEAR_CACHES: true`, but the page cache was not dropped (`/no/such/drop_caches`: No such file or directory \
             (os error 2)): data may be read from memory"
        );
    }
}
