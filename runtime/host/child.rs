//! Children of this process: each is known from its start, and waited for.

use std::io;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Ending, ProcessError, descendants};

/// How often an ending is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Starts a child that is known to be waited for.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut children = descendants::children();
    let child = command.spawn()?;
    children.insert(child.id().cast_signed());
    Ok(child)
}

/// Waits for a child that ends, or was killed. One that the kernel does not let go is not waited for.
pub(super) fn wait(child: &mut Child, looks: u32) -> Ending {
    for _ in 0..looks {
        match child.try_wait() {
            Ok(Some(status)) => return Ending::from(status),
            Ok(None) => thread::sleep(LOOK),
            // Its end was taken by somebody else, who alone knows it.
            Err(_) => return Ending::Killed(Signal::SIGKILL as i32),
        }
    }
    Ending::Stuck
}

/// Runs a program to its end, with this process's own input and outputs.
///
/// # Errors
/// When it cannot be started.
pub fn run_to_end(argv: &[String]) -> Result<Ending, ProcessError> {
    let (name, arguments) = argv.split_first().ok_or(ProcessError::Empty)?;
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let child = spawn(Command::new(name).args(arguments));
    let status = child.and_then(|mut child| {
        let status = child.wait();
        descendants::children().remove(&child.id().cast_signed());
        status
    });
    status.map(Ending::from).map_err(|source| ProcessError::Start { program: name.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_end_is_not_waited_for_without_limit() {
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut child = spawn(Command::new("sleep").arg("600")).unwrap();
        assert_eq!(wait(&mut child, 3), Ending::Stuck);
        child.kill().unwrap();
        assert_eq!(wait(&mut child, u32::MAX), Ending::Killed(9));
        descendants::children().remove(&child.id().cast_signed());
    }
}
