//! `flagperf compare --max-slowdown` and `flagperf history`: what they say about a case that became slower.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{bash, flagperf, transcript};
use crate::support::results;

/// A forward function that computes everything two hundred times: the small model varies by a factor of two on a busy machine.
const SLOW: &str = "fn model_forward(model, batch) {
    for again in 0..199 { model.run([batch.images]); }
    model.run([batch.images])[0]
}
";

/// Runs the case with these settings, and returns the folder of the result.
fn run(checkout: &Path, settings: &[&str]) -> String {
    let mut arguments = vec!["--plain"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    results::run(checkout, &arguments).0.display().to_string()
}

fn slow_down(checkout: &Path) {
    fs::write(checkout.join("scripts/tiny/forward.rhai"), SLOW).expect("a script");
}

/// Compares two results with a limit, and returns the transcript and the JUnit file.
fn compare(checkout: &Path, first: &str, second: &str, percent: &str) -> (String, String) {
    let file = checkout.join("slowdown.xml");
    let arguments = ["compare", first, second, "--max-slowdown", percent, "--junit", "slowdown.xml"];
    let text = transcript(checkout, &arguments);
    let junit = fs::read_to_string(&file).unwrap_or_default().replace("&#x2f;", "/");
    let _ = fs::remove_file(file);
    (text, junit)
}

#[test]
fn a_slowdown_beyond_the_limit_fails_and_the_test_in_the_junit_file_says_so() {
    let checkout = results::checkout();
    let fast = run(checkout.path(), &[]);
    slow_down(checkout.path());
    let slow = run(checkout.path(), &[]);
    let (text, junit) = compare(checkout.path(), &fast, &slow, "5");
    assert!(text.contains("exit code 1\n") && text.contains("error: core is "), "{text}");
    assert!(text.contains("% slower, at least ") && text.contains("with 95 % confidence (allowed: 5 %)"), "{text}");
    assert!(
        junit.contains("failures=\"1\"") && junit.contains("<failure") && junit.contains("allowed: 5 %"),
        "{junit}"
    );
    let (text, junit) = compare(checkout.path(), &slow, &fast, "5");
    assert!(text.contains("exit code 0\n") && !text.contains("error: "), "{text}");
    assert!(junit.contains("failures=\"0\"") && !junit.contains("<failure"), "{junit}");
    let name = format!("{fast} is not shown to be more than 5 % slower than {slow}");
    assert!(junit.contains(&name), "{junit}");
    // A wrong path of the baseline must not pass.
    let (text, junit) = compare(checkout.path(), &fast, &fast, "0");
    assert!(text.contains("exit code 2\n") && junit.contains("the sides were not compared"), "{text}{junit}");
}

#[test]
fn figures_without_an_interval_show_no_slowdown_and_fail() {
    let checkout = results::checkout();
    let [first, second] = [(); 2].map(|()| run(checkout.path(), &["repeat=1"]));
    let (text, junit) = compare(checkout.path(), &first, &second, "5");
    let reason = "no throughput has a confidence interval, so that no slowdown could be shown";
    assert!(text.contains("exit code 1\n") && text.contains(reason) && junit.contains(reason), "{text}{junit}");
}

#[test]
fn a_limit_that_is_no_percentage_and_a_junit_file_without_a_limit_are_mistakes() {
    let checkout = results::checkout();
    for percent in ["100", "-1", "x"] {
        let text = transcript(checkout.path(), &["compare", "a", "b", &format!("--max-slowdown={percent}")]);
        assert!(text.contains("exit code 2\n") && text.contains("expected a number from 0 to below 100"), "{text}");
    }
    let text = transcript(checkout.path(), &["compare", "a", "b", "--junit", "slowdown.xml"]);
    assert!(text.contains("exit code 2\n") && text.contains("--max-slowdown"), "{text}");
}

#[test]
fn a_history_names_the_result_from_which_on_the_case_is_slower() {
    let checkout = results::checkout();
    let text = transcript(checkout.path(), &["history", "tiny"]);
    assert!(text.contains("exit code 2\n"), "there is no result: {text}");
    for _ in 0..5 {
        run(checkout.path(), &[]);
    }
    slow_down(checkout.path());
    let slow: Vec<String> = (0..5).map(|_| run(checkout.path(), &["num_workers=2"])).collect();
    let text = transcript(checkout.path(), &["history", "tiny"]);
    assert!(text.contains("exit code 0\n") && text.contains("tiny:interpreter: inference, cpu"), "{text}");
    assert!(text.contains("* from run") && text.contains("num_workers 1 -> 2"), "{text}");
    bash(checkout.path(), "cp -r result copy");
    let output = flagperf(checkout.path(), &["history", "tiny:interpreter", "result", "copy", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let series = &json["series"][0];
    // A busy machine may make one of the results invalid.
    let used = series["results"].as_array().map_or(0, Vec::len);
    let first_slow = series["change_points"][0]["result"].as_u64().expect("a change");
    assert!((8..=10).contains(&used) && (3..=5).contains(&first_slow), "{series}");
    assert!(series["change_points"][0]["ratio"]["high"].as_f64().expect("a number") < 0.5, "{series}");
    // Whoever changes a record and writes the manifest again makes it wrong.
    results::change_record(Path::new(&slow[4]), |record| {
        record["hosts"][0]["name"] = "\u{1b}[31mhost".into();
        record["phases"][0]["measured"][0]["samples"] = 7.into();
    });
    let text = transcript(checkout.path(), &["history", "tiny", "result"]);
    assert!(text.contains("exit code 0\n") && text.contains("not used: "), "{text}");
    assert!(text.contains("WRONG: record.json: ") && !text.contains('\u{1b}'), "{text}");
    let text = transcript(checkout.path(), &["history", "teeny", "result"]);
    assert!(text.contains("exit code 2\n") && text.contains("these cases have results there: tiny"), "{text}");
    let text = transcript(checkout.path(), &["history", "tiny", "nowhere"]);
    assert!(text.contains("exit code 2\n") && text.contains("`nowhere`: "), "{text}");
}
