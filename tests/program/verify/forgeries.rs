//! Results that someone has changed so that their parts agree with each other again.

use std::fs;
use std::path::Path;

use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_result::{ChainReader, EventChain, Record, SampleFiles};
use flagperf_verify::{Standing, Trust, verify_result};
use serde_json::{Value, json};

use super::fields::forge;
use super::{findings, runs, verified};
use crate::support::results;

/// Returns the place of a figure of inference in the record.
fn inference(record: &mut Value) -> &mut Value {
    &mut record["phases"][1]["measured"][0]
}

#[test]
fn a_throughput_that_was_doubled_in_the_record_is_found_by_the_raw_times() {
    let copy = results::copy(&runs().first.0);
    results::change_record(copy.path(), |record| {
        let rate = &mut record["finish_info"]["*p_inference_core(qps)"];
        *rate = json!(2.0 * rate.as_f64().unwrap());
        let rate = &mut inference(record)["throughput_core_samples_per_s"];
        *rate = json!(2.0 * rate.as_f64().unwrap());
    });
    let report = verified(copy.path());
    assert_eq!(report.standing, Standing::Wrong);
    let found = findings(&report);
    assert!(
        found.contains(&"record.json: phases[1].measured[0].throughput_core_samples_per_s".to_owned()),
        "{found:?}"
    );
    assert!(found.contains(&"record.json: finish_info.*p_inference_core(qps)".to_owned()), "{found:?}");
}

#[test]
fn verdicts_targets_and_settings_that_were_changed_are_found() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 12] = [
        ("record.finish_info.p_inference", |record| record["finish_info"]["p_inference"] = json!(99_999)),
        ("settings.batch_size", |record| record["settings"]["batch_size"]["value"] = json!(99)),
        ("settings.batch_size", |record| drop(record["settings"].as_object_mut().unwrap().remove("batch_size"))),
        ("settings.BUSY_HOST", |record| record["settings"]["BUSY_HOST"]["value"] = json!("share")),
        ("phases[0].libraries", |record| record["phases"][0]["libraries"] = json!([])),
        ("validity.verdict", |record| record["validity"]["verdict"] = json!("valid")),
        ("validity.reasons", |record| record["departures"] = json!(["batch_size=2"])),
        ("accuracy.target", |record| record["accuracy"]["target"] = json!({"top1": 0.1})),
        ("settings.seed", |record| record["settings"]["seed"]["value"] = json!(7)),
        ("flops.declared", |record| record["flops"]["declared_per_sample"] = json!(2e6)),
        ("phases[1].usage.machine_memory_bytes_max", |record| {
            record["phases"][1]["usage"]["machine_memory_bytes_max"] = json!(1);
        }),
        ("hosts[0].devices", |record| record["hosts"][0]["devices"][1]["memory_bytes_max"] = json!(1)),
    ];
    for (place, change) in changes {
        let copy = results::copy(&runs().first.0);
        results::change_record(copy.path(), change);
        let found = findings(&verified(copy.path()));
        assert!(
            found.iter().any(|finding| finding.starts_with(&format!("record.json: {place}"))),
            "{place}: {found:?}"
        );
    }
}

#[test]
fn the_samples_and_events_of_another_run_are_found() {
    let (first, second) = (&runs().first.0, &runs().second.0);
    for files in
        [&["samples.infer.csv"][..], &["events.jsonl"], &["samples.infer.csv", "samples.validate.csv", "events.jsonl"]]
    {
        let copy = results::copy(first);
        for file in files {
            fs::copy(second.join(file), copy.path().join(file)).unwrap();
        }
        results::seal_again(copy.path());
        assert_eq!(verified(copy.path()).standing, Standing::Wrong, "{files:?}");
    }
}

#[test]
fn the_accuracy_of_another_run_is_found() {
    let copy = results::copy(&runs().first.0);
    results::change_record(copy.path(), |record| {
        record["accuracy"]["inference"] = json!({"top1": 0.9});
        record["accuracy"]["verdict"] = json!("met");
        record["accuracy"]["unknown"] = json!(null);
        inference(record)["accuracy"] = json!({"top1": 0.9});
    });
    let found = findings(&verified(copy.path()));
    for place in ["phases[1].measured[0].accuracy.top1", "accuracy.verdict"] {
        assert!(found.contains(&format!("record.json: {place}")), "{found:?}");
    }
}

