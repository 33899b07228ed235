//! The queries of a scenario at a server that generates text.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::generation::{count_on, counting_site};
use crate::support::completions::{CompletionServer, MODELS};
use crate::support::program;
use crate::support::site::Site;

/// Runs the counting case with a scenario at a server. Returns the checkout, the record and the exit code.
fn run_scenario(
    scenario: &str,
    answer: impl Fn(&Json, &mut TcpStream) + Send + Sync + 'static,
) -> (Site, Json, Option<i32>) {
    let server = CompletionServer::start(MODELS, answer);
    let site = counting_site(&format!("{{engine: openai, options: {{base_url: \"{}\"}}}}", server.base_url()));
    let (record, code) = site.run(&["--set", &format!("scenario={scenario}")]);
    (site, record, code)
}

#[test]
fn queries_at_a_server_are_sent_when_they_arrive_and_their_tokens_have_times() {
    let bounds = "first_token_bound_s: 60, next_token_bound_s: 60";
    let (_site, record, code) = run_scenario(
        &format!(
            "{{kind: burst, queries_per_s: 70, queries_per_burst: 70, min_duration_s: 1, percentile: 0.9, {bounds}}}"
        ),
        |request, connection| {
            count_on(request, connection, 7);
        },
    );
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    let scenario = &record["phases"][1]["scenario"];
    let trial = &scenario["trials"][0];
    assert_eq!((&trial["overlap"], trial["queries"].as_u64(), &trial["holds"]), (&json!(true), Some(70), &json!(true)));
    for name in ["first_token", "next_token"] {
        let times = &trial[name]["latency"];
        assert!(times["p50_s"].as_f64() >= Some(0.004), "{name}: {times}");
    }
    assert_eq!(scenario["report"]["agreement"]["outputs"]["output"]["mismatches"], 0.0, "{scenario}");
    // All arrived at once. If each waited for its predecessor, the last one would have been sent after the first answer.
    let files = record["phases"][1]["files"].as_array().expect("files");
    let path = files.iter().find_map(|file| file["path"].as_str().filter(|path| path.ends_with("queries.csv")));
    let text = std::fs::read_to_string(path.expect("a file of queries")).expect("the file");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("names");
    let column =
        |name: &str| head.iter().position(|found| *found == name).unwrap_or_else(|| panic!("{name}: {head:?}"));
    let (started, ended, first) = (column("started_s"), column("ended_s"), column("first_token_s"));
    let rows: Vec<Vec<f64>> = lines.map(|row| row.iter().map(|v| v.parse().expect("a number")).collect()).collect();
    let first_end = rows.iter().map(|row| row[ended]).fold(f64::MAX, f64::min);
    assert!(rows.iter().filter(|row| row[started] < first_end).count() > 1, "{text}");
    assert!(rows.iter().all(|row| row[started] < row[first] && row[first] <= row[ended]), "{text}");
    assert!(rows.is_sorted_by(|a, b| a[ended] <= b[ended]), "{text}");
}

#[test]
fn a_server_that_is_too_slow_or_answers_queries_otherwise_fails_the_case() {
    // The requests that are being answered, and how many in a row came alone.
    let requests = Arc::new(Mutex::new((0, 0)));
    type Answer = Box<dyn Fn(&Json, &mut TcpStream) + Send + Sync>;
    let first_others: Answer = Box::new(move |request, connection| {
        let requests = || requests.lock().expect("the numbers of requests");
        let alone = {
            let mut requests = requests();
            requests.1 = if requests.0 == 0 { requests.1 + 1 } else { 0 };
            requests.0 += 1;
            requests.1
        };
        // Warm-up and the passes send four prompts at a time, the scenario one after the other: then everything is another token.
        count_on(request, connection, if alone > 4 { 9 } else { 7 });
        requests().0 -= 1;
    });
    let refuses = Arc::new(Mutex::new(0));
    let overloaded: Answer = Box::new(move |request, connection| {
        *refuses.lock().expect("the number") += 1;
        if *refuses.lock().expect("the number") > 60 {
            drop(connection.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull"));
            return;
        }
        count_on(request, connection, 7);
    });
    let honest: Answer = Box::new(|request, connection| count_on(request, connection, 7));
    let stream = "{kind: single_stream, min_duration_s: 0.1, percentile: 0.99}";
    for (scenario, answer, part) in [
        (
            "{kind: single_stream, min_duration_s: 0.1, first_token_bound_s: 1e-4, latency_bound_s: 60}",
            honest,
            "64 of 64 queries exceeded the bound (latency 60000.000 ms, first token 0.100 ms)",
        ),
        (
            stream,
            first_others,
            "the scenario failed: output `output` differs from that of the same samples in the passes",
        ),
        (stream, overloaded, "replied with status 503 Service Unavailable: `full`"),
    ] {
        let (_site, record, code) = run_scenario(scenario, answer);
        // Of wrong answers, the audit may find some first.
        let failures = record["failures"].to_string();
        assert!(code == Some(1) && failures.contains(part), "{failures}");
    }
}

#[test]
fn a_rate_at_which_the_server_refuses_queries_does_not_hold() {
    let in_flight = Arc::new(AtomicUsize::new(0));
    let scenario = "{kind: server, latency_bound_s: 0.1, min_duration_s: 1, percentile: 0.5}";
    let (_site, record, _) = run_scenario(scenario, move |request, connection| {
        // The passes send four prompts at a time.
        if in_flight.fetch_add(1, Ordering::SeqCst) < 4 {
            count_on(request, connection, 7);
        } else {
            drop(connection.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull"));
        }
        in_flight.fetch_sub(1, Ordering::SeqCst);
    });
    let trials = record["phases"][1]["scenario"]["trials"].as_array().expect("trials");
    assert!(trials.len() > 1, "the search went on: {}", record["failures"]);
    let warnings = record["warnings"].to_string();
    assert!(warnings.contains("the rate does not hold: the server `"), "{warnings}");
    assert!(!record["failures"].to_string().contains("503"), "{}", record["failures"]);
}

#[test]
fn bounds_of_tokens_need_a_server() {
    let site = counting_site("{engine: \"null\"}");
    let scenario = "scenario={kind: server, first_token_bound_s: 1, min_duration_s: 10}";
    let output = program::flagperf(site.path(), &["run", "--set", "compiler=rten", "--set", scenario]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "`scenario: server` bounds the times of tokens, which only an engine that generates text reports";
    assert!(output.status.code() == Some(2) && errors.contains(expected), "{errors}");
}
