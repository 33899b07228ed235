//! `flagperf work`: the worker.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use crossbeam_channel::Receiver;

use flagperf_container::receive_streams;
use flagperf_core::event::{Event, EventBudget};
use flagperf_core::exit_code;
use flagperf_host::{WorkerNeeds, exit_when_input_ends, isolate_companions, protect_worker};
use flagperf_plan::Job;

/// Reads a job, runs it, and emits events. In a container, the standard streams come from `socket`.
pub(super) fn work(socket: Option<&Path>) -> anyhow::Result<ExitCode> {
    // The program was started as /proc/self/exe, an uninformative name in a process list. A failure to set the name is
    // harmless.
    let _ = nix::sys::prctl::set_name(c"flagperf");
    if let Some(socket) = socket {
        receive_streams(socket)
            .with_context(|| format!("cannot receive the standard streams at `{}`", socket.display()))?;
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the job from standard input")?;
    let job: Job =
        serde_json::from_str(&line).context("standard input contains no job (expected: one line of JSON)")?;
    // Before any other thread starts: the restrictions are those of a thread and of the threads that it starts.
    let protection = job.limits.protected.then(|| protect_worker(&worker_needs(&job)));
    if protection.is_some_and(|protection| protection.isolated) {
        isolate_companions();
    }
    let lines = (!input_is_a_file()?).then(|| exit_when_input_ends(io::stdin()));
    // Without a parent, nobody else waits; when the parent ends, so does this process.
    let release = || {
        let _ = lines.as_ref().map(Receiver::recv);
    };
    let output = claim_stdout().context("cannot reserve standard output for events")?;
    let output = Mutex::new((output, EventBudget::default()));
    let emit: flagperf_work::Emit = Arc::new(move |event: Event| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, budget) = &mut *output;
        for event in budget.admit(event) {
            let mut line = event.to_line();
            line.push(b'\n');
            // The conductor is gone, so nobody needs the result.
            if file.write_all(&line).is_err() {
                std::process::exit(i32::from(exit_code::FAILED));
            }
        }
    });
    protection.into_iter().for_each(|protection| emit(Event::Protected(protection)));
    match flagperf_work::run(&job, &emit, &release) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            emit(Event::Failed(failure));
            Ok(ExitCode::from(exit_code::FAILED))
        }
    }
}

/// Returns what the worker of a job needs.
fn worker_needs(job: &Job) -> WorkerNeeds {
    if !flagperf_engine::is_own_code(&job.engine.engine) {
        return WorkerNeeds::ForeignCode;
    }
    // Data that flagperf draws is written to a folder that need not exist yet.
    let existing = |path: &Path| path.ancestors().find(|path| path.exists()).map(Path::to_owned);
    let folders = [job.log_dir.clone(), job.data_dir.clone(), std::env::temp_dir(), PathBuf::from("/dev")];
    WorkerNeeds::OwnCode { writable: folders.iter().filter_map(|path| existing(path)).collect() }
}

/// Returns standard output for this process alone. From now on, whatever libraries and engines print goes to standard error.
pub(super) fn claim_stdout() -> io::Result<File> {
    let events = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(File::from(events))
}

/// Returns whether standard input is a file, as when a job is run by hand: the end of a file does not mean that the
/// parent is gone.
fn input_is_a_file() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(input.metadata()?.is_file())
}
