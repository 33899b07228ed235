//! `flagperf ablate` and `flagperf sweep`: what they measure, and what they refuse.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{flagperf, transcript};
use crate::support::{program, results};

const WORKERS: &str = "{name: pipeline, off: {num_workers: 0}, on: {num_workers: 2}}";
const BATCH: &str = "{name: batch, off: {batch_size: 2}, on: {batch_size: 5}}";

/// Returns a checkout whose case has these switches.
fn checkout(switches: &[&str]) -> TempDir {
    let checkout = results::checkout();
    let path = checkout.path().join("configs/tiny/configurations.yaml");
    let text = fs::read_to_string(&path).expect("a file");
    fs::write(path, format!("{text}switches: [{}]\n", switches.join(", "))).expect("a file");
    checkout
}

/// Runs the command and returns its exit code, its JSON and its messages.
fn ablate(checkout: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let output = flagperf(checkout, &[&["ablate", "--json", "--rounds", "2"], arguments].concat());
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {messages}"));
    (output.status.code().expect("it ended"), json, messages)
}

fn names(combination: &Value) -> Vec<&str> {
    combination["on"].as_array().expect("a list").iter().map(|name| name.as_str().expect("a name")).collect()
}

#[test]
fn each_combination_is_measured_in_turns_and_each_switch_has_its_effects() {
    let checkout = checkout(&[WORKERS, BATCH]);
    let (code, json, messages) = ablate(checkout.path(), &["--html", "page.html"]);
    assert_eq!(code, 0, "{messages}");
    let order: Vec<&str> = messages.lines().filter_map(|line| line.strip_prefix("block ")).collect();
    let names_of_blocks: Vec<&str> = order.iter().map(|line| line.split_once(": ").expect("a name").1).collect();
    let forwards = ["all off", "pipeline", "batch", "all on"];
    let backwards = forwards.iter().rev().copied();
    assert_eq!(names_of_blocks, forwards.into_iter().chain(backwards).collect::<Vec<_>>());
    let switches = json["switches"].as_array().expect("a list");
    for (switch, name) in switches.iter().zip(["pipeline", "batch"]) {
        assert_eq!(switch["name"], name);
        for effect in ["alone", "added", "total", "left_out"] {
            let core = &switch[effect]["core"];
            let [low, ratio, high] = ["low", "ratio", "high"].map(|part| core[part].as_f64().expect("a number"));
            assert!(0.0 < low && low <= ratio && ratio <= high && core["pairs"] == 2, "{switch}");
        }
    }
    // With two switches, the first one alone is what it adds, and leaving out the second undoes what that adds.
    assert_eq!(switches[0]["alone"], switches[0]["added"]);
    let ratio = |effect: &Value| effect["core"]["ratio"].as_f64().expect("a number");
    assert!((ratio(&switches[1]["added"]) * ratio(&switches[1]["left_out"]) - 1.0).abs() < 1e-9);
    let product = ratio(&switches[0]["added"]) * ratio(&switches[1]["added"]);
    assert!((product / ratio(&switches[1]["total"]) - 1.0).abs() < 1e-9);
    let combinations = json["combinations"].as_array().expect("a list");
    assert_eq!(
        combinations.iter().map(names).collect::<Vec<_>>(),
        [vec![], vec!["pipeline"], vec!["batch"], vec!["pipeline", "batch"]]
    );
    for combination in &combinations[1..] {
        let output = combination["outputs"].as_object().expect("a map").values().next().expect("an output");
        assert!(output["relative_l2"].as_f64().expect("a number") < 1e-3, "{combination}");
        assert_eq!(combination["results"].as_array().expect("a list").len(), 2);
    }
    let result = combinations[3]["results"][0].as_str().expect("a path").to_owned();
    let text = transcript(checkout.path(), &["verify", &result]);
    assert!(text.contains("exit code 0"), "{text}");
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.matches("<circle").count() == 6 && page.contains("left out"), "{page}");
    let text = transcript(checkout.path(), &["report", "result", "--html", "stored.html"]);
    let page = fs::read_to_string(checkout.path().join("stored.html")).unwrap_or_default();
    assert!(page.contains("s by each switch, in percent"), "{text}{page}");
}

