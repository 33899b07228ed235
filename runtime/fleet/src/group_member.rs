//! `flagperf peak` as an agent runs it: the processes of this host, which measure together with those of other hosts.
//!
//! The command ends with its agent, whose pipe it reads, so nothing is left when the connection breaks.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use indexmap::IndexMap;

use super::host_text::short;
use super::protocol::Reply;
use super::reply_sender::ReplySender;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_host::{Ending, Process, ProcessError, ProcessEvent, Program, StoppedTime, Worker};
use flagperf_run::Interrupt;

/// Largest output of the command in bytes: 128 processes have 500 times in each of 8 sizes.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// How long an event of the command is waited for.
const POLL: Duration = Duration::from_millis(100);
/// Longest wait for the end of a command that is killed.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// How the command begins the line with the reason of its failure.
const ERROR: &str = "error: ";

/// The command that measures. Dropping it kills the command and its processes.
pub(super) struct GroupMember {
    stopped: Interrupt,
    /// Disconnects when the command has ended.
    done: Receiver<()>,
}

impl GroupMember {
    /// Starts the command in the checkout at `root`. A thread replies with [`Reply::Measured`] or [`Reply::NotMeasured`].
    ///
    /// # Errors
    /// When the command cannot be started.
    pub(super) fn start(
        root: &Path,
        program: &Path,
        arguments: &[String],
        replies: ReplySender,
    ) -> Result<Self, ProcessError> {
        let script = "cd \"$1\" || exit 2; shift; exec \"$@\"";
        let words = ["sh", "-c", script, "sh"].map(OsString::from).into_iter();
        let peak = [root.into(), program.into(), "peak".into(), "--config".into(), root.join("configs").into()];
        let argv = words.chain(peak).chain(arguments.iter().map(OsString::from)).collect();
        Self::start_command(argv, replies)
    }

    fn start_command(argv: Vec<OsString>, replies: ReplySender) -> Result<Self, ProcessError> {
        let folder = tempfile::tempdir().map_err(ProcessError::Streams)?;
        let program = Program {
            argv,
            input: String::new(),
            stderr: folder.path().join("stderr.txt"),
            inherits: true,
            environment: IndexMap::new(),
        };
        let clock = Arc::new(MonotonicClock::start());
        let process = Process::start(&program, clock.clone())?;
        let (stopped, (running, done)) = (Interrupt::default(), bounded::<()>(0));
        let is_stopped = stopped.clone();
        thread::spawn(move || {
            // It has the messages of the command.
            let _folder = folder;
            let reply = match run(process, &*clock, &is_stopped) {
                Ok(output) => Reply::Measured { output },
                Err(reason) => Reply::NotMeasured { reason },
            };
            // This fails when the connection has ended.
            let _ = replies.send(reply);
            drop(running);
        });
        Ok(GroupMember { stopped, done })
    }

    /// Has the command killed soon.
    pub(super) fn stop(&self) {
        self.stopped.set();
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.stop();
        let _ = self.done.recv_timeout(KILL_WAIT);
    }
}

/// Returns what a host says that it has measured, or that this is too long.
pub(super) fn checked_output(output: String) -> Result<String, String> {
    if output.len() <= OUTPUT_BYTES_MAX { Ok(output) } else { Err(too_long()) }
}

fn too_long() -> String {
    format!("the measurements have more than {OUTPUT_BYTES_MAX} bytes")
}

/// Reads what the command prints until it ends, and returns it, or why there is none. Then nothing of the command is left.
fn run(mut process: Process, clock: &dyn Clock, stopped: &Interrupt) -> Result<String, String> {
    let (mut output, mut stopped_time) = (String::new(), StoppedTime::default());
    while !stopped.is_set() {
        match process.next_event(POLL) {
            ProcessEvent::Line(_, line) => output = checked_output(output + &line)?,
            ProcessEvent::Ended(Ending::Exited(0)) => return Ok(output),
            ProcessEvent::Ended(ending) => return Err(failure(ending, &process.last_stderr_lines())),
            ProcessEvent::Silence => {
                if let Some(reason) = stopped_time.reason(process.is_stopped(), clock.now()) {
                    return Err(format!("`flagperf peak`: {reason}"));
                }
            }
        }
    }
    Err("it was stopped".to_owned())
}

/// Returns why a command failed: its last error with its hint, or else how it ended.
fn failure(ending: Ending, lines: &[String]) -> String {
    let error = lines.iter().rposition(|line| line.starts_with(ERROR));
    match error {
        Some(error) => {
            let lines: Vec<&str> = lines[error..].iter().map(|line| line.trim()).collect();
            short(&lines.join("; ").replacen(ERROR, "", 1))
        }
        None => {
            let last = lines.last().map(|line| format!(": `{}`", line.trim())).unwrap_or_default();
            short(&format!("`flagperf peak` {}{last}", ending.predicate()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use crossbeam_channel::Sender;

    use super::*;
    use crate::frame::read_frame;

    /// Passes on what is written at once.
    struct Output(Sender<Vec<u8>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map(|()| bytes.len()).map_err(io::Error::other)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Starts a script as the command, and returns what it is known by and the output of its agent.
    fn start(script: &str) -> (GroupMember, Receiver<Vec<u8>>) {
        let (sender, written) = crossbeam_channel::unbounded();
        let (replies, _) = ReplySender::start(Output(sender));
        let argv = ["sh", "-c", script].map(OsString::from).to_vec();
        (GroupMember::start_command(argv, replies).unwrap(), written)
    }

    /// Returns what was measured, or why nothing was.
    fn ended((member, written): (GroupMember, Receiver<Vec<u8>>)) -> Result<String, String> {
        let _ = member.done.recv();
        drop(member);
        let bytes: Vec<u8> = written.iter().flatten().collect();
        match read_frame::<Reply>(&mut &bytes[..]).unwrap().expect("a reply").0 {
            Reply::Measured { output } => Ok(output),
            Reply::NotMeasured { reason } => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_error_of_a_command_is_the_reason_of_its_failure() {
        assert_eq!(ended(start("echo note: busy >&2; echo '{}'")), Ok("{}".to_owned()));
        let script = "echo warning: x >&2; echo error: no engine >&2; echo '  hint: install it' >&2; exit 2";
        assert_eq!(ended(start(script)), Err("no engine; hint: install it".to_owned()));
        assert_eq!(
            ended(start("echo last >&2; exit 9")),
            Err("`flagperf peak` exited with status 9: `last`".to_owned())
        );
    }

    #[test]
    fn a_command_that_is_stopped_or_prints_too_much_is_killed() {
        let running = start("sleep 600");
        running.0.stop();
        assert_eq!(ended(running), Err("it was stopped".to_owned()));
        assert_eq!(ended(start("yes $(head -c 100000 /dev/zero | tr '\\0' x)")), Err(too_long()));
        assert_eq!(checked_output("x".repeat(OUTPUT_BYTES_MAX + 1)), Err(too_long()));
    }

    #[test]
    fn a_command_sees_the_end_of_its_input_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let (member, _) = start(&format!("echo $$ > {}; cat", file.display()));
        let pid = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<u32>() {
                break pid;
            }
        };
        drop(member);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the command is left");
    }
}
