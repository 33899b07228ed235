//! `flagperf compare`: compares two results, or two cases that it measures in turns.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{
    BATCH_SIZE, CONFIDENCE, CompareOptions, Comparison, ComparisonError, Difference, Side, compare,
};

use super::blocks::{Block, Blocks, print_failed};
use super::compare_page::comparison_page;
use super::compare_text::comparison_text;
use super::output::{JUNIT, PAGE, check_replaceable, print_message, print_mistake, print_result, write_file};
use super::result_printer::relative_path;
use super::selection::Selection;
use super::setup::{announce, locate_checkout, prepare_process, print_findings, report_mistakes};
use flagperf_config::Overrides;
use flagperf_core::exit_code;
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::RECORD_FILE;
use flagperf_core::text::{escape_json, one_line};
use flagperf_fleet::needs_fleet;
use flagperf_page::junit_test;
use flagperf_prepare::{Prepared, prepare};
use flagperf_report::columns;
use flagperf_result::{RECORD_BYTES_MAX, Record};
use flagperf_verify::{Standing, Trust, find_results_of_runs, verify_result, verify_summary};

/// The width of the comparison in a file for services of continuous integration.
const JUNIT_COLUMNS: u16 = 120;

#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// The first side: the folder of a result, of a run or of several runs, or a case to measure with its settings, such as
    /// `"resnet50 batch_size=4 rten.threads=1"`
    #[arg(value_hint = ValueHint::AnyPath)]
    first: String,
    /// The second side, of the same kind
    #[arg(value_hint = ValueHint::AnyPath)]
    second: String,
    /// How often each side is measured, at least 2, in turns: first, second, second, first, and so on
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pairs: u16,
    /// Compare results that are not of the same work, too; the differences are printed
    #[arg(long)]
    anyway: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// The confidence of the intervals in percent, from 50 to 99.99
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * CONFIDENCE, value_parser = parse_confidence)]
    confidence: f64,
    /// Exit with 1 if the second side is shown, with this confidence, to be slower than the first by more than this percentage
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_slowdown: Option<f64>,
    /// Also write that as a test in JUnit's XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "max_slowdown")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

/// Parses a percentage from 0 to below 100.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..100.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to below 100".to_owned())
}

/// Parses a percentage from 50 to 99.99.
fn parse_confidence(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (50.0..=99.99).contains(number));
    number.ok_or_else(|| "expected a number from 50 to 99.99".to_owned())
}

impl CompareArguments {
    fn options(&self, interleaved: bool) -> CompareOptions {
        CompareOptions { interleaved, anyway: self.anyway, confidence: self.confidence / 100.0 }
    }
}

/// Compares two sides and prints what differs.
pub(super) fn compare_sides(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    if let Some(side) = [&arguments.first, &arguments.second].into_iter().find(|side| side.trim().is_empty()) {
        return Ok(print_mistake(&format!("`{}` is neither a result nor a case", one_line(side))));
    }
    if let Some(Err(message)) = arguments.html.as_deref().map(|path| check_replaceable(path, &PAGE)) {
        return Ok(print_mistake(&message));
    }
    // What is written to a pipe cannot be replaced.
    let is_replaceable = |path: &PathBuf| path.metadata().map_or(true, |known| known.is_file());
    if arguments.junit.as_ref().is_some_and(is_replaceable)
        && let Err(message) = prepare_junit(arguments)
    {
        return Ok(print_mistake(&message));
    }
    let names = [&arguments.first, &arguments.second];
    let are_results = names.map(|name| Path::new(name).exists());
    let (sides, interleaved, code) = match are_results {
        [true, true] => match names.map(|name| read_side(name)) {
            [Ok(first), Ok(second)] => ([first, second], false, exit_code::OK),
            [Err(message), _] | [_, Err(message)] => return Ok(print_mistake(&message)),
        },
        [false, false] => match measure(arguments, names)? {
            Ok((sides, code)) => (sides, true, code),
            Err(code) => return Ok(code),
        },
        [is_first, _] => {
            let (result, case) = if is_first { (names[0], names[1]) } else { (names[1], names[0]) };
            return Ok(print_mistake(&format!(
                "`{}` is a result, and `{}` is none\n  hint: compare two results, or two cases that are measured in turns",
                one_line(result),
                one_line(case)
            )));
        }
    };
    let [first, second] = &sides;
    match compare([first, second], arguments.options(interleaved)) {
        Ok(comparison) => print(arguments, &comparison, code),
        Err(error) => Ok(print_not_compared(&error)),
    }
}

