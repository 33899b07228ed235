//! Measures cases in turns: each block is a run of one case, with a result of its own, while no other run uses the host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::output::{print_message, print_mistake};
use flagperf_config::{Site, env};
use flagperf_core::measure::MonotonicClock;
use flagperf_core::text::one_line;
use flagperf_host::THIS_PROGRAM;
use flagperf_plan::AuditScope;
use flagperf_prepare::Prepared;
use flagperf_result::{Record, Status};
use flagperf_run::{CheckoutState, HostBusy, HostLock, HostUse, Interrupt, LockNotice, RunOptions, conduct};
use flagperf_verify::find_results;

/// What all blocks share.
pub(super) struct Blocks {
    options: RunOptions,
    interrupt: Interrupt,
}

/// The outcome of a block.
pub(super) enum Block {
    /// The folder of the result, and its record.
    Measured(PathBuf, Box<Record>),
    /// The folder of the result, and why it failed.
    Failed(PathBuf, String),
    Interrupted,
    /// Why there is no result.
    NotRun(String),
}

impl Blocks {
    /// Waits until no other run uses the host. `what` is what this process does. Returns an exit code if that is not possible.
    pub(super) fn start(site: &Site, what: &str) -> anyhow::Result<Result<Self, ExitCode>> {
        let interrupt = Interrupt::install().context("cannot install signal handlers")?;
        let about = format!("process {} {what}", std::process::id());
        let mut on_notice = |notice: &LockNotice| print_message(&format!("note: {notice}"));
        let lock = HostLock::take(&env::host_lock(), (&about, &about), site.busy_host, &interrupt, &mut on_notice);
        let host_use = match lock {
            Ok(lock) => HostUse::new(lock, Vec::new()),
            Err(busy) => return Ok(Err(print_mistake(&format!("{busy}\n  hint: {}", HostBusy::HINT)))),
        };
        let options = RunOptions {
            has_live_display: false,
            audit: AuditScope::Standard,
            worker: vec![THIS_PROGRAM.into(), "work".into()],
            clock: Arc::new(MonotonicClock::start()),
            folder: None,
            program: Some(CheckoutState::read(&site.flagperf_path).provenance()),
            resumed: None,
            barrier: None,
            host_use,
        };
        Ok(Ok(Blocks { options, interrupt }))
    }

    /// Runs a case once.
    pub(super) fn measure(&self, Prepared { plan, values }: &Prepared) -> Block {
        let outcome = match conduct(plan, values, &self.options, &self.interrupt, &mut |_| ()) {
            Ok(outcome) => outcome,
            Err(error) => return Block::NotRun(error.to_string()),
        };
        if outcome.interrupted {
            return Block::Interrupted;
        }
        let Some(record) = outcome.records.into_iter().next() else {
            return Block::NotRun("it has no record".to_owned());
        };
        let folder = find_results(&outcome.folder).ok().and_then(|found| found.into_iter().next());
        let folder = folder.unwrap_or(outcome.folder);
        if record.status == Status::Ok {
            return Block::Measured(folder, Box::new(record));
        }
        let reason = record.failures.first().map(|failure| one_line(&failure.reason).into_owned());
        Block::Failed(folder, reason.unwrap_or_else(|| "it has no figures".to_owned()))
    }
}