#[test]
fn a_switch_that_the_engine_lacks_is_named_and_the_others_are_measured() {
    let lacking = "{name: static_graph, off: {cuda_graph: false}, on: {cuda_graph: true}}";
    let checkout = checkout(&[lacking, WORKERS]);
    let text = transcript(checkout.path(), &["ablate", "--rounds", "2"]);
    assert!(text.contains("exit code 0"), "{text}");
    assert!(
        text.contains("warning: switch `static_graph` cannot be used here: case `tiny` has no key `cuda_graph`"),
        "{text}"
    );
    assert!(text.contains("num_workers=0 → num_workers=2") && text.contains("left out"), "{text}");
    let text = transcript(checkout.path(), &["ablate", "--switch", "static_graph"]);
    assert!(text.contains("exit code 2") && text.contains("no switch of this case can be used here"), "{text}");
}

#[test]
fn outputs_that_change_and_combinations_that_fail_are_reported() {
    let seed = "{name: seed, off: {seed: 0}, on: {seed: 1}}";
    let (code, json, messages) = ablate(checkout(&[seed]).path(), &[]);
    assert_eq!(code, 1, "{messages}");
    let disagreement = json["combinations"][1]["disagreement"].to_string();
    assert!(disagreement.contains("`relative_l2` is"), "{disagreement}");
    // Fewer samples are not the same work, although the outputs of those that both have are equal.
    let samples = "{name: samples, off: {samples: 10}, on: {samples: 5}}";
    let (code, json, messages) = ablate(checkout(&[samples]).path(), &[]);
    assert_eq!(code, 1, "{messages}");
    let disagreement = json["combinations"][1]["disagreement"].to_string();
    assert!(disagreement.contains("it is not the same work: dataset is 10 samples"), "{disagreement}");
    // A forward function that fails for batches of five.
    let checkout = checkout(&[WORKERS, BATCH]);
    let forward = "fn model_forward(model, batch) {\n    if batch.images.shape[0] == 5 { throw \"it is broken\"; }\n    model.run([batch.images])[0]\n}\n";
    fs::write(checkout.path().join("scripts/tiny/forward.rhai"), forward).expect("a script");
    let (code, json, messages) = ablate(checkout.path(), &[]);
    assert_eq!(code, 1, "{messages}");
    let failed = &json["switches"][1]["alone"]["unknown"];
    assert!(failed.as_str().is_some_and(|reason| reason.contains("it is broken")), "{json}");
    assert!(json["switches"][0]["alone"]["core"]["ratio"].is_number(), "{json}");
    assert!(json["combinations"][1]["failure"].is_null() && json["combinations"][3]["failure"].is_string(), "{json}");
    assert_eq!(messages.matches(" failed: ").count(), 2, "a combination that failed is not measured again: {messages}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let own = checkout(&[WORKERS, BATCH]);
    for (arguments, expected) in [
        (
            &["--switch", "batches"][..],
            "case `tiny:interpreter` has no switch `batches` (configs/tiny/configurations.yaml:11)",
        ),
        (&["--switch", "batch", "--switch", "batch"], "`--switch batch` is given twice"),
        (&["--set", "batch_size=3"], "`--set batch_size=3`: the switch `batch` sets this key"),
        (&["--case", "teeny"], "unknown case `teeny`"),
        (&["--rounds", "1"], "1 is not in 2..=1000"),
    ] {
        let text = transcript(own.path(), &[&["ablate"], arguments].concat());
        assert!(text.contains("exit code 2") && text.contains(expected), "{text}");
    }
    for (file, expected) in [
        ("configs/host.yaml", "exists and is not a page"),
        ("configs", "exists and is not a file"),
        ("no/page.html", "cannot write"),
    ] {
        let text = transcript(own.path(), &["ablate", "--html", file]);
        assert!(text.contains("exit code 2") && text.contains(expected) && !text.contains("block"), "{text}");
    }
    let judge = checkout(&["{name: limits, off: {agreement: {}}, on: {agreement: {fp32: {cosine: -1}}}}"]);
    let text = transcript(judge.path(), &["ablate"]);
    assert!(
        text.contains("exit code 2") && text.contains("`limits` sets `agreement`, by which results are judged"),
        "{text}"
    );
    let text = transcript(results::checkout().path(), &["ablate"]);
    assert!(text.contains("exit code 2") && text.contains("case `tiny:interpreter` has no switches"), "{text}");
    assert!(text.contains("list them in configs/tiny/configurations.yaml"), "{text}");
    let wrong = checkout(&["{name: pipeline, off: {num_workers: 0}, on: {}}"]);
    let text = transcript(wrong.path(), &["ablate"]);
    assert!(text.contains("exit code 2") && text.contains("configurations.yaml:11"), "{text}");
    assert!(text.contains("`switches`: entry 1: `on` of `pipeline` must be settings"), "{text}");
}

#[test]
fn an_interrupted_ablation_has_the_rounds_that_were_complete() {
    let checkout = checkout(&[WORKERS]);
    let mut command = program::command(checkout.path(), &["ablate", "--rounds", "500", "--json"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(run.stderr.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.starts_with("block 6 of 1000")), "it ended before");
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let rest: Vec<String> = lines.collect();
    let output = run.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("an ablation");
    let rounds = json["rounds"].as_u64().expect("a number");
    assert!((2..500).contains(&rounds) && output.status.code() == Some(130), "{rounds} {rest:?}");
    assert_eq!(json["switches"][0]["alone"]["core"]["pairs"], rounds, "{json}");
    assert!(rest.contains(&format!("interrupted after {rounds} complete rounds")), "{rest:?}");
}

#[test]
fn a_sweep_measures_each_value_in_turns_and_marks_the_knee() {
    let checkout = results::checkout();
    let output =
        flagperf(checkout.path(), &["sweep", "batch_size=1,5,2", "--rounds", "2", "--json", "--html", "page.html"]);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{messages}");
    let order: Vec<&str> = messages
        .lines()
        .filter_map(|line| line.strip_prefix("block ")?.split_once(": batch_size="))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(order, ["1", "5", "2", "2", "5", "1"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let points = json["points"].as_array().expect("a list");
    let throughput = |index: usize| points[index]["core_samples_per_s"].as_f64().expect("a number");
    let best = json["best"].as_u64().expect("an index") as usize;
    assert!((0..3).all(|index| throughput(index) <= throughput(best)), "{json}");
    let enough: Vec<usize> = (0..3).filter(|index| throughput(*index) >= 0.95 * throughput(best)).collect();
    let value = |index: &usize| points[*index]["value"].as_u64().expect("a number");
    let knee = enough.into_iter().min_by_key(value).expect("the best one");
    assert_eq!(json["knee"], knee);
    for point in points {
        assert_eq!(
            (&point["by_best"]["core"]["pairs"], point["results"].as_array().expect("a list").len()),
            (&Value::from(2), 2)
        );
    }
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.matches("<circle").count() == 7 && page.contains("</i>knee</span>"), "{page}");
    let text = transcript(checkout.path(), &["report", "result", "--html", "stored.html"]);
    let page = fs::read_to_string(checkout.path().join("stored.html")).unwrap_or_default();
    assert!(page.contains("s by batch_size"), "{text}{page}");
}

#[test]
fn a_sweep_names_values_that_cannot_be_measured_and_refuses_mistakes() {
    let checkout = results::checkout();
    let text = transcript(checkout.path(), &["sweep", "compiler=rten,rtne", "--rounds", "2"]);
    assert!(
        text.contains("exit code 1")
            && text.contains("compiler=rtne failed: vendor `cpu` has no compiler `rtne`")
            && text.contains("warning: compiler=rtne cannot be measured: vendor `cpu` has no compiler `rtne`"),
        "{text}"
    );
    assert!(text.contains("of the best") && !text.contains("knee"), "{text}");
    let text = transcript(checkout.path(), &["sweep", "seed=0,1", "--rounds", "2"]);
    assert!(text.contains("exit code 1") && text.contains("outputs of seed=1 differ from those of seed=0"), "{text}");
    for (arguments, expected) in [
        (&["batch=1,2"][..], "no value can be measured: case `tiny` has no key `batch`"),
        (&["batch_size=4"], "1 value (2 to 64 are needed)"),
        (&["batch_size=4,8", "--set", "batch_size=3"], "`--set batch_size=3`: the sweep sets this key"),
    ] {
        let text = transcript(checkout.path(), &[&["sweep"], arguments].concat());
        assert!(text.contains("exit code 2") && text.contains(expected), "{text}");
    }
}
