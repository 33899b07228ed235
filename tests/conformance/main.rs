//! One suite over every engine: whatever it is and however it is brought, it keeps what the trait promises.
//!
//! A trial is one check on one engine, given the model as a graph or as a file: `rten::file::odd_batches`. What an
//! engine cannot be held to stands in [`EXCEPTIONS`], with the reason; the suite prints what it leaves out.

#![expect(clippy::unwrap_used, reason = "a check that panics has failed, which is its only way to say so")]

mod bench;
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
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use flagperf::engine::TABLE;
use libtest_mimic::{Arguments, Trial};

use bench::{Bench, Form, Subject};

/// A promise of the trait, tried on an engine; panics when it is broken.
type Check = fn(&Bench);

/// Why some checks are not for captured runs of ONNX Runtime.
const ONE_SHAPE: &str = "takes inputs of one shape only, and refuses others with that reason";

/// Why OpenVINO cannot be held to threads, and what it does with a path of 10,000 nodes.
const ONE_A_CORE: &str = "starts no more threads than there are cores, and tells how many";
const MINUTES: &str = "takes minutes to compile so many nodes in a row";

/// Subjects that not every machine has: Python, a device.
const SOME_HAVE: [&str; 3] = ["onnxruntime_py", "onnxruntime_cuda_graph", "openvino_streams"];

/// Checks that an engine is not held to: engine, beginning of the check's name, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("onnxruntime_py", "refuses::unknown_option", "vendor.yaml says which options there are; all reach the process"),
    ("onnxruntime_cuda_graph", "computes::", ONE_SHAPE),
    ("onnxruntime_cuda_graph", "sessions::odd_batches", ONE_SHAPE),
    ("openvino", "sessions::threads_are_as_many", ONE_A_CORE),
    ("openvino_streams", "sessions::threads_are_as_many", ONE_A_CORE),
    ("openvino", "limits::a_long_path", MINUTES),
    ("openvino_streams", "limits::a_long_path", MINUTES),
    ("null", "computes::", "computes nothing"),
    ("null", "refuses::unsupported_precision", "takes every precision"),
    ("null", "refuses::model_in_another_precision", "takes any model"),
    ("null", "refuses::unknown_operator", "looks at no operator"),
    ("null", "refuses::other_kind_of_artifact", "takes every kind"),
    ("null", "sessions::independent", "all its outputs are zeros"),
    ("null", "sessions::lent_memory", "all its outputs are zeros"),
    ("null", "sessions::outputs_stay", "all its outputs are zeros"),
    ("null", "sessions::threads_are_as_many", "computes with none"),
    ("null", "limits::", "takes any model"),
];

