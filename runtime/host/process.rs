//! The processes that run jobs: each is started by argv in a group of its own, fed one line, read line by line,
//! killed as a group and waited for. What it started elsewhere is found and ended too.
//!
//! No wait is without limit. A child watches its standard input ([`end_with_input`]): it ends when its parent is gone,
//! however that ended.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use indexmap::IndexMap;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid};

use super::bounded::run_for;
use super::child::{LOOK, spawn, wait};
use super::descendants::{self, LeftBehind};
use super::lines::Lines;
use super::stderr::{CappedLog, LOG_BYTES_MAX, StderrReader};
use super::{Ending, memory};
use crate::measure::{Clock, Nanos};

/// The file of the running program, whatever has become of the path that it was started from: what is started from
/// here is the same program.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Looks that an ending has after SIGTERM, and after SIGKILL.
const TERMINATE_LOOKS: u32 = 100;
const KILL_LOOKS: u32 = 250;
/// Looks that what a process left behind has to end by itself, and all looks at it.
const PARTING_LOOKS: u32 = 15;
const LEFT_BEHIND_LOOKS: u32 = 100;
/// Processes that were left behind and are named, at most.
const LEFT_BEHIND_NAMED: usize = 20;
/// Time that the last lines have to arrive once the process is gone.
const LAST_LINES: Duration = Duration::from_millis(500);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<OsString>,
    /// Written to its standard input, which then stays open until the process has ended.
    pub input: String,
    /// What it writes to standard error is appended here, up to 64 MiB.
    pub stderr: PathBuf,
    /// Variables of its environment, beside those of this process.
    pub environment: IndexMap<String, String>,
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    marker: String,
    ended: Option<Ending>,
    left_behind: Vec<LeftBehind>,
    lines: Lines,
    /// Gives the open pipe back when the input is written; dropping it closes the pipe.
    _input: JoinHandle<io::Result<ChildStdin>>,
    stderr: StderrReader,
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
        let log = CappedLog::open(&program.stderr, LOG_BYTES_MAX);
        let log = log.map_err(|source| ProcessError::Stderr { path: program.stderr.clone(), source })?;
        let marker = descendants::new_marker();
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut command = Command::new(name);
        command.args(arguments).envs(&program.environment).process_group(0).env(descendants::MARKER, &marker);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| ProcessError::Start { program: name.to_string_lossy().into_owned(), source };
        let mut child = spawn(&mut command).map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take().expect("standard error is piped");
        let text = program.input.clone();
        Ok(Process {
            child,
            marker,
            ended: None,
            left_behind: Vec::new(),
            lines: Lines::read(output.expect("standard output is piped"), clock),
            _input: thread::spawn(move || write_input(input.expect("standard input is piped"), &text)),
            stderr: StderrReader::start(errors, log),
        })
    }

    /// The next line, or the end; waits at most `patience`, and a moment longer when the process has just ended.
    pub fn next(&mut self, patience: Duration) -> Next {
        let patience = if self.ended.is_some() { LAST_LINES } else { patience };
        match (self.lines.next(patience), self.ended) {
            (Ok((at, line)), _) => Next::Line(at, line),
            (Err(_), Some(ending)) => Next::Ended(ending),
            (Err(RecvTimeoutError::Timeout), None) => {
                self.look();
                Next::Silence
            }
            (Err(RecvTimeoutError::Disconnected), None) => {
                // Output is closed: the process is about to end, or goes on in silence.
                thread::sleep(patience.min(LOOK));
                self.look();
                Next::Silence
            }
        }
    }

    /// Takes the end of the process, if it has ended, and kills what it left behind.
    fn look(&mut self) {
        if self.ended.is_none() && self.has_ended() {
            // Before the end is taken: until then no other group can have this number.
            self.signal(Signal::SIGKILL);
            self.ended = Some(wait(&mut self.child, KILL_LOOKS));
            self.end_left_behind(PARTING_LOOKS);
        }
    }

    /// Whether the process has ended; its end is not taken.
    fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(Pid::from_raw(self.id())), look), Ok(WaitStatus::StillAlive))
    }

    /// Kills the whole group, first gently, and everything that the process has started; waits a limited time.
    pub fn kill(&mut self) -> Ending {
        if let Some(ending) = self.ended {
            return ending;
        }
        self.signal(Signal::SIGTERM);
        for _ in 0..TERMINATE_LOOKS {
            if self.has_ended() {
                break;
            }
            thread::sleep(LOOK);
        }
        self.signal(Signal::SIGKILL);
        let ending = *self.ended.insert(wait(&mut self.child, KILL_LOOKS));
        self.end_left_behind(0);
        ending
    }

    /// Processes that were still there when the process had ended, outside its group; they were killed.
    pub fn left_behind(&self) -> &[LeftBehind] {
        &self.left_behind
    }

    /// The last lines of standard error, once the process has ended.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        self.stderr.last_lines()
    }

    /// Bytes in memory of the process and all that it has started, if they are more than `limit`; shared memory counts
    /// once.
    pub fn memory_beyond(&self, limit: u64) -> Option<u64> {
        descendants::reap_orphans();
        memory::beyond(self.id(), limit)
    }

    /// Kills what the process has started and what is not in its group, which is killed already. For some looks at first
    /// waits for it to end by itself.
    fn end_left_behind(&mut self, parting_looks: u32) {
        for look in 0..LEFT_BEHIND_LOOKS {
            let marker = self.marker.clone();
            // Reading of a process that is stuck in the kernel may itself be stuck.
            let found = run_for(KILL_LOOKS, move || {
                descendants::reap_orphans();
                if look < parting_looks { descendants::find(&marker) } else { descendants::freeze(&marker) }
            });
            let found = found.unwrap_or_default();
            for left in &mut self.left_behind {
                left.ended = !found.contains(&left.pid);
            }
            if found.is_empty() {
                break;
            }
            if look >= parting_looks {
                found.into_iter().for_each(|pid| self.end_one(pid));
            }
            thread::sleep(LOOK);
        }
        if self.ended != Some(Ending::Stuck) {
            descendants::children().remove(&self.id());
        }
    }

    /// Kills a process, and notes it when it had left the group.
    fn end_one(&mut self, pid: i32) {
        let in_group = getpgid(Some(Pid::from_raw(pid))).is_ok_and(|group| group.as_raw() == self.id());
        let is_new = !in_group && !self.left_behind.iter().any(|left| left.pid == pid);
        if is_new && self.left_behind.len() < LEFT_BEHIND_NAMED {
            let left = run_for(KILL_LOOKS, move || LeftBehind::of(pid));
            self.left_behind.extend(left.filter(|left| !left.command.is_empty()));
        }
        descendants::end(pid);
    }

    fn id(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn signal(&self, signal: Signal) {
        // A group that is gone already is what was wanted.
        let _ = killpg(Pid::from_raw(self.id()), signal);
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

/// For a child: ends this process, with its group and all that it has started, when `input` ends, for then its parent
/// is gone.
pub fn end_with_input(mut input: impl Read + Send + 'static) {
    let (started, start) = crossbeam_channel::bounded(1);
    thread::spawn(move || {
        let _ = started.send(());
        let _ = io::copy(&mut input, &mut io::sink());
        // In this thread: a new one would wait for the loader's lock, which a library that hangs while it loads holds.
        descendants::end_own();
        if nix::unistd::getpgrp() == nix::unistd::getpid() {
            let _ = killpg(nix::unistd::getpgrp(), Signal::SIGKILL);
        }
        std::process::exit(1);
    });
    // A thread that starts needs the loader's lock, too.
    let _ = start.recv();
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
            environment: IndexMap::new(),
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
        let program = Program {
            argv: vec!["/no/such".into()],
            input: String::new(),
            stderr: folder.path().join("stderr"),
            environment: IndexMap::new(),
        };
        let error = Process::start(&program, Arc::new(MonotonicClock::start())).unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/no/such`: "), "{error}");
    }

    /// Whether a process ends, in a minute: a killed one needs a moment. A zombie has ended.
    fn is_gone(pid: &str) -> bool {
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (0..3000).any(|_| {
            thread::sleep(LOOK);
            stat().is_empty() || stat().contains(") Z ")
        })
    }
}
