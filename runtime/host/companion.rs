//! A process beside the worker, in the worker's own group: asked a line, it answers a line, and it dies with the group.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Ending, ProcessError};
use crate::measure::{Clock, MonotonicClock};
use crate::units::Seconds;

/// No answer is as long; a longer line is cut.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Lines of standard error that are kept for the reason of a failure.
const STDERR_LINES: usize = 20;
/// How often, and how long, a process that was told to end is looked at before it is killed.
const GRACE_LOOKS: u32 = 150;
const GRACE_LOOK: Duration = Duration::from_millis(20);
/// Looks that the last lines have to arrive in once the process is gone: what it started may hold the pipe open.
const LAST_LINES_LOOKS: u32 = 25;

/// What is to be run beside this process.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The program and its arguments; no shell is involved. A program with a slash counts from `folder`.
    pub argv: Vec<OsString>,
    /// Where it starts.
    pub folder: PathBuf,
    /// Variables that it gets besides this process's own.
    pub environment: Vec<(&'static str, OsString)>,
}

/// A running process that answers. Dropping it ends it: its input is closed, then it is killed.
///
/// What it writes to standard error goes to this process's own.
#[derive(Debug)]
pub struct Companion {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    last: Arc<Mutex<VecDeque<String>>>,
    errors: JoinHandle<()>,
    ended: Option<Ending>,
}

impl Companion {
    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Beside) -> Result<Self, ProcessError> {
        let (name, arguments) = program.argv.split_first().ok_or(ProcessError::Empty)?;
        let failed = |source| ProcessError::Start { program: name.to_string_lossy().into_owned(), source };
        let has_slash = name.to_string_lossy().contains('/');
        let path = if has_slash { program.folder.join(name) } else { Path::new(name).to_owned() };
        if !program.folder.is_dir() {
            let reason = format!("no folder `{}` to start it in", program.folder.display());
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, reason)));
        }
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut command = Command::new(path);
        command.args(arguments).current_dir(&program.folder);
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().expect("standard output is piped");
        let errors = child.stderr.take().expect("standard error is piped");
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&last);
        Ok(Companion {
            input: child.stdin.take(),
            child,
            output: BufReader::new(output),
            line: Vec::new(),
            last,
            errors: thread::spawn(move || pass_on(errors, &kept)),
            ended: None,
        })
    }

    /// Writes a line; `line` has its end.
    ///
    /// # Errors
    /// When the process takes no more.
    pub fn tell(&mut self, line: &[u8]) -> io::Result<()> {
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line)
    }

    /// The next line that it writes, without its end; waits as long as it takes. `None` when it has closed its output.
    ///
    /// Waits `awake` for so long, looking again and again: a core that sleeps takes tens of microseconds to wake.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub fn hear(&mut self, awake: Seconds) -> io::Result<Option<&[u8]>> {
        self.watch(awake);
        self.line.clear();
        let read = self.output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)?;
        Ok((read > 0).then(|| self.line.trim_ascii_end()))
    }

    /// Looks for something to read until there is some, or the time is over. Whoever else wants the core gets it.
    fn watch(&self, awake: Seconds) {
        let clock = MonotonicClock::start();
        let begin = clock.now();
        let mut pipe = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
        while poll(&mut pipe, PollTimeout::ZERO) == Ok(0) && clock.now().since(begin) < awake {
            thread::yield_now();
        }
    }

    /// Closes its input, which tells it to end; kills it when it does not.
    pub fn end(&mut self) -> Ending {
        drop(self.input.take());
        for _ in 0..GRACE_LOOKS {
            if let Some(ending) = self.ended {
                return ending;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return *self.ended.insert(Ending::from(status));
            }
            thread::sleep(GRACE_LOOK);
        }
        // It was waited for by nobody else, so the number is still its own.
        let _ = self.child.kill();
        let ending = self.child.wait().map_or(Ending::Killed(9), Ending::from);
        *self.ended.insert(ending)
    }

    /// The last lines of its standard error, once it has ended.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        for _ in 0..LAST_LINES_LOOKS {
            if self.errors.is_finished() {
                break;
            }
            thread::sleep(GRACE_LOOK);
        }
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Peak resident memory in bytes, shared memory included, as the system counts it; `None` when it is gone.
    pub fn memory_max(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.end();
    }
}

/// Copies standard error to this process's own, and keeps the last lines.
fn pass_on(errors: ChildStderr, last: &Mutex<VecDeque<String>>) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while let Ok(1..) = errors.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        // Nobody may read our standard error any more; the lines are kept all the same.
        let _ = io::stderr().write_all(&line);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == STDERR_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Companion {
        let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let environment = vec![("GREETING", "hello".into())];
        Companion::start(&Beside { argv, folder: "/".into(), environment }).unwrap()
    }

    fn hear(companion: &mut Companion) -> Option<String> {
        companion.hear(Seconds(0.001)).unwrap().map(|line| String::from_utf8_lossy(line).into_owned())
    }

    #[test]
    fn it_answers_line_by_line_from_its_folder_with_its_variables() {
        let mut companion = shell("read a; echo $a $GREETING; read b; echo $b $PWD");
        companion.tell(b"one\n").unwrap();
        assert_eq!(hear(&mut companion).as_deref(), Some("one hello"));
        assert!(companion.memory_max().is_some_and(|bytes| bytes > 100_000));
        companion.tell(b"two\n").unwrap();
        assert_eq!(hear(&mut companion).as_deref(), Some("two /"));
        assert_eq!(hear(&mut companion), None);
        assert_eq!(companion.end(), Ending::Exited(0));
    }

    #[test]
    fn a_closed_input_ends_it() {
        assert_eq!(shell("cat; exit 4").end(), Ending::Exited(4));
    }

    #[test]
    fn its_last_lines_are_kept_when_it_fails() {
        let mut companion = shell("echo why >&2; exit 3");
        assert_eq!(hear(&mut companion), None);
        assert_eq!((companion.end(), companion.last_stderr_lines()), (Ending::Exited(3), vec!["why".to_owned()]));
    }

    #[test]
    fn one_that_will_not_end_is_killed() {
        let mut companion = shell("trap '' TERM; echo up; while :; do sleep 1; done");
        assert_eq!(hear(&mut companion).as_deref(), Some("up"));
        assert_eq!(companion.end(), Ending::Killed(9));
    }

    #[test]
    fn a_program_with_a_slash_counts_from_the_folder() {
        let beside = |argv: &str, folder: &str| Beside {
            argv: vec![argv.into()],
            folder: folder.into(),
            environment: Vec::new(),
        };
        assert_eq!(Companion::start(&beside("bin/true", "/")).unwrap().end(), Ending::Exited(0));
        let missing = Companion::start(&beside("engines/none", "/")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot start `engines/none`: "), "{missing}");
        let missing = Companion::start(&beside("true", "/no/such/folder")).unwrap_err().to_string();
        assert!(missing.contains("no folder `/no/such/folder`"), "{missing}");
    }
}
