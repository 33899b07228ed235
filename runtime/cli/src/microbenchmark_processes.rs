//! The processes of a measurement: one, or one for each of several devices, which then end together.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use flagperf_core::measure::{Clock as _, MonotonicClock, Nanos};
use flagperf_core::process_group::{LOST_PROCESS, ProcessGroup, first_failure};
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_host::{
    Ending, Process, ProcessEvent, Program, StoppedTime, THIS_PROGRAM, Worker as _, exit_when_input_ends,
};
use flagperf_microbenchmark::{
    LimitJob, MeasureError, OperatorJob, OperatorTimes, kernel_times, measure_limit, measure_operator,
};
use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::reply::input_is_a_pipe;
use super::work::claim_stdout;

/// The time limit of a measurement.
const TIME_MAX: Seconds = Seconds(1800.0);
/// How long no process of several may begin a call: longer than an engine waits for the others to join.
const SILENCE_MAX: Seconds = Seconds(240.0);
/// How long the end of the process that failed is waited for when another one has lost it.
const GRACE: Seconds = Seconds(5.0);
/// How long an event of a process is waited for, in milliseconds.
const POLL_MS: u64 = 5;
/// How often a process reports how many calls it has begun.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What the process of a measurement receives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a measurement has a few of them")]
pub(super) enum Job {
    Operator(OperatorJob),
    Limit(LimitJob),
}

impl Job {
    /// Returns the place of the process in a group; `None` without a group.
    pub(super) fn group(&self) -> Option<&ProcessGroup> {
        if let Job::Limit(job) = self { job.group.as_ref() } else { None }
    }
}

/// What it writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<T> {
    Measured(T),
    Failed(String),
}

/// A job, and the variables of the environment that its process has beside those of this one.
#[derive(Debug)]
pub(super) struct ProcessJob {
    pub(super) job: Job,
    pub(super) environment: IndexMap<String, String>,
}

