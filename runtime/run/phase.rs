//! One worker: started, fed its job, listened to, ended.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::{Interrupt, Options};
use crate::event::{Event, Failure, LINE_BYTES_MAX};
use crate::file;
use crate::host::{Ending, LeftBehind, Next, Process, Program};
use crate::measure::Nanos;
use crate::plan::Job;
use crate::result::{Arrival, FailureRecord, PhaseCollector, PhaseRecord};
use crate::text::{cut, one_line};
use crate::units::Seconds;

/// How long the conductor listens before it looks at the time and at interrupts.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often the memory of the worker and of what it started is looked at, where it has a limit.
const MEMORY_EVERY: Seconds = Seconds(0.25);
/// Bytes of a line that is no event which are shown, and which are kept.
const SHOWN: usize = 200;
const KEPT: usize = 64 << 10;

/// What came of a phase.
pub(super) struct PhaseOutcome {
    pub(super) record: PhaseRecord,
    pub(super) warnings: Vec<String>,
    pub(super) end: PhaseEnd,
}

/// How a phase ended.
pub(super) enum PhaseEnd {
    Finished,
    Failed(FailureRecord),
    Interrupted,
}

/// Runs a phase to its end. `output` is the file for what the worker writes and is no event.
pub(super) fn run_phase(
    job: &Job,
    output: &Path,
    options: &Options,
    interrupt: &Interrupt,
    hear: &mut dyn FnMut(Arrival<'_>),
) -> PhaseOutcome {
    let began = options.clock.now();
    let mut collector = PhaseCollector::new(job.phase, began);
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
            return outcome(job, collector, options, None, Stop::Failed(failure), Vec::new());
        }
    };
    let stop = listen(&mut process, job, began, output, options, interrupt, &mut collector, hear);
    let ending = match stop {
        Stop::Ended(ending) => ending,
        _ => process.kill(),
    };
    let stderr = process.last_stderr_lines();
    // A worker that was killed has not tidied up; mostly there is nothing.
    let _ = std::fs::remove_dir_all(job.scratch());
    let mut outcome = outcome(job, collector, options, Some(ending), stop, stderr);
    outcome.warnings.extend(process.left_behind().iter().map(left_behind));
    outcome
}

/// Why the conductor stopped listening.
enum Stop {
    Ended(Ending),
    Failed(Failure),
    Interrupted,
}

