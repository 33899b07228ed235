//! The lock of a checkout, so that only one process at a time creates something in it.

use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::ScaffoldError;

/// How long a process waits for another one, which needs milliseconds.
const WAIT_SECONDS: u32 = 20;
const POLLS_PER_SECOND: u32 = 50;

/// The right to create something in a checkout; dropping it lets the next process in.
#[derive(Debug)]
pub struct CheckoutLock {
    /// `None` on a file system that cannot lock folders. A changed file is then still noticed before it is replaced.
    _folder: Option<Flock<File>>,
}

impl CheckoutLock {
    /// Waits until no other process creates something in the checkout at `root`.
    ///
    /// # Errors
    /// When another process holds the lock for too long.
    pub fn acquire(root: &Path) -> Result<Self, ScaffoldError> {
        Self::acquire_within(root, WAIT_SECONDS)
    }

    fn acquire_within(root: &Path, seconds: u32) -> Result<Self, ScaffoldError> {
        let Ok(mut folder) = File::open(root) else { return Ok(CheckoutLock { _folder: None }) };
        for _ in 0..=seconds * POLLS_PER_SECOND {
            folder = match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => return Ok(CheckoutLock { _folder: Some(locked) }),
                Err((folder, Errno::EWOULDBLOCK)) => folder,
                Err(_) => return Ok(CheckoutLock { _folder: None }),
            };
            sleep(Duration::from_secs(1) / POLLS_PER_SECOND);
        }
        Err(ScaffoldError::Busy { seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_waits_until_the_first_one_has_finished() {
        let root = tempfile::tempdir().unwrap();
        let first = CheckoutLock::acquire(root.path()).unwrap();
        let busy = CheckoutLock::acquire_within(root.path(), 0).unwrap_err();
        assert_eq!(busy.to_string(), "another `flagperf new` has been creating something in this checkout for 0 s");
        drop(first);
        CheckoutLock::acquire_within(root.path(), 0).unwrap();
    }
}
