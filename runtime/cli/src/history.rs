//! `flagperf history`: the results of a case over time, and when it became slower or faster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{History, UnusedResult};

use super::history_text::history_text;
use super::output::{print_mistake, print_result};
use super::setup::{announce, locate_checkout};
use super::verify::checkout_trust;
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line};
use flagperf_page::{Check, ReadResult, without_copies};
use flagperf_report::columns;
use flagperf_result::Record;
use flagperf_verify::{CaseReport, Standing, Trust, find_results_of_runs};

#[derive(Debug, Args)]
pub(super) struct HistoryArguments {
    /// The case, such as `resnet50`, or with its framework, such as `resnet50:pytorch`
    #[arg(value_hint = ValueHint::Other)]
    case: String,
    /// Folders with results: that of a case, of a run, or one that contains runs [default: the folder `result` of the checkout]
    #[arg(value_hint = ValueHint::DirPath)]
    results: Vec<PathBuf>,
    /// Print the history as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the results of a case in the order of time.
pub(super) fn history(arguments: &HistoryArguments) -> anyhow::Result<ExitCode> {
    let folders = match arguments.results.as_slice() {
        [] => vec![announce(locate_checkout()?).join("result")],
        folders => folders.to_vec(),
    };
    let found = match checkout_trust().and_then(|trust| read_history(&arguments.case, &folders, &trust)) {
        Ok(history) => history,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(&found)?)),
        false => history_text(&found, columns()),
    };
    let code = if found.series.is_empty() { exit_code::MISTAKE } else { exit_code::OK };
    Ok(print_result(&text, code))
}

/// Reads and verifies the results of a case.
fn read_history(case: &str, folders: &[PathBuf], trust: &Trust) -> Result<History, String> {
    let (mut results, mut unused, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for folder in folders {
        let found = find_results_of_runs(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
        for path in found {
            match ReadResult::read(&path) {
                Ok(result) if !is_of_case(&result.record, case) => others.push(result.record.key()),
                Ok(result) => {
                    let check = result.check(trust);
                    results.push((result, check));
                }
                Err(unread) if may_be_of_case(&path, case) => unused.push(unread),
                Err(_) => {}
            }
        }
    }
    let mut used = Vec::new();
    for (result, check) in without_copies(results) {
        match unusable(&check) {
            None => used.push((result.path, result.record)),
            Some(reason) => unused.push(UnusedResult { path: result.path, reason }),
        }
    }
    if used.is_empty() && unused.is_empty() {
        others.sort_unstable();
        others.dedup();
        let known = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
        return Err(format!(
            "no result of the case `{}`\n  hint: these cases have results there: {}",
            one_line(case),
            one_line(&known)
        ));
    }
    Ok(History::of(case, used, unused))
}

/// Returns whether a record is of a case, which is given with or without its framework.
fn is_of_case(record: &Record, case: &str) -> bool {
    [record.case.clone(), format!("{}:{}", record.case, record.framework), record.key()].iter().any(|name| name == case)
}

/// Returns whether the folder of a case that cannot be read has the name that a run gives it for this case.
fn may_be_of_case(path: &Path, case: &str) -> bool {
    let case = case.split(':').next().unwrap_or_default();
    let names = path.iter().filter_map(|name| name.to_str()?.strip_prefix(case));
    names.into_iter().any(|rest| rest.starts_with('_'))
}

/// Returns why a result cannot be trusted; `None` if nothing contradicts it.
pub(super) fn unusable(check: &Check) -> Option<String> {
    match check {
        Check::Verified(report) if report.standing > Standing::Consistent => Some(standing_text(report)),
        // Files of this size are verified by `flagperf verify`.
        Check::Verified(_) | Check::TooLarge => None,
    }
}

fn standing_text(report: &CaseReport) -> String {
    let finding = report.findings.first().map(|finding| format!("{}: {}", finding.file, finding.what));
    let why = finding.or_else(|| report.unchecked.first().cloned());
    why.map_or_else(|| report.standing.name().to_owned(), |why| format!("{}: {why}", report.standing.name()))
}
