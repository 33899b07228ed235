//! A session: conducts one replica of a case on its host, in a process that keeps running when the connection breaks.
//!
//! It ends by itself after `HOST_TIMEOUT` plus 30 s without contact. A session never runs twice, whoever starts it: it
//! holds a lock while it runs.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use sysinfo::System;

use super::control::{ControlSocket, SessionMessage};
use super::host_text::{HostError, short, shown_errors};
use flagperf_config::{Environment, Overrides, env};
use flagperf_container::containers_processor_time;
use flagperf_core::event::{Event, Level};
use flagperf_core::exit_code;
use flagperf_core::file;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_plan::{AuditScope, EffectiveValue, Plan};
use flagperf_result::ProcessorTime;
use flagperf_run::{
    Barrier, CheckoutState, HostBusy, HostLock, HostUse, Interrupt, LockNotice, Notice, RunOptions, conduct,
};

/// Files in the folder of a session.
pub(super) const TASK_FILE: &str = "task.json";
pub(super) const OUTCOME_FILE: &str = "outcome.json";
pub(super) const LOG_FILE: &str = "session.log";
/// This file tells a session that it must end, also one that has not created its socket yet.
pub(super) const STOP_FILE: &str = "stop";
/// The session holds the lock of this file while it runs.
pub(super) const LOCK_FILE: &str = "lock";
/// Number of attempts to take the lock, and the time between two attempts.
const LOCK_TRIES: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(10);
/// The folder in which the session creates the folder of the run.
pub(super) const RESULTS: &str = "results";
/// The folder of the store with the checkpoints of trainings by several processes, by the run and the case.
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The task of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionTask {
    /// Name of the run's folder: `run20240703142530`.
    pub run: String,
    /// Random id of the run, which no other run has.
    pub run_id: String,
    /// The values from the command line, with the case and the host and device of this session.
    pub overrides: Overrides,
    /// What the audit of inference includes.
    pub audit: AuditScope,
    /// Whether progress is displayed.
    pub has_live_display: bool,
    /// The folder of the replica, relative to the folder of the run, with `/`: `resnet50_interpreter/node1_noderank0`.
    pub folder: String,
    /// The folder of the case in the store of checkpoints, if it is another one than that of `folder`.
    #[serde(default)]
    pub stored_as: Option<PathBuf>,
    /// Whether the replica waits for the other replicas before each measured loop.
    pub waits: bool,
    /// Whether the replica, when it has planned its case, waits at the barrier of the first step until every host has planned.
    #[serde(default)]
    pub holds: bool,
    /// Time without contact after which the session ends.
    pub contact_limit_s: Seconds,
    /// State of the checkout from which the files come.
    pub checkout: CheckoutState,
    /// Who started the run, and on which machine.
    #[serde(default)]
    pub started_by: String,
    /// Why it is not certain that the replica has the host, or a machine, for itself.
    #[serde(default)]
    pub host_doubts: Vec<String>,
    /// `FLAGPERF_LOG_LEVEL` of the environment.
    pub log_level: Option<String>,
    /// The checkout on the host. The agent sets this.
    #[serde(default)]
    pub root: PathBuf,
    /// The program on the host. The agent sets this.
    #[serde(default)]
    pub program: PathBuf,
}

impl SessionTask {
    /// Returns the values that override the configuration, with the folder of the checkout on this host.
    pub fn overrides(&self) -> Overrides {
        let environment = Environment { log_level: self.log_level.clone(), ..Environment::default() };
        Overrides { config: Some(self.root.join("configs")), environment, ..self.overrides.clone() }
    }
}

/// The outcome of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionOutcome {
    /// The errors because of which the case was not run; empty when it was run.
    pub refused: Vec<HostError>,
    /// Exit code of a run with this result.
    pub exit_code: u8,
    /// Why the session ended the case by itself; `None` when it did not.
    pub interrupted: Option<String>,
    /// Why the result has no manifest, if an error prevented it.
    #[serde(default)]
    pub unsealed: Option<String>,
    /// Processor time of the session and its workers.
    pub processor: Option<ProcessorTime>,
}

impl SessionOutcome {
    fn refused(reasons: Vec<HostError>, exit_code: u8) -> Self {
        SessionOutcome { refused: reasons, exit_code, ..SessionOutcome::default() }
    }