#[expect(clippy::too_many_arguments, reason = "the state of one phase, used nowhere else")]
fn listen(
    process: &mut Process,
    job: &Job,
    began: Nanos,
    output: &Path,
    options: &Options,
    interrupt: &Interrupt,
    collector: &mut PhaseCollector,
    hear: &mut dyn FnMut(Arrival<'_>),
) -> Stop {
    let mut looked = began;
    loop {
        match process.next(PATIENCE) {
            Next::Line(at, line) => match Event::from_line(&line) {
                Ok(event) => {
                    let arrival = Arrival { at, event: &event };
                    collector.take(arrival);
                    hear(arrival);
                }
                Err(error) => {
                    keep(output, &line);
                    return Stop::Failed(no_event(&line, &error));
                }
            },
            Next::Silence => {}
            Next::Ended(ending) => return Stop::Ended(ending),
        }
        if interrupt.is_set() {
            return Stop::Interrupted;
        }
        let now = options.clock.now();
        if now.since(began).0 > job.limits.phase_time_s.0 {
            return Stop::Failed(too_long(job));
        }
        if let Some(limit) = memory_limit(job).filter(|_| now.since(looked).0 >= MEMORY_EVERY.0) {
            looked = now;
            if let Some(bytes) = process.memory_beyond(limit) {
                return Stop::Failed(too_large(bytes, limit));
            }
        }
    }
}

/// WORKER_MEMORY in bytes, where it is set.
fn memory_limit(job: &Job) -> Option<u64> {
    Some(job.limits.worker_memory_bytes.0).filter(|bytes| *bytes > 0)
}

fn outcome(
    job: &Job,
    collector: PhaseCollector,
    options: &Options,
    ending: Option<Ending>,
    stop: Stop,
    stderr: Vec<String>,
) -> PhaseOutcome {
    let told = collector.failure().cloned();
    let (step, finished) = (collector.step(), collector.is_finished());
    let refused = stderr.iter().rfind(|line| refused_memory(line)).cloned();
    let failed = |failure: Failure| {
        let Failure { step: told_step, reason, hint } = failure;
        PhaseEnd::Failed(FailureRecord { phase: Some(job.phase), step: told_step.or(step), reason, hint, stderr })
    };
    let end = match (stop, told) {
        (Stop::Interrupted, _) => PhaseEnd::Interrupted,
        (_, Some(failure)) | (Stop::Failed(failure), None) => failed(failure),
        (Stop::Ended(Ending::Exited(0)), None) if finished => PhaseEnd::Finished,
        (Stop::Ended(ending), None) => failed(ended(job, ending, finished, refused.as_deref())),
    };
    let ending = ending.map(|ending| ending.to_string());
    let (record, warnings) = collector.finish(options.clock.now(), ending);
    PhaseOutcome { record, warnings, end }
}

/// What a program says on standard error whose memory the system has refused, before it gives up.
fn refused_memory(line: &str) -> bool {
    (line.starts_with("memory allocation of ") && line.ends_with(" bytes failed")) || line.contains("std::bad_alloc")
}

fn ended(job: &Job, ending: Ending, finished: bool, refused: Option<&str>) -> Failure {
    let when = if finished { "after it had finished" } else { "before it had finished" };
    let refused = refused.filter(|_| matches!(ending, Ending::Killed(_)));
    let hint = match (refused, &job.engine.library, ending) {
        (Some(line), ..) => {
            let line = cut(line, SHOWN);
            format!("it ran out of memory (`{line}`): the model, `batch_size` or `num_workers` needs too much")
        }
        (None, Some(library), _) => {
            format!("the plug-in `{}` ran in it; its last lines are in stdout_err.out.log", library.display())
        }
        (None, None, Ending::Killed(_)) => {
            "`dmesg` may say more; a smaller `batch_size` or `num_workers` needs less memory".to_owned()
        }
        (None, None, Ending::Exited(_) | Ending::Stuck) => "its last lines are in stdout_err.out.log".to_owned(),
    };
    Failure { step: None, reason: format!("the worker ended {when}: {ending}"), hint }
}

fn too_long(job: &Job) -> Failure {
    let reason = format!("the phase took longer than {} s and was killed", job.limits.phase_time_s.0);
    Failure { step: None, reason, hint: "PHASE_TIMEOUT in host.yaml is the limit, in seconds".to_owned() }
}

fn too_large(bytes: u64, limit: u64) -> Failure {
    let reason = format!("the worker and the processes it started held {bytes} bytes of memory, the limit is {limit}");
    let hint = "WORKER_MEMORY in host.yaml is the limit; a smaller `batch_size` or `num_workers` needs less".to_owned();
    Failure { step: None, reason, hint }
}

fn left_behind(left: &LeftBehind) -> String {
    let what = if left.ended { "it was killed" } else { "it was killed and is still there" };
    format!("the worker left a process behind, in a group of its own: {} (`{}`); {what}", left.pid, left.command)
}

fn no_event(line: &str, error: &serde_json::Error) -> Failure {
    let shown = one_line(cut(line, SHOWN).as_ref()).into_owned();
    let reason = if line.len() >= LINE_BYTES_MAX {
        format!("the worker wrote an event of more than {LINE_BYTES_MAX} bytes: `{shown}`")
    } else {
        format!("the worker wrote what is no event: `{shown}` ({error})")
    };
    let hint = "only events may be on a worker's standard output: does a library write there?".to_owned();
    Failure { step: None, reason, hint }
}

/// Keeps a line that is no event; that it cannot be kept adds nothing to the failure it causes.
fn keep(output: &Path, line: &str) {
    if let Ok(mut file) = file::append(output) {
        let _ = writeln!(file, "{}", one_line(&cut(line, KEPT)));
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
        run(script, job, &Interrupt::default(), &mut |_| {})
    }

    fn run(script: &str, job: Job, interrupt: &Interrupt, hear: &mut dyn FnMut(Arrival<'_>)) -> (PhaseOutcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            watched: false,
            worker: vec!["/bin/sh".into(), "-c".into(), script.into()],
            clock: Arc::new(MonotonicClock::start()),
        };
        let output = folder.path().join("stdout_err.out.log");
        let outcome = run_phase(&job, &output, &options, interrupt, hear);
        (outcome, std::fs::read_to_string(output).unwrap())
    }

    fn reason(outcome: &PhaseOutcome) -> &FailureRecord {
        let PhaseEnd::Failed(failure) = &outcome.end else { panic!("it did not fail") };
        failure
    }

    const BEGIN: &str = r#"echo '{"event":"step_begin","step":"inference","detail":"x"}'"#;
    const FINISHED: &str = r#"echo '{"event":"finished","memory_bytes_max":5}'"#;

    #[test]
    fn a_worker_that_finishes_and_exits_with_zero_is_well() {
        let (outcome, _) = worker(&format!("read job; {BEGIN}; {FINISHED}"), 60.0);
        assert!(matches!(outcome.end, PhaseEnd::Finished));
        assert_eq!(outcome.record.memory_bytes_max.unwrap().0, 5);
    }

    #[test]
    fn a_killed_worker_keeps_its_step_its_signal_and_its_last_words() {
        let (outcome, log) = worker(&format!("{BEGIN}; echo last words >&2; kill -9 $$"), 60.0);
        let failure = reason(&outcome);
        assert_eq!(
            failure.reason,
            "the worker ended before it had finished: killed by signal 9 (SIGKILL): perhaps out of memory"
        );
        assert_eq!((failure.step, &failure.stderr[..]), (Some(Step::Inference), &["last words".to_owned()][..]));
        assert_eq!(log, "last words\n");
        assert_eq!(outcome.record.steps.len(), 1, "what was heard before is kept");
    }

    #[test]
    fn a_worker_whose_memory_is_refused_is_out_of_memory() {
        let (outcome, _) = worker("echo memory allocation of 17179869184 bytes failed >&2; kill -ABRT $$", 60.0);
        let failure = reason(&outcome);
        assert!(failure.reason.ends_with("killed by signal 6 (SIGABRT): native code gave up"), "{failure:?}");
        let expected = "it ran out of memory (`memory allocation of 17179869184 bytes failed`): the model, `batch_size` \
                        or `num_workers` needs too much";
        assert_eq!(failure.hint, expected);
    }

    #[test]
    fn a_worker_that_writes_garbage_fails_with_the_line() {
        let (outcome, log) = worker("echo Loading model...; sleep 600", 60.0);
        assert!(reason(&outcome).reason.starts_with("the worker wrote what is no event: `Loading model...`"));
        assert_eq!(log, "Loading model...\n");
    }

    #[test]
    fn a_worker_that_hangs_is_killed_at_the_limit() {
        let (outcome, _) = worker(&format!("{BEGIN}; exec sleep 600"), 0.3);
        assert_eq!(reason(&outcome).reason, "the phase took longer than 0.3 s and was killed");
        assert_eq!(outcome.record.ending.as_deref(), Some("killed by signal 15 (SIGTERM)"));
    }

    #[test]
    fn what_the_worker_says_of_its_failure_stands_before_its_status() {
        let script = r#"echo '{"event":"failed","step":"build","reason":"no data","hint":"draw some"}'; exit 1"#;
        let (outcome, _) = worker(script, 60.0);
        let failure = reason(&outcome);
        assert_eq!((failure.step, failure.reason.as_str()), (Some(Step::Build), "no data"));
        assert_eq!(failure.hint, "draw some");
    }

    /// Starts a process in a session of its own that keeps standard error open, and tells its number there.
    const LEAVE: &str = "setsid sleep 600 & p=$!; until [ \"$(cat /proc/$p/comm)\" = sleep ]; do :; done; echo $p >&2";

    #[test]
    fn a_process_that_keeps_standard_error_open_holds_up_nothing_and_is_named() {
        let (outcome, log) = worker(&format!("read job; {LEAVE}; {BEGIN}; {FINISHED}"), 60.0);
        assert!(matches!(outcome.end, PhaseEnd::Finished));
        let pid = log.trim();
        let expected =
            format!("the worker left a process behind, in a group of its own: {pid} (`sleep 600`); it was killed");
        assert_eq!(outcome.warnings, [expected]);
    }

    #[test]
    fn an_interrupt_ends_the_sessions_that_a_worker_began() {
        let interrupt = Interrupt::default();
        let script = format!("{LEAVE}; {BEGIN}; exec sleep 600");
        let (outcome, log) = run(&script, testing::job(), &interrupt, &mut |_| interrupt.set());
        assert!(matches!(outcome.end, PhaseEnd::Interrupted));
        assert!(outcome.warnings[0].contains(&format!(" {} (`sleep 600`); it was killed", log.trim())));
    }

    #[test]
    fn memory_of_what_the_worker_started_counts_towards_its_limit() {
        let script = format!("{BEGIN}; cat /dev/zero | tail -c 300000000 & wait");
        let (outcome, _) = limited(&script, 60.0, 64 << 20);
        let failure = reason(&outcome);
        assert!(failure.reason.starts_with("the worker and the processes it started held "), "{failure:?}");
        assert!(failure.reason.ends_with(" bytes of memory, the limit is 67108864"), "{failure:?}");
        assert!(failure.hint.starts_with("WORKER_MEMORY in host.yaml is the limit"), "{failure:?}");
    }

    #[test]
    fn an_event_that_is_too_long_is_named_by_its_length() {
        let script = r#"printf '{"event":"log","level":"info","source":"x","message":"'; head -c 20000000 /dev/zero | tr '\0' x"#;
        let (outcome, log) = worker(script, 60.0);
        assert!(reason(&outcome).reason.starts_with("the worker wrote an event of more than 16777216 bytes: `{"));
        assert!(log.len() < 70_000, "{}", log.len());
    }

    #[test]
    fn a_worker_has_the_variables_of_its_job() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            watched: false,
            worker: vec!["/bin/sh".into(), "-c".into(), "echo sees $FLAGPERF_TEST_DEVICES >&2".into()],
            clock: Arc::new(MonotonicClock::start()),
        };
        let mut job = testing::job();
        job.environment.insert("FLAGPERF_TEST_DEVICES".to_owned(), "0".to_owned());
        let output = folder.path().join("stdout_err.out.log");
        run_phase(&job, &output, &options, &Interrupt::default(), &mut |_| {});
        assert_eq!(std::fs::read_to_string(output).unwrap(), "sees 0\n");
    }

    #[test]
    fn a_worker_that_exits_in_silence_fails() {
        let (outcome, _) = worker("exit 0", 60.0);
        assert_eq!(reason(&outcome).reason, "the worker ended before it had finished: exited with status 0");
    }
}
