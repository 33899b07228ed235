//! Child processes: each is registered when it starts, and waited for.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::bounded::run_for;
use super::{Ending, ProcessError, descendants};

/// How often the end of a process is polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts a child and registers it as one that is waited for.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut children = descendants::waited_children();
    let child = command.spawn()?;
    children.insert(child.id().cast_signed());
    Ok(child)
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

/// Runs a program to its end with the input and the outputs of this process.
///
/// # Errors
/// Fails when the program cannot be started.
pub fn run_to_end(argv: &[String]) -> Result<Ending, ProcessError> {
    let (name, arguments) = argv.split_first().ok_or(ProcessError::Empty)?;
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let child = spawn(Command::new(name).args(arguments));
    let status = child.and_then(|mut child| {
        let status = child.wait();
        descendants::waited_children().remove(&child.id().cast_signed());
        status
    });
    status.map(Ending::from).map_err(|source| ProcessError::Start { program: name.clone(), source })
}

/// Number of polls after which [`read_output`] kills its program: 10 s.
const OUTPUT_POLLS: u32 = 500;

/// Runs a program without input and returns what it writes to its standard output; `None` when it cannot be started,
/// fails, or takes longer than 10 s. Output beyond `bytes_max` is cut.
pub fn read_output(argv: &[&str], bytes_max: u64) -> Option<Vec<u8>> {
    let (name, arguments) = argv.split_first()?;
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
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
    descendants::waited_children().remove(&child.id().cast_signed());
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
    fn waiting_for_a_child_that_does_not_end_is_limited() {
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut child = spawn(Command::new("sleep").arg("600")).unwrap();
        assert_eq!(wait(&mut child, 3), Ending::Stuck);
        child.kill().unwrap();
        assert_eq!(wait(&mut child, u32::MAX), Ending::Killed(9));
        descendants::waited_children().remove(&child.id().cast_signed());
    }
}
