//! `flagperf report` and `flagperf show`: results again, from their files alone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};

use super::measured_peaks::MeasuredPeaks;
use super::output::{PAGE, check_replaceable, print_message, print_mistake, print_result, write_file};
use super::pareto::PriceArguments;
use super::result_printer::relative_path;
use super::verify::checkout_trust;
use flagperf_comparison::UnusedResult;
use flagperf_core::exit_code;
use flagperf_page::{
    Check, Language, ReadResult, ReadSummary, csv_text, json_text, junit, page, readme_rows, terminal_charts,
};
use flagperf_report::{Extent, OverviewRow, SavedResult, Screen, case_report, overview};
use flagperf_verify::find_results_of_runs;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("form").required(true))]
pub(super) struct ReportArguments {
    /// Folder of a case, of a run or of several runs, or a record.json; several for one report
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
    /// Print a test for each result and each sum, as JUnit's XML; that of a case that failed, or whose result is invalid or wrong, fails
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
    /// Folder of a case, of a run or of several runs, or a record.json
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
    let prepared = read_readable(&arguments.result).and_then(|(results, code)| {
        arguments.html.as_deref().map_or(Ok(()), |file| check_replaceable(file, &PAGE))?;
        Ok((results, code, checkout_trust()?))
    });
    let (results, code, trust) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let checked = results.into_iter().map(|result| {
        let check = result.check(&trust);
        (result, check)
    });
    let results: Vec<(ReadResult, Check)> = checked.collect();
    let (summaries, code) = read_summaries(results.iter().map(|(result, _)| result), code);
    let of_results = results.iter().map(|(result, check)| (&result.path, check));
    let all = of_results.chain(summaries.iter().map(|summary| (&summary.path, &summary.check)));
    let code = code.max(print_wrong(all));
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
        ReportArguments { csv: true, .. } => csv_text(&results, &summaries),
        ReportArguments { json: true, .. } => json_text(&results, &summaries),
        ReportArguments { junit: true, .. } => junit(&results, &summaries),
        _ => readme_rows(&results),
    };
    Ok(print_result(&text, code))
}

/// Prints the complete text report of results.
pub(super) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let (results, code) = match read_readable(&arguments.result) {
        Ok(found) => found,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let (summaries, code) = read_summaries(&results, code);
    let trust = match checkout_trust() {
        Ok(trust) => trust,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let checks: Vec<(&PathBuf, Check)> = results.iter().map(|result| (&result.path, result.check(&trust))).collect();
    let of_results = checks.iter().map(|(path, check)| (*path, check));
    let all = of_results.chain(summaries.iter().map(|summary| (&summary.path, &summary.check)));
    let code = code.max(print_wrong(all));
    let peaks = match arguments.peaks.as_deref().map(MeasuredPeaks::read).transpose() {
        Ok(peaks) => peaks,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let screen = Screen::stdout();
    let (mut text, mut rows) = (String::new(), Vec::new());
    for (index, result) in results.iter().enumerate() {
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
        // The sums of a case follow its last result.
        if let Some(summary) = summaries.iter().find(|summary| summary.ends_with(index)) {
            text += &match summary.check.is_wrong() {
                true => format!("sum  wrong: `flagperf verify` shows what differs ({})\n\n", summary.path.display()),
                false => format!("{}\n", summary.text(relative_path(&summary.path), screen)),
            };
        }
    }
    if rows.len() > 1 {
        text += &overview(&rows, screen.columns);
    }
    Ok(print_result(&text, code))
}

/// Reads the summaries of results, names those that cannot be read on standard error, and returns them with the new exit code.
pub(super) fn read_summaries<'r>(
    results: impl IntoIterator<Item = &'r ReadResult>,
    code: u8,
) -> (Vec<ReadSummary>, u8) {
    let (summaries, messages) = ReadSummary::of_results(results);
    messages.iter().for_each(|message| print_message(&format!("warning: {message}")));
    (summaries, if messages.is_empty() { code } else { code.max(exit_code::FAILED) })
}

/// Names the results that are wrong on standard error, and returns the exit code.
fn print_wrong<'r>(checked: impl Iterator<Item = (&'r PathBuf, &'r Check)>) -> u8 {
    let mut code = exit_code::OK;
    for (path, _) in checked.filter(|(_, check)| check.is_wrong()) {
        code = exit_code::FAILED;
        let path = path.display();
        print_message(&format!("error: `{path}` is wrong\n  hint: `flagperf verify` shows what differs"));
    }
    code
}

/// Leaves out each result that is the same as an earlier one, with a warning.
fn leave_out_copies(results: &mut Vec<ReadResult>) {
    let mut known: HashMap<_, PathBuf> = HashMap::new();
    results.retain(|ReadResult { record, path, .. }| {
        let (run, case, (host, device)) = record.identity();
        let identity = (run.to_owned(), case, host.map(str::to_owned), device, record.started.clone());
        match known.entry(identity) {
            Entry::Vacant(new) => {
                new.insert(path.clone());
                true
            }
            Entry::Occupied(same) => {
                let [path, same] = [path, same.get()].map(|path| path.display());
                print_message(&format!("warning: left out: `{path}` is the same result as `{same}`"));
                false
            }
        }
    });
}

/// Reads the results at some paths, of which at least one must be readable, and returns them with the exit code of the command. The others
/// are left out with a warning.
///
/// # Errors
/// When there is no result at a path, or none can be read.
fn read_readable(paths: &[PathBuf]) -> Result<(Vec<ReadResult>, u8), String> {
    let (mut results, unread) = read_results(paths).map_err(|missing| missing.to_string())?;
    leave_out_copies(&mut results);
    if results.is_empty() {
        return Err(unread.iter().map(UnusedResult::to_string).collect::<Vec<_>>().join("\nerror: "));
    }
    unread.iter().for_each(|unread| print_message(&format!("warning: left out: {unread}")));
    Ok((results, if unread.is_empty() { exit_code::OK } else { exit_code::FAILED }))
}

/// Reads every result at some paths once, although its folder and that of its run may both be given. Returns them with those whose record
/// cannot be read.
///
/// # Errors
/// When there is no result at a path.
pub(super) fn read_results(paths: &[PathBuf]) -> Result<(Vec<ReadResult>, Vec<UnusedResult>), UnusedResult> {
    let (mut results, mut unread) = (Vec::new(), Vec::new());
    let mut known = HashSet::new();
    for path in paths {
        let found = find_results_of_runs(path)
            .map_err(|error| UnusedResult { path: path.clone(), reason: error.to_string() })?;
        for path in found.into_iter().filter(|path| known.insert(path.canonicalize().unwrap_or_else(|_| path.clone())))
        {
            match ReadResult::read(&path) {
                Ok(result) => results.push(result),
                Err(result) => unread.push(result),
            }
        }
    }
    Ok((results, unread))
}