pub(super) fn print_not_compared(error: &ComparisonError) -> ExitCode {
    let hint = match error {
        ComparisonError::NotComparable(_) => "\n  hint: `--anyway` compares them in spite of this",
        ComparisonError::Unusable { .. } | ComparisonError::InTwoSides(_) => "",
    };
    print_mistake(&format!("{}{hint}", one_line(&error.to_string())))
}

fn print(arguments: &CompareArguments, comparison: &Comparison, code: u8) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.html
        && let Err(message) = write_file(path, &comparison_page(comparison))
    {
        return Ok(print_mistake(&message));
    }
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(comparison)?)),
        false => comparison_text(comparison, columns()),
    };
    let code = match check_slowdown(arguments, comparison) {
        Ok(None) => code,
        Ok(Some(slowdown)) => {
            print_message(&format!("error: {slowdown}"));
            code.max(exit_code::FAILED)
        }
        Err(message) => return Ok(print_mistake(&message)),
    };
    Ok(print_result(&text, code))
}

/// Returns by how much the second side is slower than is allowed, and writes the test; `None` if it is not, or nothing is asked.
fn check_slowdown(arguments: &CompareArguments, comparison: &Comparison) -> Result<Option<String>, String> {
    let Some(percent) = arguments.max_slowdown else { return Ok(None) };
    let slowdown = match comparison.shows_nothing() {
        true => Some("no throughput has a confidence interval, so that no slowdown could be shown".to_owned()),
        false => Some(comparison.slowdowns(percent).join("; ")).filter(|slowdown| !slowdown.is_empty()),
    };
    write_junit(arguments, slowdown.as_deref(), &comparison_text(comparison, JUNIT_COLUMNS))?;
    Ok(slowdown)
}

/// Writes the test that the second side is not slower, if it is asked for.
fn write_junit(arguments: &CompareArguments, failure: Option<&str>, output: &str) -> Result<(), String> {
    let (Some(path), Some(percent)) = (&arguments.junit, arguments.max_slowdown) else { return Ok(()) };
    let [first, second] = [&arguments.first, &arguments.second].map(|side| one_line(side));
    let name = format!("{second} is not shown to be more than {percent} % slower than {first}");
    write_file(path, &junit_test("flagperf compare", &name, failure, output))
}

/// Writes that the test fails, which holds until the sides are compared: no file of an earlier comparison remains.
fn prepare_junit(arguments: &CompareArguments) -> Result<(), String> {
    arguments.junit.as_deref().map_or(Ok(()), |path| check_replaceable(path, &JUNIT))?;
    write_junit(arguments, Some("the sides were not compared"), "")
}

/// Reads the results of a side, and refuses those whose figures do not follow from their raw times.
pub(super) fn read_side(path: &str) -> Result<Side, String> {
    let shown = one_line(path).into_owned();
    let found = find_results_of_runs(Path::new(path)).map_err(|error| format!("`{shown}`: {error}"))?;
    let mut results = Vec::new();
    for folder in found {
        let report = verify_result(&folder, &Trust::default());
        if report.standing == Standing::Wrong {
            return Err(format!("`{}` is wrong: `flagperf verify` shows why", folder.display()));
        }
        let file = if folder.is_dir() { folder.join(RECORD_FILE) } else { folder.clone() };
        let unreadable = |error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
        let text = read_regular(&file, RECORD_BYTES_MAX).map_err(|error| unreadable(&error))?;
        let record: Record = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        if report.standing > Standing::Consistent {
            print_message(&format!("warning: `{}` is {}", folder.display(), report.standing.name()));
        }
        // A sum without one of its devices would hide a slowdown.
        let case = folder.parent().filter(|_| folder != Path::new(path));
        if let Some(report) = case.and_then(verify_summary)
            && report.standing == Standing::Wrong
        {
            return Err(format!("`{}` is wrong: `flagperf verify` shows why", report.path));
        }
        results
            .push((if folder.is_dir() { folder } else { file.parent().unwrap_or(Path::new(".")).to_owned() }, record));
    }
    let mut cases: Vec<String> = results.iter().map(|(_, record)| record.key().to_string()).collect();
    cases.sort();
    cases.dedup();
    match cases.len() {
        0 | 1 => Ok(Side { name: shown, results }),
        _ => Err(format!("`{shown}` has the results of several cases ({}): give the folder of one", cases.join(", "))),
    }
}

