//! Writes a page of HTML, which contains everything that it shows: no script, no font and no image from elsewhere.

use flagperf_report::{duration, headline_rows, rate};
use flagperf_result::Record;
use serde::Serialize;

use super::chart::VIEW_BOX;
use super::result::{Check, ReadResult, text};
use super::section::{ResultSection, section};
use super::template::fill;
use super::words::Language;

const TEMPLATE: &str = include_str!("../templates/page.html");
const STYLE: &str = include_str!("../templates/page.css");
/// The most points of the charts of a page with few results, and how many results that is.
const POINTS_MAX: usize = 240;
const FEW_RESULTS: usize = 4;
/// Fewest points of a chart, and most results on a page with charts. A page of more has no charts and stays below a megabyte.
const POINTS_MIN: usize = 60;
const DRAWN_RESULTS_MAX: usize = 12;
/// Most results on a page with settings and hashes.
const DETAILED_RESULTS_MAX: usize = 24;

/// What the template shows.
#[derive(Serialize)]
struct Values {
    language: &'static str,
    style: &'static str,
    view_box: &'static str,
    title: String,
    rows: Vec<Row>,
    sections: Vec<ResultSection>,
    has_charts: bool,
    has_details: bool,
}

/// A row of the table of all cases.
#[derive(Serialize)]
struct Row {
    id: String,
    key: String,
    place: String,
    state: &'static str,
    validity: &'static str,
    check: &'static str,
    is_wrong: bool,
    cells: Vec<String>,
}

/// Returns the page of results, each with what `verify` found.
pub fn page(results: &[(ReadResult, Check)], language: Language) -> String {
    let points_max = points_max(results.len());
    let sections: Vec<ResultSection> = results
        .iter()
        .enumerate()
        .map(|(index, (result, check))| section(result, check, index + 1, points_max, language))
        .collect();
    let rows: Vec<Row> =
        results.iter().enumerate().map(|(index, (result, check))| row(result, check, index + 1)).collect();
    let values = Values {
        language: language.code(),
        style: STYLE,
        view_box: VIEW_BOX,
        title: title(results),
        rows,
        sections,
        has_charts: points_max > 0,
        has_details: results.len() <= DETAILED_RESULTS_MAX,
    };
    fill("page.html", TEMPLATE, values, language)
}

/// Returns the most points of each chart, so that a page of many results stays small.
fn points_max(results: usize) -> usize {
    match results {
        0..=FEW_RESULTS => POINTS_MAX,
        _ if results <= DRAWN_RESULTS_MAX => (POINTS_MAX * FEW_RESULTS / results).max(POINTS_MIN),
        _ => 0,
    }
}

/// Returns the runs of the results, which are the title of the page.
fn title(results: &[(ReadResult, Check)]) -> String {
    let mut runs: Vec<String> = results.iter().map(|(result, _)| text(&result.record.run)).collect();
    runs.dedup();
    match runs.len() {
        0..=3 => runs.join(", "),
        more => format!("{}, ... ({more})", runs[..2].join(", ")),
    }
}

fn row(result: &ReadResult, check: &Check, id: usize) -> Row {
    let record = &result.record;
    Row {
        id: format!("result-{id}"),
        key: text(&record.key()),
        place: result.place(),
        state: flagperf_report::verdict_word(record.status),
        validity: record.validity.verdict.name(),
        check: check.name(),
        is_wrong: check.is_wrong(),
        cells: cells(record),
    }
}

/// Returns throughput, median step, accuracy, device, precision and batch size.
fn cells(record: &Record) -> Vec<String> {
    let measured = record.measured_loops().next_back();
    let throughput = |figure: Option<flagperf_core::units::SamplesPerSecond>| {
        figure.map_or_else(String::new, |figure| format!("{} {}s/s", rate(figure), record.unit))
    };
    let median = measured.and_then(|measured| measured.latency.as_ref()).map(|latency| duration(latency.p50_s));
    let accuracy = headline_rows(record).into_iter().find(|(name, _)| name == "accuracy").map(|(_, value)| value);
    let device = record.headline_device().map(|device| device.name.clone());
    [
        throughput(measured.and_then(|measured| measured.throughput_core_samples_per_s)),
        throughput(measured.and_then(|measured| measured.throughput_whole_samples_per_s)),
        median.unwrap_or_default(),
        accuracy.unwrap_or_default(),
        device.unwrap_or_default(),
        record.finish_info.precision.clone(),
        record.finish_info.batchsize.to_string(),
    ]
    .map(|cell| text(&cell))
    .to_vec()
}