    /// Returns the outcome with its texts as a host may state them.
    pub(super) fn shortened(self) -> Self {
        SessionOutcome {
            refused: shown_errors(&self.refused),
            interrupted: self.interrupted.as_deref().map(short),
            unsealed: self.unsealed.as_deref().map(short),
            ..self
        }
    }
}

/// The plan of a session, with the effective values.
pub type SessionPlan = (Plan, Vec<EffectiveValue>);

/// Runs the session in `folder`. `worker` is the command that starts a worker. `prepare` plans the task, or returns its errors.
///
/// # Errors
/// When the folder contains no task, another process runs this session, or a file or socket cannot be created.
pub fn run_session(
    folder: &Path,
    worker: Vec<std::ffi::OsString>,
    prepare: impl FnOnce(&SessionTask) -> Result<SessionPlan, Vec<HostError>>,
) -> io::Result<ExitCode> {
    // The file remains when the session has ended, so a session never runs twice.
    let lock_file = folder.join(LOCK_FILE);
    let lock = File::create_new(&lock_file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::other("this session was started before"),
        _ => error_at("cannot create", &lock_file, &error),
    })?;
    take_lock(&lock)?;
    let task_file = folder.join(TASK_FILE);
    let task = fs::read(&task_file).and_then(|text| Ok(serde_json::from_slice(&text)?));
    let task: SessionTask = task.map_err(|error| error_at("cannot read", &task_file, &error))?;
    let interrupt = Interrupt::install()?;
    let clock = Arc::new(MonotonicClock::start());
    let control = ControlSocket::start(folder, interrupt.clone(), clock.clone(), task.contact_limit_s)
        .map_err(|error| error_at("cannot create the control socket in", folder, &error))?;
    if folder.join(STOP_FILE).exists() {
        interrupt.set();
    }
    let outcome = match prepare(&task) {
        Err(refused) => SessionOutcome::refused(refused, exit_code::MISTAKE),
        Ok(planned) => {
            if task.holds {
                control.wait(Step::Init);
            }
            match task.holds && interrupt.is_set() {
                true => {
                    let reason = HostError::new("interrupted before the case began");
                    SessionOutcome::refused(vec![reason], exit_code::INTERRUPTED)
                }
                false => run_task(&task, folder, planned, worker, clock, &interrupt, &control),
            }
        }
    };
    let lost = control.lost_contact.load(Ordering::Relaxed);
    let why = format!("no contact with the main process for {} s (`HOST_TIMEOUT` plus 30 s)", task.contact_limit_s.0);
    let outcome = SessionOutcome { interrupted: lost.then_some(why), processor: processor_time(), ..outcome };
    let path = folder.join(OUTCOME_FILE);
    let text = serde_json::to_vec(&outcome).expect("an outcome is plain data");
    let written = file::stage(&text, &path, None).and_then(|file| file.persist(&path).map_err(|error| error.error));
    written.map_err(|error| error_at("cannot write", &path, &error))?;
    Ok(ExitCode::from(outcome.exit_code))
}

/// Returns an error that states what was attempted with which file.
fn error_at(attempt: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{attempt} `{}`: {error}", path.display()))
}

/// Runs the case of a task.
fn run_task(
    task: &SessionTask,
    folder: &Path,
    (mut plan, values): SessionPlan,
    worker: Vec<std::ffi::OsString>,
    clock: Arc<MonotonicClock>,
    interrupt: &Interrupt,
    control: &Arc<ControlSocket>,
) -> SessionOutcome {
    // The agent has reserved the host for this run, so this shares the reservation.
    let description = run_description(&task.run, &task.started_by);
    let names = (task.run_id.as_str(), description.as_str());
    let mut on_notice = |notice: &LockNotice| report_warning(control, &notice.to_string());
    let lock = HostLock::take(&env::host_lock(), names, plan.site.busy_host, interrupt, &mut on_notice);
    let host_use = match lock {
        Ok(lock) => HostUse::new(lock, task.host_doubts.clone()),
        Err(busy) => {
            let refused = HostError { text: busy.to_string(), hint: HostBusy::HINT.to_owned() };
            return SessionOutcome::refused(vec![refused], exit_code::MISTAKE);
        }
    };
    let results = folder.join(RESULTS);
    plan.site.flagperf_log_path.clone_from(&results);
    let options = RunOptions {
        has_live_display: task.has_live_display,
        audit: task.audit,
        worker,
        clock,
        folder: Some(results.join(&task.run)),
        program: Some(task.checkout.clone().provenance()),
        resumed: None,
        barrier: task.waits.then(|| control.clone() as _),
        host_use,
        checkpoint_store: checkpoint_store(folder, task),
    };
    let mut report = |notice: &Notice<'_>| report_notice(control, notice);
    match conduct(&plan, &values, &options, interrupt, &mut report) {
        Ok(outcome) => SessionOutcome {
            exit_code: outcome.exit_code(false),
            unsealed: outcome.unsealed.first().map(|(_, error)| error.to_string()),
            ..SessionOutcome::default()
        },
        Err(error) => SessionOutcome::refused(vec![HostError::new(error.to_string())], exit_code::UNWRITTEN),
    }
}

