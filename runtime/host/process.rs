//! The processes that run jobs: each is started by argv in a group of its own, fed one line, read line by line,
//! killed as a group and waited for.
//!
//! A child watches its standard input ([`end_with_input`]): it ends when its parent is gone, however that ended.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::Ending;
use crate::measure::{Clock, Nanos};

/// A longer line of output is cut: nothing that a worker says is as long.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Lines of standard error that are kept for the reason of a failure.
const STDERR_LINES: usize = 20;
/// Lines of output that may wait to be read; then the process waits.
const LINES_WAITING: usize = 4096;
/// Time that a group has between SIGTERM and SIGKILL, as a number of looks at it.
const GRACE_LOOKS: u32 = 100;
const GRACE_LOOK: Duration = Duration::from_millis(20);
/// Time that the last lines have to arrive once the process is gone.
const LAST_LINES: Duration = Duration::from_millis(500);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<OsString>,
    /// Written to its standard input, which then stays open until the process has ended.
    pub input: String,
    /// Everything that it writes to standard error is appended here.
    pub stderr: PathBuf,
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ended: Option<Ending>,
    lines: Receiver<(Nanos, String)>,
    /// Gives the open pipe back when the input is written; dropping it closes the pipe.
    _input: JoinHandle<io::Result<ChildStdin>>,
    stderr: Option<JoinHandle<VecDeque<String>>>,
}

/// What a process did next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It wrote a line (without its end), which arrived then.
    Line(Nanos, String),
    /// Nothing, for as long as was waited.
    Silence,
    /// It ended, and every line was read.
    Ended(Ending),
}

/// A process that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is nothing to start.
    #[error("no program was given")]
    Empty,
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The file for standard error could not be opened.
    #[error("cannot write `{path}`: {source}")]
    Stderr {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Process {
    /// Starts a program; its lines are stamped by `clock` as they arrive.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Program, clock: Arc<dyn Clock>) -> Result<Self, ProcessError> {
        let (name, arguments) = program.argv.split_first().ok_or(ProcessError::Empty)?;
        let log = File::options().create(true).append(true).open(&program.stderr);
        let log = log.map_err(|source| ProcessError::Stderr { path: program.stderr.clone(), source })?;
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut command = Command::new(name);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| ProcessError::Start { program: name.to_string_lossy().into_owned(), source };
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take().expect("standard error is piped");
        let text = program.input.clone();
        let (sender, lines) = crossbeam_channel::bounded(LINES_WAITING);
        let output = output.expect("standard output is piped");
        thread::spawn(move || read_lines(output, &sender, &*clock));
        Ok(Process {
            child,
            ended: None,
            lines,
            _input: thread::spawn(move || write_input(input.expect("standard input is piped"), &text)),
            stderr: Some(thread::spawn(move || keep_last_lines(errors, log))),
        })
    }

    /// The next line, or the end; waits at most `patience`.
    pub fn next(&mut self, patience: Duration) -> Next {
        let patience = if self.ended.is_some() { LAST_LINES } else { patience };
        match (self.lines.recv_timeout(patience), self.ended) {
            (Ok((at, line)), _) => Next::Line(at, line),
            (Err(_), Some(ending)) => Next::Ended(ending),
            (Err(RecvTimeoutError::Timeout), None) => self.look(),
            (Err(RecvTimeoutError::Disconnected), None) => {
                // Output is closed: the process is about to end, or goes on in silence.
                thread::sleep(patience.min(GRACE_LOOK));
                self.look()
            }
        }
    }

    /// Takes the end of the process, if it has ended, and kills what it left behind in its group.
    fn look(&mut self) -> Next {
        let pid = Id::Pid(Pid::from_raw(self.child.id().cast_signed()));
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if self.ended.is_none() && !matches!(waitid(pid, look), Ok(WaitStatus::StillAlive)) {
            // Before the end is taken: until then no other group can have this number.
            self.signal(Signal::SIGKILL);
            self.ended = Some(self.child.wait().map_or(Ending::Killed(Signal::SIGKILL as i32), Ending::from));
        }
        Next::Silence
    }

    /// Kills the whole group, first gently, and waits for the process.
    pub fn kill(&mut self) -> Ending {
        self.signal(Signal::SIGTERM);
        for _ in 0..GRACE_LOOKS {
            self.look();
            if let Some(ending) = self.ended {
                return ending;
            }
            thread::sleep(GRACE_LOOK);
        }
        self.signal(Signal::SIGKILL);
        let ending = self.child.wait().map_or(Ending::Killed(Signal::SIGKILL as i32), Ending::from);
        *self.ended.insert(ending)
    }

    /// The last lines of standard error, once the process has ended.
    pub fn last_stderr_lines(&mut self) -> Vec<String> {
        let lines = self.stderr.take().and_then(|reader| reader.join().ok());
        lines.unwrap_or_default().into()
    }

    fn signal(&self, signal: Signal) {
        // A group that is gone already is what was wanted.
        let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

fn write_input(mut pipe: ChildStdin, text: &str) -> io::Result<ChildStdin> {
    pipe.write_all(text.as_bytes())?;
    pipe.flush()?;
    Ok(pipe)
}

fn read_lines(output: ChildStdout, lines: &Sender<(Nanos, String)>, clock: &dyn Clock) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        if lines.send((clock.now(), text)).is_err() {
            return;
        }
        line.clear();
    }
}

