//! One suite for every engine, built in, plug-in or sidecar: each must keep the promises of the trait.
//!
//! A trial is one check on one engine that receives the model as a graph or as a file: `rten::file::odd_batches`.
//! [`EXCEPTIONS`] lists the checks that do not apply to an engine, with the reasons; the suite prints those it leaves
//! out.

#![expect(clippy::unwrap_used, reason = "a check reports failure by a panic")]

mod harness;
mod broken;
mod graphs;
mod limits;
mod networks;
mod numerics;
mod onnx_cases;
mod operators;
mod process;
mod refusals;
mod sessions;
mod subjects;
#[path = "../support/mod.rs"]
mod support;

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use libtest_mimic::{Arguments, Trial};

use harness::{Harness, ModelForm};
use subjects::Candidate;

/// Checks one promise of the trait on an engine; panics if it is violated.
type Check = fn(&Harness);

/// Why some checks do not apply to captured runs of ONNX Runtime.
const ONE_SHAPE: &str = "accepts inputs of one shape only, and refuses others with that reason";

/// Why OpenVINO is excepted from the check of the thread count, and from that of a path of 10,000 nodes.
const ONE_THREAD_PER_CORE: &str = "starts at most one thread per core, and reports how many";
const SLOW_COMPILATION: &str = "takes minutes to compile a path of 10,000 nodes";

/// A subject that exists only where the environment names a device.
const ON_DEVICE: &str = "onnxruntime_cuda_graph";

/// Checks that do not apply to an engine: engine, beginning of the check's name, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("onnxruntime_py", "refuses::unknown_option", "vendor.yaml defines the options; the process receives all of them"),
    (ON_DEVICE, "computes::", ONE_SHAPE),
    (ON_DEVICE, "sessions::odd_batches", ONE_SHAPE),
    ("openvino", "sessions::thread_count", ONE_THREAD_PER_CORE),
    ("openvino_streams", "sessions::thread_count", ONE_THREAD_PER_CORE),
    ("openvino", "limits::a_long_path", SLOW_COMPILATION),
    ("openvino_streams", "limits::a_long_path", SLOW_COMPILATION),
    ("null", "computes::", "computes nothing"),
    ("interpreter", "refuses::unsupported_precision", "computes in every precision"),
    ("null", "refuses::unsupported_precision", "accepts every precision"),
    ("null", "refuses::model_in_another_precision", "accepts any model"),
    ("null", "refuses::unknown_operator", "ignores operators"),
    ("null", "refuses::other_kind_of_artifact", "accepts every kind"),
    ("null", "sessions::independent", "all its outputs are zeros"),
    ("null", "sessions::lent_memory", "all its outputs are zeros"),
    ("null", "sessions::outputs_survive", "all its outputs are zeros"),
    ("null", "sessions::thread_count", "computes without threads"),
    ("null", "limits::", "accepts any model"),
];

fn checks(form: ModelForm) -> Vec<(String, Check)> {
    let named = |group: &'static str, checks: &'static [(&'static str, Check)]| {
        checks.iter().map(move |(name, check)| (format!("{group}::{name}"), *check))
    };
    named("sessions", sessions::CHECKS)
        .chain(named("refuses", refusals::CHECKS))
        .chain(named("refuses", if form == ModelForm::File { refusals::FILE_CHECKS } else { &[] }))
        .chain(named("computes", numerics::CHECKS))
        .chain(named("limits", limits::CHECKS))
        .collect()
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let candidates: Vec<_> = subjects::candidates().into_iter().map(Arc::new).collect();
    for candidate in &candidates {
        for form in candidate.forms.iter().copied() {
            trials.extend(checks(form).into_iter().map(|(name, check)| subject_trial(candidate, form, &name, check)));
        }
    }
    trials.extend(onnx_cases::trials(&candidates));
    trials.extend(broken::FAULTS.iter().map(|(name, fault)| fault_trial(name, *fault)));
    trials.push(Trial::test("a_leak_is_distinguished_from_a_fixed_amount", || {
        sessions::a_leak_is_distinguished_from_a_fixed_amount();
        Ok(())
    }));
    trials.push(Trial::test("every_exception_applies_to_an_existing_check", move || {
        every_exception_applies_to_an_existing_check(&candidates);
        Ok(())
    }));
    trials
}

/// Returns the trial of a check on a subject. If this machine lacks the subject, the trial reports that it is left out.
fn subject_trial(candidate: &Arc<Candidate>, form: ModelForm, name: &str, check: Check) -> Trial {
    let (candidate, exclusive) = (candidate.clone(), needs_exclusive_process(name));
    let excepted = EXCEPTIONS.iter().find(|(row, begins, _)| *row == candidate.name && name.starts_with(begins));
    let full_name = format!("{}::{form}::{name}", candidate.name);
    if let Some((_, _, reason)) = excepted {
        eprintln!("left out: {full_name}: {reason}");
    }
    let trial = Trial::test(full_name.clone(), move || {
        run_trial(exclusive, || match candidate.subject() {
            Ok(subject) => check(&Harness { subject, form }),
            Err(missing) => support::leave_out_named(&full_name, &missing),
        });
        Ok(())
    });
    trial.with_ignored_flag(excepted.is_some())
}

/// Returns the trial that a check detects an engine with a fault.
fn fault_trial(name: &'static str, fault: broken::Fault) -> Trial {
    let (_, check) =
        checks(ModelForm::Graph).into_iter().find(|(check, _)| check == name).expect("a check of the suite");
    Trial::test(format!("a_faulty_engine_is_detected::{name}::{fault:?}"), move || {
        run_trial(needs_exclusive_process(name), || broken::assert_detects(check, fault));
        Ok(())
    })
}

/// Returns whether a check counts resources of the whole process.
fn needs_exclusive_process(name: &str) -> bool {
    sessions::EXCLUSIVE.iter().any(|check| name.ends_with(check))
}

/// Stack of the thread that loads and runs engines, in bytes. A worker has at least this much; the default of a test would
/// be too small for engines that visit the nodes of a long path recursively.
const STACK: usize = 64 << 20;

/// Runs a trial concurrently with others or, if `exclusive`, while no other trial runs.
fn run_trial(exclusive: bool, trial: impl FnOnce() + Send) {
    static LOCK: RwLock<()> = RwLock::new(());
    let run = || {
        thread::scope(|scope| {
            let running = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, trial).expect("a thread");
            running.join().unwrap_or_else(|panic| resume_unwind(panic));
        });
    };
    if exclusive {
        let _guard = LOCK.write().unwrap_or_else(PoisonError::into_inner);
        run();
    } else {
        let _guard = LOCK.read().unwrap_or_else(PoisonError::into_inner);
        run();
    }
}

/// Checks that each exception names an existing engine and check; a stale exception would go unnoticed.
fn every_exception_applies_to_an_existing_check(candidates: &[Arc<Candidate>]) {
    for (row, begins, reason) in EXCEPTIONS {
        let exists = *row == ON_DEVICE || candidates.iter().any(|candidate| candidate.name == *row);
        assert!(exists, "unknown engine `{row}`");
        assert!(
            checks(ModelForm::File).iter().any(|(name, _)| name.starts_with(begins)),
            "no check begins with `{begins}`"
        );
        assert!(!reason.is_empty());
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((onnx_cases::WORKER, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return onnx_cases::run_worker(rest);
    }
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}
