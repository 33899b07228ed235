//! `flagperf report` and `flagperf show`: what they say of results, and what they refuse.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{program, results};

/// Returns a checkout with a result, and the folder of the result.
fn result() -> (TempDir, PathBuf) {
    let checkout = results::checkout();
    let (folder, _) = results::run(checkout.path(), &[]);
    (checkout, folder)
}

/// Runs a command on a result, and returns its exit code, its output and its messages.
fn run(checkout: &Path, command: &str, result: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = program::flagperf(checkout, &[&[command, &result.display().to_string()], arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ended"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_result_is_written_in_every_form() {
    let (checkout, folder) = result();
    let report = |arguments: &[&str]| run(checkout.path(), "report", &folder, arguments);
    assert_eq!(report(&["--html", "page.html"]), (0, "page  page.html\n".to_owned(), String::new()));
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    for part in ["tiny:interpreter", "consistent", "Step times", "<svg", "samples&#x2f;s core", "batch_size"] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(report(&["--html", "page.html", "--language", "zh"]).0, 0, "a page is replaced");
    let chinese = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(chinese.contains("<html lang=\"zh\">") && chinese.contains("所有 case"));
    let (code, json, _) = report(&["--json"]);
    let rows: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &rows[0]["checked"], &rows[0]["step"]), (0, &"consistent".into(), &"inference".into()));
    assert!(rows[0]["throughput_core_samples_per_s"].as_f64().expect("a figure") > 0.0);
    assert_eq!(report(&["--csv"]).1.lines().count(), 2);
    assert!(report(&["--markdown"]).1.contains("\n| cpu | rten | cpu | fp32 | 4 | "));
    assert!(report(&["--junit"]).1.contains("tests=\"1\" failures=\"0\""));
    let (code, text, _) = run(checkout.path(), "show", &folder, &[]);
    assert!(code == 0 && text.contains("model, data and hardware") && text.contains(" digest  sha256:"), "{text}");
}

#[test]
fn a_copy_of_a_result_is_left_out() {
    let (checkout, folder) = result();
    let copy = checkout.path().join("copy.json");
    fs::copy(folder.join("record.json"), &copy).expect("a copy");
    let (code, rows, messages) = run(checkout.path(), "report", &folder, &["--csv", &copy.display().to_string()]);
    assert_eq!((code, rows.lines().count()), (0, 2), "{messages}");
    assert!(messages.contains("copy.json` is the same result as"), "{messages}");
}

#[test]
fn a_result_is_shown_under_the_measured_peaks_of_its_device_alone() {
    let (checkout, folder) = result();
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("record.json")).expect("a record")).expect("JSON");
    let processor = record["hosts"][0]["machine"]["cpu"].as_str().expect("a processor").trim();
    let write = |device: &str| {
        let peak = |limit: &str, value: f64| json!({"limit": limit, "value": value, "device": device, "figures": null});
        let peaks = json!([peak("computation-FP32", 1e12), peak("main_memory-bandwidth", 2e10)]);
        fs::write(checkout.path().join("peaks.json"), peaks.to_string()).expect("a file");
        let report = run(checkout.path(), "report", &folder, &["--html", "page.html", "--peaks", "peaks.json"]);
        assert_eq!(report.0, 0, "{report:?}");
        let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
        (page, run(checkout.path(), "show", &folder, &["--peaks", "peaks.json"]).1)
    };
    let (page, text) = write(processor);
    assert!(page.contains("id=\"roofline-title\"") && page.contains("FLOP&#x2f;byte"), "{page}");
    assert!(text.contains("% of 1.000 TFLOP/s, `computation-FP32` in `peaks.json`"), "{text}");
    let (page, text) = write("another");
    assert!(!page.contains("id=\"roofline-title\""), "no point");
    assert!(text.contains("unknown: `peaks.json` is of the device `another`"), "{text}");
    let refused = run(checkout.path(), "report", &folder, &["--csv", "--peaks", "peaks.json"]);
    assert!(refused.0 == 2 && refused.2.contains("--peaks are for --html"), "{refused:?}");
}

