//! Runs one phase: starts a worker, sends it the job, reads its events and ends it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing::{debug, debug_span};

use super::launch::WorkerLauncher;
use super::observer::{Observations, PhaseObserver};
use super::worker_update::{EventHandler, WorkerUpdate};
use super::{Barrier, Interrupt, RunOptions};
use flagperf_core::event::{Event, Failure, LINE_BYTES_MAX};
use flagperf_core::file;
use flagperf_core::measure::Nanos;
use flagperf_core::process_group::LOST_PROCESS;
use flagperf_core::step::{Phase, Step};
use flagperf_core::text::{one_line, truncate};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_host::{Ending, ExecutedCode, ProcessEvent, Worker, WorkerInput};
use flagperf_plan::Job;
use flagperf_result::{FailureRecord, PhaseCollector, PhaseRecord, ReceivedEvent};

/// Longest wait for a line before the conductor checks the time limit and interrupts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two readings of the memory of the worker and of the processes that it started.
const MEMORY_INTERVAL: Seconds = Seconds(0.25);
/// How often a worker that has lost another one of its group is asked which process failed first: for 15 s, after which a worker that a
/// signal has stopped has failed, too.
const FIRST_FAILURE_POLLS: u32 = 150;
/// Longest time for which a worker of a group may be stopped by a signal.
const STOPPED_MAX: Seconds = Seconds(10.0);
/// Bytes of a line of the worker that are quoted in a failure.
const QUOTED_BYTES: usize = 200;
/// Bytes of a line that is not an event that are written to the log.
const INVALID_BYTES_LOGGED: usize = 64 << 10;

/// The outcome of a phase.
pub(super) struct PhaseOutcome {
    pub(super) record: PhaseRecord,
    pub(super) warnings: Vec<String>,
    pub(super) end: PhaseEnd,
    /// What the worker and its processes executed.
    pub(super) code: BTreeSet<ExecutedCode>,
}

/// How a phase ended.
pub(super) enum PhaseEnd {
    Finished,
    Failed(FailureRecord),
    Interrupted,
}

/// Runs a phase to its end. `output` is the file for everything that the worker writes except events.
pub(super) fn run_phase(
    job: &Job,
    launcher: &WorkerLauncher,
    output: &Path,
    options: &RunOptions,
    interrupt: &Interrupt,
    on_update: &mut EventHandler<'_>,
) -> PhaseOutcome {
    let _span = debug_span!("phase", phase = job.phase().name()).entered();
    debug!(engine = %job.engine.name, "starting a worker");
    let started = options.clock.now();
    let mut collector = PhaseCollector::new(job.phase(), started);
    let job_line = serde_json::to_string(job).expect("a job is plain data") + "\n";
    let mut worker = match launcher.start(job, &job_line, output, options, interrupt) {
        Ok(worker) => worker,
        Err(_) if interrupt.is_set() => {
            return conclude_phase(job, collector, options, None, StopReason::Interrupted, Vec::new());
        }
        Err(failure) => return conclude_phase(job, collector, options, None, StopReason::Failed(failure), Vec::new()),
    };
    if let Some(pid) = worker.id() {
        drop(on_update(WorkerUpdate::Started(pid)));
    }
    let mut observer = PhaseObserver::new(worker.id(), job.monitor.as_deref());
    let mut on_update = |update: WorkerUpdate<'_>| {
        if let WorkerUpdate::Event(received, _) = update {
            observer.observe(received.event);
        }
        on_update(update)
    };
    let stop = read_events(&mut *worker, job, started, output, options, interrupt, &mut collector, &mut on_update);
    let ending = match stop {
        StopReason::Ended(ending) => ending,
        _ => worker.kill(),
    };
    debug!(%ending, "the worker ended");
    let stop = first_failure(job, &collector, interrupt).map_or(stop, StopReason::Failed);
    let stderr = worker.last_stderr_lines();
    // A worker that was killed has not removed its scratch folder; usually the folder does not exist.
    let _ = std::fs::remove_dir_all(job.scratch());
    let Observations { conditions, code } = observer.finish();
    let mut outcome = conclude_phase(job, collector, options, Some(ending), stop, stderr);
    (outcome.record.conditions, outcome.code) = (conditions, code);
    outcome.warnings.extend(worker.warnings());
    outcome
}

/// Why the conductor stopped reading events.
enum StopReason {
    Ended(Ending),
    Failed(Failure),
    Interrupted,
}

