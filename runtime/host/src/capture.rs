//! Runs a command of a vendor or of the system and returns its output, within limits of time and size.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;

use super::bounded::{run_for, run_while};
use super::child::{GroupChild, command_of};
use super::{Ending, LeftoverProcess, descendants};
use flagperf_core::measure::Clock;
use flagperf_core::text::{one_line, truncate};
use flagperf_core::units::Seconds;

/// Bytes of standard error that are read for the reason of a failure, and those that the reason contains.
const STDERR_BYTES_READ: u64 = 64 << 10;
const LINE_BYTES_QUOTED: usize = 200;
/// Number of polls to wait for the end of a command that closed its output or was killed.
const ENDING_POLLS: u32 = 50;
/// Largest number of processes that kept the output open and are named.
const HOLDERS_NAMED: usize = 3;

/// A command whose output is captured.
#[derive(Clone, Debug)]
pub struct CapturedCommand {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<OsString>,
    /// The folder in which it starts; `None` for that of this process.
    pub folder: Option<PathBuf>,
    /// The standard input of the program.
    pub input: Vec<u8>,
    /// Largest output in bytes.
    pub bytes_max: u64,
    /// Time limit.
    pub time_max: Seconds,
}

/// The reason why the output of a command could not be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The list of arguments is empty.
    #[error("no command was given")]
    Empty,
    /// The program is not installed.
    #[error("`{0}` is not installed, or not in a folder of PATH")]
    NotInstalled(String),
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The command did not end in time and was killed.
    #[error("`{program}` took longer than {} s and was killed", .limit.0)]
    TimedOut { program: String, limit: Seconds },
    /// The command ended, but a process that it had started did not close its output in time.
    #[error("`{program}` ended, but a process that it had started kept its output open for {} s{}", .limit.0, killed(.holders))]
    OutputHeld {
        program: String,
        limit: Seconds,
        /// The processes that the command had started; they were killed. Empty if they could not be found.
        holders: Vec<LeftoverProcess>,
    },
    /// The command printed more than the limit and was killed.
    #[error("`{program}` printed more than {limit} bytes and was killed")]
    TooLong { program: String, limit: u64 },
    /// The command failed.
    #[error("`{program}` {}{}", .ending.predicate(), quoted(.last_line))]
    Failed {
        program: String,
        /// How it ended.
        ending: Ending,
        /// The last line of its standard error, or else of its output; may be empty.
        last_line: String,
    },
    /// The caller no longer waits.
    #[error("`{0}` was stopped")]
    Stopped(String),
}

fn quoted(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(": `{line}`") }
}

/// Names the processes that were killed.
fn killed(processes: &[LeftoverProcess]) -> String {
    let shown = processes.iter().take(HOLDERS_NAMED).map(|process| format!("{} (`{}`)", process.pid, process.command));
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => String::new(),
        shown => format!(" and was killed: {shown}"),
    }
}

/// Runs a command in a process group of its own, and returns its standard output. Its messages are in
/// English. `is_stopped` returns whether the caller no longer waits.
///
/// # Errors
/// When the command cannot be started, fails, takes too long or prints too much; then its process group and every other process
/// that it has started are killed.
pub fn capture(
    command: &CapturedCommand,
    clock: &dyn Clock,
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<u8>, CaptureError> {
    let program = command.argv.first().ok_or(CaptureError::Empty)?.to_string_lossy().into_owned();
    let marker = descendants::new_command_marker();
    let mut child = start(command, &program, &marker)?;
    let streams = child.child();
    let (output, errors) = (streams.stdout.take(), streams.stderr.take());
    if let Some(mut pipe) = streams.stdin.take() {
        let input = command.input.clone();
        // A command that does not read its input closes the pipe at its end, which ends this thread.
        std::thread::spawn(move || pipe.write_all(&input));
    }
    let errors = std::thread::spawn(move || last_line(&read_start(errors)));
    let (began, limit) = (clock.now(), command.bytes_max);
    let read = run_while(
        move || {
            let mut bytes = Vec::new();
            output.map_or(Ok(0), |pipe| pipe.take(limit.saturating_add(1)).read_to_end(&mut bytes)).map(|_| bytes)
        },
        || !is_stopped() && clock.now().since(began) <= command.time_max,
    );
    let fits = matches!(&read, Some(Ok(bytes)) if bytes.len() as u64 <= limit);
    let has_ended = child.has_ended();
    let started = if fits { Vec::new() } else { descendants::started_processes(&marker, ENDING_POLLS) };
    let ending = end(&mut child, fits);
    started.iter().for_each(|process| descendants::kill_process(process.pid));
    match read {
        Some(Ok(bytes)) if fits && ending == Ending::Exited(0) => Ok(bytes),
        Some(Ok(_)) if !fits => Err(CaptureError::TooLong { program, limit }),
        None if is_stopped() => Err(CaptureError::Stopped(program)),
        None if has_ended => Err(CaptureError::OutputHeld { program, limit: command.time_max, holders: started }),
        None => Err(CaptureError::TimedOut { program, limit: command.time_max }),
        Some(output) => {
            // A descendant may hold the pipe open; then there is no line.
            let error = run_for(ENDING_POLLS, move || errors.join().unwrap_or_default()).unwrap_or_default();
            // Some tools print the reason to standard output.
            let last_line = if error.is_empty() { last_line(&output.unwrap_or_default()) } else { error };
            Err(CaptureError::Failed { program, ending, last_line })
        }
    }
}

fn start(command: &CapturedCommand, program: &str, marker: &str) -> Result<GroupChild, CaptureError> {
    let mut process = command_of(&command.argv).map_err(|_| CaptureError::Empty)?;
    process.env("LC_ALL", "C").env(descendants::MARKER, marker);
    if let Some(folder) = &command.folder {
        process.current_dir(folder);
    }
    process.stdin(if command.input.is_empty() { Stdio::null() } else { Stdio::piped() });
    process.stdout(Stdio::piped()).stderr(Stdio::piped());
    GroupChild::start(&mut process).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CaptureError::NotInstalled(program.to_owned()),
        _ => CaptureError::Start { program: program.to_owned(), source },
    })
}