fn checks(form: Form) -> Vec<(String, Check)> {
    let named = |group: &'static str, checks: &'static [(&'static str, Check)]| {
        checks.iter().map(move |(name, check)| (format!("{group}::{name}"), *check))
    };
    named("sessions", sessions::CHECKS)
        .chain(named("refuses", refusals::CHECKS))
        .chain(named("refuses", if form == Form::File { refusals::FILE_CHECKS } else { &[] }))
        .chain(named("computes", numerics::CHECKS))
        .chain(named("limits", limits::CHECKS))
        .collect()
}

/// Every row of the table that works here, the example of a plug-in in Rust, which cargo puts beside this program,
/// libtorch where it is built, and a sidecar; what computes on the device that the environment names, there, too.
/// What this machine lacks is [`Absent`].
fn subjects() -> (Vec<Subject>, Vec<Absent>) {
    let (mut subjects, mut absent, device) = (Vec::new(), Vec::new(), support::device());
    for engine in TABLE.iter().copied() {
        match engine.check() {
            Ok(_) if engine.facts().takes_library => {
                subjects.push(Subject::plugin(&candle_plugin()));
                match support::find_libtorch() {
                    Ok(library) => {
                        subjects.push(Subject::libtorch(&library));
                        subjects.extend(device.iter().flat_map(|device| Subject::libtorch_cuda(&library, device)));
                    }
                    Err(reason) => {
                        absent.push(Absent { name: "libtorch", forms: vec![Form::Graph, Form::File], reason })
                    }
                }
            }
            Ok(_) if engine.facts().takes_command => match support::find_python() {
                Ok(python) => subjects.push(Subject::onnxruntime_in(&python)),
                Err(reason) => absent.push(Absent { name: "onnxruntime_py", forms: vec![Form::File], reason }),
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
            Err(missing) => {
                let names = if engine.name() == "openvino" { &OPENVINO[..] } else { &[engine.name()] };
                absent.extend(names.iter().map(|&name| Absent {
                    name,
                    forms: Form::of(engine.roles()),
                    reason: format!("{}: {missing} ({})", engine.name(), missing.remedy),
                }));
            }
        }
    }
    (subjects, absent)
}

/// A subject that this machine does not have.
struct Absent {
    name: &'static str,
    forms: Vec<Form>,
    reason: String,
}

impl Absent {
    /// Its trials, each of which is left out.
    fn trials(self) -> Vec<Trial> {
        let excepted =
            |check: &str| EXCEPTIONS.iter().any(|(row, begin, _)| *row == self.name && check.starts_with(begin));
        let mut trials = Vec::new();
        for form in self.forms {
            for (check, _) in checks(form).into_iter().filter(|(check, _)| !excepted(check)) {
                let (name, reason) = (format!("{}::{form}::{check}", self.name), self.reason.clone());
                trials.push(Trial::test(name.clone(), move || {
                    support::leave_out_named(&name, &reason);
                    Ok(())
                }));
            }
        }
        trials
    }
}

/// What the row of OpenVINO is tried as.
const OPENVINO: [&str; 2] = ["openvino", "openvino_streams"];

fn candle_plugin() -> PathBuf {
    let library = format!("{DLL_PREFIX}flagperf_plugin_candle{DLL_SUFFIX}");
    std::env::current_exe().unwrap().with_file_name(library)
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let (subjects, absent) = subjects();
    for subject in subjects.clone() {
        for form in Form::of(subject.roles) {
            for (name, check) in checks(form) {
                let bench = Bench { subject: subject.clone(), form };
                let alone = is_alone(&name);
                let trial = Trial::test(format!("{}::{form}::{name}", subject.name), move || {
                    in_turn(alone, || check(&bench));
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
    trials.extend(broken::FAULTS.iter().map(|(name, fault)| found(name, *fault)));
    trials.push(Trial::test("a_leak_is_told_from_a_fixed_sum", || {
        sessions::a_leak_is_told_from_a_fixed_sum();
        Ok(())
    }));
    trials.extend(absent.into_iter().flat_map(Absent::trials));
    trials.push(Trial::test("every_exception_excepts_something", move || {
        every_exception_excepts_something(&subjects);
        Ok(())
    }));
    trials
}

/// The trial that a check finds an engine with a fault.
fn found(name: &'static str, fault: broken::Fault) -> Trial {
    let (_, check) = checks(Form::Graph).into_iter().find(|(check, _)| check == name).expect("a check of the suite");
    Trial::test(format!("a_broken_engine_is_found::{name}::{fault:?}"), move || {
        in_turn(is_alone(name), || broken::is_found(check, fault));
        Ok(())
    })
}

/// Whether a check counts what the whole process has.
fn is_alone(name: &str) -> bool {
    sessions::ALONE.iter().any(|alone| name.ends_with(alone))
}

/// Runs a trial beside others, or while none of them runs.
fn in_turn(alone: bool, trial: impl FnOnce()) {
    static TURN: RwLock<()> = RwLock::new(());
    if alone {
        let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
        trial();
    } else {
        let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
        trial();
    }
}

/// An exception for an engine or check that is no more would hide that it is not needed.
fn every_exception_excepts_something(subjects: &[Subject]) {
    for (row, begins, reason) in EXCEPTIONS {
        let in_table = TABLE.iter().any(|engine| engine.name() == *row) || SOME_HAVE.contains(row);
        assert!(in_table || subjects.iter().any(|subject| subject.name == *row), "no engine `{row}`");
        assert!(checks(Form::File).iter().any(|(name, _)| name.starts_with(begins)), "no check `{begins}`");
        assert!(!reason.is_empty());
    }
}

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}
