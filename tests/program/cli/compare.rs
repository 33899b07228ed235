//! `flagperf compare` and `flagperf trace`: what they say about results, and what they refuse.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{flagperf, transcript};
use crate::support::{program, results};

/// Runs the case with these settings, and returns the folder of the result.
fn run(checkout: &Path, settings: &[&str]) -> String {
    let mut arguments = vec!["--plain"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    results::run(checkout, &arguments).0.display().to_string()
}

#[test]
fn two_results_have_a_ratio_of_speeds_errors_of_outputs_and_their_differences() {
    let checkout = results::checkout();
    let [first, second] = [run(checkout.path(), &[]), run(checkout.path(), &["seed=1"])];
    let text = transcript(checkout.path(), &["compare", &first, &second, "--html", "page.html"]);
    assert!(text.contains("exit code 0") && text.contains("seed: 0 and 1"), "{text}");
    assert!(text.contains("measured at different times"), "{text}");
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("it is there");
    assert!(page.contains("<circle") && !page.contains("<svg width="), "{page}");
    assert_eq!(page.matches("role=\"img\"").count(), page.matches("<svg viewBox=").count(), "{page}");
    assert!(page.contains("><title>throughput of each block, core</title>"), "{page}");
    let output = flagperf(checkout.path(), &["compare", &first, &second, "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is there");
    let errors = json["outputs"].as_object().expect("it is there").values().next().expect("it is there");
    assert!(errors["absolute"]["max"].as_f64().expect("it is there") > 0.0, "{json}");
    assert_eq!(json["core"]["ratio"]["pairs"], 0);
    let text = transcript(checkout.path(), &["compare", &first, &first, "--html", "other.html"]);
    assert!(text.contains("exit code 2") && text.contains("error: two sides have the result `"), "{text}");
    assert!(!checkout.path().join("other.html").exists(), "a command that is refused leaves no page");
}

#[test]
fn files_of_a_comparison_replace_neither_results_nor_other_files() {
    let checkout = results::checkout();
    let [first, second] = [run(checkout.path(), &[]), run(checkout.path(), &["seed=1"])];
    let record = fs::read(checkout.path().join(&first).join("record.json")).expect("a record");
    fs::write(checkout.path().join("notes.txt"), "kept").expect("a file");
    for (option, file) in [
        ("--junit", format!("{first}/record.json")),
        ("--junit", format!("{second}/new.xml")),
        ("--html", format!("{first}/new.html")),
        ("--junit", "notes.txt".to_owned()),
        ("--html", "notes.txt".to_owned()),
    ] {
        let text = transcript(checkout.path(), &["compare", &first, &second, "--max-slowdown", "50", option, &file]);
        assert!(text.contains("exit code 2"), "{option} {file}: {text}");
        let reason = if file == "notes.txt" { "it is not overwritten" } else { "in the folder of the result" };
        assert!(text.contains(reason), "{option} {file}: {text}");
    }
    // A result that is not compared.
    let third = run(checkout.path(), &["seed=2"]);
    for arguments in [
        &["compare", &first, &second, "--max-slowdown", "50", "--junit", &format!("{third}/new.xml")][..],
        &["report", &first, "--html", &format!("{third}/new.html")],
        &["trace", &first, &format!("{third}/new.json")],
    ] {
        let text = transcript(checkout.path(), arguments);
        assert!(text.contains("exit code 2") && text.contains("in the folder of the result"), "{arguments:?}: {text}");
    }
    // What a link leads to is written to, and neither is removed.
    let [link, target] = ["link.xml", "target.xml"].map(|name| checkout.path().join(name));
    fs::write(&target, "").expect("a file");
    let kept = fs::File::open(&target).expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    transcript(checkout.path(), &["compare", &first, &second, "--max-slowdown", "99", "--junit", "link.xml"]);
    assert!(std::io::read_to_string(kept).expect("text").contains("<testcase"), "the file is the same");
    assert!(link.is_symlink());
    assert_eq!(fs::read(checkout.path().join(&first).join("record.json")).expect("a record"), record);
    assert_eq!(fs::read_to_string(checkout.path().join("notes.txt")).expect("a file"), "kept");
    let text = transcript(checkout.path(), &["compare", "", "tiny"]);
    assert!(text.contains("exit code 2") && text.contains("`` is neither a result nor a case"), "{text}");
}

#[test]
fn results_of_other_work_are_refused_unless_told() {
    let checkout = results::checkout();
    let [first, second] = [run(checkout.path(), &[]), run(checkout.path(), &["batch_size=2"])];
    let text = transcript(checkout.path(), &["compare", &first, &second]);
    assert!(text.contains("exit code 2") && text.contains("batch size is 4 and 2"), "{text}");
    assert!(text.contains("`--anyway` compares them in spite of this"), "{text}");
    let text = transcript(checkout.path(), &["compare", &first, &second, "--anyway"]);
    assert!(text.contains("exit code 0") && text.contains("not the same work"), "{text}");
    let text = transcript(checkout.path(), &["compare", &first, "tiny"]);
    assert!(text.contains("exit code 2") && text.contains("compare two results, or two cases"), "{text}");
}

#[test]
fn two_cases_are_measured_in_turns() {
    let checkout = results::checkout();
    let arguments = ["compare", "tiny", "tiny num_workers=2", "--pairs", "2", "--json"];
    let output = flagperf(checkout.path(), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let order: Vec<&str> = errors.lines().filter_map(|line| line.strip_prefix("block ")).collect();
    assert_eq!(order, ["1 of 4: tiny", "2 of 4: tiny num_workers=2", "3 of 4: tiny num_workers=2", "4 of 4: tiny"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is there");
    assert_eq!(
        (&json["core"]["ratio"]["pairs"], json["core"]["blocks"].as_array().expect("it is there").len()),
        (&Value::from(2), 2)
    );
    let runs = fs::read_dir(checkout.path().join("result")).expect("results").count();
    assert_eq!(runs, 4, "each block has a result");
    let text = transcript(checkout.path(), &["compare", "tiny", "tiny batch_size=2"]);
    assert!(text.contains("exit code 2") && text.contains("batch size is 4 and 2"), "{text}");
    assert!(!text.contains("block 1 of 12"), "it is known before anything is measured: {text}");
    let text = transcript(checkout.path(), &["compare", "tiny", "teeny"]);
    assert!(text.contains("exit code 2") && text.contains("`teeny` is neither a result nor a case"), "{text}");
}

#[test]
fn an_interrupted_comparison_has_the_pairs_that_were_complete() {
    let checkout = results::checkout();
    let mut command =
        program::command(checkout.path(), &["compare", "tiny", "tiny num_workers=2", "--pairs", "500", "--json"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(run.stderr.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.starts_with("block 6 of 1000")), "it ended before");
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let rest: Vec<String> = lines.collect();
    let output = run.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("a comparison");
    let pairs = json["core"]["ratio"]["pairs"].as_u64().expect("a number");
    assert!((2..500).contains(&pairs) && output.status.code() == Some(130), "{pairs} {rest:?}");
    assert!(rest.contains(&format!("interrupted after {pairs} of 500 pairs")), "{rest:?}");
}

#[test]
fn a_trace_has_the_passes_and_batches_of_a_result() {
    let checkout = results::checkout();
    let folder = run(checkout.path(), &[]);
    let text = fs::read_to_string(Path::new(&folder).join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let file = checkout.path().join("trace.json");
    let text = transcript(checkout.path(), &["trace", &folder, &file.display().to_string()]);
    assert!(text.contains("exit code 0"), "{text}");
    let trace: Value = serde_json::from_str(&fs::read_to_string(&file).expect("it is there")).expect("it is there");
    let events = trace["traceEvents"].as_array().expect("it is there");
    let batches =
        events.iter().filter(|event| event["name"].as_str().expect("it is there").starts_with("batch ")).count() as u64;
    let steps: u64 = record["phases"]
        .as_array()
        .expect("it is there")
        .iter()
        .flat_map(|phase| phase["measured"].as_array().expect("it is there"))
        .map(|measured| measured["steps"].as_u64().expect("it is there"))
        .sum();
    assert_eq!(batches, steps);
}

#[test]
fn a_traced_run_has_what_threads_and_operators_did_in_batches_that_are_part_of_no_figure() {
    let checkout = results::checkout();
    let folder = results::run(checkout.path(), &["--plain", "--trace"]).0;
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("record.json")).expect("a record")).expect("JSON");
    let warnings = record["warnings"].to_string();
    assert!(warnings.contains("trace: the trace has no operators of model `model`: engine `rten`"), "{warnings}");
    assert!(!warnings.contains("no trace"), "{warnings}");
    assert!(record["departures"].to_string().contains("trace=true"), "{}", record["departures"]);
    let file = folder.with_file_name("localhost_noderank0.trace.json");
    let trace: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a trace")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    for (process, name) in ["validate", "infer"].iter().enumerate() {
        let row = |wanted: &str| -> Vec<&Value> {
            let is_row = |event: &&Value| event["name"] == "thread_name" && event["pid"] == process;
            let row = events.iter().filter(is_row).find(|event| event["args"]["name"] == wanted);
            let Some(row) = row else { return Vec::new() };
            events
                .iter()
                .filter(|event| event["ph"] == "X" && ["pid", "tid"].iter().all(|k| event[k] == row[k]))
                .collect()
        };
        let batches = row("traced batches");
        let within = |event: &Value| {
            let [from, to] =
                [batches[0], batches[batches.len() - 1]].map(|batch| batch["ts"].as_f64().expect("a time"));
            let last = batches[batches.len() - 1]["dur"].as_f64().expect("a time");
            let begin = event["ts"].as_f64().expect("a time");
            from <= begin && begin <= to + last
        };
        assert!((1..=8).contains(&batches.len()), "{name}: {batches:?}");
        assert_eq!(row("parts of a traced batch").len(), 5 * batches.len());
        let runs = row("runs of model");
        assert!(runs.iter().filter(|run| text(run, "name") == "submit").count() == batches.len(), "{name}: {runs:?}");
        let operators = row("operators of model");
        assert_eq!(operators.is_empty(), *name == "infer", "{operators:?}");
        assert!(runs.iter().chain(&operators).all(|event| within(event)), "{name}: {runs:?} {operators:?}");
        assert!(operators.iter().all(|event| event["args"]["operator"].is_string()), "{operators:?}");
    }
    let text = transcript(checkout.path(), &["verify", &folder.display().to_string()]);
    assert!(text.contains("exit code 0") && !text.contains("trace.json"), "{text}");
    let again = checkout.path().join("again.json");
    let text = transcript(checkout.path(), &["trace", &folder.display().to_string(), &again.display().to_string()]);
    assert!(text.contains("exit code 0"), "{text}");
    // A file of the result is not overwritten, and a link is followed.
    let own = folder.join("record.json");
    let text = transcript(checkout.path(), &["trace", &folder.display().to_string(), &own.display().to_string()]);
    assert!(text.contains("exit code 2") && text.contains("whose files never change"), "{text}");
    let (link, target) = (checkout.path().join("link.json"), checkout.path().join("target.json"));
    fs::write(&target, "").expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    transcript(checkout.path(), &["trace", &folder.display().to_string(), &link.display().to_string()]);
    assert!(link.is_symlink() && fs::read(&target).expect("a trace") == fs::read(&file).expect("a trace"));
    assert_eq!(fs::read(again).expect("a trace"), fs::read(file).expect("a trace"));
}
