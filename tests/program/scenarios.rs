//! Scenarios: queries that arrive after the passes of inference, their latency, and what makes them invalid.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::program;
use crate::support::site::Site;

/// Outputs of the case's model, of which a forward function may return others.
const HONEST: &str = "fn model_forward(model, batch) { model.run([batch.images])[0] }\n";

fn site() -> Site {
    Site::new("{engine: \"null\"}")
}

/// Runs the case on rten with a scenario and further arguments.
fn run(site: &Site, scenario: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let scenario = format!("scenario={scenario}");
    site.run(&[&["--set", "compiler=rten", "--set", &scenario], arguments].concat())
}

fn run_successfully(site: &Site, scenario: &str, arguments: &[&str]) -> Value {
    let (record, code) = run(site, scenario, arguments);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    record
}

/// Returns the figures of the scenario.
fn figures(record: &Value) -> &Value {
    let phases = record["phases"].as_array().expect("phases");
    &phases.iter().find(|phase| phase["phase"] == "infer").expect("inference")["scenario"]
}

/// Returns the folder of the result of a record.
fn folder(record: &Value) -> std::path::PathBuf {
    let files = record["phases"][1]["files"].as_array().expect("files");
    let path = files.iter().find_map(|file| file["path"].as_str().filter(|path| path.ends_with("queries.csv")));
    Path::new(path.expect("a file of queries")).parent().expect("a folder").to_owned()
}

fn failure(record: &Value) -> &str {
    record["failures"][0]["reason"].as_str().expect("a failure")
}

#[test]
fn a_stream_answers_one_query_after_the_other_for_its_time_and_as_many_as_the_percentile_needs() {
    let site = site();
    let record = run_successfully(&site, "{kind: single_stream, min_duration_s: 0.2}", &["--set", "batch_size=1"]);
    let scenario = figures(&record);
    let trial = &scenario["trials"][0];
    assert!(trial["queries"].as_u64() >= Some(64) && trial["duration_s"].as_f64() >= Some(0.19), "{trial}");
    assert_eq!(trial["queries"], trial["batches"], "each query is a batch of its own");
    assert!(trial["percentile_s"].as_f64() >= trial["latency"]["p50_s"].as_f64(), "{trial}");
    assert!(trial["lateness"].is_null() && trial["holds"].is_null());
    assert_eq!(scenario["report"]["agreement"]["not_compared"], serde_json::json!([]), "{scenario}");
    assert!(scenario["report"]["agreement"]["samples"].as_u64() >= Some(64));
    let rows = fs::read_to_string(folder(&record).join("queries.csv")).unwrap();
    assert_eq!(rows.lines().count() as u64 - 1, trial["queries"].as_u64().unwrap());
    let reasons = record["validity"]["reasons"].to_string();
    assert!(reasons.contains("scenario: queries arrived for 0 s (official: at least 10 min)"), "{reasons}");
    let result = folder(&record);
    let verified = program::flagperf(site.path(), &["verify", &result.display().to_string()]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert_eq!(verified.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&verified.stderr));
}

#[test]
fn several_samples_of_a_query_are_one_batch() {
    let record = run_successfully(
        &site(),
        "{kind: multi_stream, samples_per_query: 3, percentile: 0.9, min_duration_s: 0.1}",
        &[],
    );
    let trial = &figures(&record)["trials"][0];
    let rate = trial["samples_per_s"].as_f64().unwrap() / trial["queries_per_s"].as_f64().unwrap();
    assert!((rate - 3.0).abs() < 1e-9 && trial["queries"] == trial["batches"], "{trial}");
}

#[test]
fn the_highest_rate_is_searched_for_and_then_measured_for_the_full_time() {
    let site = site();
    // The bound is that of a busy machine; the search ends because a rate of more than the model can compute queues up.
    let scenario = "{kind: server, latency_bound_s: 0.2, percentile: 0.9, min_duration_s: 2}";
    let record = run_successfully(&site, scenario, &[]);
    let trials = figures(&record)["trials"].as_array().unwrap();
    let (last, search) = trials.split_last().unwrap();
    assert!(search.len() >= 2 && search.iter().any(|trial| trial["holds"] == false), "{trials:?}");
    assert_eq!((&last["holds"], &last["is_cut"], &last["queries"]), (&true.into(), &false.into(), &last["scheduled"]));
    let rate = last["scheduled_queries_per_s"].as_f64().unwrap();
    assert!(last["scheduled"].as_f64().unwrap() >= 2.0 * rate, "two seconds of queries");
    let held = search.iter().filter(|trial| trial["holds"] == true);
    let best = held.filter_map(|trial| trial["scheduled_queries_per_s"].as_f64()).fold(0.0, f64::max);
    assert!(rate <= best, "{rate} {best}");
}

