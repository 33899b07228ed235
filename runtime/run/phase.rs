//! Runs one phase: starts a worker, sends it the job, reads its events and ends it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{debug, debug_span};

use super::heard::{EventHandler, Heard};
use super::observer::{Observations, PhaseObserver};
use super::{Interrupt, RunOptions};
use crate::event::{Event, Failure, LINE_BYTES_MAX};
use crate::file;
use crate::host::{Ending, LeftoverProcess, Process, ProcessEvent, Program};
use crate::measure::Nanos;
use crate::plan::Job;
use crate::result::{FailureRecord, PhaseCollector, PhaseRecord, ReceivedEvent};
use crate::text::{one_line, truncate};
use crate::units::Seconds;

/// Longest wait for a line before the conductor checks the time limit and interrupts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two checks of the memory of the worker and of the processes that it started, when it has a limit.
const MEMORY_INTERVAL: Seconds = Seconds(0.25);
/// Bytes of a line of the worker that are quoted in a failure.
const QUOTED_BYTES: usize = 200;
/// Bytes of a line that is not an event that are written to the log.
const INVALID_BYTES_LOGGED: usize = 64 << 10;

/// The outcome of a phase.
pub(super) struct PhaseOutcome {
    pub(super) record: PhaseRecord,
    pub(super) warnings: Vec<String>,
    pub(super) end: PhaseEnd,
    /// Files from which the worker and its processes executed code.
    pub(super) libraries: BTreeSet<PathBuf>,
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
    output: &Path,
    options: &RunOptions,
    interrupt: &Interrupt,
    on_heard: &mut EventHandler<'_>,
) -> PhaseOutcome {
    let _span = debug_span!("phase", phase = job.phase().name()).entered();
    debug!(engine = %job.engine.name, "starting a worker");
    let started = options.clock.now();
    let mut collector = PhaseCollector::new(job.phase(), started);
    let job_line = serde_json::to_string(job).expect("a job is plain data") + "\n";
    let program = Program {
        argv: options.worker.clone(),
        input: job_line,
        stderr: output.to_owned(),
        environment: job.environment.clone(),
    };
    let mut process = match Process::start(&program, options.clock.clone()) {
        Ok(process) => process,
        Err(error) => {
            let failure = Failure { step: None, reason: error.to_string(), hint: String::new() };
            return conclude_phase(job, collector, options, None, StopReason::Failed(failure), Vec::new());
        }
    };
    let mut observer = PhaseObserver::new(process.id().cast_unsigned(), job.monitor.as_deref());
    let mut on_heard = |heard: Heard<'_>| {
        if let Heard::Event(received, _) = heard {
            observer.observe(received.event);
        }
        on_heard(heard)
    };
    let stop = read_events(&mut process, job, started, output, options, interrupt, &mut collector, &mut on_heard);
    let ending = match stop {
        StopReason::Ended(ending) => ending,
        _ => process.kill(),
    };
    debug!(%ending, "the worker ended");
    let stderr = process.last_stderr_lines();
    // A worker that was killed has not removed its scratch folder; usually the folder does not exist.
    let _ = std::fs::remove_dir_all(job.scratch());
    let Observations { conditions, libraries } = observer.finish();
    let mut outcome = conclude_phase(job, collector, options, Some(ending), stop, stderr);
    (outcome.record.conditions, outcome.libraries) = (conditions, libraries);
    outcome.warnings.extend(process.leftovers().iter().map(left_behind_warning));
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
    process: &mut Process,
    job: &Job,
    started: Nanos,
    output: &Path,
    options: &RunOptions,
    interrupt: &Interrupt,
    collector: &mut PhaseCollector,
    on_heard: &mut EventHandler<'_>,
) -> StopReason {
    let mut memory_checked = started;
    loop {
        match process.next_event(POLL_INTERVAL) {
            ProcessEvent::Line(at, line) => match Event::from_line(&line) {
                Ok(event) => {
                    let received = ReceivedEvent { at, event: &event };
                    collector.add(received);
                    if let Some(contradiction) = collector.contradiction() {
                        return StopReason::Failed(contradictory_report(contradiction));
                    }
                    if let Err(failure) = on_heard(Heard::Event(received, collector)) {
                        return StopReason::Failed(failure);
                    }
                }
                Err(error) => {
                    append_line(output, &line);
                    return StopReason::Failed(invalid_event(&line, &error));
                }
            },
            // Silence is no failure.
            ProcessEvent::Silence => drop(on_heard(Heard::Nothing(options.clock.now()))),
            ProcessEvent::Ended(ending) => return StopReason::Ended(ending),
        }
        if interrupt.is_set() {
            return StopReason::Interrupted;
        }
        let now = options.clock.now();
        if now.since(started).0 > job.limits.phase_time_s.0 {
            return StopReason::Failed(time_exceeded(job));
        }
        if let Some(limit) = memory_limit(job).filter(|_| now.since(memory_checked).0 >= MEMORY_INTERVAL.0) {
            memory_checked = now;
            if let Some(bytes) = process.memory_above(limit) {
                return StopReason::Failed(memory_exceeded(bytes, limit));
            }
        }
    }
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
        (_, Some(failure)) | (StopReason::Failed(failure), None) => failed(failure),
        (StopReason::Ended(Ending::Exited(0)), None) if finished => match missing {
            None => PhaseEnd::Finished,
            Some(missing) => failed(incomplete_report(&missing)),
        },
        (StopReason::Ended(ending), None) => failed(unexpected_end(job, ending, finished, refused.as_deref())),
    };
    let ending = ending.map(|ending| ending.to_string());
    let (record, warnings) = collector.finish(options.clock.now(), ending);
    PhaseOutcome { record, warnings, end, libraries: BTreeSet::new() }
}

