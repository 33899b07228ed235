//! Tests of series of results.

use flagperf_core::event::EngineFacts;
use flagperf_core::step::Step;
use flagperf_result::testing;

use super::*;

/// Returns the record of a day with a throughput, known to ±0.2 %, of a version of the engine.
fn record(day: usize, throughput: f64, version: &str) -> Record {
    let mut record = testing::record();
    record.started = format!("2026-03-{:02}T10:00:00+08:00", day + 1);
    record.validity.verdict = Validity::Unofficial;
    record.provenance.git_revision = Some(format!("{:040}", day / 5));
    let phase = &mut record.phases[0];
    phase.engine = Some(EngineFacts {
        name: "onnxruntime".into(),
        version: version.into(),
        device: "chip".into(),
        precision: "fp32".into(),
        ..EngineFacts::default()
    });
    let measured = &mut phase.measured[0];
    measured.throughput_core_samples_per_s = Some(SamplesPerSecond(throughput));
    measured.throughput_core_interval = Some(testing::interval(throughput, 0.002));
    record
}

fn history(records: Vec<Record>) -> History {
    let named = records.into_iter().enumerate().map(|(index, record)| (PathBuf::from(format!("run{index}")), record));
    // The order of the folders is not that of time.
    History::of("resnet50", named.rev().collect(), Vec::new())
}

/// Throughputs that deviate by at most 0.1 %.
fn around(level: f64, day: usize) -> f64 {
    level * (1.0 + 0.001 * [0.3, -0.9, 0.5, 0.1, -0.4, 0.8, -0.2][day % 7])
}

#[test]
fn the_first_result_with_another_level_is_named_with_what_changed() {
    let records = (0..10).map(|day| match day {
        0..6 => record(day, around(100.0, day), "1.29"),
        _ => record(day, around(97.0, day), "1.30"),
    });
    let found = history(records.collect());
    let [series] = found.series.as_slice() else { panic!("{found:?}") };
    let days: Vec<&str> = series.results.iter().map(|result| &result.started[8..10]).collect();
    assert_eq!(days, ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10"]);
    let [change] = series.change_points.as_slice() else { panic!("{:?}", series.change_points) };
    assert!(change.result == 6 && (change.ratio.ratio - 0.97).abs() < 2e-3 && change.ratio.high < 0.98, "{change:?}");
    let named: Vec<String> =
        change.differences.iter().map(|each| format!("{}: {} -> {}", each.what, each.first, each.second)).collect();
    assert_eq!(named, ["engine of validate: onnxruntime 1.29 -> onnxruntime 1.30"]);
    assert_eq!(series.results[0].by_previous, None);
    let by_previous = series.results[6].by_previous.unwrap();
    assert!(by_previous.high < 1.0 && (series.engine.as_str(), series.device.as_str()) == ("onnxruntime", "chip"));
}

#[test]
fn results_of_other_work_or_devices_are_series_of_their_own_and_invalid_ones_are_not_used() {
    let mut records: Vec<Record> = (0..6).map(|day| record(day, 100.0, "1")).collect();
    records[1].phases[0].measured[0].batch_size = 16;
    records[2].phases[0].engine.as_mut().unwrap().device = "other chip".into();
    records[3].validity = flagperf_result::ValidityCheck {
        verdict: Validity::Invalid,
        reasons: vec!["the run was interrupted".into()],
        ..Default::default()
    };
    records[4].phases[0].measured[0].throughput_core_samples_per_s = None;
    records[5].started = "yesterday".into();
    let mut other = record(6, 100.0, "1");
    other.settings.insert(
        "scenario".into(),
        flagperf_result::Setting { value: serde_json::json!({"kind": "server"}), origin: "file:1".into() },
    );
    records.push(other);
    let found = history(records);
    assert_eq!(found.series.iter().map(|series| series.results.len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    let unlike: Vec<Vec<String>> = (found.series.iter())
        .map(|series| {
            series.unlike_earlier.iter().map(|each| format!("{} {} {}", each.what, each.first, each.second)).collect()
        })
        .collect();
    assert_eq!(unlike, [vec![], vec![], vec![], vec!["scenario none server".to_owned()]]);
    let reasons: Vec<&str> = found.unused.iter().map(|unused| unused.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["invalid: the run was interrupted", "it has no throughput", "its start is `yesterday`, which is not a time"]
    );
}

#[test]
fn another_setting_stays_in_the_series_and_is_named_at_a_change() {
    let mut records: Vec<Record> =
        (0..8).map(|day| record(day, around(if day < 4 { 100.0 } else { 90.0 }, day), "1")).collect();
    for record in &mut records[4..] {
        let setting = flagperf_result::Setting { value: 1.into(), origin: String::new() };
        record.settings.insert("num_workers".into(), setting);
    }
    let found = history(records);
    let change = &found.series[0].change_points[0];
    assert!(change.result == 4 && change.differences.iter().any(|each| each.what == "num_workers"), "{change:?}");
    assert_eq!(found.series[0].step, Step::Validation.name());
}
