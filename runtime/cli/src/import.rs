//! `flagperf import`: converts the configuration of another benchmark, and prints what was converted, changed or left
//! out.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use indexmap::IndexMap;

use super::output::{print_message, print_result};
use super::setup::find_own_checkout;
use flagperf_config::find_root;
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, escape_lines, one_line};
use flagperf_import::{
    FileOutcome, Import, ImportError, ImportReport, KeyChange, KeyReport, ProblemReport, SourceTree,
    import as import_tree,
};
use flagperf_prepare::catalogue;
use flagperf_report::{columns, unbroken_table};
use flagperf_scaffold::CheckoutLock;

#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// Convert the configuration of FlagPerf's inference and training: host.yaml, cases, overlays and vendors with their engine
    /// classes.
    /// Exits with 1 if a file of the source cannot be converted, 2 if nothing can be
    Flagperf(ImportArguments),
}

#[derive(Debug, Args)]
pub(super) struct ImportArguments {
    /// The folder of FlagPerf, or its folder `inference` or `training`
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// The checkout into which it is imported [default: the one that contains the current directory]
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Replace files with another content, and add what a vendor.yaml lacks. What a vendor added stays
    #[arg(long)]
    force: bool,
    /// Write nothing, and print what would happen
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Imports a tree and prints the report.
pub(super) fn import(command: &ImportCommand) -> anyhow::Result<ExitCode> {
    let ImportCommand::Flagperf(arguments) = command;
    let refuse = |message: &str| {
        print_message(message);
        Ok(ExitCode::from(exit_code::MISTAKE))
    };
    let checkout = match checkout(arguments)? {
        Ok(checkout) => checkout,
        Err(message) => return refuse(&message),
    };
    // Held until the files are written, as by `flagperf new`.
    let lock = if arguments.dry_run { None } else { Some(CheckoutLock::acquire(&checkout)) };
    if let Some(Err(error)) = &lock {
        return refuse(&format!("error: {error}\n  hint: {}", error.hint()));
    }
    let imported = SourceTree::open(&arguments.dir).and_then(|source| {
        let (catalogue, replaces, is_dry_run) = (&catalogue(&checkout), arguments.force, arguments.dry_run);
        import_tree(&Import { source: &source, checkout: &checkout, catalogue, replaces, is_dry_run })
    });
    let report = match imported {
        Ok(report) => report,
        Err(error) => return refuse(&mistake(&error)),
    };
    let code = match &report {
        report if report.has_unwritten_files => exit_code::UNWRITTEN,
        report if !report.problems.is_empty() => exit_code::FAILED,
        _ => exit_code::OK,
    };
    if arguments.json {
        return Ok(print_result(&format!("{}\n", escape_json(&serde_json::to_string_pretty(&report)?)), code));
    }
    let code = print_result(&table_text(&report), code);
    report.problems.iter().for_each(|problem| print_message(&problem_text(problem)));
    Ok(code)
}

fn mistake(error: &ImportError) -> String {
    format!("error: {error}\n  hint: {}", error.hint())
}

/// Returns the checkout that the arguments name, or else the one that contains the current directory.
fn checkout(arguments: &ImportArguments) -> anyhow::Result<Result<PathBuf, String>> {
    let Some(output) = &arguments.output else { return find_own_checkout() };
    let is_checkout = |folder: &PathBuf| find_root(folder).is_some_and(|root| root == *folder);
    let real = output.canonicalize().ok().filter(is_checkout);
    Ok(real.ok_or_else(|| mistake(&ImportError::NoCheckout(output.clone()))))
}

fn table_text(report: &ImportReport) -> String {
    let mut text = String::new();
    let rows = report.files.iter().map(|file| {
        let keys: Vec<String> = file.differences.iter().map(|key| format!("`{key}`")).collect();
        let outcome = outcome_word(file.outcome, report.is_dry_run).to_owned();
        [file.path.display().to_string(), outcome, keys.join(", ")]
    });
    let title = ["FILE", "RESULT", "DIFFERENCES"].map(str::to_owned);
    text += &unbroken_table(&[title].into_iter().chain(rows).collect::<Vec<_>>(), columns());
    for (change, title) in [
        (KeyChange::Renamed, "Renamed:"),
        (KeyChange::Kept, "Kept, because this checkout has something else:"),
        (KeyChange::Refused, "Refused, because no vendor may set it:"),
        (KeyChange::NoEquivalent, "Left out, because nothing here corresponds to it:"),
    ] {
        let entries = entries(report.keys.iter().filter(|key| key.change == change));
        if !entries.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for entry in entries {
            let _ = writeln!(text, "  {}", one_line(&entry));
        }
    }
    let needed: Vec<&str> =
        report.cases.iter().filter(|case| case.needs_scripts).map(|case| case.case.as_str()).collect();
    if !needed.is_empty() {
        let _ = writeln!(text, "\nThese cases need scripts, which FlagPerf has in Python: {}", needed.join(", "));
        let _ = writeln!(text, "  scripts/README.md explains how to write them");
    }
    text += &summary(report);
    escape_lines(&text).into_owned()
}

/// Returns a line for the keys of each file to which the same happened for the same reason.
fn entries<'k>(keys: impl Iterator<Item = &'k KeyReport>) -> Vec<String> {
    let mut together: IndexMap<(&str, &str), Vec<String>> = IndexMap::new();
    for key in keys {
        let line = key.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let to = key.to.as_ref().map(|to| format!(" becomes `{to}`")).unwrap_or_default();
        together.entry((&key.file, &key.reason)).or_default().push(format!("`{}`{line}{to}", key.key));
    }
    together.into_iter().map(|((file, reason), keys)| format!("{file}: {}: {reason}", keys.join(", "))).collect()
}

fn summary(report: &ImportReport) -> String {
    let count = |outcome| report.count(outcome);
    let would = if report.is_dry_run { "would be " } else { "" };
    let mut text = format!(
        "\n{} files: {} {would}created, {} {would}replaced, {} unchanged, {} kept with another content; problems: {}\n",
        report.files.len(),
        count(FileOutcome::Created),
        count(FileOutcome::Replaced),
        count(FileOutcome::Unchanged),
        count(FileOutcome::Kept),
        report.problems.len()
    );
    if count(FileOutcome::Kept) > 0 {
        text += "  --force replaces files with another content, but no code of an engine\n";
    }
    if !report.is_dry_run {
        text += "next:\n  flagperf lint\n";
    }
    text
}

fn outcome_word(outcome: FileOutcome, is_dry_run: bool) -> &'static str {
    match (outcome, is_dry_run) {
        (FileOutcome::Created, false) => "created",
        (FileOutcome::Created, true) => "would be created",
        (FileOutcome::Unchanged, _) => "exists, unchanged",
        (FileOutcome::Kept, _) => "exists, kept",
        (FileOutcome::Replaced, false) => "replaced",
        (FileOutcome::Replaced, true) => "would be replaced",
        (FileOutcome::Unwritten, _) => "not written",
    }
}

fn problem_text(problem: &ProblemReport) -> String {
    let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = problem.file.as_ref().map(|file| format!("{file}{line}: ")).unwrap_or_default();
    let hint = if problem.hint.is_empty() { String::new() } else { format!("\n  hint: {}", one_line(&problem.hint)) };
    format!("error: {}{hint}", one_line(&format!("{place}{}", problem.message)))
}
