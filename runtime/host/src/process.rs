//! Processes that run jobs: each is started from its arguments in a process group of its own, gets one line of input,
//! is read line by line, is killed as a group, and is waited for. Descendants that left the group are found and killed,
//! too.
//!
//! Every wait has a limit. A child watches its standard input ([`exit_when_input_ends`]) and exits when its parent is
//! gone, however the parent ended.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use indexmap::IndexMap;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid};
use tracing::debug;

use super::bounded::run_for;
use super::child::{GroupChild, POLL_INTERVAL, command_of, start_error};
use super::descendants::{self, FoundProcesses, LeftoverProcess};
use super::{Ending, ProcessEvent, Streams, Worker, WorkerInput, memory};
use flagperf_core::measure::Clock;
use flagperf_core::units::Seconds;

/// The file of the running program, even if its original path has since been replaced: a process started from here runs
/// the same program.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Number of polls to wait for the end of a process after SIGTERM, and after SIGKILL.
const TERMINATE_POLLS: u32 = 100;
const KILL_POLLS: u32 = 250;
/// Number of polls in which leftover processes may end by themselves, and number of polls in total.
const LEFTOVER_GRACE_POLLS: u32 = 15;
const LEFTOVER_POLLS: u32 = 100;
/// Maximum number of leftover processes that are named.
const LEFTOVERS_NAMED: usize = 20;
/// Time in which the last lines may arrive after the process has ended.
const LAST_LINES_WAIT: Duration = Duration::from_millis(500);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<OsString>,
    /// Text for its standard input, which stays open until the process has ended.
    pub input: String,
    /// File to which its standard error is appended, up to 64 MiB.
    pub stderr: PathBuf,
    /// Whether it inherits the environment variables of this process.
    pub inherits: bool,
    /// Further environment variables.
    pub environment: IndexMap<String, String>,
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    child: GroupChild,
    marker: String,
    leftovers: Vec<LeftoverProcess>,
    streams: Streams,
}

/// A process that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The list of arguments is empty.
    #[error("no program was given")]
    Empty,
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}{}", start_remedy(source))]
    Start {
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The file for standard error could not be opened.
    #[error("cannot write `{path}`: {source}")]
    Stderr {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The program did not end in time.
    #[error("`{program}` took longer than {} s and was killed", .limit.0)]
    TimedOut { program: String, limit: Seconds },
    /// The standard streams could not be opened.
    #[error("cannot open the standard streams of a process: {0}")]
    Streams(io::Error),
}

/// Returns what makes a file executable, when that is what it lacks.
fn start_remedy(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(number) if number == Errno::EACCES as i32 => " (`chmod +x` makes a script executable)",
        Some(number) if number == Errno::ENOEXEC as i32 => " (a script begins with `#!` and its interpreter)",
        _ => "",
    }
}

impl Process {
    /// Starts a program; `clock` stamps its lines as they arrive.
    ///
    /// # Errors
    /// Fails when the program cannot be started.
    pub fn start(program: &Program, clock: Arc<dyn Clock>) -> Result<Self, ProcessError> {
        let mut command = command_of(&program.argv)?;
        let (streams, theirs) = Streams::open(&program.input, &program.stderr, clock)?;
        let marker = descendants::new_marker();
        if !program.inherits {
            command.env_clear();
        }
        command.envs(&program.environment).env(descendants::MARKER, &marker);
        command.stdin(theirs.stdin).stdout(theirs.stdout).stderr(theirs.stderr);
        let child = GroupChild::start(&mut command).map_err(|source| start_error(&command, source))?;
        debug!(pid = child.id(), program = %command.get_program().display(), "started a process");
        // It holds the worker's ends of the streams.
        drop(command);
        Ok(Process { child, marker, leftovers: Vec::new(), streams })
    }

    /// If the process has ended, reaps it and kills what it left behind.
    fn check_ended(&mut self) {
        if self.child.ended().is_none() && self.child.has_ended() {
            self.child.kill(KILL_POLLS);
            self.end_leftovers(LEFTOVER_GRACE_POLLS);
        }
    }

