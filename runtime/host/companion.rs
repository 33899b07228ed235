//! A process beside the worker, in the worker's own group: asked a line, it answers a line, and it dies with the group.
//!
//! Nothing that it does holds up the worker for longer than the phase may take: its lines and its last words have a limit,
//! and its end is noticed also when a child of its own keeps the pipes open.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Ending, ProcessError};
use crate::measure::{Clock, MonotonicClock};
use crate::units::Seconds;

/// No answer is as long; of a longer line nothing more is read.
const LINE_BYTES_MAX: usize = 16 << 20;
/// How often it is looked at whether a process that writes nothing is still there.
const ALIVE_LOOK: u16 = 100;
/// Lines of standard error that are kept for the reason of a failure, and bytes of each.
const STDERR_LINES: usize = 20;
const STDERR_LINE_BYTES: usize = 1000;
/// How often, and how long, a process that was told to end, or was killed, is looked at.
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
    was_killed: bool,
}

/// What a companion wrote next.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A line, without its end.
    Line(&'a [u8]),
    /// The beginning of a line that is longer than 16 MiB.
    TooLong(&'a [u8]),
    /// Its output is closed or the process is gone. This is what it wrote of a line that it did not finish.
    End(&'a [u8]),
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
            was_killed: false,
        })
    }

    /// Writes a line; `line` has its end.
    ///
    /// # Errors
    /// When the process takes no more.
    pub fn tell(&mut self, line: &[u8]) -> io::Result<()> {
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line)
    }

    /// The next line that it writes; waits as long as it takes, or until the process is gone.
    ///
    /// Waits `awake` for so long, looking again and again: a core that sleeps takes tens of microseconds to wake.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub fn hear(&mut self, awake: Seconds) -> io::Result<Heard<'_>> {
        self.line.clear();
        let mut is_readable = !self.unread().is_empty() || self.watch(awake);
        loop {
            if !is_readable && !self.wait()? {
                return Ok(Heard::End(&self.line));
            }
            let piece = match self.output.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            if piece.is_empty() {
                return Ok(Heard::End(&self.line));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            self.line.extend_from_slice(&piece[..taken]);
            self.output.consume(taken);
            if end.is_some() {
                return Ok(Heard::Line(self.line.trim_ascii_end()));
            }
            if self.line.len() >= LINE_BYTES_MAX {
                return Ok(Heard::TooLong(&self.line));
            }
            is_readable = false;
        }
    }

    /// What arrived behind the line that was heard last.
    pub fn unread(&self) -> &[u8] {
        self.output.buffer()
    }

    /// Looks for something to read until there is some, or the time is over, and says which. Whoever else wants the core
    /// gets it.
    fn watch(&self, awake: Seconds) -> bool {
        let clock = MonotonicClock::start();
        let begin = clock.now();
        let mut pipe = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut pipe, PollTimeout::ZERO) {
                Ok(1..) => return true,
                Ok(_) if clock.now().since(begin) < awake => thread::yield_now(),
                _ => return false,
            }
        }
    }

    /// Sleeps until there is something to read; `false` when there is nothing and the process is gone. A child of the
    /// process may keep the pipe open after it, so that its end does not show in the pipe.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            let is_gone = self.look();
            let mut pipe = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
            let patience = if is_gone { PollTimeout::ZERO } else { PollTimeout::from(ALIVE_LOOK) };
            match poll(&mut pipe, patience) {
                Ok(1..) => return Ok(true),
                Ok(_) if is_gone => return Ok(false),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the process has ended.
    fn look(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten().map(Ending::from);
        }
        self.ended.is_some()
    }

    /// Closes its input, which tells it to end; kills it when it does not.
    pub fn end(&mut self) -> Ending {
        drop(self.input.take());
        if !self.ends_soon() {
            self.was_killed = true;
            // It was waited for by nobody else, so the number is still its own.
            let _ = self.child.kill();
            // One that sleeps in the system ends later: whoever ends this process's group waits for it.
            self.ends_soon();
        }
        *self.ended.get_or_insert(Ending::Killed(9))
    }

    /// Whether [`Companion::end`] had to kill it.
    pub fn was_killed(&self) -> bool {
        self.was_killed
    }

    fn ends_soon(&mut self) -> bool {
        for _ in 0..GRACE_LOOKS {
            if self.look() {
                return true;
            }
            thread::sleep(GRACE_LOOK);
        }
        false
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
    let mut line = StderrLine::default();
    loop {
        let piece = match errors.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(piece) if !piece.is_empty() => piece,
            _ => break,
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |end| end + 1);
        // Nobody may read our standard error any more; the lines are kept all the same.
        let _ = io::stderr().write_all(&piece[..taken]);
        line.add(&piece[..end.unwrap_or(taken)]);
        errors.consume(taken);
        if end.is_some() {
            keep(std::mem::take(&mut line), last);
        }
    }
    if line.bytes > 0 {
        keep(line, last);
    }
}

fn keep(line: StderrLine, last: &Mutex<VecDeque<String>>) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == STDERR_LINES {
        last.pop_front();
    }
    last.push_back(line.text());
}

/// The beginning of a line, and how long it was.
#[derive(Default)]
struct StderrLine {
    begin: Vec<u8>,
    bytes: usize,
}

impl StderrLine {
    fn add(&mut self, piece: &[u8]) {
        let room = STDERR_LINE_BYTES.saturating_sub(self.begin.len());
        self.begin.extend_from_slice(&piece[..room.min(piece.len())]);
        self.bytes += piece.len();
    }

    fn text(&self) -> String {
        let begin = String::from_utf8_lossy(self.begin.trim_ascii_end());
        if self.bytes > self.begin.len() { format!("{begin}... ({} bytes)", self.bytes) } else { begin.into_owned() }
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
        match companion.hear(Seconds(0.001)).unwrap() {
            Heard::Line(line) => Some(String::from_utf8_lossy(line).into_owned()),
            Heard::End(b"") => None,
            other => panic!("{other:?}"),
        }
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
        assert_eq!((companion.end(), companion.was_killed()), (Ending::Killed(9), true));
    }

    #[test]
    fn its_end_is_noticed_although_a_child_of_its_own_keeps_the_pipes_open() {
        let mut companion = shell("sleep 60 & echo $!; printf half; exit 3");
        let child = hear(&mut companion).unwrap();
        assert_eq!(companion.hear(Seconds(0.001)).unwrap(), Heard::End(b"half"));
        assert_eq!((companion.end(), companion.was_killed()), (Ending::Exited(3), false));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.parse().unwrap()), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
    }

    #[test]
    fn a_line_without_an_end_is_cut_on_both_pipes() {
        let mut companion = shell("head -c 20000000 /dev/zero >&2; echo >&2; echo the end >&2; cat /dev/zero");
        let Heard::TooLong(line) = companion.hear(Seconds(0.001)).unwrap() else { panic!("a line") };
        assert!((LINE_BYTES_MAX..LINE_BYTES_MAX + (1 << 16)).contains(&line.len()));
        companion.end();
        let last = companion.last_stderr_lines();
        assert_eq!((last.len(), last[1].as_str()), (2, "the end"));
        assert!(
            last[0].ends_with("... (20000000 bytes)") && last[0].len() < 2 * STDERR_LINE_BYTES,
            "{}",
            last[0].len()
        );
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
