//! Engines that compute wrong results without an error: the case fails although every step ran.

use super::fixture::{Site, compile};

/// Runs a case that the interpreter validates and a plug-in of this mode infers; returns the record and the exit code.
#[track_caller]
fn run_inference(mode: &str) -> Option<(serde_json::Value, Option<i32>)> {
    let compilers = "    bad: {engine: plugin, library: engines/libbad.so}\n";
    let site = Site::new(&["interpreter"], "    interpreter: {engine: interpreter}\n", compilers, "compiler: bad\n");
    compile("tests/engines/plugins/bad.c", &site.library_path(), &[&format!("MODE={mode}")])?;
    site.write("configs/affine/parameters.yaml", "samples: 60\n");
    let (mut records, code) = site.run();
    Some((records.remove(0), code))
}

#[test]
fn a_correct_engine_agrees_with_validation() {
    let Some((record, code)) = run_inference("GOOD") else { return };
    assert_eq!((code, &record["agreement"]["verdict"]), (Some(0), &"met".into()), "{}", record["failures"]);
}

#[test]
fn zeros_instead_of_outputs_fail_the_case() {
    let Some((record, code)) = run_inference("ZEROS") else { return };
    assert_eq!((code, &record["agreement"]["verdict"]), (Some(1), &"missed".into()), "{record}");
    let expected = "inference does not agree with validation: output `output`: `relative_l2` is 1.00e0, the limit is \
                    1.00e-3; output `output`: `worst_sample` is ";
    let reason = record["failures"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn one_wrong_sample_of_each_batch_fails_the_case() {
    let Some((record, code)) = run_inference("ZEROS_IN_ONE_SAMPLE") else { return };
    assert_eq!((code, &record["agreement"]["verdict"]), (Some(1), &"missed".into()), "{record}");
}

#[test]
fn an_engine_that_computes_while_outputs_are_copied_fails_the_case() {
    let Some((record, code)) = run_inference("COMPUTES_WHILE_COPYING") else { return };
    assert_eq!((code, &record["agreement"]["verdict"]), (Some(1), &"met".into()), "{record}");
    let reason = record["failures"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("the engine computes outside core"), "{reason}");
}