/// Changes the accuracy of inference in the events, and writes the chain again.
fn change_accuracy(result: &Path, top1: f64) {
    let events = fs::read(result.join("events.jsonl")).unwrap();
    let mut reader = ChainReader::new(&events[..]);
    fs::remove_file(result.join("events.jsonl")).unwrap();
    let mut chain = EventChain::create(&result.join("events.jsonl")).unwrap();
    while let Some(mut read) = reader.read().unwrap() {
        if let Event::PassEnd(report) = &mut read.event {
            report.accuracy = [("top1".to_owned(), top1)].into();
            report.accuracy_unknown = None;
        }
        chain.push(read.at.since(Nanos(0)), read.phase, &read.event).unwrap();
    }
}

#[test]
fn accuracy_that_was_changed_in_events_and_record_is_found_by_the_stored_outputs() {
    let copy = results::copy(&runs().first.0);
    change_accuracy(copy.path(), 0.9);
    let found = findings(&verified(copy.path()));
    for phase in ["validate", "infer"] {
        let expected = format!("evaluation.{phase}.safetensors: `top1` of pass ");
        assert!(found.iter().any(|finding| finding.starts_with(&expected)), "{found:?}");
    }
}

#[test]
fn stored_outputs_that_are_not_those_of_the_timed_steps_are_found() {
    let (first, second) = (&runs().first.0, &runs().second.0);
    let file = "evaluation.infer.safetensors";
    let copy = results::copy(first);
    fs::copy(second.join(file), copy.path().join(file)).unwrap();
    results::seal_again(copy.path());
    let found = findings(&verified(copy.path()));
    let expected = format!("{file}: the outputs of step ");
    assert!(found.iter().any(|finding| finding.starts_with(&expected)), "{found:?}");

    // The last bytes of the file are elements of an output.
    let copy = results::copy(first);
    let mut bytes = fs::read(first.join(file)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(copy.path().join(file), &bytes).unwrap();
    results::seal_again(copy.path());
    assert_eq!(verified(copy.path()).standing, Standing::Wrong);

    let copy = results::copy(first);
    fs::write(copy.path().join(file), "no tensors").unwrap();
    assert_eq!(verified(copy.path()).standing, Standing::Wrong);
    fs::remove_file(copy.path().join(file)).unwrap();
    assert_eq!(verified(copy.path()).standing, Standing::Wrong);
}

#[test]
fn a_script_that_was_exchanged_is_found() {
    let copy = results::copy(&runs().first.0);
    fs::write(copy.path().join("sources/scripts/tiny/forward.rhai"), "fn model_forward(m, b) { 1 }").unwrap();
    results::seal_again(copy.path());
    assert_eq!(findings(&verified(copy.path())), ["sources/scripts/tiny/forward.rhai: SHA-256 in the record"]);
    fs::remove_file(copy.path().join("sources/scripts/tiny/forward.rhai")).unwrap();
    fs::write(copy.path().join("sources/scripts/tiny/other.rhai"), "").unwrap();
    results::seal_again(copy.path());
    let expected = [
        "sources/scripts/tiny/forward.rhai: the file is missing",
        "record.json: provenance lacks `scripts/tiny/other.rhai`",
    ];
    assert_eq!(findings(&verified(copy.path())), expected);
}

/// Halves the core time of every step in the events, and writes chain and samples files again.
fn halve_core_times(result: &Path) {
    let events = fs::read(result.join("events.jsonl")).unwrap();
    let mut reader = ChainReader::new(&events[..]);
    fs::remove_file(result.join("events.jsonl")).unwrap();
    let mut chain = EventChain::create(&result.join("events.jsonl")).unwrap();
    for phase in [Phase::Validate, Phase::Infer] {
        fs::remove_file(result.join(format!("samples.{}.csv", phase.name()))).unwrap();
    }
    let mut samples = [Phase::Validate, Phase::Infer].map(|phase| (phase, SampleFiles::default()));
    while let Some(mut read) = reader.read().unwrap() {
        if let Event::Steps { times, .. } = &mut read.event {
            times.0.iter_mut().for_each(|step| step.core_s = Seconds(step.core_s.0 / 2.0));
        }
        let (phase, files) = samples.iter_mut().find(|(phase, _)| *phase == read.phase).unwrap();
        files.append(result, *phase, &read.event).unwrap();
        chain.push(read.at.since(Nanos(0)), read.phase, &read.event).unwrap();
    }
}

/// Sets the value at a place such as `phases[0].measured` in a record.
fn set(record: &mut Value, place: &str, value: Value) {
    let mut pointer = String::new();
    for part in place.replace('[', ".").replace(']', "").split('.') {
        pointer += &format!("/{part}");
    }
    *record.pointer_mut(&pointer).unwrap_or_else(|| panic!("no {place}")) = value;
}

/// Adopts what `verify` expects until it finds nothing, as a forger does who has the program.
fn adopt_what_is_expected(result: &Path) {
    for _ in 0..20 {
        results::seal_again(result);
        let report = verified(result);
        if report.findings.is_empty() {
            return;
        }
        let path = result.join("record.json");
        let mut record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut has_warning = false;
        for finding in &report.findings {
            if let (Some(expected), None, "warnings") = (&finding.expected, &finding.found, finding.what.as_str()) {
                // The same warning with other figures.
                let begin = expected.split(',').next().unwrap();
                let mut warnings = record["warnings"].as_array_mut().unwrap().iter_mut();
                *warnings.find(|warning| warning.as_str().unwrap().starts_with(begin)).unwrap() = json!(expected);
                has_warning = true;
                continue;
            }
            let (Some(expected), Some(found)) = (&finding.expected, &finding.found) else { panic!("{finding:?}") };
            match finding.file.as_str() {
                "container.out.log" => {}
                "record.json" => {
                    let value = serde_json::from_str(expected).unwrap_or_else(|_| json!(expected));
                    set(&mut record, &finding.what, value);
                }
                file => {
                    let key = if finding.what.starts_with("size") { "size_bytes" } else { "sha256" };
                    let value = serde_json::from_str(found).unwrap_or_else(|_| json!(found));
                    *file_entry(&mut record, file, key) = value;
                }
            }
        }
        if has_warning {
            forge(result, &serde_json::from_value(record).unwrap());
            continue;
        }
        let text = serde_json::to_string_pretty(&record).unwrap() + "\n";
        fs::write(&path, &text).unwrap();
        write_log_again(result, &serde_json::from_str(&text).unwrap());
    }
    panic!("{:?}", verified(result).findings);
}

/// Returns the property of a file that a worker wrote in the record.
fn file_entry<'r>(record: &'r mut Value, file: &str, key: &str) -> &'r mut Value {
    let phases = record["phases"].as_array_mut().unwrap().iter_mut();
    let mut files = phases.flat_map(|phase| phase["files"].as_array_mut().unwrap());
    &mut files.find(|entry| entry["path"].as_str().unwrap().ends_with(file)).unwrap()[key]
}