/// Copies everything to `log`; a log that cannot be written any more does not stop the process.
fn keep_last_lines(errors: impl Read, mut log: File) -> VecDeque<String> {
    let mut errors = BufReader::new(errors);
    let (mut last, mut line) = (VecDeque::new(), Vec::new());
    while let Ok(1..) = errors.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        let _ = log.write_all(&line);
        if last.len() == STDERR_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        line.clear();
    }
    last
}

/// Runs a program to its end, with this process's own input and outputs.
///
/// # Errors
/// When it cannot be started.
pub fn run_to_end(argv: &[String]) -> Result<Ending, ProcessError> {
    let (name, arguments) = argv.split_first().ok_or(ProcessError::Empty)?;
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let status = Command::new(name).args(arguments).status();
    status.map(Ending::from).map_err(|source| ProcessError::Start { program: name.clone(), source })
}

/// For a child: ends this process, with its group, when `input` ends, for then its parent is gone.
pub fn end_with_input(mut input: impl Read + Send + 'static) {
    thread::spawn(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        if nix::unistd::getpgrp() == nix::unistd::getpid() {
            let _ = killpg(nix::unistd::getpgrp(), Signal::SIGKILL);
        }
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::MonotonicClock;

    fn shell(script: &str, input: &str) -> (Process, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            input: input.into(),
            stderr: folder.path().join("stderr"),
        };
        (Process::start(&program, Arc::new(MonotonicClock::start())).unwrap(), folder)
    }

    fn finish(process: &mut Process) -> (Vec<String>, Ending) {
        let mut lines = Vec::new();
        loop {
            match process.next(Duration::from_millis(20)) {
                Next::Line(_, line) => lines.push(line),
                Next::Silence => {}
                Next::Ended(ending) => return (lines, ending),
            }
        }
    }

    #[test]
    fn lines_arrive_in_order_and_the_status_is_known() {
        let (mut process, folder) = shell("read job; echo got $job; echo two; echo why >&2; exit 3", "one\n");
        assert_eq!(finish(&mut process), (vec!["got one".into(), "two".into()], Ending::Exited(3)));
        assert_eq!(process.last_stderr_lines(), ["why"]);
        assert_eq!(std::fs::read_to_string(folder.path().join("stderr")).unwrap(), "why\n");
    }

    #[test]
    fn a_kill_takes_the_whole_group_even_when_it_ignores_terminate() {
        let (mut process, _folder) = shell("trap '' TERM; sleep 600 & echo $!; wait; wait", "");
        let Next::Line(_, grandchild) = process.next(Duration::from_secs(60)) else { panic!("no line") };
        assert_eq!(process.kill(), Ending::Killed(9));
        assert!(is_gone(&grandchild));
    }

    #[test]
    fn what_a_process_leaves_behind_is_killed_with_it() {
        let (mut process, _folder) = shell("sleep 600 & echo $!", "");
        let (lines, ending) = finish(&mut process);
        assert_eq!(ending, Ending::Exited(0));
        assert!(is_gone(&lines[0]));
    }

    #[test]
    fn a_process_that_closes_its_output_and_stays_is_silent_until_killed() {
        let (mut process, _folder) = shell("exec >&-; exec sleep 600", "");
        assert_eq!(process.next(Duration::from_millis(50)), Next::Silence);
        assert_eq!(process.kill(), Ending::Killed(15));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let program =
            Program { argv: vec!["/no/such".into()], input: String::new(), stderr: folder.path().join("stderr") };
        let error = Process::start(&program, Arc::new(MonotonicClock::start())).unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/no/such`: "), "{error}");
    }

    /// Whether a process ends, in a minute: a killed one needs a moment. A zombie has ended.
    fn is_gone(pid: &str) -> bool {
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (0..3000).any(|_| {
            thread::sleep(GRACE_LOOK);
            stat().is_empty() || stat().contains(") Z ")
        })
    }
}
