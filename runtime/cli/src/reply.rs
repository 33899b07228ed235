//! Prints the reply of a command that this program runs in a process of its own.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;

use serde::Serialize;

use flagperf_host::exit_when_input_ends;

/// Prints a reply as one JSON line. Meanwhile this process ends when the process that started it ends: a thread watches
/// the input, because `work` may never return.
pub(super) fn print_reply<T: Serialize>(work: impl FnOnce() -> T) -> anyhow::Result<ExitCode> {
    if input_is_a_pipe()? {
        exit_when_input_ends(io::stdin());
    }
    let reply = work();
    // On a line of its own, even after unfinished output of a library.
    writeln!(io::stdout().lock(), "\n{}", serde_json::to_string(&reply)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether standard input is a pipe, whose other end may close.
pub(super) fn input_is_a_pipe() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.file_type().is_fifo())
}