/// Writes the last lines of the log again, from the record.
pub(super) fn write_log_again(result: &Path, record: &Record) {
    let path = result.join("container.out.log");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.truncate(lines.len() - 2);
    let time = "2026-01-01T00:00:00.000000+0000";
    lines.push(format!("{time} - Verdict - {}", record.validity.line()));
    lines.push(format!("{time} - Finish Info - {}", serde_json::to_string(&record.finish_info).unwrap()));
    fs::write(&path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn only_the_digest_tells_a_result_whose_parts_were_all_written_anew() {
    let (result, digest) = &runs().first;
    let copy = results::copy(result);
    halve_core_times(copy.path());
    results::seal_again(copy.path());
    let report = verified(copy.path());
    assert_eq!(report.standing, Standing::Wrong, "the record has the old figures");
    adopt_what_is_expected(copy.path());
    let rate = |folder: &Path| {
        let text = fs::read_to_string(folder.join("record.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        record["finish_info"]["*p_inference_core(qps)"].as_f64().unwrap()
    };
    assert!((rate(copy.path()) / rate(result) - 2.0).abs() < 1e-9, "the forged throughput is twice the true one");
    assert_eq!(verified(copy.path()).standing, Standing::Consistent);
    let trust = Trust { digests: vec![digest.clone()], ..Trust::default() };
    let report = verify_result(copy.path(), &trust);
    assert_eq!(
        (report.standing, findings(&report)),
        (Standing::Wrong, vec!["manifest.json: the digest differs from the one given with --digest".to_owned()])
    );
}
