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
mod operators;
mod process;
mod refusals;
mod sessions;
#[path = "../support/mod.rs"]
mod support;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};
use std::thread;

use flagperf_core::description::Delivery;
use flagperf_engine::{TABLE, Unavailable};
use libtest_mimic::{Arguments, Trial};

use harness::{Harness, ModelForm, Subject};
use support::Missing;

/// Checks one promise of the trait on an engine; panics if it is violated.
type Check = fn(&Harness);

/// Why some checks do not apply to captured runs of ONNX Runtime.
const ONE_SHAPE: &str = "accepts inputs of one shape only, and refuses others with that reason";

/// Why OpenVINO is excepted from the check of the thread count, and from that of a path of 10,000 nodes.
const ONE_THREAD_PER_CORE: &str = "starts at most one thread per core, and reports how many";
const SLOW_COMPILATION: &str = "takes minutes to compile a path of 10,000 nodes";

/// Subjects that need something that not every machine has, such as Python or a device.
const OPTIONAL_SUBJECTS: [&str; 3] = ["onnxruntime_py", "onnxruntime_cuda_graph", "openvino_streams"];

/// Checks that do not apply to an engine: engine, beginning of the check's name, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("onnxruntime_py", "refuses::unknown_option", "vendor.yaml defines the options; the process receives all of them"),
    ("onnxruntime_cuda_graph", "computes::", ONE_SHAPE),
    ("onnxruntime_cuda_graph", "sessions::odd_batches", ONE_SHAPE),
    ("openvino", "sessions::thread_count", ONE_THREAD_PER_CORE),
    ("openvino_streams", "sessions::thread_count", ONE_THREAD_PER_CORE),
    ("openvino", "limits::a_long_path", SLOW_COMPILATION),
    ("openvino_streams", "limits::a_long_path", SLOW_COMPILATION),
    ("null", "computes::", "computes nothing"),
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

/// Returns every row of the table that works on this machine; the example of a plug-in in Rust, which cargo builds next
/// to this program; libtorch if it is built; and a sidecar. Subjects that can use the device that the environment names
/// are also tested there. A subject that this machine lacks is returned as [`MissingSubject`].
fn subjects() -> (Vec<Subject>, Vec<MissingSubject>) {
    let (mut subjects, mut missing_subjects, device) = (Vec::new(), Vec::new(), support::device());
    for engine in TABLE.iter().copied() {
        match engine.check() {
            Ok(_) if engine.description().delivery == Delivery::Library => {
                subjects.push(Subject::plugin(&interpreter_plugin()));
                match support::find_libtorch() {
                    Ok(library) => {
                        subjects.push(Subject::libtorch(&library));
                        subjects.extend(device.iter().flat_map(|device| Subject::libtorch_cuda(&library, device)));
                    }
                    Err(missing) => missing_subjects.push(MissingSubject {
                        name: "libtorch",
                        forms: vec![ModelForm::Graph, ModelForm::File],
                        missing,
                    }),
                }
            }
            Ok(_) if engine.description().delivery == Delivery::Command => match support::find_python() {
                Ok(python) => subjects.push(Subject::onnxruntime_python(&python)),
                Err(missing) => missing_subjects.push(MissingSubject {
                    name: "onnxruntime_py",
                    forms: vec![ModelForm::File],
                    missing,
                }),
            },
            Ok(_) if engine.name() == "onnxruntime" => {
                subjects.push(Subject::onnxruntime(engine));
                subjects.extend(device.iter().flat_map(|device| Subject::onnxruntime_cuda(engine, device)));
            }
            Ok(_) if engine.name() == "openvino" => {
                let openvino = Subject::openvino(engine);
                subjects.extend([openvino.clone().with_streams(), openvino]);
            }
            Ok(_) => subjects.push(Subject::row(engine)),
            Err(unavailable) => {
                let names = if engine.name() == "openvino" { &OPENVINO_SUBJECTS[..] } else { &[engine.name()] };
                missing_subjects.extend(names.iter().map(|&name| MissingSubject {
                    name,
                    forms: ModelForm::of(engine.roles()),
                    missing: why_missing(engine.name(), unavailable.clone()),
                }));
            }
        }
    }
    (subjects, missing_subjects)
}

/// A subject that this machine lacks.
struct MissingSubject {
    name: &'static str,
    forms: Vec<ModelForm>,
    missing: Missing,
}

/// Describes why a row of the table is not tested.
fn why_missing(name: &str, unavailable: Unavailable) -> Missing {
    match name {
        "tract" => Missing::new(format!("{name}: {unavailable}"), "run `tests/run --features tract`"),
        _ => Missing::engine(name, unavailable),
    }
}

impl MissingSubject {
    /// Returns the subject's trials, each of which reports that it is left out.
    fn trials(self) -> Vec<Trial> {
        let excepted =
            |check: &str| EXCEPTIONS.iter().any(|(row, begin, _)| *row == self.name && check.starts_with(begin));
        let mut trials = Vec::new();
        for form in self.forms {
            for (check, _) in checks(form).into_iter().filter(|(check, _)| !excepted(check)) {
                let (name, missing) = (format!("{}::{form}::{check}", self.name), self.missing.clone());
                trials.push(Trial::test(name.clone(), move || {
                    support::leave_out_named(&name, &missing);
                    Ok(())
                }));
            }
        }
        trials
    }
}

/// The subjects that test OpenVINO's row.
const OPENVINO_SUBJECTS: [&str; 2] = ["openvino", "openvino_streams"];

fn interpreter_plugin() -> PathBuf {
    let library = format!("{DLL_PREFIX}flagperf_plugin_interpreter{DLL_SUFFIX}");
    std::env::current_exe().unwrap().with_file_name(library)
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let (subjects, missing_subjects) = subjects();
    for subject in subjects.clone() {
        for form in ModelForm::of(subject.roles) {
            for (name, check) in checks(form) {
                let harness = Harness { subject: subject.clone(), form };
                let exclusive = needs_exclusive_process(&name);
                let trial = Trial::test(format!("{}::{form}::{name}", subject.name), move || {
                    run_trial(exclusive, || check(&harness));
                    Ok(())
                });
                let excepted =
                    EXCEPTIONS.iter().find(|(row, begins, _)| *row == subject.name && name.starts_with(begins));
                if let Some((_, _, reason)) = excepted {
                    eprintln!("left out: {}: {reason}", trial.name());
                }
                trials.push(trial.with_ignored_flag(excepted.is_some()));
            }
        }
    }
    trials.extend(broken::FAULTS.iter().map(|(name, fault)| fault_trial(name, *fault)));
    trials.push(Trial::test("a_leak_is_distinguished_from_a_fixed_amount", || {
        sessions::a_leak_is_distinguished_from_a_fixed_amount();
        Ok(())
    }));
    trials.extend(missing_subjects.into_iter().flat_map(MissingSubject::trials));
    trials.push(Trial::test("every_exception_applies_to_an_existing_check", move || {
        every_exception_applies_to_an_existing_check(&subjects);
        Ok(())
    }));
    trials
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
fn every_exception_applies_to_an_existing_check(subjects: &[Subject]) {
    for (row, begins, reason) in EXCEPTIONS {
        let in_table = TABLE.iter().any(|engine| engine.name() == *row) || OPTIONAL_SUBJECTS.contains(row);
        assert!(in_table || subjects.iter().any(|subject| subject.name == *row), "unknown engine `{row}`");
        assert!(
            checks(ModelForm::File).iter().any(|(name, _)| name.starts_with(begins)),
            "no check begins with `{begins}`"
        );
        assert!(!reason.is_empty());
    }
}

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}
