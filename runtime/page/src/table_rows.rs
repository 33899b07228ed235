//! Results as rows with the same keys: CSV for spreadsheets, JSON for programs. Keys contain the units.

use flagperf_core::measure::{Measurement, ThroughputInterval};
use flagperf_core::text::{escape_json, one_line};
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Record, measured_scenario};
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::result::{Check, ReadResult};

/// Characters at the beginning of a text with which a spreadsheet begins a formula.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// A row, in the order of its columns.
type Row = IndexMap<String, Value>;

/// Returns the rows as CSV, with a head.
pub fn csv_text(results: &[(ReadResult, Check)]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rows: Vec<_> = results.iter().map(|(result, check)| row(result, check)).collect();
    let head = rows.first().map(|row| row.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let written = std::iter::once(head).chain(rows.iter().map(|row| row.values().map(cell).collect()));
    for cells in written {
        writer.write_record(&cells).expect("each row has the cells of the head");
    }
    String::from_utf8(writer.into_inner().expect("a vector accepts everything")).expect("cells are text")
}

/// Returns the rows as a list of objects in JSON.
pub fn json_text(results: &[(ReadResult, Check)]) -> String {
    let rows: Vec<Row> = results.iter().map(|(result, check)| row(result, check)).collect();
    let text = serde_json::to_string_pretty(&rows).expect("rows are plain data");
    format!("{}\n", escape_json(&text))
}

/// Returns a value as text. One that a spreadsheet would compute begins with `'`, so that it is shown as it is.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.starts_with(FORMULA) => one_line(&format!("'{text}")).into_owned(),
        Value::String(text) => one_line(text).into_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join("; "),
        Value::Object(entries) => entries
            .iter()
            .map(|(name, value)| one_line(&format!("{name}={value}")).into_owned())
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}

/// Returns the row of a result. Every result has the same keys.
fn row(result: &ReadResult, check: &Check) -> Row {
    let record = &result.record;
    let headline = record.measured_loops().next_back();
    let mut row = Row::new();
    let mut add = |key: &str, value: Value| row.insert(key.to_owned(), value);
    add("run", json!(record.run));
    add("case", json!(record.key()));
    add("place", json!(result.place()));
    add("vendor", json!(record.vendor));
    add("compiler", json!(record.finish_info.compiler));
    add("device", json!(record.headline_device().map(|device| &device.name)));
    add("precision", json!(record.finish_info.precision));
    add("batch_size", json!(record.finish_info.batchsize));
    add("started", json!(record.started));
    add("state", json!(record.status));
    add("verdict", json!(record.validity.verdict));
    add("reasons", json!(record.validity.reasons));
    add("notes", json!(record.validity.notes));
    add("checked", json!(check.name()));
    add("e2e_time_s", json!(record.finish_info.e2e_time));
    add("unit", json!(record.unit));
    add("step", json!(record.headline_step().map(|step| step.name())));
    add_figures(&mut row, headline);
    add_scenario(&mut row, record);
    let mut add = |key: &str, value: Value| row.insert(key.to_owned(), value);
    add("accuracy", json!(accuracy(record)));
    add("declared_mfu", json!(record.flops.declared_mfu));
    add("counted_mfu", json!(record.flops.counted_mfu));
    let usage = record.headline_phase().and_then(|phase| phase.usage.as_ref());
    add("device_energy_j_per_sample", json!(usage.and_then(|usage| usage.device_energy_j_per_sample)));
    let memory = record.headline_device().and_then(|device| device.memory_bytes_max);
    add("device_memory_bytes_max", json!(memory));
    add("departures", json!(record.departures));
    add("digest", json!(result.digest));
    add("record", json!(result.record_path()));
    row
}

