//! One worker: started, fed its job, listened to, ended.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::{Interrupt, Options};
use crate::event::{Event, Failure};
use crate::host::{Ending, Next, Process, Program};
use crate::measure::Nanos;
use crate::plan::Job;
use crate::result::{Arrival, FailureRecord, PhaseCollector, PhaseRecord};

/// How long the conductor listens before it looks at the time and at interrupts.
const PATIENCE: Duration = Duration::from_millis(100);
/// Characters of a line that is no event which are shown.
const SHOWN: usize = 200;

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
    outcome(job, collector, options, Some(ending), stop, stderr)
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
    loop {
        match process.next(PATIENCE) {
            Next::Line(at, line) => match serde_json::from_str::<Event>(&line) {
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
        if options.clock.now().since(began).0 > job.limits.phase_time_s.0 {
            return Stop::Failed(too_long(job));
        }
    }
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
    let failed = |failure: Failure| {
        let Failure { step: told_step, reason, hint } = failure;
        PhaseEnd::Failed(FailureRecord { phase: Some(job.phase), step: told_step.or(step), reason, hint, stderr })
    };
    let end = match (stop, told) {
        (Stop::Interrupted, _) => PhaseEnd::Interrupted,
        (_, Some(failure)) | (Stop::Failed(failure), None) => failed(failure),
        (Stop::Ended(Ending::Exited(0)), None) if finished => PhaseEnd::Finished,
        (Stop::Ended(ending), None) => failed(ended(job, ending, finished)),
    };
    let ending = ending.map(|ending| ending.to_string());
    let (record, warnings) = collector.finish(options.clock.now(), ending);
    PhaseOutcome { record, warnings, end }
}

fn ended(job: &Job, ending: Ending, finished: bool) -> Failure {
    let when = if finished { "after it had finished" } else { "before it had finished" };
    let hint = match (&job.engine.library, ending) {
        (Some(library), _) => {
            format!("the plug-in `{}` ran in it; its last lines are in stdout_err.out.log", library.display())
        }
        (None, Ending::Killed(_)) => {
            "`dmesg` may say more; a smaller `batch_size` or `num_workers` needs less memory".to_owned()
        }
        (None, Ending::Exited(_)) => "its last lines are in stdout_err.out.log".to_owned(),
    };
    Failure { step: None, reason: format!("the worker ended {when}: {ending}"), hint }
}

fn too_long(job: &Job) -> Failure {
    let reason = format!("the phase took longer than {} s and was killed", job.limits.phase_time_s.0);
    Failure { step: None, reason, hint: "PHASE_TIMEOUT in host.yaml is the limit, in seconds".to_owned() }
}

fn no_event(line: &str, error: &serde_json::Error) -> Failure {
    let shown: String = line.chars().take(SHOWN).collect();
    let reason = format!("the worker wrote what is no event: `{shown}` ({error})");
    let hint = "only events may be on a worker's standard output: does a library write there?".to_owned();
    Failure { step: None, reason, hint }
}

/// Keeps a line that is no event; that it cannot be kept adds nothing to the failure it causes.
fn keep(output: &Path, line: &str) {
    if let Ok(mut file) = File::options().append(true).open(output) {
        let _ = writeln!(file, "{line}");
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
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            watched: false,
            worker: vec!["/bin/sh".into(), "-c".into(), script.into()],
            clock: Arc::new(MonotonicClock::start()),
        };
        let mut job = testing::job();
        job.limits.phase_time_s = crate::units::Seconds(limit_s);
        let output = folder.path().join("stdout_err.out.log");
        let outcome = run_phase(&job, &output, &options, &Interrupt::default(), &mut |_| {});
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
