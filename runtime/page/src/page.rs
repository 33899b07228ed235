//! Writes a page of HTML, which contains everything that it shows: no script, no font and no image from elsewhere.

use flagperf_comparison::Pareto;
use flagperf_core::units::SamplesPerSecond;
use flagperf_report::{Screen, rate};
use serde::Serialize;

use super::chart::VIEW_BOX;
use super::columns::Columns;
use super::entry::{CheckedResult, Entry};
use super::figures::Figure;
use super::pareto::pareto_figure;
use super::result::text;
use super::roofline::{Roofline, roofline_figure};
use super::section::{ResultSection, section};
use super::summary::ReadSummary;
use super::template::fill;
use super::variants::variant_figures;
use super::words::Language;

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
    /// The heads of the columns with figures and what they are of.
    head: Vec<String>,
    rows: Vec<Row>,
    sums: Vec<Sum>,
    /// The figure of results that generate text; `None` without two.
    pareto: Option<Figure>,
    /// The figure of results on devices whose peaks are known; `None` without any.
    roofline: Option<Figure>,
    /// The figures of results that are a sweep or an ablation.
    variants: Vec<Figure>,
    sections: Vec<ResultSection>,
    has_charts: bool,
    has_details: bool,
    /// The pages of the site to which this one leads: their paths from here, and their names.
    site: Vec<(String, String)>,
}

/// A row of the table of all cases.
#[derive(Serialize)]
struct Row {
    /// Where the result is, on this page or on another one.
    link: String,
    key: String,
    place: String,
    state: &'static str,
    validity: &'static str,
    check: &'static str,
    is_wrong: bool,
    cells: Vec<String>,
}

/// The sum over the devices of a case.
#[derive(Serialize)]
struct Sum {
    id: String,
    key: String,
    place: String,
    is_wrong: bool,
    /// What the end of the run printed of it.
    text: String,
}

/// What a page shows.
#[derive(Default)]
pub(super) struct Content<'r> {
    /// The results and sums of the table of all cases, each with the link to it.
    pub(super) rows: Vec<(Entry<'r>, String)>,
    /// The results that have a section.
    pub(super) sections: Vec<&'r CheckedResult>,
    /// The figures of results that are a sweep or an ablation.
    pub(super) variants: Vec<Figure>,
    /// The pages of the site to which this one leads: their paths from here, and their names.
    pub(super) site: Vec<(String, String)>,
}

/// The columns of the width of a summary on a page.
const SUMMARY_COLUMNS: u16 = 110;

/// Returns the page of results, each with what `verify` found, of the sums of those that are of one case, of the figures of those that
/// generate text, and of those on devices whose peaks are known.
pub fn page(
    results: &[CheckedResult],
    summaries: &[ReadSummary],
    (pareto, roofline): (&Pareto, &Roofline),
    language: Language,
) -> String {
    let sums = summaries.iter().map(|summary| Entry::of_summary(summary, results)).enumerate();
    let sums = sums.map(|(index, entry)| (entry, format!("#{}", sum_id(index))));
    let of_results = results.iter().enumerate();
    let of_results = of_results.map(|(index, result)| (Entry::of_result(result), format!("#{}", section_id(index))));
    let content = Content {
        rows: sums.chain(of_results).collect(),
        sections: results.iter().collect(),
        variants: variant_figures(results, language),
        site: Vec::new(),
    };
    page_of(content, (pareto, roofline), language)
}

fn sum_id(index: usize) -> String {
    format!("sum-{}", index + 1)
}

fn section_id(index: usize) -> String {
    format!("result-{}", index + 1)
}

/// Returns a page with this content.
pub(super) fn page_of(content: Content, (pareto, roofline): (&Pareto, &Roofline), language: Language) -> String {
    let Content { rows, sections, variants, site } = content;
    let points_max = points_max(sections.len());
    let columns = Columns::of(&rows);
    let values = Values {
        language: language.code(),
        style: STYLE,
        view_box: VIEW_BOX,
        title: title(&rows),
        head: columns.head(language),
        rows: rows.iter().map(|(entry, link)| row(entry, link, columns, language)).collect(),
        sums: sums(&rows, language),
        pareto: pareto_figure(pareto, language),
        roofline: roofline_figure(roofline, language),
        has_charts: points_max > 0,
        has_details: sections.len() <= DETAILED_RESULTS_MAX,
        sections: (sections.iter().enumerate())
            .map(|(index, (result, check))| section(result, check, section_id(index), points_max, language))
            .collect(),
        variants,
        site,
    };
    fill("page.html", TEMPLATE, values, language)
}

fn sums(rows: &[(Entry, String)], language: Language) -> Vec<Sum> {
    let summaries = rows.iter().filter_map(|(entry, _)| Some((entry, entry.summary?))).enumerate();
    let sum = |(index, (entry, read)): (usize, (&Entry, &ReadSummary))| Sum {
        id: sum_id(index),
        key: entry.key(),
        place: entry.place(language),
        is_wrong: entry.is_wrong(),
        text: read.text(&read.path, Screen { columns: SUMMARY_COLUMNS, colour: false }),
    };
    summaries.map(sum).collect()
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
fn title(rows: &[(Entry, String)]) -> String {
    let mut runs: Vec<String> = rows.iter().map(|(entry, _)| text(&entry.record().run)).collect();
    runs.dedup();
    match runs.len() {
        0..=3 => runs.join(", "),
        more => format!("{}, ... ({more})", runs[..2].join(", ")),
    }
}

pub(super) fn throughput(figure: Option<SamplesPerSecond>, unit: &str) -> String {
    figure.map_or_else(String::new, |figure| text(&format!("{} {unit}s/s", rate(figure))))
}

fn row(entry: &Entry, link: &str, columns: Columns, language: Language) -> Row {
    Row {
        link: link.to_owned(),
        key: entry.key(),
        place: entry.place(language),
        state: flagperf_report::verdict_word(entry.status()),
        validity: entry.validity().name(),
        check: entry.check_name(),
        is_wrong: entry.is_wrong(),
        cells: columns.cells(entry, language),
    }
}
