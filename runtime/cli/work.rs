//! `flagperf work`: the worker role.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::event::{Event, EventBudget};
use crate::host::end_with_input;
use crate::plan::Job;
use crate::run::Outcome;

/// Reads a job, runs it, and tells what happens.
pub(super) fn work() -> anyhow::Result<ExitCode> {
    // It is started as /proc/self/exe, which says nothing in a list of processes; a name that is not set does no harm.
    let _ = nix::sys::prctl::set_name(c"flagperf");
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the job from standard input")?;
    let job: Job = serde_json::from_str(&line).context("standard input holds no job: one line of JSON is expected")?;
    if !input_is_a_file()? {
        end_with_input(io::stdin());
    }
    let output = events_only().context("cannot keep standard output for events")?;
    let output = Mutex::new((output, EventBudget::default()));
    let emit: crate::work::Emit = Arc::new(move |event: Event| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, budget) = &mut *output;
        for event in budget.admit(event) {
            let mut line = event.to_line();
            line.push(b'\n');
            // Nobody listens any more: there is nobody to work for.
            if file.write_all(&line).is_err() {
                std::process::exit(i32::from(Outcome::FAILED));
            }
        }
    });
    match crate::work::run(&job, &emit) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            emit(Event::Failed(failure));
            Ok(ExitCode::from(Outcome::FAILED))
        }
    }
}

/// Standard output for events alone: what libraries and engines print goes to standard error from here on.
fn events_only() -> io::Result<File> {
    let events = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(File::from(events))
}

/// Whether the job comes from a file, as by hand, whose end says nothing about a parent.
fn input_is_a_file() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.is_file())
}