    /// Returns the processes outside the group that were still running when the process had ended; they were killed.
    pub fn leftovers(&self) -> &[LeftoverProcess] {
        &self.leftovers
    }

    /// Kills the descendants of the process that are not in its group, which has already been killed. Before that,
    /// waits `grace_polls` polls for them to end by themselves.
    fn end_leftovers(&mut self, grace_polls: u32) {
        for poll in 0..LEFTOVER_POLLS {
            let marker = self.marker.clone();
            // Reading /proc of a process that is stuck in the kernel may block, too.
            let found = run_for(KILL_POLLS, move || {
                descendants::reap_orphans();
                let leaving = if poll < grace_polls { descendants::find_related(&marker) } else { Vec::new() };
                // A single search may miss a process that forks and ends again and again.
                if leaving.is_empty() {
                    descendants::stop_related(&marker)
                } else {
                    FoundProcesses { processes: leaving, ..FoundProcesses::default() }
                }
            });
            let Some(FoundProcesses { processes, are_stopped, is_complete }) = found else { break };
            for left in &mut self.leftovers {
                left.ended = !processes.contains(&left.pid);
            }
            if processes.is_empty() && is_complete {
                break;
            }
            if are_stopped {
                processes.into_iter().for_each(|pid| self.kill_leftover(pid));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a process, and remembers it when it had left the group.
    fn kill_leftover(&mut self, pid: i32) {
        let in_group = getpgid(Some(Pid::from_raw(pid))).is_ok_and(|group| group.as_raw() == self.child.id());
        let is_new = !in_group && !self.leftovers.iter().any(|left| left.pid == pid);
        if is_new && self.leftovers.len() < LEFTOVERS_NAMED {
            let leftover = run_for(KILL_POLLS, move || LeftoverProcess::describe(pid));
            // A process that has ended in the meantime has no command line.
            self.leftovers.extend(leftover.filter(|leftover| !leftover.command.is_empty()));
        }
        descendants::kill_process(pid);
    }
}

impl Worker for Process {
    fn next_event(&mut self, timeout: Duration) -> ProcessEvent {
        let timeout = if self.child.ended().is_some() { LAST_LINES_WAIT } else { timeout };
        match (self.streams.next_line(timeout), self.child.ended()) {
            (Ok((at, line)), _) => ProcessEvent::Line(at, line),
            (Err(_), Some(ending)) => ProcessEvent::Ended(ending),
            (Err(RecvTimeoutError::Timeout), None) => {
                self.check_ended();
                ProcessEvent::Silence
            }
            (Err(RecvTimeoutError::Disconnected), None) => {
                // Standard output is closed: the process is about to end, or goes on silently.
                thread::sleep(timeout.min(POLL_INTERVAL));
                self.check_ended();
                ProcessEvent::Silence
            }
        }
    }

    /// Kills the whole group, first gently, and all other descendants of the process.
    fn kill(&mut self) -> Ending {
        if let Some(ending) = self.child.ended() {
            return ending;
        }
        self.child.signal(Signal::SIGTERM);
        for _ in 0..TERMINATE_POLLS {
            if self.child.has_ended() {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let ending = self.child.kill(KILL_POLLS);
        self.end_leftovers(0);
        ending
    }

    fn last_stderr_lines(&self) -> Vec<String> {
        self.streams.last_stderr_lines()
    }

    /// Shared memory counts once.
    fn memory_above(&self, limit: u64) -> Option<u64> {
        descendants::reap_orphans();
        memory::above(self.child.id(), limit)
    }

    fn memory(&self) -> Option<u64> {
        descendants::reap_orphans();
        Some(memory::in_use(self.child.id(), &self.marker))
    }

    fn warnings(&self) -> Vec<String> {
        self.leftovers.iter().map(left_behind_warning).collect()
    }

    fn input(&self) -> WorkerInput {
        self.streams.input()
    }

    fn id(&self) -> Option<u32> {
        Some(self.child.id().cast_unsigned())
    }
}

fn left_behind_warning(left: &LeftoverProcess) -> String {
    let what = if left.ended { "it was killed" } else { "it was killed but still exists" };
    let who = match left.of_command {
        true => "a command of the monitor left a process behind",
        false => "the worker left a process behind in another process group",
    };
    format!("{who}: {} (`{}`); {what}", left.pid, left.command)
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.ended().is_none() {
            self.kill();
        }
    }
}

/// For a child process: when `input` ends, the parent is gone, and this process kills itself, its group and all its
/// descendants.
///
/// Returns what receives a message for each line that arrives before.
pub fn exit_when_input_ends(input: impl Read + Send + 'static) -> Receiver<()> {
    let (started, start) = crossbeam_channel::bounded(1);
    let (sender, lines) = crossbeam_channel::unbounded();
    thread::spawn(move || {
        let _ = started.send(());
        for _ in BufReader::new(input).split(b'\n').map_while(Result::ok) {
            // Most programs expect no lines.
            let _ = sender.send(());
        }
        // Not in a new thread, which would wait for the dynamic linker's lock, held by a library that hangs while it loads.
        descendants::kill_own_descendants();
        if nix::unistd::getpgrp() == nix::unistd::getpid() {
            let _ = killpg(nix::unistd::getpgrp(), Signal::SIGKILL);
        }
        std::process::exit(1);
    });
    // The new thread needs the dynamic linker's lock, too, so wait until it has started.
    let _ = start.recv();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    fn shell(script: &str, input: &str) -> (Process, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            input: input.into(),
            stderr: folder.path().join("stderr"),
            inherits: true,
            environment: IndexMap::new(),
        };
        (Process::start(&program, Arc::new(MonotonicClock::start())).unwrap(), folder)
    }

    fn finish(process: &mut Process) -> (Vec<String>, Ending) {
        let mut lines = Vec::new();
        loop {
            match process.next_event(Duration::from_millis(20)) {
                ProcessEvent::Line(_, line) => lines.push(line),
                ProcessEvent::Silence => {}
                ProcessEvent::Ended(ending) => return (lines, ending),
            }
        }
    }

    #[test]
    fn lines_arrive_in_order_and_the_exit_status_is_reported() {
        let (mut process, folder) = shell("read job; echo got $job; echo two; echo why >&2; exit 3", "one\n");
        assert_eq!(finish(&mut process), (vec!["got one".into(), "two".into()], Ending::Exited(3)));
        assert_eq!(process.last_stderr_lines(), ["why"]);
        assert_eq!(std::fs::read_to_string(folder.path().join("stderr")).unwrap(), "why\n");
    }

    #[test]
    fn a_kill_ends_the_whole_group_even_if_it_ignores_sigterm() {
        let (mut process, _folder) = shell("trap '' TERM; sleep 600 & echo $!; wait; wait", "");
        let ProcessEvent::Line(_, grandchild) = process.next_event(Duration::from_secs(60)) else { panic!("no line") };
        assert_eq!(process.kill(), Ending::Killed(9));
        assert!(is_gone(&grandchild));
    }

    #[test]
    fn processes_left_behind_are_killed() {
        let (mut process, _folder) = shell("sleep 600 & echo $!", "");
        let (lines, ending) = finish(&mut process);
        assert_eq!(ending, Ending::Exited(0));
        assert!(is_gone(&lines[0]));
    }

    #[test]
    fn a_process_that_closes_its_output_is_silent_until_it_is_killed() {
        let (mut process, _folder) = shell("exec >&-; exec sleep 600", "");
        assert_eq!(process.next_event(Duration::from_millis(50)), ProcessEvent::Silence);
        assert_eq!(process.kill(), Ending::Killed(15));
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            argv: vec!["/no/such".into()],
            input: String::new(),
            stderr: folder.path().join("stderr"),
            inherits: true,
            environment: IndexMap::new(),
        };
        let error = Process::start(&program, Arc::new(MonotonicClock::start())).unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/no/such`: "), "{error}");
    }

    /// Returns whether a process ends within a minute: a killed process needs a moment. A zombie counts as ended.
    fn is_gone(pid: &str) -> bool {
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (0..3000).any(|_| {
            thread::sleep(POLL_INTERVAL);
            stat().is_empty() || stat().contains(") Z ")
        })
    }
}