/// Adds throughput and step times of the loop that determines the headline.
fn add_figures(row: &mut Row, measured: Option<&Measurement>) {
    type Figures =
        (&'static str, fn(&Measurement) -> Option<SamplesPerSecond>, fn(&Measurement) -> Option<ThroughputInterval>);
    let figures: [Figures; 2] = [
        ("core", |measured| measured.throughput_core_samples_per_s, |measured| measured.throughput_core_interval),
        ("whole", |measured| measured.throughput_whole_samples_per_s, |measured| measured.throughput_whole_interval),
    ];
    for (name, figure, interval) in figures {
        let interval = measured.and_then(interval);
        row.insert(format!("throughput_{name}_samples_per_s"), json!(measured.and_then(figure)));
        row.insert(
            format!("throughput_{name}_low_samples_per_s"),
            json!(interval.map(|found| found.low_samples_per_s)),
        );
        row.insert(
            format!("throughput_{name}_high_samples_per_s"),
            json!(interval.and_then(|found| found.high_samples_per_s)),
        );
    }
    let change = measured.and_then(|measured| measured.step_time_change);
    row.insert("step_time_change".to_owned(), json!(change.map(|change| change.relative_change)));
    row.insert("step_time_change_from".to_owned(), json!(change.map(|change| change.begin.step)));
    row.insert("step_time_change_to".to_owned(), json!(change.map(|change| change.end.step)));
    let latency = measured.and_then(|measured| measured.latency);
    let times = [
        ("p50", latency.map(|latency| latency.p50_s)),
        ("p90", latency.map(|latency| latency.p90_s)),
        ("p99", latency.map(|latency| latency.p99_s)),
        ("max", latency.map(|latency| latency.max_s)),
    ];
    for (name, time) in times {
        row.insert(format!("step_{name}_s"), json!(time));
    }
    row.insert("steps".to_owned(), json!(measured.map(|measured| measured.steps)));
    row.insert("samples".to_owned(), json!(measured.map(|measured| measured.samples)));
}

/// Adds the rate and the latency of the queries of a scenario.
fn add_scenario(row: &mut Row, record: &Record) {
    let found = measured_scenario(record);
    let kind = found.and_then(|(figures, _)| Some(figures.report.as_ref()?.scenario.kind.name()));
    let trial = found.map(|(_, trial)| trial);
    row.insert("scenario".to_owned(), json!(kind));
    row.insert("queries_per_s".to_owned(), json!(trial.and_then(|trial| trial.queries_per_s)));
    let latency = trial.and_then(|trial| trial.latency);
    row.insert("query_p50_s".to_owned(), json!(latency.map(|latency| latency.p50_s)));
    row.insert("query_p99_s".to_owned(), json!(latency.map(|latency| latency.p99_s)));
    row.insert("query_percentile_s".to_owned(), json!(trial.and_then(|trial| trial.percentile_s)));
    let tokens =
        [("first_token", trial.and_then(|own| own.first_token)), ("next_token", trial.and_then(|own| own.next_token))];
    for (name, figures) in tokens {
        row.insert(format!("{name}_p50_s"), json!(figures.map(|figures| figures.latency.p50_s)));
        row.insert(format!("{name}_percentile_s"), json!(figures.and_then(|figures| figures.percentile_s)));
    }
    row.insert("queries_over_bound".to_owned(), json!(trial.and_then(|trial| trial.over_bound)));
}

/// Returns the metrics of the step that determines the headline.
fn accuracy(record: &Record) -> &indexmap::IndexMap<String, f64> {
    let found = &record.accuracy;
    let of_steps = [&found.inference, &found.training, &found.validation];
    of_steps.into_iter().find(|metrics| !metrics.is_empty()).unwrap_or(&found.validation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;

    fn results(vendor: &str) -> Vec<(ReadResult, Check)> {
        let mut record = testing::record();
        record.vendor = vendor.to_owned();
        record.validity.reasons = vec!["a, \"b\"".to_owned(), "c\nd".to_owned()];
        record.accuracy.validation = [("top1".to_owned(), 0.5)].into();
        let result = ReadResult { path: "r/record.json".into(), record, digest: None };
        vec![(result.clone(), Check::TooLarge), (result, Check::TooLarge)]
    }

    #[test]
    fn each_result_is_a_row_with_the_same_cells() {
        let text = csv_text(&results("cpu"));
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().unwrap().clone();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let of = |name: &str| &rows[1][head.iter().position(|own| own == name).unwrap()];
        assert_eq!((rows.len(), text.lines().count()), (2, 3));
        assert_eq!(
            (of("case"), of("throughput_core_samples_per_s"), of("verdict")),
            ("resnet50:interpreter", "80.0", "unofficial")
        );
        assert_eq!((of("reasons"), of("accuracy"), of("checked")), ("a, \"b\"; c\\nd", "top1=0.5", "not checked"));
    }

    #[test]
    fn a_text_that_a_spreadsheet_would_compute_is_shown_as_it_is() {
        assert!(csv_text(&results("=1+cmd|' /C calc'!A0")).contains("'=1+cmd"));
    }

    #[test]
    fn json_has_the_same_rows_with_numbers() {
        let rows: Value = serde_json::from_str(&json_text(&results("a\u{202e}b"))).unwrap();
        assert_eq!(
            (&rows[0]["throughput_core_samples_per_s"], &rows[0]["vendor"]),
            (&json!(80.0), &json!("a\u{202e}b"))
        );
        assert_eq!(rows[1]["accuracy"]["top1"], json!(0.5));
    }
}