#[expect(clippy::too_many_arguments, reason = "the state of one phase, used nowhere else")]
fn read_events(
    worker: &mut dyn Worker,
    job: &Job,
    started: Nanos,
    output: &Path,
    options: &RunOptions,
    interrupt: &Interrupt,
    collector: &mut PhaseCollector,
    on_update: &mut EventHandler<'_>,
) -> StopReason {
    let mut memory_checked = started;
    let mut stopped = None;
    loop {
        match worker.next_event(POLL_INTERVAL) {
            ProcessEvent::Line(at, line) => match worker_event(&line) {
                Ok(event) => {
                    let received = ReceivedEvent { at, event: &event };
                    collector.add(received);
                    if let (Event::Ready { step }, Some(barrier)) = (&event, &options.barrier) {
                        release_at(barrier, *step, worker.input());
                    }
                    if let Some(contradiction) = collector.contradiction() {
                        return StopReason::Failed(contradictory_report(contradiction));
                    }
                    if let Err(failure) = on_update(WorkerUpdate::Event(received, collector)) {
                        return StopReason::Failed(failure);
                    }
                }
                Err(error) => {
                    append_line(output, &line);
                    return StopReason::Failed(invalid_event(&line, &error));
                }
            },
            // Silence is no failure.
            ProcessEvent::Silence => drop(on_update(WorkerUpdate::Nothing(options.clock.now()))),
            ProcessEvent::Ended(ending) => return StopReason::Ended(ending),
        }
        if interrupt.is_set() {
            return interrupt.reason().map_or(StopReason::Interrupted, |reason| StopReason::Failed(ended(reason)));
        }
        let now = options.clock.now();
        if now.since(started).0 > job.limits.phase_time_s.0 {
            return StopReason::Failed(time_exceeded(job));
        }
        if now.since(memory_checked).0 < MEMORY_INTERVAL.0 {
            continue;
        }
        memory_checked = now;
        // The other processes of its group would wait for it.
        match job.process_group.as_ref().is_some_and(|group| group.size > 1) && worker.is_stopped() {
            false => stopped = None,
            true if now.since(*stopped.get_or_insert(now)).0 > STOPPED_MAX.0 => {
                return StopReason::Failed(stopped_worker());
            }
            true => {}
        }
        if !collector.is_measured() {
            worker.memory().into_iter().for_each(|bytes| collector.observe_memory(Bytes(bytes)));
        }
        if let Some(limit) = memory_limit(job)
            && let Some(bytes) = worker.memory_above(limit)
        {
            return StopReason::Failed(memory_exceeded(job, bytes, limit));
        }
    }
}

/// Reads an event of a worker, which is none of the conductor's own.
fn worker_event(line: &str) -> Result<Event, serde_json::Error> {
    match Event::from_line(line)? {
        Event::Observed { .. } => Err(serde::de::Error::custom("only the conductor emits it")),
        event => Ok(event),
    }
}

/// Sends the worker the line for which it waits when the barrier of a step opens.
fn release_at(barrier: &Arc<dyn Barrier>, step: Step, input: WorkerInput) {
    let barrier = Arc::clone(barrier);
    thread::spawn(move || {
        barrier.wait(step);
        input.write("go\n");
    });
}

/// Returns `WORKER_MEMORY` in bytes; `None` when it is not set.
fn memory_limit(job: &Job) -> Option<u64> {
    Some(job.limits.worker_memory_bytes.0).filter(|bytes| *bytes > 0)
}

fn conclude_phase(
    job: &Job,
    collector: PhaseCollector,
    options: &RunOptions,
    ending: Option<Ending>,
    stop: StopReason,
    stderr: Vec<String>,
) -> PhaseOutcome {
    let reported = collector.failure().cloned();
    let (step, finished) = (collector.step(), collector.is_finished());
    let missing = collector.missing(job.settings.repeat);
    let refused = stderr.iter().rfind(|line| refused_memory(line)).cloned();
    let failed = |failure: Failure| {
        let Failure { step: failed_step, reason, hint } = failure;
        PhaseEnd::Failed(FailureRecord { phase: Some(job.phase()), step: failed_step.or(step), reason, hint, stderr })
    };
    let end = match (stop, reported) {
        (StopReason::Interrupted, _) => PhaseEnd::Interrupted,
        (StopReason::Failed(failure), Some(reported)) if reported.reason.contains(LOST_PROCESS) => failed(failure),
        (_, Some(failure)) | (StopReason::Failed(failure), None) => failed(failure),
        (StopReason::Ended(Ending::Exited(0)), None) if finished => match missing {
            None => PhaseEnd::Finished,
            Some(missing) => failed(incomplete_report(&missing)),
        },
        (StopReason::Ended(ending), None) => failed(unexpected_end(job, ending, finished, refused.as_deref())),
    };
    let ending = ending.map(|ending| ending.to_string());
    let (record, warnings) = collector.finish(options.clock.now(), ending);
    PhaseOutcome { record, warnings, end, code: BTreeSet::new() }
}

/// Returns whether a program reports in this line of standard error that the system refused it memory.
fn refused_memory(line: &str) -> bool {
    (line.starts_with("memory allocation of ") && line.ends_with(" bytes failed")) || line.contains("std::bad_alloc")
}

