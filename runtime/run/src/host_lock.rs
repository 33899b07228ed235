//! The lock of a host, which keeps a second run from measuring on the host at the same time.
//!
//! Runs that have the host for themselves lock its file with flock; the processes of one run share this lock. A run
//! that shares the host (`BUSY_HOST: share`) has a record lock of the file instead, which is independent of the other,
//! and adds a line to the file. From this line, a run that has the host for itself learns of the other run, even if
//! that has already ended.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use jiff::Zoned;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, O_NOFOLLOW, O_NONBLOCK};

use super::Interrupt;
use flagperf_config::BusyHost;
use flagperf_core::text::one_line;

/// Time between two attempts of a waiting run to take the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and with which pause, a process tries to share the lock.
const SHARE_TRIES: u32 = 100;
const SHARE_INTERVAL: Duration = Duration::from_millis(10);
/// The description of a run that has not written one.
const UNKNOWN_RUN: &str = "a process that holds its lock";
/// Largest number of bytes that are read from the file of the lock, at its beginning and of its last lines.
const TEXT_BYTES_MAX: usize = 1000;
/// Size of the file at which runs that share the host no longer add lines to it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The use of this host by a run, until this value is dropped or the process ends.
#[derive(Debug)]
pub struct HostLock {
    hold: Hold,
    /// Why the file cannot be locked.
    doubt: Option<String>,
}

/// The file of a lock.
#[derive(Debug)]
enum Hold {
    /// It is locked by the processes of this run only.
    Own(File),
    /// This run shares the host.
    Shared { _file: File },
    /// This path was chosen although it is not a regular file.
    Disabled(PathBuf),
    /// It cannot be locked.
    None,
}

/// Another run uses this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another run is using this host: {description}")]
pub struct HostBusy {
    /// Id of that run; empty when it is unknown.
    pub run: String,
    /// What a person recognises that run by.
    pub description: String,
}

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
    /// the lock. When the file cannot be locked, `on_notice` is told: a run does not depend on it.
    ///
    /// # Errors
    /// When another run has the lock, and this one is not to wait, or is interrupted while it waits.
    pub fn take(
        path: &Path,
        (run, description): (&str, &str),
        choice: BusyHost,
        interrupt: &Interrupt,
        on_notice: &mut dyn FnMut(&LockNotice),
    ) -> Result<Self, HostBusy> {
        let file = match open(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(HostLock { hold: Hold::Disabled(path.to_owned()), doubt: None }),
            // Such a run is unofficial anyway.
            Err(_) if choice == BusyHost::Share => return Ok(HostLock { hold: Hold::None, doubt: None }),
            Err(error) => return Ok(Self::unusable(path, &error, on_notice)),
        };
        if choice == BusyHost::Share {
            // Without this, other runs do not notice this one.
            let _ = announce(&file, description);
            return Ok(HostLock { hold: Hold::Shared { _file: file }, doubt: None });
        }
        let mut waits_for = None;
        loop {
            let busy = match file.try_lock() {
                Ok(()) => match sharing_run(&file) {
                    None => {
                        // An error is ignored: others then do not know which run has the lock.
                        let _ = write(&file, run, description);
                        let _ = file.lock_shared();
                        return Ok(HostLock { hold: Hold::Own(file), doubt: None });
                    }
                    Some(description) => HostBusy { run: String::new(), description },
                },
                Err(TryLockError::Error(error)) => return Ok(Self::unusable(path, &error, on_notice)),
                Err(TryLockError::WouldBlock) => {
                    let is_shared = try_share(&file, interrupt);
                    let (other, description) = read(&file).unwrap_or_else(|_| (String::new(), shown("")));
                    if is_shared && other == run {
                        return Ok(HostLock { hold: Hold::Own(file), doubt: None });
                    }
                    HostBusy { run: other, description }
                }
            };
            let _ = file.unlock();
            if choice == BusyHost::Refuse || interrupt.is_set() {
                return Err(busy);
            }
            if waits_for.as_ref() != Some(&busy) {
                on_notice(&LockNotice::Waits(busy.clone()));
                waits_for = Some(busy);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn unusable(path: &Path, error: &io::Error, on_notice: &mut dyn FnMut(&LockNotice)) -> Self {
        let notice = LockNotice::Unusable(format!("`{}`: {error}", path.display()));
        on_notice(&notice);
        HostLock { hold: Hold::None, doubt: Some(notice.to_string()) }
    }

    /// Returns why the lock cannot be used, so that other runs are not noticed; `None` if it can, or is not meant to be used.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Returns that somebody has disabled the lock.
    pub fn disabled(&self) -> Option<String> {
        let Hold::Disabled(path) = &self.hold else { return None };
        let path = path.display();
        Some(format!(
            "the lock of this host is disabled, so other runs on it are not noticed: `{path}` is not a regular file"
        ))
    }

    /// Begins to watch for runs that share the host with this one.
    pub fn watch(&self) -> HostWatch<'_> {
        let Hold::Own(file) = &self.hold else { return HostWatch { file: None, length: 0, first: None } };
        HostWatch { file: Some(file), length: length(file), first: sharing_run(file) }
    }
}

/// Watches for runs that share the host with a run that was to have it for itself.
#[derive(Debug)]
pub struct HostWatch<'l> {
    file: Option<&'l File>,
    /// Size of the file of the lock when this began.
    length: u64,
    /// The description of a run that used the host when this began.
    first: Option<String>,
}

