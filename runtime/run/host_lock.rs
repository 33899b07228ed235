//! The lock of a host, which keeps a second run from measuring on the host at the same time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::Interrupt;
use crate::config::BusyHost;
use crate::text::{one_line, truncate};

/// Time between two attempts of a waiting run to take the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and with which pause, a process tries to share the lock.
const SHARE_TRIES: u32 = 100;
const SHARE_INTERVAL: Duration = Duration::from_millis(10);
/// The description of a run that has not written one.
const UNKNOWN_RUN: &str = "a process that holds its lock";
/// Largest number of bytes that are read from the file of the lock.
const TEXT_BYTES_MAX: u64 = 1000;

/// The lock of this host. It is held until this value is dropped or the process ends.
#[derive(Debug)]
pub struct HostLock {
    _file: File,
}

/// Another run uses this host.
#[derive(Debug, thiserror::Error)]
#[error("another run is using this host: {0}")]
pub struct HostBusy(pub String);

impl HostBusy {
    /// What a user can do about it.
    pub const HINT: &'static str = "wait until that run has ended, or set `BUSY_HOST: queue` in host.yaml";
}

/// What happens while the lock is taken.
#[derive(Debug, thiserror::Error)]
pub enum LockNotice {
    /// Another run uses this host, and this one waits.
    #[error("{0}; waiting for that run to end")]
    Waits(HostBusy),
    /// The lock cannot be used, so this run and others do not notice each other.
    #[error("the lock of this host cannot be used, so other runs on it are not noticed: {0}")]
    Unusable(String),
}

impl HostLock {
    /// Takes the lock in `path` for the run `run`. `description` tells a person which run that is. Processes of one run share
    /// the lock. `None` for a run that shares the host, and when the file cannot be locked, which `on_notice` is told: a run does
    /// not depend on it.
    ///
    /// # Errors
    /// When another run has the lock, and this one is not to wait, or is interrupted while it waits.
    pub fn take(
        path: &Path,
        (run, description): (&str, &str),
        choice: BusyHost,
        interrupt: &Interrupt,
        on_notice: &mut dyn FnMut(&LockNotice),
    ) -> Result<Option<Self>, HostBusy> {
        if choice == BusyHost::Share {
            return Ok(None);
        }
        let unusable = |error: &io::Error| LockNotice::Unusable(format!("`{}`: {error}", path.display()));
        let mut file = match open(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) => {
                on_notice(&unusable(&error));
                return Ok(None);
            }
        };
        let mut has_waited = false;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    // An error is ignored: others then do not know which run has the lock.
                    let _ = write(&mut file, run, description);
                    let _ = file.lock_shared();
                    return Ok(Some(HostLock { _file: file }));
                }
                Err(TryLockError::Error(error)) => {
                    on_notice(&unusable(&error));
                    return Ok(None);
                }
                Err(TryLockError::WouldBlock) => {}
            }
            let is_shared = try_share(&file, interrupt);
            let (other, other_description) = read(&mut file).unwrap_or_default();
            if is_shared && other == run {
                return Ok(Some(HostLock { _file: file }));
            }
            let _ = file.unlock();
            let known = one_line(&other_description).into_owned();
            let busy = HostBusy(if known.is_empty() { UNKNOWN_RUN.to_owned() } else { known });
            if choice == BusyHost::Refuse || interrupt.is_set() {
                return Err(busy);
            }
            if !std::mem::replace(&mut has_waited, true) {
                on_notice(&LockNotice::Waits(busy));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Tries to share the lock for a while: a process of a run has it alone only while it writes which run it belongs to.
fn try_share(file: &File, interrupt: &Interrupt) -> bool {
    for _ in 0..SHARE_TRIES {
        if file.try_lock_shared().is_ok() {
            return true;
        }
        if interrupt.is_set() {
            return false;
        }
        thread::sleep(SHARE_INTERVAL);
    }
    false
}

/// Opens the file of the lock, or creates it with permissions that let every user lock it. Opening is tried first, because in a
/// folder such as /tmp the system may refuse to create a file that already exists and belongs to another user.
fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let opened = options.open(path).or_else(|_| {
        let file = options.mode(0o666).create(true).open(path)?;
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        // The umask may have removed permissions.
        file.set_permissions(all).map(|()| file)
    })?;
    Ok(opened.metadata()?.is_file().then_some(opened))
}

fn write(file: &mut File, run: &str, about: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{run}\n{about}\n").as_bytes())
}

/// Returns the id and the description of the run that holds the lock.
fn read(file: &mut File) -> io::Result<(String, String)> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (run, about) = text.split_once('\n').unwrap_or((&text, ""));
    Ok((run.to_owned(), truncate(about.trim_end(), TEXT_BYTES_MAX as usize).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path, run: &str, choice: BusyHost, interrupt: &Interrupt) -> Result<Option<HostLock>, HostBusy> {
        HostLock::take(path, (run, &format!("process 1, results in {run}")), choice, interrupt, &mut |_| {
            interrupt.set()
        })
    }

    #[test]
    fn one_run_at_a_time_has_a_host_and_its_processes_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let interrupt = Interrupt::default();
        let first = take(&path, "one", BusyHost::Refuse, &interrupt).unwrap();
        let second = take(&path, "one", BusyHost::Refuse, &interrupt).unwrap();
        drop(first);
        let busy = take(&path, "two", BusyHost::Refuse, &interrupt).unwrap_err();
        assert_eq!(busy.to_string(), "another run is using this host: process 1, results in one");
        assert!(take(&path, "two", BusyHost::Share, &interrupt).unwrap().is_none());
        drop(second);
        assert!(take(&path, "two", BusyHost::Refuse, &interrupt).unwrap().is_some());
    }

    #[test]
    fn a_process_waits_until_another_one_of_its_run_has_written_which_run_it_belongs_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut first = open(&path).unwrap().unwrap();
        first.lock().unwrap();
        let (sender, outcome) = crossbeam_channel::bounded(1);
        let second = path.clone();
        thread::spawn(move || sender.send(take(&second, "one", BusyHost::Refuse, &Interrupt::default()).is_ok()));
        assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
        write(&mut first, "one", "process 1").unwrap();
        first.lock_shared().unwrap();
        assert_eq!(outcome.recv(), Ok(true));
    }

    #[test]
    fn a_run_that_waits_ends_with_an_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = take(&path, "one", BusyHost::Refuse, &Interrupt::default()).unwrap();
        take(&path, "two", BusyHost::Queue, &Interrupt::default()).unwrap_err();
    }

    #[test]
    fn a_lock_that_is_not_a_regular_file_keeps_no_run_from_starting() {
        assert!(take(Path::new("/dev/null"), "one", BusyHost::Refuse, &Interrupt::default()).unwrap().is_none());
    }
}
