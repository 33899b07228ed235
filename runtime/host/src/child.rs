//! Child processes: each is registered when it starts, and waited for.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::bounded::run_for;
use super::{Ending, ProcessError, descendants};
use flagperf_core::units::Seconds;

/// How often the end of a process, or of work in a thread, is polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the command that starts a program with its arguments; no shell is involved.
pub(super) fn command_of<T: AsRef<OsStr>>(argv: &[T]) -> Result<Command, ProcessError> {
    let (name, arguments) = argv.split_first().ok_or(ProcessError::Empty)?;
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let mut command = Command::new(name);
    command.args(arguments);
    Ok(command)
}

/// Returns the error of a command that could not be started.
pub(super) fn start_error(command: &Command, source: io::Error) -> ProcessError {
    ProcessError::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

/// Starts a child and registers it as one that is waited for.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut children = descendants::waited_children();
    let child = command.spawn()?;
    children.insert(child.id().cast_signed());
    Ok(child)
}

/// Removes a child that nobody waits for any more.
pub(super) fn unregister(child: &Child) {
    descendants::waited_children().remove(&child.id().cast_signed());
}

/// A child in a process group of its own.
#[derive(Debug)]
pub(super) struct GroupChild {
    child: Child,
    ended: Option<Ending>,
}

impl GroupChild {
    /// Starts a command in a group of its own.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        Ok(GroupChild { child: spawn(command.process_group(0))?, ended: None })
    }

    /// Returns the child with its streams.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns the process id, which is also the number of the group.
    pub(super) fn id(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Returns how the child ended, if it was waited for.
    pub(super) fn ended(&self) -> Option<Ending> {
        self.ended
    }

    /// Returns whether the child has ended, without reaping it: until it is reaped, no other group can get its number.
    pub(super) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(Pid::from_raw(self.id())), flags), Ok(WaitStatus::StillAlive))
    }

    /// Sends a signal to the group of a child that was not waited for.
    pub(super) fn signal(&self, signal: Signal) {
        // An error is ignored: the group may have ended already.
        let _ = killpg(Pid::from_raw(self.id()), signal);
    }

    /// Waits for a child that is ending; returns `None` if it has not ended after `polls` polls.
    pub(super) fn wait(&mut self, polls: u32) -> Option<Ending> {
        if self.ended.is_none() {
            self.ended = Some(wait(&mut self.child, polls)).filter(|ending| *ending != Ending::Stuck);
            // One that is stuck in the kernel stays registered: it is nobody's orphan.
            if self.ended.is_some() {
                unregister(&self.child);
            }
        }
        self.ended
    }

    /// Kills the group, also what a child that has ended left in it, and waits for the child.
    pub(super) fn kill(&mut self, polls: u32) -> Ending {
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
            self.wait(polls);
        }
        *self.ended.get_or_insert(Ending::Stuck)
    }
}

/// Waits for a child that is ending or was killed. Gives up after `polls` polls on a child stuck in the kernel.
pub(super) fn wait(child: &mut Child, polls: u32) -> Ending {
    for _ in 0..polls {
        match child.try_wait() {
            Ok(Some(status)) => return Ending::from(status),
            Ok(None) => thread::sleep(POLL_INTERVAL),
            // Someone else waited for the child; its status is lost.
            Err(_) => return Ending::Killed(Signal::SIGKILL as i32),
        }
    }
    Ending::Stuck
}

/// Number of polls to wait for the end of a program that was killed.
const KILL_POLLS: u32 = 50;

/// Runs a program to its end with the input and the outputs of this process, in `folder` or in that of this process. After
/// `time_max`, the program is killed with every process that it has started.
///
/// # Errors
/// Fails when the program cannot be started, or has not ended in time.
pub fn run_to_end(argv: &[String], folder: Option<&Path>, time_max: Seconds) -> Result<Ending, ProcessError> {
    let marker = descendants::new_command_marker();
    let mut command = command_of(argv)?;
    command.env(descendants::MARKER, &marker);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let mut child = spawn(&mut command).map_err(|source| start_error(&command, source))?;
    let polls = (time_max.0 / POLL_INTERVAL.as_secs_f64()).ceil() as u32;
    let ending = wait(&mut child, polls.max(1));
    if ending == Ending::Stuck {
        let started = descendants::started_processes(&marker, KILL_POLLS);
        started.iter().for_each(|process| descendants::kill_process(process.pid));
        // This fails when the program has just ended.
        let _ = child.kill();
        wait(&mut child, KILL_POLLS);
    }
    unregister(&child);
    match ending {
        Ending::Stuck => Err(ProcessError::TimedOut { program: argv[0].clone(), limit: time_max }),
        ending => Ok(ending),
    }
}

/// Number of polls after which [`read_output`] kills its program: 10 s.
const OUTPUT_POLLS: u32 = 500;

/// Runs a program without input and returns what it writes to its standard output; `None` when it cannot be started,
/// fails, or takes longer than 10 s. Output beyond `bytes_max` is cut.
pub fn read_output(argv: &[&str], bytes_max: u64) -> Option<Vec<u8>> {
    let mut command = command_of(argv).ok()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = spawn(&mut command).ok()?;
    let mut pipe = child.stdout.take()?;
    let output = run_for(OUTPUT_POLLS, move || {
        let mut output = Vec::new();
        let read = pipe.by_ref().take(bytes_max).read_to_end(&mut output);
        // The rest is read, too, so that the program can end.
        read.and_then(|_| io::copy(&mut pipe, &mut io::sink())).ok().map(|_| output)
    });
    if output.is_none() {
        // This fails when the program has ended.
        let _ = child.kill();
    }
    let ending = wait(&mut child, OUTPUT_POLLS);
    unregister(&child);
    output.flatten().filter(|_| ending == Ending::Exited(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_program_is_read_up_to_its_limit_and_a_failure_gives_none() {
        assert_eq!(read_output(&["printf", "abc"], 2), Some(b"ab".to_vec()));
        assert_eq!(read_output(&["sh", "-c", "printf abc; exit 1"], 9), None);
        assert_eq!(read_output(&["no such program"], 9), None);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let argv = ["sh", "-c", "sleep 600 & echo $! > pid; wait"].map(str::to_owned);
        let error = run_to_end(&argv, Some(folder.path()), Seconds(1.0)).unwrap_err();
        assert_eq!(error.to_string(), "`sh` took longer than 1 s and was killed");
        let child: u32 = std::fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        // Nobody waits for the grandchild here, so it may stay as a zombie.
        while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            thread::yield_now();
        }
        assert_eq!(run_to_end(&["false".to_owned()], None, Seconds(60.0)).unwrap(), Ending::Exited(1));
    }

    #[test]
    fn waiting_for_a_child_that_does_not_end_is_limited() {
        let mut child = spawn(&mut command_of(&["sleep", "600"]).unwrap()).unwrap();
        assert_eq!(wait(&mut child, 3), Ending::Stuck);
        child.kill().unwrap();
        assert_eq!(wait(&mut child, u32::MAX), Ending::Killed(9));
        unregister(&child);
    }
}
