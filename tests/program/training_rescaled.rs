//! Trainings that go on with another number of processes than that with which they began.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::training_group::{CUT, command, cut, cut_off_of, data, digits, folder_of_rank, json, losses, run_folder};
use crate::support::program;

/// Resumes a run with so many processes; returns the exit code and what it printed.
fn resume(checkout: &Path, run: &Path, ranks: u32) -> (Option<i32>, String) {
    let key = format!("digits:pytorch:cpu:1:{ranks}:1");
    let resumed = command(checkout, &["resume", run.to_str().expect("text"), "--case", &key, "--details"]).output();
    let resumed = resumed.expect("it starts");
    let text = String::from_utf8_lossy(&[&resumed.stdout[..], &resumed.stderr].concat()).into_owned();
    (resumed.status.code(), text)
}

fn record_of(run: &Path, rank: u32, ranks: u32) -> Value {
    json(&folder_of_rank(run, rank, ranks).join("record.json"))
}

#[test]
fn a_training_goes_on_with_another_number_of_processes_as_if_it_had_not_been_cut_off() {
    let Some(whole) = digits(true) else { return };
    let data = data(whole.path());
    let settings = [&CUT[..], &["--data", &data]].concat();
    let output =
        command(whole.path(), &[&["run", "--case", "digits:pytorch:cpu:1:1:1"], &settings[..]].concat()).output();
    let output = output.expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = losses(&record_of(&run_folder(whole.path()).expect("a run"), 0, 1));
    for (before, after, signal) in [(2, 1, Signal::SIGINT), (2, 4, Signal::SIGKILL)] {
        let checkout = digits(true).expect("libtorch was found");
        let killed = (signal == Signal::SIGKILL).then_some(1);
        let run = cut_off_of(checkout.path(), before, signal, killed);
        let (code, text) = resume(checkout.path(), &run, 3);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("`batch_size` 32 cannot be divided among 3 devices"), "{text}");
        let (code, text) = resume(checkout.path(), &run, after);
        assert_eq!(code, Some(0), "{before} -> {after}: {text}");
        for rank in 0..after {
            let record = record_of(&run, rank, after);
            let training = &record["phases"][0]["training"];
            let (epochs, steps) = (&training["resumed"]["epochs"], &training["resumed"]["steps"]);
            let since = epochs.as_u64().expect("it was resumed") as usize;
            assert!((1..20).contains(&since), "{training}");
            let found = losses(&record);
            assert_eq!(found.len(), expected.len() - since);
            for (loss, expected) in found.into_iter().zip(&expected[since..]) {
                assert!((loss - expected).abs() <= 1e-5 * expected, "{before} -> {after}: {loss} {expected}");
            }
            let parts = json!([
                {"round": 0, "after_step": 0, "ranks": before},
                {"round": 0, "after_step": steps, "ranks": after}
            ]);
            assert_eq!(training["trained_by"], parts);
            assert!(text.contains(&format!("{before} after step 0, {after} after step {steps}")), "{text}");
        }
        let verified = program::flagperf(checkout.path(), &["verify", run.to_str().expect("text")]);
        let text = String::from_utf8_lossy(&verified.stdout);
        assert!(text.contains("consistent") && !text.contains("WRONG"), "{text}");
    }
}

#[test]
fn a_training_goes_on_several_times_with_other_numbers_of_processes() {
    let Some(checkout) = digits(false) else { return };
    let run = cut_off_of(checkout.path(), 2, Signal::SIGINT, None);
    let (code, text) = resume(checkout.path(), &run, 2);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("`digits:pytorch:cpu:1:2:1` is the key with which the run goes on anyway"), "{text}");
    let words = ["resume", run.to_str().expect("text"), "--case", "digits:pytorch:gpu:1:1:1"];
    let refused = command(checkout.path(), &words).output().expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("no training of the run can go on as") && text.contains("cpu:1:2:1"), "{text}");
    for ranks in [1, 4] {
        let key = format!("digits:pytorch:cpu:1:{ranks}:1");
        let words = ["resume", run.to_str().expect("text"), "--case", &key];
        cut(checkout.path(), &words, ranks, Signal::SIGINT, None);
    }
    let (code, text) = resume(checkout.path(), &run, 2);
    assert_eq!(code, Some(0), "{text}");
    let record = record_of(&run, 0, 2);
    let parts = record["phases"][0]["training"]["trained_by"].as_array().expect("parts");
    let ranks: Vec<_> = parts.iter().filter_map(|part| part["ranks"].as_u64()).collect();
    assert_eq!(ranks, [2, 1, 4, 2]);
}
