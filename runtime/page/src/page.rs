//! Writes a page of HTML, which contains everything that it shows: no script, no font and no image from elsewhere.

use flagperf_comparison::Pareto;
use flagperf_core::units::SamplesPerSecond;
use flagperf_report::{duration, headline_rows, rate};
use flagperf_result::Record;
use serde::Serialize;

use super::chart::VIEW_BOX;
use super::figures::Figure;
use super::pareto::pareto_figure;
use super::result::{Check, ReadResult, text};
use super::roofline::{Roofline, roofline_figure};
use super::section::{ResultSection, section};
use super::summary::ReadSummary;
use super::template::fill;
use super::words::Language;

/// Columns of the table of all cases with figures and what they are of.
const COLUMNS: usize = 8;
const TEMPLATE: &str = include_str!("../templates/page.html");
pub(super) const STYLE: &str = include_str!("../templates/page.css");
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
    /// The figure of results that generate text; `None` without two.
    pareto: Option<Figure>,
    /// The figure of results on devices whose peaks are known; `None` without any.
    roofline: Option<Figure>,
    sections: Vec<ResultSection>,
    has_charts: bool,
    has_details: bool,
    is_in_site: bool,
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

/// Returns the page of results, each with what `verify` found, of the sums of those that are of one case, of the figures of those that
/// generate text, and of those on devices whose peaks are known.
pub fn page(
    results: &[(ReadResult, Check)],
    summaries: &[ReadSummary],
    (pareto, roofline): (&Pareto, &Roofline),
    language: Language,
) -> String {
    page_with(results, summaries, (pareto, roofline), language, false)
}

/// Returns the page of results in a site, one folder below its root.
pub(super) fn page_in_site(results: &[(ReadResult, Check)], language: Language) -> String {
    page_with(results, &[], (&Pareto::default(), &Roofline::default()), language, true)
}

fn page_with(
    results: &[(ReadResult, Check)],
    summaries: &[ReadSummary],
    (pareto, roofline): (&Pareto, &Roofline),
    language: Language,
    is_in_site: bool,
) -> String {
    let points_max = points_max(results.len());
    let sections: Vec<ResultSection> = results
        .iter()
        .enumerate()
        .map(|(index, (result, check))| section(result, check, index + 1, points_max, language))
        .collect();
    let sums = summaries.iter().map(|summary| sum_row(summary, language));
    let of_results = results.iter().enumerate().map(|(index, (result, check))| row(result, check, index + 1));
    let rows: Vec<Row> = sums.chain(of_results).collect();
    let values = Values {
        language: language.code(),
        style: STYLE,
        view_box: VIEW_BOX,
        title: title(results),
        rows,
        pareto: pareto_figure(pareto, language),
        roofline: roofline_figure(roofline, language),
        sections,
        has_charts: points_max > 0,
        is_in_site,
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

/// Returns the row with the sums of a case, which leads to no section.
fn sum_row(ReadSummary { summary, check, .. }: &ReadSummary, language: Language) -> Row {
    let step = summary.steps.last();
    let cells = [
        throughput(step.and_then(|step| step.throughput_core_samples_per_s), &summary.unit),
        throughput(step.and_then(|step| step.throughput_whole_samples_per_s), &summary.unit),
    ];
    let empty = std::iter::repeat_n(String::new(), COLUMNS - cells.len());
    Row {
        id: String::new(),
        key: text(&summary.case),
        place: language.sentence("sum of {}", &[&summary.replicas.len().to_string()]),
        state: flagperf_report::verdict_word(summary.status),
        validity: summary.validity.name(),
        check: check.name(),
        is_wrong: check.is_wrong(),
        cells: cells.into_iter().map(|cell| text(&cell)).chain(empty).collect(),
    }
}

pub(super) fn throughput(figure: Option<SamplesPerSecond>, unit: &str) -> String {
    figure.map_or_else(String::new, |figure| format!("{} {unit}s/s", rate(figure)))
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
        cells: cells(record).to_vec(),
    }
}

/// Returns throughput, median step, accuracy, device, precision, batch size and departures.
fn cells(record: &Record) -> [String; COLUMNS] {
    let measured = record.measured_loops().next_back();
    let median = measured.and_then(|measured| measured.latency.as_ref()).map(|latency| duration(latency.p50_s));
    let accuracy = headline_rows(record).into_iter().find(|(name, _)| name == "accuracy").map(|(_, value)| value);
    let device = record.headline_device().map(|device| device.name.clone());
    [
        throughput(measured.and_then(|measured| measured.throughput_core_samples_per_s), &record.unit),
        throughput(measured.and_then(|measured| measured.throughput_whole_samples_per_s), &record.unit),
        median.unwrap_or_default(),
        accuracy.unwrap_or_default(),
        device.unwrap_or_default(),
        record.finish_info.precision.clone(),
        record.finish_info.batchsize.to_string(),
        record.departures.join(" "),
    ]
    .map(|cell| text(&cell))
}