/// Returns whether a program reports in this line of standard error that the system refused it memory.
fn refused_memory(line: &str) -> bool {
    (line.starts_with("memory allocation of ") && line.ends_with(" bytes failed")) || line.contains("std::bad_alloc")
}

/// Describes an unexpected end of the worker; `refused` is the line that reports refused memory.
fn unexpected_end(job: &Job, ending: Ending, finished: bool, refused: Option<&str>) -> Failure {
    let when = if finished { "after it had finished" } else { "before it had finished" };
    let refused = refused.filter(|_| matches!(ending, Ending::Killed(_)));
    let hint = match (refused, &job.engine.library, ending) {
        (Some(line), ..) => {
            let line = truncate(line, QUOTED_BYTES);
            format!(
                "the worker ran out of memory (`{line}`); a smaller model, `batch_size` or `num_workers` needs less \
                 memory"
            )
        }
        (None, Some(library), _) => {
            format!("the worker ran the plug-in `{}`; its last lines are in stdout_err.out.log", library.display())
        }
        (None, None, Ending::Killed(_)) => {
            "`dmesg` may show the cause; a smaller `batch_size` or `num_workers` needs less memory".to_owned()
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

fn memory_exceeded(bytes: u64, limit: u64) -> Failure {
    let reason = format!("the worker and the processes it started used {bytes} bytes of memory (limit: {limit})");
    let hint =
        "`WORKER_MEMORY` in host.yaml sets the limit; a smaller `batch_size` or `num_workers` needs less".to_owned();
    Failure { step: None, reason, hint }
}

fn left_behind_warning(left: &LeftoverProcess) -> String {
    let what = if left.ended { "it was killed" } else { "it was killed but still exists" };
    format!("the worker left a process behind in another process group: {} (`{}`); {what}", left.pid, left.command)
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::measure::MonotonicClock;
    use crate::run::testing;
    use crate::step::Step;

    fn worker(script: &str, limit_s: f64) -> (PhaseOutcome, String) {
        limited(script, limit_s, 0)
    }

    fn limited(script: &str, limit_s: f64, memory_bytes: u64) -> (PhaseOutcome, String) {
        let mut job = testing::job();
        job.limits.phase_time_s = Seconds(limit_s);
        job.limits.worker_memory_bytes = crate::units::Bytes(memory_bytes);
        run(script, job, &Interrupt::default(), &mut |_| Ok(()))
    }

    fn run(script: &str, job: Job, interrupt: &Interrupt, on_heard: &mut EventHandler<'_>) -> (PhaseOutcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions {
            audit: crate::plan::AuditScope::default(),
            has_live_display: false,
            worker: vec!["/bin/sh".into(), "-c".into(), script.into()],
            clock: Arc::new(MonotonicClock::start()),
        };
        let output = folder.path().join("stdout_err.out.log");
        let outcome = run_phase(&job, &output, &options, interrupt, on_heard);
        (outcome, std::fs::read_to_string(output).unwrap())
    }

    fn failure(outcome: &PhaseOutcome) -> &FailureRecord {
        let PhaseEnd::Failed(failure) = &outcome.end else { panic!("the phase did not fail") };
        failure
    }

    const BEGIN: &str = r#"echo '{"event":"step_begin","step":"inference","detail":"x"}'"#;
    /// The events of one pass of one step, and the end of the step.
    const PASS: &str = r#"echo '{"event":"pass_begin","step":"inference","pass":0}'; \
        echo '{"event":"steps","step":"inference","pass":0,"samples":[1],"load_wait_s":[0],"core_s":[0],"output_s":[0],"evaluate_s":[0],"host_s":[0],"outputs":["00000000000000000000000000000000"]}'; \
        echo '{"event":"pass_end","step":"inference","pass":0,"batch_size":1,"failed_samples":0,"padded_samples":0,"warmup_steps":3,"warmup_s":0,"warmup_steady":true,"output_count":1,"output_bytes":4,"accuracy":{},"accuracy_unknown":null,"observations":1,"counted":{},"non_finite_outputs":0,"multiply_adds_per_sample":null,"state_memory_bytes_max":0,"spans":{},"vendor_time":null,"device_memory_bytes_max":null,"memory_bytes_max":1}'; \
        echo '{"event":"step_end","step":"inference","time_s":0}'"#;
    const FINISHED: &str = r#"echo '{"event":"finished","memory_bytes_max":5}'"#;

    #[test]
    fn a_worker_that_finishes_and_exits_with_zero_succeeds() {
        let (outcome, _) = worker(&format!("read job; {BEGIN}; {PASS}; {FINISHED}"), 60.0);
        assert!(matches!(outcome.end, PhaseEnd::Finished));
        assert_eq!(outcome.record.memory_bytes_max.unwrap().0, 5);
    }

    #[test]
    fn a_worker_that_reports_success_without_figures_fails() {
        let (outcome, _) = worker(&format!("read job; {FINISHED}"), 60.0);
        let expected = "the worker reported success, but its reports are incomplete: inference has 0 of 1 passes";
        assert_eq!(failure(&outcome).reason, expected);
        let (outcome, _) = worker(&format!("read job; {BEGIN}; {FINISHED}"), 60.0);
        let expected = "the worker reported success, but its reports are incomplete: step `inference` did not end";
        assert_eq!(failure(&outcome).reason, expected);
    }

    #[test]
    fn a_pass_that_is_reported_twice_ends_the_phase() {
        let (outcome, _) = worker(&format!("read job; {BEGIN}; {PASS}; {PASS}; sleep 600"), 60.0);
        let expected =
            "the worker's reports contradict each other: figures of inference were reported outside this step";
        assert_eq!(failure(&outcome).reason, expected);
        assert_eq!(outcome.record.measured.len(), 1, "the first report is kept");
    }

    #[test]
    fn the_failure_of_a_killed_worker_has_its_step_its_signal_and_its_last_lines() {
        let (outcome, log) = worker(&format!("{BEGIN}; echo last line >&2; kill -9 $$"), 60.0);
        let failure = failure(&outcome);
        assert_eq!(
            failure.reason,
            "the worker ended before it had finished: killed by signal 9 (SIGKILL): perhaps out of memory"
        );
        assert_eq!((failure.step, &failure.stderr[..]), (Some(Step::Inference), &["last line".to_owned()][..]));
        assert_eq!(log, "last line\n");
        assert_eq!(outcome.record.steps.len(), 1, "earlier events are kept");
    }

    #[test]
    fn the_failure_of_a_worker_whose_memory_was_refused_says_so() {
        let (outcome, _) = worker("echo memory allocation of 17179869184 bytes failed >&2; kill -ABRT $$", 60.0);
        let failure = failure(&outcome);
        assert!(failure.reason.ends_with("killed by signal 6 (SIGABRT): aborted by native code"), "{failure:?}");
        let expected = "the worker ran out of memory (`memory allocation of 17179869184 bytes failed`); a smaller \
                        model, `batch_size` or `num_workers` needs less memory";
        assert_eq!(failure.hint, expected);
    }

    #[test]
    fn the_failure_of_a_worker_that_writes_garbage_quotes_the_line() {
        let (outcome, log) = worker("echo Loading model...; sleep 600", 60.0);
        assert!(
            failure(&outcome).reason.starts_with("the worker wrote a line that is not an event: `Loading model...`")
        );
        assert_eq!(log, "Loading model...\n");
    }

    #[test]
    fn a_worker_that_hangs_is_killed_at_the_time_limit() {
        let (outcome, _) = worker(&format!("{BEGIN}; exec sleep 600"), 0.3);
        assert_eq!(failure(&outcome).reason, "the phase took longer than 0.3 s and was killed");
        assert_eq!(outcome.record.ending.as_deref(), Some("killed by signal 15 (SIGTERM)"));
    }

    #[test]
    fn a_failure_reported_by_the_worker_takes_precedence_over_its_exit_status() {
        let script = r#"echo '{"event":"failed","step":"build","reason":"no data","hint":"draw some"}'; exit 1"#;
        let (outcome, _) = worker(script, 60.0);
        let failure = failure(&outcome);
        assert_eq!((failure.step, failure.reason.as_str()), (Some(Step::Build), "no data"));
        assert_eq!(failure.hint, "draw some");
    }

    /// Starts a process in its own session that keeps standard error open, and writes its process id there.
    const LEAVE_PROCESS: &str =
        "setsid sleep 600 & p=$!; until [ \"$(cat /proc/$p/comm)\" = sleep ]; do :; done; echo $p >&2";

    #[test]
    fn a_process_that_keeps_standard_error_open_does_not_delay_the_phase_and_is_named() {
        let (outcome, log) = worker(&format!("read job; {LEAVE_PROCESS}; {BEGIN}; {PASS}; {FINISHED}"), 60.0);
        assert!(matches!(outcome.end, PhaseEnd::Finished));
        let pid = log.trim();
        let expected =
            format!("the worker left a process behind in another process group: {pid} (`sleep 600`); it was killed");
        assert_eq!(outcome.warnings, [expected]);
    }

    #[test]
    fn an_interrupt_ends_the_sessions_that_a_worker_started() {
        let interrupt = Interrupt::default();
        let script = format!("{LEAVE_PROCESS}; {BEGIN}; exec sleep 600");
        let (outcome, log) = run(&script, testing::job(), &interrupt, &mut |_| {
            interrupt.set();
            Ok(())
        });
        assert!(matches!(outcome.end, PhaseEnd::Interrupted));
        assert!(outcome.warnings[0].contains(&format!(" {} (`sleep 600`); it was killed", log.trim())));
    }

    #[test]
    fn memory_of_processes_that_the_worker_started_counts_towards_its_limit() {
        let script = format!("{BEGIN}; cat /dev/zero | tail -c 300000000 & wait");
        let (outcome, _) = limited(&script, 60.0, 64 << 20);
        let failure = failure(&outcome);
        assert!(failure.reason.starts_with("the worker and the processes it started used "), "{failure:?}");
        assert!(failure.reason.ends_with(" bytes of memory (limit: 67108864)"), "{failure:?}");
        assert!(failure.hint.starts_with("`WORKER_MEMORY` in host.yaml sets the limit"), "{failure:?}");
    }

    #[test]
    fn an_event_longer_than_the_limit_fails_the_phase() {
        let script = r#"printf '{"event":"log","level":"info","source":"x","message":"'; head -c 20000000 /dev/zero | tr '\0' x"#;
        let (outcome, log) = worker(script, 60.0);
        assert!(failure(&outcome).reason.starts_with("the worker wrote an event of more than 16777216 bytes: `{"));
        assert!(log.len() < 70_000, "{}", log.len());
    }

    #[test]
    fn a_worker_has_the_environment_variables_of_its_job() {
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions {
            audit: crate::plan::AuditScope::default(),
            has_live_display: false,
            worker: vec!["/bin/sh".into(), "-c".into(), "echo sees $FLAGPERF_TEST_DEVICES >&2".into()],
            clock: Arc::new(MonotonicClock::start()),
        };
        let mut job = testing::job();
        job.environment.insert("FLAGPERF_TEST_DEVICES".to_owned(), "0".to_owned());
        let output = folder.path().join("stdout_err.out.log");
        run_phase(&job, &output, &options, &Interrupt::default(), &mut |_| Ok(()));
        assert_eq!(std::fs::read_to_string(output).unwrap(), "sees 0\n");
    }

    #[test]
    fn a_worker_that_exits_without_events_fails() {
        let (outcome, _) = worker("exit 0", 60.0);
        assert_eq!(failure(&outcome).reason, "the worker ended before it had finished: exited with status 0");
    }
}