/// Waits for the end of a command and kills its group if it does not end, or if nobody needs its output.
fn end(child: &mut GroupChild, is_wanted: bool) -> Ending {
    let ended = if is_wanted { child.wait(ENDING_POLLS) } else { None };
    ended.unwrap_or_else(|| child.kill(ENDING_POLLS))
}

/// Reads standard error to its end and returns its beginning.
fn read_start(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.by_ref().take(STDERR_BYTES_READ).read_to_end(&mut bytes);
        // The rest is read, too, so that the command can end.
        let _ = io::copy(&mut pipe, &mut io::sink());
    }
    bytes
}

/// Returns the last line of a text that is not blank.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    truncate(&one_line(last.trim()), LINE_BYTES_QUOTED).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    fn run(argv: &[&str], time: f64) -> Result<Vec<u8>, CaptureError> {
        let argv = argv.iter().map(OsString::from).collect();
        let command = CapturedCommand { argv, folder: None, input: Vec::new(), bytes_max: 20, time_max: Seconds(time) };
        capture(&command, &MonotonicClock::start(), || false)
    }

    #[test]
    fn the_output_of_a_command_is_returned_and_each_failure_has_its_reason() {
        assert_eq!(run(&["printf", "abc"], 60.0).unwrap(), b"abc");
        let reason = |argv: &[&str], time| run(argv, time).unwrap_err().to_string();
        assert_eq!(
            reason(&["no-such-program"], 60.0),
            "`no-such-program` is not installed, or not in a folder of PATH"
        );
        assert_eq!(reason(&["sleep", "600"], 0.05), "`sleep` took longer than 0.05 s and was killed");
        assert_eq!(
            reason(&["printf", "123456789012345678901"], 60.0),
            "`printf` printed more than 20 bytes and was killed"
        );
        assert_eq!(reason(&["yes"], 60.0), "`yes` printed more than 20 bytes and was killed");
        // The end of the command may be seen before its last line.
        for script in ["echo one >&2; echo 'no driver' >&2; exit 9", "echo one; echo 'no driver'; exit 9"] {
            assert_eq!(reason(&["sh", "-c", script], 60.0), "`sh` exited with status 9: `no driver`");
        }
        let killed = reason(&["sh", "-c", "kill -9 $$"], 60.0);
        assert_eq!(killed, "`sh` was killed by signal 9 (SIGKILL): perhaps out of memory");
        assert_eq!(run(&[], 1.0).unwrap_err().to_string(), "no command was given");
    }

    #[test]
    fn a_process_that_keeps_the_output_of_an_ended_command_open_is_named_and_killed() {
        let error = run(&["sh", "-c", "setsid sleep 600 & echo ok"], 3.0).unwrap_err();
        let CaptureError::OutputHeld { holders, .. } = &error else { panic!("{error}") };
        let [holder] = holders.as_slice() else { panic!("{error}") };
        assert_eq!(
            error.to_string(),
            format!(
                "`sh` ended, but a process that it had started kept its output open for 3 s and was killed: {} (`sleep 600`)",
                holder.pid
            )
        );
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", holder.pid));
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_is_killed_with_its_children_when_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let argv = ["sh", "-c", &script].map(OsString::from).to_vec();
        let command =
            CapturedCommand { argv, folder: None, input: Vec::new(), bytes_max: 10, time_max: Seconds(600.0) };
        let is_stopped = || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'));
        let stopped = capture(&command, &MonotonicClock::start(), is_stopped).unwrap_err();
        assert_eq!(stopped.to_string(), "`sh` was stopped");
        let child: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        // Nobody waits for the grandchild here, so it may stay as a zombie.
        while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
    }
}
