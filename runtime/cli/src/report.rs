//! `flagperf report` and `flagperf show`: results again, from their files alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};

use super::measured_peaks::MeasuredPeaks;
use super::output::{check_outside, check_page_file, print_message, print_mistake, print_result, write_file};
use super::pareto::PriceArguments;
use super::result_printer::relative_path;
use super::verify::checkout_trust;
use flagperf_core::exit_code;
use flagperf_page::{
    Check, Language, ReadResult, ReadSummary, csv_text, json_text, junit, page, readme_rows, terminal_charts,
};
use flagperf_report::{Extent, OverviewRow, SavedResult, Screen, case_report, overview};
use flagperf_verify::find_results;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("form").required(true))]
pub(super) struct ReportArguments {
    /// Folder of a case, folder of a run, or a record.json; several for one report
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    result: Vec<PathBuf>,
    /// Write a page with charts, which needs neither scripts nor the network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "form")]
    html: Option<PathBuf>,
    /// The language of the page
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value = "en", conflicts_with_all = ["markdown", "csv", "json", "junit"])]
    language: PageLanguage,
    #[command(flatten)]
    prices: PriceArguments,
    /// Also draw the results under the measured peaks of their device, from what `flagperf peak --json` has written
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    peaks: Option<PathBuf>,
    /// Print rows for the tables of a case's README, with FlagPerf's columns
    #[arg(long, group = "form")]
    markdown: bool,
    /// Print a row of figures for each result, as CSV
    #[arg(long, group = "form")]
    csv: bool,
    /// Print the same rows as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Print a test for each result, as JUnit's XML; that of a case that failed, or whose result is invalid or wrong, fails
    #[arg(long, group = "form")]
    junit: bool,
}

/// The language of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PageLanguage {
    /// English
    En,
    /// Chinese
    Zh,
}

impl From<PageLanguage> for Language {
    fn from(language: PageLanguage) -> Self {
        match language {
            PageLanguage::En => Language::English,
            PageLanguage::Zh => Language::Chinese,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// Folder of a case, folder of a run, or a record.json
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    result: Vec<PathBuf>,
    /// Also print the share of the measured peak of the device, from what `flagperf peak --json` has written
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    peaks: Option<PathBuf>,
}

/// Writes a report of results.
pub(super) fn report(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    if arguments.html.is_none() && (arguments.prices.are_given() || arguments.peaks.is_some()) {
        return Ok(print_mistake("--prices, --server-devices and --peaks are for --html"));
    }
    let peaks = match arguments.peaks.as_deref().map(MeasuredPeaks::read).transpose() {
        Ok(peaks) => peaks,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let prepared = read_results(&arguments.result).and_then(|results| {
        arguments.html.as_deref().map_or(Ok(()), |file| check_target(file, &results))?;
        Ok((results, checkout_trust()?))
    });
    let (results, trust) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let checked = results.into_iter().map(|result| {
        let check = result.check(&trust);
        (result, check)
    });
    let results: Vec<(ReadResult, Check)> = checked.collect();
    let summaries = ReadSummary::of_results(&results);
    let of_results = results.iter().map(|(result, check)| (&result.path, check));
    let all = of_results.chain(summaries.iter().map(|summary| (&summary.path, &summary.check)));
    let wrong: Vec<&PathBuf> = all.filter(|(_, check)| check.is_wrong()).map(|(path, _)| path).collect();
    let code = if wrong.is_empty() { exit_code::OK } else { exit_code::FAILED };
    for path in wrong.iter().map(|path| path.display()) {
        print_message(&format!("error: `{path}` is wrong\n  hint: `flagperf verify` shows what differs"));
    }
    if let Some(file) = &arguments.html {
        let roofline = peaks.map(|peaks| peaks.roofline(&results)).unwrap_or_default();
        let written = arguments.prices.pareto(&results).and_then(|pareto| {
            let page = page(&results, &summaries, (&pareto, &roofline), arguments.language.into());
            write_file(file, &page)
        });
        return Ok(match written {
            Ok(()) => print_result(&format!("page  {}\n", file.display()), code),
            Err(message) => print_mistake(&message),
        });
    }
    let text = match arguments {
        ReportArguments { csv: true, .. } => csv_text(&results),
        ReportArguments { json: true, .. } => json_text(&results),
        ReportArguments { junit: true, .. } => junit(&results),
        _ => readme_rows(&results),
    };
    Ok(print_result(&text, code))
}

/// Prints the complete text report of results.
pub(super) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let results = match read_results(&arguments.result) {
        Ok(results) => results,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let peaks = match arguments.peaks.as_deref().map(MeasuredPeaks::read).transpose() {
        Ok(peaks) => peaks,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let screen = Screen::stdout();
    let (mut text, mut rows) = (String::new(), Vec::new());
    for result in &results {
        let ReadResult { record, digest, .. } = result;
        let is_one_of_several = results.iter().filter(|other| other.record.key() == record.key()).count() > 1;
        let place = Some(result.place()).filter(|_| is_one_of_several);
        let path = result.record_path();
        let path = Some(relative_path(&path));
        let saved = SavedResult { path, digest: digest.as_deref(), place: place.as_deref(), is_official_run: false };
        let folder = result.path.is_dir().then_some(&result.path);
        let charts = folder.map(|folder| terminal_charts(folder, record, Extent::Details, screen.columns));
        let charts = charts.unwrap_or_default();
        text += &format!("{}\n", case_report(record, saved, Extent::Details, &charts, screen));
        peaks.iter().for_each(|peaks| text += &peaks.line(record));
        rows.push(OverviewRow::new(record, place.as_deref(), path, false));
    }
    if rows.len() > 1 {
        text += &overview(&rows, screen.columns);
    }
    Ok(print_result(&text, exit_code::OK))
}

/// Checks that a page can be written to a file, which must not be in the folder of a result.
fn check_target(file: &Path, results: &[ReadResult]) -> Result<(), String> {
    results.iter().try_for_each(|result| check_outside(file, &result.path))?;
    check_page_file(file)
}

/// Reads every result at some paths.
pub(super) fn read_results(paths: &[PathBuf]) -> Result<Vec<ReadResult>, String> {
    let mut results = Vec::new();
    for path in paths {
        let found = find_results(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let read: Result<Vec<ReadResult>, String> = found.iter().map(|path| ReadResult::read(path)).collect();
        results.extend(read?);
    }
    Ok(results)
}
