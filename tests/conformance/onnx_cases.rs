//! ONNX's own backend tests on every engine: each output is right, or the engine says that it may not be.
//!
//! `tests/reference/make_onnx_cases.py` writes the cases. They run in processes of their own, so that a case that ends its
//! process is named, and the others still run.

mod case;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use assert_cmd::Command;
use libtest_mimic::Trial;

use crate::run_trial;
use crate::subjects::Candidate;
use crate::support::{self, once::once_per_run};
use case::Verdict;
pub use worker::run_worker;

/// The first argument of a process that runs cases.
pub const WORKER: &str = "run-onnx-cases";
/// The counts of each engine: a line for each subject of the suite that runs the cases.
const COUNTS: &str = include_str!("onnx_cases.csv");
/// How the name of a line ends that counts the cases on a processor without units for bf16, where an engine refuses this type.
const WITHOUT_BF16: &str = " without bf16";
/// How the name of a line ends that counts the cases on a processor with units for f16, if an engine refuses this type
/// elsewhere.
const WITH_F16: &str = " with f16";
/// Processes that share the cases.
const WORKERS: usize = 2;
/// The time limit of a process; the cases of an engine take less than a minute.
const TIME_LIMIT: Duration = Duration::from_secs(400);

/// The verdict on each case, with the reason, by the name of the case.
type Verdicts = BTreeMap<String, (Verdict, String)>;

/// Returns a trial for each engine that the counts name.
pub fn trials(candidates: &[Arc<Candidate>]) -> Vec<Trial> {
    let is_other_processor = |line: &&str| [WITHOUT_BF16, WITH_F16].iter().any(|ending| line.contains(ending));
    let lines = COUNTS.lines().skip(1).filter(|line| !is_other_processor(line));
    let trial = |line: &'static str| {
        let name = line.split(',').next().unwrap_or_default();
        let candidate = candidates.iter().find(|candidate| candidate.name == name);
        let candidate = candidate.unwrap_or_else(|| panic!("onnx_cases.csv: no engine `{name}`")).clone();
        let full_name = format!("{name}::onnx_backend_tests");
        Trial::test(full_name.clone(), move || {
            run_trial(false, || match candidate.subject().and_then(|_| support::find_python()) {
                Ok(python) => check(&candidate.name, &python),
                Err(missing) => support::leave_out_named(&full_name, &missing),
            });
            Ok(())
        })
    };
    lines.map(trial).collect()
}

/// Checks that an engine computes nothing wrong without a warning, and that the counts are those of the table.
fn check(subject: &str, python: &Path) {
    let folder = once_per_run("onnx-cases", |folder| {
        support::run_script(python, "make_onnx_cases.py", &[folder.to_str().expect("a path that is text")]);
    });
    let verdicts = run_cases(subject, &folder);
    let report = report(&verdicts);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("onnx-cases-{subject}.txt"));
    fs::write(&path, &report).unwrap();
    let count = |kind: Verdict| verdicts.values().filter(|(verdict, _)| *verdict == kind).count();
    let [right, refused, warned] = [Verdict::Right, Verdict::Refused, Verdict::Warned].map(count);
    let refuses_bf16 = verdicts.values().any(|(_, reason)| reason.contains("(supported: f32 on this CPU)"));
    let computes_f16 =
        verdicts.get("node.cast_FLOAT16_to_FLOAT").is_some_and(|(verdict, _)| *verdict == Verdict::Right);
    let line = |name: &str| COUNTS.lines().find(|line| line.split(',').next() == Some(name));
    let with_f16 = format!("{subject}{WITH_F16}");
    let name = match () {
        () if refuses_bf16 => format!("{subject}{WITHOUT_BF16}"),
        () if computes_f16 && line(&with_f16).is_some() => with_f16,
        () => subject.to_owned(),
    };
    let counted = format!("{name},{right},{refused},{warned}");
    let failures: Vec<&str> =
        report.lines().filter(|line| line.starts_with("wrong") || line.starts_with("ended")).collect();
    assert!(failures.is_empty(), "{subject}: {} wrong:\n{}\n({counted})", failures.len(), failures.join("\n"));
    assert_eq!(
        Some(counted.as_str()),
        line(&name),
        "the line of onnx_cases.csv; every verdict is in {}",
        path.display()
    );
}

/// Runs all cases, in several processes.
fn run_cases(subject: &str, folder: &Path) -> Verdicts {
    thread::scope(|scope| {
        let start = |number| scope.spawn(move || run_share(subject, folder, number));
        let running: Vec<_> = (0..WORKERS).map(start).collect();
        running.into_iter().flat_map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Runs one share of the cases. A process that a case ended is followed by another, which runs the rest.
fn run_share(subject: &str, folder: &Path, number: usize) -> Verdicts {
    let results = tempfile::NamedTempFile::new().unwrap();
    let mut verdicts = Verdicts::new();
    loop {
        let mut worker = Command::new(std::env::current_exe().unwrap());
        let share = [number.to_string(), WORKERS.to_string()];
        worker.args([WORKER, subject]).arg(folder).arg(results.path()).args(share).timeout(TIME_LIMIT);
        let ended = worker.output().unwrap();
        let begun = verdicts.len();
        let lines = fs::read_to_string(results.path()).unwrap();
        verdicts.extend(lines.lines().map(parse_line));
        if ended.status.success() {
            return verdicts;
        }
        let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(verdicts.len() > begun, "{subject}: the process of the cases cannot start: {printed}");
        let last = printed.lines().last().unwrap_or_default();
        for (verdict, reason) in verdicts.values_mut().filter(|(_, reason)| reason == worker::RUNNING) {
            *verdict = Verdict::Ended;
            *reason = format!("{}: {last}", ended.status);
        }
        let lines = verdicts.iter().map(|(case, (verdict, reason))| worker::line(case, *verdict, reason));
        fs::write(results.path(), lines.collect::<String>()).unwrap();
    }
}

/// Reads a line of a process that runs cases.
fn parse_line(line: &str) -> (String, (Verdict, String)) {
    let mut fields = line.splitn(3, '\t');
    let [case, verdict, reason] = [(); 3].map(|()| fields.next().expect("three fields"));
    (case.to_owned(), (Verdict::parse(verdict), reason.to_owned()))
}

/// Returns one line for each case, by verdict.
fn report(verdicts: &Verdicts) -> String {
    let mut lines: Vec<String> =
        verdicts.iter().map(|(case, (verdict, reason))| format!("{verdict} {case}: {reason}\n")).collect();
    lines.sort();
    lines.concat()
}