#[test]
fn the_step_times_are_drawn_unless_plain_lines_are_wanted() {
    let checkout = results::checkout();
    let run = |arguments: &[&str]| {
        let output = program::flagperf(checkout.path(), &[&["run"], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let drawn = |text: &str| ["Step times: how often", "Step times over", "█"].map(|part| text.matches(part).count());
    let [titles, lines, blocks] = drawn(&run(&[]));
    assert!(titles == 1 && lines == 1 && blocks > 0, "the charts of inference");
    assert_eq!(drawn(&run(&["--plain"])), [0; 3]);
    let mut runs = fs::read_dir(checkout.path().join("result")).expect("results");
    let first = runs.next().expect("a run").expect("a folder").path();
    let shown = self::run(checkout.path(), "show", &first, &[]).1;
    assert!(drawn(&shown)[0] >= 2, "the charts of validation and inference: {shown}");
}

#[test]
fn a_result_whose_figures_were_changed_is_marked_in_every_form() {
    let (checkout, folder) = result();
    results::change_record(&folder, |record| record["finish_info"]["*p_inference_core(qps)"] = 1e9.into());
    let report = |arguments: &[&str]| run(checkout.path(), "report", &folder, arguments);
    let (code, _, message) = report(&["--html", "page.html"]);
    assert!(code == 1 && message.contains("is wrong\n  hint: `flagperf verify`"), "{message}");
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains("Do not use these figures") && page.contains("1000000000"), "{page}");
    assert_eq!(report(&["--markdown"]).1, "", "no row");
    let (code, text, _) = report(&["--junit"]);
    assert!(code == 1 && text.contains("failures=\"1\""), "{text}");
    assert!(report(&["--csv"]).1.contains(",WRONG,"));
    let (code, _, message) = run(checkout.path(), "show", &folder, &[]);
    assert!(code == 1 && message.contains("is wrong\n  hint: `flagperf verify`"), "{message}");
}

#[test]
fn several_devices_are_one_result_in_every_form() {
    let checkout = results::checkout();
    let (case, printed) = results::run_on_two_devices(checkout.path());
    let begin = printed.find("tiny:interpreter:1x2\n").unwrap_or_else(|| panic!("{printed}"));
    let end = begin + printed[begin..].find("summary.json\n").expect("its path");
    let summary = &printed[begin..end];
    assert!(summary.contains("common share") && summary.contains("verdict: unofficial"), "{summary}");
    for path in [case.as_path(), case.parent().expect("a run")] {
        let (code, text, message) = run(checkout.path(), "show", path, &[]);
        assert_eq!((code, message.as_str()), (0, ""));
        assert!(text.contains(summary), "{summary}\n{text}");
    }
    let one = run(checkout.path(), "show", &case.join("localhost_noderank0_device0"), &[]).1;
    assert!(!one.contains("tiny:interpreter:1x2\n"), "one device has no sum: {one}");

    let rows: Value = serde_json::from_str(&run(checkout.path(), "report", &case, &["--json"]).1).expect("JSON");
    let figure = |row: usize| rows[row]["throughput_core_samples_per_s"].as_f64().expect("a figure");
    assert_eq!(
        (&rows[0]["devices"], &rows[0]["place"], &rows[1]["devices"]),
        (&2.into(), &"sum of 2".into(), &1.into())
    );
    assert!((figure(0) - figure(1) - figure(2)).abs() < 1e-6 * figure(0), "{rows}");
    assert!(rows[0]["reasons"].to_string().contains("several workers used the same device"), "{rows}");
    assert_eq!(run(checkout.path(), "report", &case, &["--csv"]).1.lines().count(), 4);
    assert_eq!(run(checkout.path(), "report", &case, &["--junit"]).1.matches("<testcase ").count(), 3);
    assert_eq!(run(checkout.path(), "report", &case, &["--html", "page.html"]).0, 0);
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains("href=\"#sum-1\"") && page.contains("common share"), "{page}");

    let site = program::flagperf(checkout.path(), &["site", "result", "www"]);
    assert_eq!(site.status.code(), Some(0), "{}", String::from_utf8_lossy(&site.stderr));
    let page = fs::read_to_string(checkout.path().join("www/case/tiny.html")).expect("a page");
    assert_eq!(page.matches("<tr class=").count(), 1, "one row for two devices: {page}");
    assert!(page.contains(">2 workers on shared devices<") && page.contains("it is unofficial"), "{page}");
}

#[test]
fn a_summary_that_does_not_follow_from_its_results_is_named() {
    let checkout = results::checkout();
    let (case, _) = results::run_on_two_devices(checkout.path());
    let path = case.join("summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&path).expect("a summary")).expect("JSON");
    summary["steps"][1]["throughput_core_samples_per_s"] = json!(1e9);
    fs::write(&path, summary.to_string()).expect("a file");
    let (code, text, message) = run(checkout.path(), "show", &case, &[]);
    assert!(code == 1 && message.contains("summary.json` is wrong\n  hint: `flagperf verify`"), "{message}{text}");
    assert!(text.contains("\nsum  wrong: ") && !text.contains("common share"), "a wrong sum has no figures: {text}");
    let (_, junit, _) = run(checkout.path(), "report", &case, &["--junit"]);
    let (_, sum) = junit.split_once("sum of 2 devices").expect("a test");
    assert!(sum.contains("`flagperf verify` says that the result is wrong"), "{junit}");
    fs::remove_file(&path).expect("the summary");
    let (code, text, _) = run(checkout.path(), "verify", &case, &[]);
    assert!(code == 2 && text.contains("nothing says how many devices the case ran on"), "{text}");
    assert_eq!(run(checkout.path(), "verify", &case.join("localhost_noderank0_device0"), &[]).0, 0);
}

#[test]
fn a_record_that_cannot_be_read_is_left_out_of_a_report_with_a_warning() {
    let (checkout, folder) = result();
    let (old, _) = results::run(checkout.path(), &[]);
    results::change_record(&old, |record| record["schema"] = 1.into());
    let old = old.display().to_string();
    for form in [&["--html", "page.html"][..], &["--json"]] {
        let (code, _, message) = run(checkout.path(), "report", &folder, &[&[old.as_str()], form].concat());
        assert_eq!(code, 1, "{message}");
        let expected = format!("warning: left out: `{old}/record.json`: it has schema 1, of an older version");
        assert!(message.contains(&expected), "{message}");
    }
    let page = fs::read_to_string(checkout.path().join("page.html")).expect("a page");
    assert!(page.contains("tiny:interpreter"));
    assert_eq!(run(checkout.path(), "show", &folder, &[&old]).0, 1);
}

#[test]
fn a_report_is_refused_with_the_reason() {
    let (checkout, folder) = result();
    let refused = |arguments: &[&str]| {
        let (code, _, message) = run(checkout.path(), "report", &folder, arguments);
        assert_eq!(code, 2, "{message}");
        message
    };
    assert!(refused(&[]).contains("--html"), "a form is required");
    assert!(refused(&["--csv", "--json"]).contains("cannot be used with"));
    assert!(refused(&["--csv", "--language", "zh"]).contains("cannot be used with"));
    assert!(refused(&["--html", "configs/host.yaml"]).contains("exists and is not a page"));
    let inside = folder.join("page.html").display().to_string();
    assert!(refused(&["--html", &inside]).contains("is in the folder of the result, whose files never change"));
    assert!(!folder.join("page.html").exists());
    results::change_record(&folder, |record| record["schema"] = 1.into());
    assert!(refused(&["--csv"]).contains("it has schema 1, of an older version of flagperf"));
    let (code, _, message) = run(checkout.path(), "show", &checkout.path().join("scripts"), &[]);
    assert!(code == 2 && message.contains("it contains no result"), "{message}");
}
