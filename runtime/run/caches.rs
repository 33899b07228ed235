//! The page cache of the machine, dropped before a case where the site asks for it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Where Linux takes the order to drop its caches.
pub(super) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Writing everything to disk may take this long; a disk that does not answer must not stop the run.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes everything to disk and drops the page cache, as `sync; echo 3 > /proc/sys/vm/drop_caches` does. Returns a
/// warning when it cannot; `order` is the file that takes the order.
pub(super) fn clear(order: &Path) -> Option<String> {
    let (sender, outcome) = crossbeam_channel::bounded(1);
    let path = order.to_owned();
    thread::spawn(move || {
        nix::unistd::sync();
        // Nobody waits any more when it took too long.
        let _ = sender.send(fs::write(path, "3\n"));
    });
    let reason = match outcome.recv_timeout(LIMIT) {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took longer than {} s", LIMIT.as_secs()),
    };
    Some(format!(
        "`CLEAR_CACHES: true`, but the page cache was not dropped (`{}`: {reason}): data may come from memory",
        order.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_flagperf() {
        let folder = tempfile::tempdir().unwrap();
        let order = folder.path().join("drop_caches");
        fs::write(&order, "").unwrap();
        assert_eq!(clear(&order), None);
        assert_eq!(fs::read_to_string(order).unwrap(), "3\n");
    }

    #[test]
    fn caches_that_cannot_be_dropped_are_a_warning_that_says_why() {
        let warning = clear(Path::new("/no/such/drop_caches")).unwrap();
        assert_eq!(
            warning,
            "`CLEAR_CACHES: true`, but the page cache was not dropped (`/no/such/drop_caches`: No such file or directory \
             (os error 2)): data may come from memory"
        );
    }
}