/// Returns the folder of this host for the checkpoints of the case of a session, which is a folder of its store.
fn checkpoint_store(session: &Path, task: &SessionTask) -> Option<PathBuf> {
    let own = Path::new(&task.folder).parent()?;
    let in_store = Path::new(&task.run_id).join(task.stored_as.as_deref().unwrap_or(own));
    let store = session.parent()?.parent()?;
    (!task.run_id.is_empty() && file::is_inside(&in_store)).then(|| store.join(CHECKPOINTS).join(in_store))
}

/// Returns what a person on the host recognises a run by.
pub(super) fn run_description(run: &str, started_by: &str) -> String {
    format!("{run} of user `{}`, started by {started_by}", user_name())
}

/// Returns the name of this user and of this machine, for the description of a run on its hosts.
pub(super) fn started_by() -> String {
    format!("`{}` on `{}`", user_name(), System::host_name().unwrap_or_default())
}

/// Returns the name of the user that runs this process, or else its number.
pub fn user_name() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    user.map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name)
}

/// Returns the processor time of this process, and of its children that have ended and its containers.
fn processor_time() -> Option<ProcessorTime> {
    let time = |who: UsageWho| {
        let usage = getrusage(who).ok()?;
        let parts = [usage.user_time(), usage.system_time()];
        Some(Seconds(parts.iter().map(|part| part.tv_sec() as f64 + part.tv_usec() as f64 * 1e-6).sum()))
    };
    // The processes of containers are no children of this process.
    let workers = containers_processor_time().zip(time(UsageWho::RUSAGE_CHILDREN));
    let workers_s = workers.map(|(containers, children)| containers + children);
    Some(ProcessorTime { host_s: time(UsageWho::RUSAGE_SELF)?, workers_s })
}

/// Takes the lock of a session. An agent that checks whether the session runs holds the lock for a moment, so this tries again.
fn take_lock(lock: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_WAIT),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::Error::other("another process runs this session"))
}

/// Sends a warning for the display to the agents.
fn report_warning(control: &ControlSocket, message: &str) {
    let event = Event::Log { level: Level::Warning, source: "host".to_owned(), message: message.to_owned() };
    control.broadcast(&SessionMessage::Event { phase: Phase::Validate, event: Box::new(event) });
}

/// Sends a notice to the agents if a display shows it.
fn report_notice(control: &ControlSocket, notice: &Notice<'_>) {
    if let Notice::Preparation { line } = notice {
        control.broadcast(&SessionMessage::Preparation { line: (*line).to_owned() });
    }
    let Notice::Event { phase, event } = notice else { return };
    if is_displayed(event) {
        control.broadcast(&SessionMessage::Event { phase: *phase, event: Box::new((*event).clone()) });
    }
}

/// Returns whether a display shows an event.
pub(super) fn is_displayed(event: &Event) -> bool {
    matches!(
        event,
        Event::StepBegin { .. }
            | Event::StepEnd { .. }
            | Event::Progress { .. }
            | Event::SampleFailed { .. }
            | Event::Log { .. }
            | Event::Failed(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_cannot_start_says_what_it_attempted_with_which_file() {
        let folder = tempfile::tempdir().unwrap();
        let run = |folder: &Path| run_session(folder, Vec::new(), |_| Err(Vec::new())).unwrap_err().to_string();
        let missing = folder.path().join("missing");
        let expected =
            format!("cannot create `{}`: No such file or directory (os error 2)", missing.join(LOCK_FILE).display());
        assert_eq!(run(&missing), expected);
        let task = folder.path().join(TASK_FILE);
        let expected = format!("cannot read `{}`: No such file or directory (os error 2)", task.display());
        assert_eq!(run(folder.path()), expected);
    }
}