/// Measures what the job on standard input says, and writes the outcome to a file.
pub(super) fn measure_job(results: &Path) -> anyhow::Result<ExitCode> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the job from standard input")?;
    let job: Job = serde_json::from_str(&line).context("standard input contains no job")?;
    if input_is_a_pipe()? {
        exit_when_input_ends(io::stdin());
    }
    let begun = Arc::new(AtomicU64::new(0));
    report_calls(Arc::clone(&begun), claim_stdout().context("cannot reserve standard output")?);
    let clock = MonotonicClock::start();
    fn outcome<T>(measured: Result<T, MeasureError>) -> Outcome<T> {
        measured.map_or_else(|error| Outcome::Failed(error.to_string()), Outcome::Measured)
    }
    let outcome = match &job {
        Job::Operator(job) => serde_json::to_vec(&outcome(measure_with_kernels(job, clock))),
        Job::Limit(job) => serde_json::to_vec(&outcome(measure_limit(job, &clock, &begun))),
    };
    std::fs::write(results, outcome?).with_context(|| format!("cannot write `{}`", results.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn measure_with_kernels(job: &OperatorJob, clock: MonotonicClock) -> Result<OperatorTimes, MeasureError> {
    let mut times = measure_operator(job, &clock)?;
    let call_s = times.calls_s.iter().fold(times.first_call_s, |least, time| Seconds(least.0.min(time.0)));
    match kernel_times(job, call_s, Arc::new(clock)) {
        // An engine that rounds all times to zero does not tell them.
        Ok(kernels_s) if kernels_s.iter().all(|time| time.0 == 0.0) => {}
        Ok(kernels_s) => times.kernels_s = kernels_s,
        Err(error) => times.warnings.push(format!("its kernels could not be timed: {error}")),
    }
    Ok(times)
}

/// Writes a line with the number of calls whenever it has changed.
fn report_calls(begun: Arc<AtomicU64>, mut output: File) {
    thread::spawn(move || {
        let mut reported = 0;
        loop {
            thread::sleep(REPORT_INTERVAL);
            let now = begun.load(Ordering::Relaxed);
            if now != reported && writeln!(output, "{now}").is_err() {
                break;
            }
            reported = now;
        }
    });
}

/// Runs jobs at the same time, each in a process of its own, because an engine may crash or never end. If one fails, all end, and the
/// reason names it. Returns what they measured, in the order of the jobs.
///
/// # Errors
/// When a process cannot be started.
pub(super) fn measure<T: DeserializeOwned>(
    jobs: &[ProcessJob],
    scratch: &Path,
    clock: MonotonicClock,
    is_stopped: impl Fn() -> bool,
) -> anyhow::Result<Result<Vec<T>, String>> {
    let start = |(place, job): (usize, &ProcessJob)| Measuring::start(place, job, scratch, clock);
    let is_group = jobs.iter().any(|job| job.job.group().is_some());
    // Those that still run are killed when the list is dropped.
    let mut all = jobs.iter().enumerate().map(start).collect::<anyhow::Result<Vec<Measuring<T>>>>()?;
    let began = clock.now();
    let (mut last_heard, mut lost_since) = (began, None);
    loop {
        for one in &mut all {
            if one.read(clock.now()) {
                last_heard = clock.now();
            }
        }
        if all.iter().all(|one| matches!(one.end, Some(Ok(_)))) {
            return Ok(Ok(all.iter_mut().filter_map(|one| one.end.take()?.ok()).collect()));
        }
        let now = clock.now();
        let ends: Vec<Option<&str>> = all.iter().map(Measuring::failure).collect();
        let failure = match first_failure(&ends) {
            Some((place, reason)) if reason.contains(LOST_PROCESS) => {
                let since = *lost_since.get_or_insert(now);
                let is_over = now.since(since).0 > GRACE.0 || all.iter().all(|one| one.end.is_some());
                is_over.then_some((Some(place), reason.to_owned()))
            }
            Some((place, reason)) => Some((Some(place), reason.to_owned())),
            None if is_stopped() => Some((None, "it was stopped".to_owned())),
            None if now.since(began).0 > TIME_MAX.0 => {
                Some((None, format!("it took longer than {} s and was killed", TIME_MAX.0)))
            }
            None if is_group && now.since(last_heard).0 > SILENCE_MAX.0 => {
                let begun: Vec<u64> = all.iter().map(|one| one.begun).collect();
                let (place, reason) = silence(&begun);
                Some((place, format!("{reason}; the processes were killed")))
            }
            None => None,
        };
        if let Some((place, reason)) = failure {
            let who = place.and_then(|place| jobs[place].name()).unwrap_or_default();
            return Ok(Err(one_line(&format!("{who}{reason}")).into_owned()));
        }
    }
}

impl ProcessJob {
    /// Returns the beginning of a reason: `rank 1 (CUDA_VISIBLE_DEVICES=1): `; `None` without a group.
    fn name(&self) -> Option<String> {
        let rank = self.job.group()?.rank;
        let variables: Vec<String> = self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let variables = if variables.is_empty() { String::new() } else { format!(" ({})", variables.join(" ")) };
        Some(format!("rank {rank}{variables}: "))
    }
}

/// Returns why no process of this host began a call, from how many each has begun: the others wait for the one that has begun fewer.
fn silence(begun: &[u64]) -> (Option<usize>, String) {
    let (least, most) = (begun.iter().min().copied().unwrap_or(0), begun.iter().max().copied().unwrap_or(0));
    let silence = SILENCE_MAX.0;
    match begun.iter().position(|own| *own == least).filter(|_| least < most) {
        Some(rank) => {
            (Some(rank), format!("it began {least} calls, and the others waited {silence} s for it in call {most}"))
        }
        None => (None, format!("no process began a call for {silence} s: each is in its call {most}")),
    }
}

/// A process that measures.
struct Measuring<T> {
    process: Process,
    results: PathBuf,
    /// How many calls it has begun, as it last reported.
    begun: u64,
    stopped: StoppedTime,
    /// What it measured, or why it did not; `None` while it runs.
    end: Option<Result<T, String>>,
}

impl<T: DeserializeOwned> Measuring<T> {
    fn start(place: usize, job: &ProcessJob, scratch: &Path, clock: MonotonicClock) -> anyhow::Result<Self> {
        let results = scratch.join(format!("results{place}.json"));
        // That of an earlier measurement.
        let _ = std::fs::remove_file(&results);
        let program = Program {
            argv: vec![THIS_PROGRAM.into(), "microbenchmark".into(), results.clone().into()],
            input: serde_json::to_string(&job.job)? + "\n",
            stderr: scratch.join(format!("stderr{place}.txt")),
            inherits: true,
            environment: job.environment.clone(),
        };
        let process = Process::start(&program, Arc::new(clock))?;
        Ok(Measuring { process, results, begun: 0, stopped: StoppedTime::default(), end: None })
    }

    /// Reads what happened next, and returns whether the process has begun further calls or ended.
    fn read(&mut self, now: Nanos) -> bool {
        if self.end.is_some() {
            return false;
        }
        match self.process.next_event(Duration::from_millis(POLL_MS)) {
            ProcessEvent::Line(_, line) => {
                let begun = line.trim().parse().unwrap_or(self.begun);
                std::mem::replace(&mut self.begun, begun) != begun
            }
            ProcessEvent::Ended(ending) => {
                self.end = Some(self.outcome(ending));
                true
            }
            ProcessEvent::Silence => {
                self.end = self.stopped.reason(self.process.is_stopped(), now).map(Err);
                self.end.is_some()
            }
        }
    }

    fn outcome(&self, ending: Ending) -> Result<T, String> {
        let text = std::fs::read_to_string(&self.results).unwrap_or_default();
        match serde_json::from_str::<Outcome<T>>(&text) {
            Ok(Outcome::Measured(measured)) => Ok(measured),
            Ok(Outcome::Failed(reason)) => Err(reason),
            Err(_) => {
                let last = self.process.last_stderr_lines().pop().map(|line| format!(": `{line}`"));
                Err(format!("its process {}{}", ending.predicate(), last.unwrap_or_default()))
            }
        }
    }

    fn failure(&self) -> Option<&str> {
        self.end.as_ref()?.as_ref().err().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_for_which_the_others_wait_has_begun_fewer_calls() {
        let (rank, reason) = silence(&[12, 12, 11, 12]);
        assert_eq!(rank, Some(2));
        assert_eq!(reason, "it began 11 calls, and the others waited 240 s for it in call 12");
        assert_eq!(silence(&[7, 7]), (None, "no process began a call for 240 s: each is in its call 7".to_owned()));
    }
}
