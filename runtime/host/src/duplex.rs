//! Processes with which this process communicates in both directions, and processes that keep running after this one has ended.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::child::{GroupChild, command_of, spawn, start_error, unregister};
use super::stderr::{Destination, StderrReader};
use super::{Ending, ProcessError};
use flagperf_core::file;

/// Number of polls to wait for the end of a process that was killed: 5 s.
const KILL_POLLS: u32 = 250;

/// A running process in a process group of its own. The caller has its input and output. Dropping this kills the group.
#[derive(Debug)]
pub struct DuplexProcess {
    child: GroupChild,
    stderr: StderrReader,
}

impl DuplexProcess {
    /// Starts a program. Its standard error is appended to the file `stderr`, up to 64 MiB.
    ///
    /// # Errors
    /// Fails when the program cannot be started.
    pub fn start(argv: &[OsString], stderr: &Path) -> Result<(Self, ChildStdin, ChildStdout), ProcessError> {
        let mut command = command_of(argv)?;
        let log = Destination::log(stderr)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = GroupChild::start(&mut command).map_err(|source| start_error(&command, source))?;
        let streams = child.child();
        let input = streams.stdin.take().expect("standard input is piped");
        let output = streams.stdout.take().expect("standard output is piped");
        let errors = streams.stderr.take().expect("standard error is piped");
        Ok((DuplexProcess { child, stderr: StderrReader::start(errors, log) }, input, output))
    }

    /// Kills the group and waits for the process.
    pub fn kill(&mut self) -> Ending {
        self.child.kill(KILL_POLLS)
    }

    /// Returns a function that kills the group from another thread, as long as this value exists and nobody has waited for the
    /// process.
    pub fn killer(&self) -> impl FnOnce() + Send + use<> {
        let group = Pid::from_raw(self.child.id());
        move || {
            // An error is ignored: the group may have ended already.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    /// Returns how the process ended; waits a moment for a process that has closed its output.
    pub fn ending(&mut self) -> Option<Ending> {
        self.child.wait(KILL_POLLS)
    }

    /// Returns the last lines of standard error.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        self.stderr.last_lines()
    }
}

impl Drop for DuplexProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a program that keeps running after this process has ended, without input and in a process group of its own. Its
/// output is appended to the file `log`. A thread waits for the program as long as this process runs.
///
/// # Errors
/// Fails when the program cannot be started or the log cannot be opened.
pub fn start_detached(argv: &[OsString], log: &Path) -> Result<(), ProcessError> {
    let mut command = command_of(argv)?;
    let unwritable = |source| ProcessError::Stderr { path: log.to_owned(), source };
    let output: File = file::append(log).map_err(unwritable)?;
    let errors = output.try_clone().map_err(unwritable)?;
    command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
    let mut child = spawn(&mut command).map_err(|source| start_error(&command, source))?;
    std::thread::spawn(move || {
        // Its outcome is a file; an error means that someone else waited for it.
        let _ = child.wait();
        unregister(&child);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    fn shell(script: &str) -> Vec<OsString> {
        ["/bin/sh", "-c", script].map(OsString::from).to_vec()
    }

    #[test]
    fn both_directions_work_and_the_ending_and_the_last_lines_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let script = "read a; echo got $a; read b; echo got $b; echo bye >&2; exit 4";
        let (mut process, mut input, output) = DuplexProcess::start(&shell(script), &folder.path().join("e")).unwrap();
        let mut lines = BufReader::new(output).lines();
        writeln!(input, "one").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "got one");
        writeln!(input, "two").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "got two");
        assert!(lines.next().is_none());
        assert_eq!((process.ending(), process.last_stderr_lines()), (Some(Ending::Exited(4)), vec!["bye".to_owned()]));
    }

    #[test]
    fn a_process_that_ignores_everything_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap '' TERM HUP INT; sleep 600 & wait";
        let (mut process, _input, _output) = DuplexProcess::start(&shell(script), &folder.path().join("e")).unwrap();
        assert_eq!(process.kill(), Ending::Killed(9));
    }
}
