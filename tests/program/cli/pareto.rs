//! `flagperf pareto`: the speeds and the costs of results that generate text.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{self, program};

/// Runs the small size of a case that generates text with so many prompts at a time.
fn generate(checkout: &Path, prompts: u32) {
    let size = format!("batch_size={prompts}");
    let settings = ["size=tiny", "prompt_length=8", "new_tokens=4", "compiler=null", &size];
    let mut arguments = vec!["run", "--json", "--vendor", "cpu", "--case", "smollm2_135m:interpreter"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = program::flagperf(checkout, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

fn pareto(checkout: &Path, results: &[PathBuf], arguments: &[&str]) -> (Option<i32>, String, String) {
    let results: Vec<String> = results.iter().map(|path| path.display().to_string()).collect();
    let results: Vec<&str> = results.iter().map(String::as_str).collect();
    let output = program::flagperf(checkout, &[&["pareto"], &results[..], arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_speeds_of_several_numbers_of_prompts_are_in_one_table_with_their_cost() {
    let checkout = support::checkout();
    generate(checkout.path(), 2);
    generate(checkout.path(), 1);
    let runs = fs::read_dir(checkout.path().join("result")).expect("results");
    let runs: Vec<PathBuf> = runs.map(|run| run.expect("a folder").path()).collect();
    let prices = checkout.path().join("prices.yaml");
    let prices_argument = prices.display().to_string();
    fs::write(&prices, "currency: EUR\ndevices: {cpu: {per_hour: 3.6, source: the test}}\n").expect("a file");
    let again = [&runs[..], &runs[..1]].concat();
    let (code, json, message) = pareto(checkout.path(), &again, &["--json", "--prices", &prices_argument]);
    assert_eq!(code, Some(0), "{message}");
    let found: Value = serde_json::from_str(&json).expect("JSON");
    let table = &found["tables"][0];
    assert_eq!(
        (&found["currency"], &table["new_tokens"], found["unused"].as_array().unwrap().len()),
        (&"EUR".into(), &4.into(), 0)
    );
    let points = table["points"].as_array().expect("points");
    let concurrency: Vec<u64> = points.iter().map(|point| point["concurrency"].as_u64().expect("a count")).collect();
    assert_eq!(concurrency, [1, 2]);
    for point in points {
        let figure = |key: &str| point[key].as_f64().expect("a figure");
        let cost = 3.6 / 3600.0 / figure("device_tokens_per_s") * 1e6;
        assert!((figure("cost_per_million_tokens") / cost - 1.0).abs() < 1e-9, "{point}");
        assert!(figure("user_tokens_per_s") > 0.0 && figure("first_token_p50_s") > 0.0, "{point}");
    }
    assert!(points.iter().any(|point| point["is_on_front"] == true), "{points:?}");

    let (code, text, _) = pareto(checkout.path(), &runs, &["--prices", &prices_argument]);
    assert_eq!(code, Some(0));
    for part in ["8 + 4 tokens", "EUR per 1M", "Pareto front", "Price: the test", "idle time"] {
        assert!(text.replace("\n    ", " ").contains(part), "{part}: {text}");
    }
    let mut report = vec!["report", "--html", "page.html", "--prices", &prices_argument];
    let names: Vec<String> = runs.iter().map(|run| run.display().to_string()).collect();
    report.extend(names.iter().map(String::as_str));
    assert_eq!(program::flagperf(checkout.path(), &report).status.code(), Some(0));
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains("id=\"pareto-title\"") && page.contains("EUR per 1M"));

    fs::write(&prices, "currency: EUR\ndevices: {Chip X2: {per_hour: 3.6, source: the test}}\n").expect("a file");
    let (code, _, message) = pareto(checkout.path(), &runs, &["--prices", &prices_argument]);
    assert!(code == Some(2) && message.contains("no price of the device `"), "{message}");
    assert!(message.contains("(known: Chip X2)") && message.contains("hint: add it under `devices`"), "{message}");
}

#[test]
fn results_that_generate_no_text_are_refused() {
    let checkout = crate::support::results::checkout();
    let (folder, _) = crate::support::results::run(checkout.path(), &[]);
    let (code, _, message) = pareto(checkout.path(), &[folder], &[]);
    assert!(code == Some(2) && message.contains("it generates no text"), "{message}");
}
