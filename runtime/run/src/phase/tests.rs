//! Tests of the run of one phase.

use std::sync::Arc;

use indexmap::IndexMap;

use super::*;
use crate::testing;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::run_files::WORKER_LOG;
use flagperf_core::step::Step;

fn worker(script: &str, limit_s: f64) -> (PhaseOutcome, String) {
    limited(script, limit_s, 0)
}

fn limited(script: &str, limit_s: f64, memory_bytes: u64) -> (PhaseOutcome, String) {
    let mut job = testing::job();
    job.limits.phase_time_s = Seconds(limit_s);
    job.limits.worker_memory_bytes = flagperf_core::units::Bytes(memory_bytes);
    run(script, job, &Interrupt::default(), &mut |_| Ok(()))
}

fn run(script: &str, job: Job, interrupt: &Interrupt, on_update: &mut EventHandler<'_>) -> (PhaseOutcome, String) {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        audit: flagperf_plan::AuditScope::default(),
        has_live_display: false,
        folder: None,
        program: None,
        resumed: None,
        barrier: None,
        host_use: crate::HostUse::default(),
        checkpoint_store: None,
        worker: vec!["/bin/sh".into(), "-c".into(), script.into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let output = folder.path().join(WORKER_LOG);
    let outcome = run_phase(&job, &WorkerLauncher::Direct(IndexMap::new()), &output, &options, interrupt, on_update);
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
    let expected = "the worker's reports contradict each other: figures of inference were reported outside this step";
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
    assert!(failure(&outcome).reason.starts_with("the worker wrote a line that is not an event: `Loading model...`"));
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
    let script =
        r#"printf '{"event":"log","level":"info","source":"x","message":"'; head -c 20000000 /dev/zero | tr '\0' x"#;
    let (outcome, log) = worker(script, 60.0);
    assert!(failure(&outcome).reason.starts_with("the worker wrote an event of more than 16777216 bytes: `{"));
    assert!(log.len() < 70_000, "{}", log.len());
}

#[test]
fn a_worker_has_the_environment_variables_of_its_job_and_inherits_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        audit: flagperf_plan::AuditScope::default(),
        has_live_display: false,
        folder: None,
        program: None,
        resumed: None,
        barrier: None,
        host_use: crate::HostUse::default(),
        checkpoint_store: None,
        worker: vec!["/bin/sh".into(), "-c".into(), "echo sees $FLAGPERF_TEST_DEVICES $HOME >&2".into()],
        clock: Arc::new(MonotonicClock::start()),
    };
    let mut job = testing::job();
    job.environment.insert("FLAGPERF_TEST_DEVICES".to_owned(), "0".to_owned());
    let output = folder.path().join(WORKER_LOG);
    run_phase(
        &job,
        &WorkerLauncher::Direct(IndexMap::new()),
        &output,
        &options,
        &Interrupt::default(),
        &mut |_| Ok(()),
    );
    assert_eq!(std::fs::read_to_string(output).unwrap(), "sees 0\n");
}

#[test]
fn variables_that_load_other_code_are_named() {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut job = testing::job();
    job.environment.extend([variable("LD_PRELOAD", "/of/the/job.so"), variable("PYTHONPATH", "")]);
    let of_case = IndexMap::from([variable("LD_PRELOAD", "/x.so"), variable("BASH_ENV", "/y.sh"), variable("A", "b")]);
    let found = WorkerLauncher::Direct(of_case).code_variables(&job);
    assert_eq!(found, ["BASH_ENV=/y.sh", "LD_PRELOAD=/of/the/job.so"]);
}

#[test]
fn a_worker_that_exits_without_events_fails() {
    let (outcome, _) = worker("exit 0", 60.0);
    assert_eq!(failure(&outcome).reason, "the worker ended before it had finished: exited with status 0");
}