/// Returns the overrides of a side: a case, and settings as `--set` has them.
fn overrides(arguments: &CompareArguments, side: &str) -> Overrides {
    let mut words = side.split_whitespace().map(str::to_owned);
    let common = arguments.selection.overrides();
    let cases = words.next().into_iter().collect();
    Overrides { cases, set: common.set.iter().cloned().chain(words).collect(), ..common }
}

/// Returns why two cases are not of the same work, as far as that is known before they are measured.
fn other_work(first: &Prepared, second: &Prepared) -> Option<ComparisonError> {
    let batch = |side: &Prepared| side.plan.cases[0].jobs.last().map_or(0, |job| job.settings.batch_size);
    let [first, second] = [first, second].map(|side| batch(side).to_string());
    (first != second).then(|| {
        let difference = Difference { what: BATCH_SIZE.to_owned(), first, second, prevents: true };
        ComparisonError::NotComparable(vec![difference])
    })
}

/// Measures both sides in turns. Returns them with the exit code of the program, or only an exit code if that is not possible.
/// After an interruption, the sides have the pairs that were complete.
fn measure(arguments: &CompareArguments, names: [&String; 2]) -> anyhow::Result<Result<([Side; 2], u8), ExitCode>> {
    let checkout = announce(locate_checkout()?);
    let exits = prepare_process()?;
    let mut prepared = Vec::new();
    for name in names {
        match prepare(&checkout, &overrides(arguments, name)) {
            Ok(side) => prepared.push(side),
            Err(findings) => {
                let code = report_mistakes(&findings);
                print_message(&format!(
                    "  hint: `{}` is neither a result nor a case with its settings",
                    one_line(name)
                ));
                return Ok(Err(code));
            }
        }
    }
    for Prepared { plan, .. } in &prepared {
        print_findings(plan.findings.iter());
        if needs_fleet(plan) || plan.cases.len() != 1 {
            return Ok(Err(print_mistake("`compare` measures one case on one device of this machine")));
        }
    }
    if let Some(error) = other_work(&prepared[0], &prepared[1]).filter(|_| !arguments.anyway) {
        return Ok(Err(print_not_compared(&error)));
    }
    let blocks = match Blocks::start(&prepared[0].plan.site, "compares")? {
        Ok(blocks) => blocks,
        Err(code) => return Ok(Err(code)),
    };
    drop(exits);
    let mut sides = names.map(|name| Side { name: one_line(name).into_owned(), results: Vec::new() });
    let count = 2 * usize::from(arguments.pairs);
    for block in 0..count {
        // First, second, second, first: what changes steadily with time then favours neither.
        let side = usize::from(matches!(block % 4, 1 | 2));
        print_message(&format!("block {} of {count}: {}", block + 1, sides[side].name));
        let (folder, record) = match blocks.measure(&prepared[side]) {
            Block::Measured(folder, record) => (folder, *record),
            Block::Failed(folder, reason) => {
                print_failed(block + 1, &folder, &reason);
                return Ok(Err(ExitCode::from(exit_code::FAILED)));
            }
            Block::NotRun(reason) => return Ok(Err(print_mistake(&format!("block {}: {reason}", block + 1)))),
            Block::Interrupted => {
                let pairs = sides.iter().map(|side| side.results.len()).min().unwrap_or(0);
                print_message(&format!("interrupted after {pairs} of {} pairs", arguments.pairs));
                if pairs == 0 {
                    let folders = sides.iter().flat_map(|side| &side.results).map(|(folder, _)| relative_path(folder));
                    folders.for_each(|folder| print_message(&format!("  result {}", folder.display())));
                    return Ok(Err(ExitCode::from(exit_code::INTERRUPTED)));
                }
                sides.iter_mut().for_each(|side| side.results.truncate(pairs));
                return Ok(Ok((sides, exit_code::INTERRUPTED)));
            }
        };
        sides[side].results.push((folder, record));
        let [first, second] = &sides;
        if block == 1
            && let Err(error) = compare([first, second], arguments.options(true))
        {
            return Ok(Err(print_not_compared(&error)));
        }
    }
    Ok(Ok((sides, exit_code::OK)))
}
