//! `flagperf agent` and `flagperf session`: the parts of a run that other hosts execute.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::setup::prepare_process;
use flagperf_config::Findings;
use flagperf_core::event::Level;
use flagperf_fleet::{HostError, SessionPlan, SessionTask, run_session, serve};
use flagperf_host::THIS_PROGRAM;
use flagperf_prepare::{Prepared, prepare};

/// Serves requests until standard input ends.
pub(super) fn agent() -> anyhow::Result<ExitCode> {
    let _ = nix::sys::prctl::set_name(c"flagperf");
    let program = [THIS_PROGRAM, "session"].map(Into::into);
    serve(io::stdin(), io::stdout(), &program).context("the agent failed")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the session in a folder.
pub(super) fn session(folder: &Path) -> anyhow::Result<ExitCode> {
    let _ = nix::sys::prctl::set_name(c"flagperf");
    let exits = prepare_process()?;
    let worker = vec![THIS_PROGRAM.into(), "work".into()];
    let prepare = |task: &SessionTask| {
        let prepared = prepare_task(task);
        drop(exits);
        prepared.map_err(|findings| errors(&findings))
    };
    run_session(folder, worker, prepare).context("the session failed")
}

fn prepare_task(task: &SessionTask) -> Result<SessionPlan, Findings> {
    prepare(&task.root, &task.overrides()).map(|Prepared { plan, values }| (plan, values))
}

fn errors(findings: &Findings) -> Vec<HostError> {
    findings.0.iter().filter(|finding| finding.level == Level::Error).map(HostError::from).collect()
}