impl HostWatch<'_> {
    /// Returns that another run used the host since this began; `None` if none was noticed.
    pub fn finish(self) -> Option<String> {
        let file = self.file?;
        let other = self.first.or_else(|| (length(file) > self.length).then(|| last_line(file)))?;
        Some(format!("another run used this host at the same time (`BUSY_HOST: share`): {other}"))
    }
}

/// The lock of the first byte of the file, which is independent of flock.
fn record_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    }
}

/// Lets other runs notice that this one shares the host: now by a lock, and later by a line in the file.
fn announce(file: &File, description: &str) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&record_lock()))?;
    let end = length(file);
    if end < FILE_BYTES_MAX {
        file.write_all_at(format!("{}\n", since_now(description)).as_bytes(), end)?;
    }
    Ok(())
}

/// Returns the description of a run that shares the host and has not ended.
fn sharing_run(file: &File) -> Option<String> {
    let mut found = libc::flock { l_type: libc::F_WRLCK as libc::c_short, ..record_lock() };
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).ok()?;
    (found.l_type != libc::F_UNLCK as libc::c_short).then(|| last_line(file))
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.len())
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

/// Returns a description with the time since when its run uses the host.
fn since_now(description: &str) -> String {
    format!("{}, since {}", one_line(description), Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z"))
}

/// Writes which run has the lock.
fn write(file: &File, run: &str, description: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(format!("{run}\n{}\n", since_now(description)).as_bytes(), 0)
}

/// Returns the id and the description of the run that holds the lock.
fn read(file: &File) -> io::Result<(String, String)> {
    let text = read_text(file, 0)?;
    let mut lines = text.lines();
    let [run, description] = [(); 2].map(|()| lines.next().unwrap_or_default());
    Ok((run.to_owned(), shown(description)))
}

/// Returns the description in the last line of the file.
fn last_line(file: &File) -> String {
    let text = read_text(file, length(file).saturating_sub(TEXT_BYTES_MAX as u64)).unwrap_or_default();
    shown(text.lines().last().unwrap_or_default())
}

fn read_text(file: &File, offset: u64) -> io::Result<String> {
    let mut text = vec![0; TEXT_BYTES_MAX];
    let length = file.read_at(&mut text, offset)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Returns a description, which anybody may have written, as a part of a message.
fn shown(description: &str) -> String {
    let description = one_line(description.trim());
    if description.is_empty() { UNKNOWN_RUN.to_owned() } else { description.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path, run: &str, choice: BusyHost, interrupt: &Interrupt) -> Result<HostLock, HostBusy> {
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
        let text = busy.to_string();
        assert!(text.starts_with("another run is using this host: process 1, results in one, since 20"), "{text}");
        assert_eq!(busy.run, "one");
        drop(second);
        let third = take(&path, "two", BusyHost::Refuse, &interrupt).unwrap();
        assert!(matches!(third.hold, Hold::Own(_)) && third.doubt().is_none());
    }

    #[test]
    fn a_process_waits_until_another_one_of_its_run_has_written_which_run_it_belongs_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = open(&path).unwrap().unwrap();
        first.lock().unwrap();
        let (sender, outcome) = crossbeam_channel::bounded(1);
        let second = path.clone();
        thread::spawn(move || sender.send(take(&second, "one", BusyHost::Refuse, &Interrupt::default()).is_ok()));
        assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
        write(&first, "one", "process 1").unwrap();
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
    fn a_run_that_waits_names_each_run_that_it_waits_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let interrupt = Interrupt::default();
        let mut other = Some(take(&path, "one", BusyHost::Refuse, &interrupt).unwrap());
        let mut named = Vec::new();
        let mut on_notice = |notice: &LockNotice| {
            let LockNotice::Waits(busy) = notice else { return };
            named.push(busy.run.clone());
            match busy.run.as_str() {
                "one" => {
                    other = None;
                    other = Some(take(&path, "two", BusyHost::Refuse, &Interrupt::default()).unwrap());
                }
                _ => other = None,
            }
        };
        HostLock::take(&path, ("three", "process 3"), BusyHost::Queue, &interrupt, &mut on_notice).unwrap();
        assert_eq!(named, ["one", "two"]);
    }

    #[test]
    fn a_run_that_has_the_host_for_itself_notices_one_that_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let interrupt = Interrupt::default();
        let own = take(&path, "one", BusyHost::Refuse, &interrupt).unwrap();
        assert_eq!(own.watch().finish(), None);
        let watch = own.watch();
        let others = ["two", "three"].map(|run| take(&path, run, BusyHost::Share, &interrupt).unwrap());
        assert_eq!((others[0].watch().finish(), others[0].doubt()), (None, None));
        drop(others);
        let found = watch.finish().expect("it has ended, but was there");
        let expected =
            "another run used this host at the same time (`BUSY_HOST: share`): process 1, results in three, since ";
        assert!(found.starts_with(expected), "{found}");
        assert_eq!(own.watch().finish(), None, "it had ended before");
        let other = take(&path, "two", BusyHost::Share, &interrupt).unwrap();
        assert!(own.watch().finish().is_some(), "it began before, and has not ended");
        drop(own);
        let busy = take(&path, "four", BusyHost::Refuse, &interrupt).unwrap_err();
        assert!(busy.description.starts_with("process 1, results in two, since "), "{busy}");
        drop(other);
        take(&path, "four", BusyHost::Refuse, &interrupt).unwrap();
    }

    #[test]
    fn without_a_lock_it_is_not_certain_that_a_run_has_the_host_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let disabled = take(Path::new("/dev/null"), "one", BusyHost::Refuse, &interrupt).unwrap();
        assert!(disabled.disabled().is_some_and(|text| text.contains("`/dev/null`")) && !interrupt.is_set());
        let unusable = take(&folder.path().join("no/lock"), "one", BusyHost::Refuse, &interrupt).unwrap();
        let doubt = unusable.doubt().unwrap_or_default();
        assert!(
            doubt.starts_with("the lock of this host cannot be used, so other runs on it are not noticed: `"),
            "{doubt}"
        );
        assert!(interrupt.is_set(), "it was reported");
    }
}