#[test]
fn queries_that_arrive_at_once_share_batches_and_replay_has_the_same_times() {
    let site = site();
    let burst = "{kind: burst, queries_per_burst: 4, queries_per_s: 200, min_duration_s: 0.5, latency_bound_s: 1, percentile: 0.5}";
    let record = run_successfully(&site, burst, &[]);
    let trial = &figures(&record)["trials"][0];
    assert_eq!((&trial["queries"], trial["batches"].as_u64() < Some(100)), (&100.into(), true), "{trial}");
    let recorded = fs::read_to_string(folder(&record).join("queries.csv")).unwrap();
    site.write("data/queries.csv", &recorded);
    let replay = "{kind: replay, schedule: queries.csv, latency_bound_s: 1, percentile: 0.5}";
    let again = run_successfully(&site, replay, &[]);
    let times = |record: &Value| {
        let text = fs::read_to_string(folder(record).join("queries.csv")).unwrap();
        let column = |line: &str| line.split(',').nth(1).unwrap().parse::<f64>().ok();
        let mut times: Vec<f64> = text.lines().filter_map(column).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (first, second) = (times(&record), times(&again));
    // The clock counts whole nanoseconds.
    assert!(first.len() == 100 && first.iter().zip(&second).all(|(a, b)| (a - b).abs() < 1e-8), "{second:?}");
}

#[test]
fn a_bound_that_no_rate_keeps_fails_the_case_and_keeps_what_was_measured() {
    let scenario = "{kind: server, latency_bound_s: 1e-7, percentile: 0.5, min_duration_s: 0.1}";
    let (record, code) = run(&site(), scenario, &[]);
    assert_eq!(code, Some(1));
    let reason = failure(&record);
    assert!(
        reason.starts_with("the scenario failed: ") && reason.contains("took longer than the bound of 1e-7 s"),
        "{reason}"
    );
    assert!(record["finish_info"]["*p_inference_core(qps)"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(record["validity"]["verdict"], "invalid");
}

#[test]
fn outputs_that_only_queries_have_fail_the_case() {
    // A script cannot see that the passes have ended, but it sees how many rows are padding: queries of a stream fill one of four.
    let site = site();
    let lying = r"
fn model_forward(model, batch) { model.run([batch.images])[0] }
fn engine_forward(engine, batch) {
    let scores = engine.run([batch.images])[0];
    if batch.images[3].abs().max().item() == 0.0 { scores * 2.0 } else { scores }
}
";
    site.write("scripts/tiny/forward.rhai", lying);
    // Without a batch that has padding, the passes look honest.
    let samples = ["--set", "samples=12"];
    let (record, code) = run(&site, "{kind: single_stream, min_duration_s: 0.1}", &samples);
    assert_eq!(code, Some(1), "{record}");
    assert!(
        failure(&record).contains("output `output` differs from that of the same samples in the passes: "),
        "{}",
        failure(&record)
    );
    site.write("scripts/tiny/forward.rhai", HONEST);
    run_successfully(&site, "{kind: single_stream, min_duration_s: 0.1}", &samples);
}

#[test]
fn what_cannot_run_is_refused_before_the_run() {
    let site = site();
    let refused = |arguments: &[&str]| {
        let output = program::flagperf(site.path(), &[&["plan"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refused(&["--set", "compiler=rten", "--set", "scenario=multi_stream"]);
    assert!(text.contains("`scenario: multi_stream` has queries of 8 samples, but `batch_size` is 4"), "{text}");
    let text = refused(&["--set", "compiler=null", "--set", "scenario=single_stream"]);
    assert!(text.contains("`scenario: single_stream` has no effect: the case runs no inference"), "{text}");
    let text = refused(&["--set", "scenario=sever"]);
    assert!(text.contains("unknown scenario `sever` (nearest: `server`)"), "{text}");
    let replay = "scenario={kind: replay, schedule: missing.csv}";
    let text = refused(&["--set", "compiler=rten", "--set", replay]);
    assert!(text.contains("missing.csv: "), "{text}");
}
