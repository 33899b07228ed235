//! One suite over every row of the table of engines: whatever an engine is, it keeps what the trait promises.
//!
//! A trial is one check on one engine, given the model as a graph or as a file: `rten::file::odd_batches`. What an
//! engine cannot be held to stands in [`EXCEPTIONS`], with the reason; the suite prints what it leaves out.

#![expect(clippy::unwrap_used, reason = "a check that panics has failed, which is its only way to say so")]

mod bench;
mod graphs;
mod networks;
mod numerics;
mod operators;
mod refusals;
mod sessions;

use std::process::ExitCode;

use flagperf::engine::TABLE;
use libtest_mimic::{Arguments, Trial};

use bench::{Bench, Form};

/// A promise of the trait, tried on an engine; panics when it is broken.
type Check = fn(&Bench);

/// Checks that an engine is not held to: engine, beginning of the check's name, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("null", "computes::", "computes nothing"),
    ("null", "refuses::unsupported_precision", "takes every precision"),
    ("null", "refuses::model_in_another_precision", "takes any model"),
    ("null", "refuses::unknown_operator", "looks at no operator"),
    ("null", "refuses::other_kind_of_artifact", "takes every kind"),
    ("null", "sessions::independent", "all its outputs are zeros"),
    ("null", "sessions::lent_memory", "all its outputs are zeros"),
    ("null", "sessions::outputs_stay", "all its outputs are zeros"),
];

fn checks(form: Form) -> Vec<(String, Check)> {
    let named = |group: &'static str, checks: &'static [(&'static str, Check)]| {
        checks.iter().map(move |(name, check)| (format!("{group}::{name}"), *check))
    };
    named("sessions", sessions::CHECKS)
        .chain(named("refuses", refusals::CHECKS))
        .chain(named("refuses", if form == Form::File { refusals::FILE_CHECKS } else { &[] }))
        .chain(named("computes", numerics::CHECKS))
        .collect()
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for engine in TABLE.iter().copied() {
        if let Err(missing) = engine.check() {
            eprintln!("left out: {}: {missing} ({})", engine.name(), missing.remedy);
            continue;
        }
        for form in Form::of(engine) {
            for (name, check) in checks(form) {
                let trial = Trial::test(format!("{}::{form}::{name}", engine.name()), move || {
                    check(&Bench { engine, form });
                    Ok(())
                });
                let excepted =
                    EXCEPTIONS.iter().find(|(row, begins, _)| *row == engine.name() && name.starts_with(begins));
                if let Some((_, _, reason)) = excepted {
                    eprintln!("left out: {}: {reason}", trial.name());
                }
                trials.push(trial.with_ignored_flag(excepted.is_some()));
            }
        }
    }
    trials.push(Trial::test("every_exception_excepts_something", || {
        every_exception_excepts_something();
        Ok(())
    }));
    trials
}

/// An exception for an engine or check that is no more would hide that it is not needed.
fn every_exception_excepts_something() {
    for (row, begins, reason) in EXCEPTIONS {
        assert!(TABLE.iter().any(|engine| engine.name() == *row), "no engine `{row}`");
        assert!(checks(Form::File).iter().any(|(name, _)| name.starts_with(begins)), "no check `{begins}`");
        assert!(!reason.is_empty());
    }
}

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}