/// Returns the settings on which the memory of a worker depends.
fn memory_sizes(job: &Job) -> &'static str {
    match job.phase() {
        Phase::Train => "`batch_size`, `eval_batch_size` or `num_workers`",
        Phase::Validate | Phase::Infer => "`batch_size` or `num_workers`",
    }
}

/// Describes an unexpected end of the worker; `refused` is the line that reports refused memory.
fn unexpected_end(job: &Job, ending: Ending, finished: bool, refused: Option<&str>) -> Failure {
    let when = if finished { "after it had finished" } else { "before it had finished" };
    let refused = refused.filter(|_| matches!(ending, Ending::Killed(_)));
    let sizes = memory_sizes(job);
    let hint = match (refused, &job.engine.library, ending) {
        (Some(line), ..) => {
            let line = truncate(line, QUOTED_BYTES);
            format!("the worker ran out of memory (`{line}`); a smaller model, {sizes} needs less memory")
        }
        (None, _, Ending::OutOfMemory) => {
            format!("`WORKER_MEMORY` in host.yaml sets the limit; a smaller {sizes} needs less")
        }
        (None, _, Ending::ContainerKilled(_) | Ending::ContainerRemoved | Ending::EngineLost) => {
            "run the case again; the log of the container engine may show the cause".to_owned()
        }
        (None, Some(library), _) => {
            format!("the worker ran the plug-in `{}`; its last lines are in stdout_err.out.log", library.display())
        }
        (None, None, Ending::Killed(_)) => {
            format!("`dmesg` may show the cause; a smaller {sizes} needs less memory")
        }
        (None, None, Ending::Exited(_) | Ending::Stuck) => {
            "the worker's last lines are in stdout_err.out.log".to_owned()
        }
    };
    Failure { step: None, reason: format!("the worker ended {when}: {ending}"), hint }
}

/// What to do about a worker whose reports are not those of the host's own loop.
const REPORT_HINT: &str = "only flagperf may write to a worker's standard output: does the engine write to it?";

fn contradictory_report(contradiction: &str) -> Failure {
    let reason = format!("the worker's reports contradict each other: {contradiction}");
    Failure { step: None, reason, hint: REPORT_HINT.to_owned() }
}

fn incomplete_report(missing: &str) -> Failure {
    let reason = format!("the worker reported success, but its reports are incomplete: {missing}");
    Failure { step: None, reason, hint: REPORT_HINT.to_owned() }
}

fn time_exceeded(job: &Job) -> Failure {
    let reason = format!("the phase took longer than {} s and was killed", job.limits.phase_time_s.0);
    Failure { step: None, reason, hint: "`PHASE_TIMEOUT` in host.yaml sets the limit in seconds".to_owned() }
}

/// Waits until it is known which process of the group failed first, if this one has only lost another one. Returns the failure that
/// names it.
fn first_failure(job: &Job, collector: &PhaseCollector, interrupt: &Interrupt) -> Option<Failure> {
    let has_lost_another = collector.failure().is_some_and(|failure| failure.reason.contains(LOST_PROCESS));
    if job.process_group.is_none() || !has_lost_another {
        return None;
    }
    for _ in 0..FIRST_FAILURE_POLLS {
        if let Some(reason) = interrupt.reason() {
            return Some(ended(reason));
        }
        if interrupt.is_set() {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
    None
}

fn ended(reason: String) -> Failure {
    Failure { step: None, reason, hint: "the record of that process has its hint".to_owned() }
}

fn stopped_worker() -> Failure {
    let reason = format!("a signal (SIGSTOP) stopped the worker for more than {} s", STOPPED_MAX.0);
    Failure { step: None, reason, hint: "who stopped it? The processes that train with it cannot go on".to_owned() }
}

fn memory_exceeded(job: &Job, bytes: u64, limit: u64) -> Failure {
    let reason = format!("the worker and the processes it started used {bytes} bytes of memory (limit: {limit})");
    let hint = format!("`WORKER_MEMORY` in host.yaml sets the limit; a smaller {} needs less", memory_sizes(job));
    Failure { step: None, reason, hint }
}

fn invalid_event(line: &str, error: &serde_json::Error) -> Failure {
    let shown = one_line(truncate(line, QUOTED_BYTES).as_ref()).into_owned();
    let reason = if line.len() >= LINE_BYTES_MAX {
        format!("the worker wrote an event of more than {LINE_BYTES_MAX} bytes: `{shown}`")
    } else {
        format!("the worker wrote a line that is not an event: `{shown}` ({error})")
    };
    let hint = "only events may be written to a worker's standard output: does a library write to it?".to_owned();
    Failure { step: None, reason, hint }
}

/// Appends a line that is not an event to the log. Errors are ignored because the line already causes a failure.
fn append_line(output: &Path, line: &str) {
    if let Ok(mut file) = file::append(output) {
        let _ = writeln!(file, "{}", one_line(&truncate(line, INVALID_BYTES_LOGGED)));
    }
}

#[cfg(test)]
mod tests;
