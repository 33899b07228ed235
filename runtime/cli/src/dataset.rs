//! `flagperf dataset`: compares files with the description of their dataset, and lists the datasets of the checkout.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};

use super::output::{print_message, print_mistake, print_result, stdout_error, write_listing};
use super::setup::find_checkout;
use flagperf_config::{DATASET_FILE, DatasetDescription, Finding, list_known, list_names};
use flagperf_core::exit_code;
use flagperf_core::text::one_line;
use flagperf_data::DataRoot;
use flagperf_data::stored_files::{CheckedItem, check_items};
use flagperf_report::{columns, plain_table};

#[derive(Debug, Subcommand)]
pub(super) enum DatasetCommand {
    /// Compare the files in a folder with a dataset.yaml, and print one line for each item. Exits with 1 if a file is
    /// missing or wrong, 2 if the folder or the description is invalid
    Check {
        /// The folder with the files
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// The dataset in datasets/ whose description is used [default: the dataset.yaml in DIR]
        #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
        of: Option<String>,
    },
    /// List the datasets that this checkout describes
    List,
}

/// Lists the datasets, or checks the files of one.
pub(super) fn dataset(command: &DatasetCommand) -> anyhow::Result<ExitCode> {
    match command {
        DatasetCommand::List => {
            Ok(print_result(&plain_table(dataset_rows(&find_checkout()?), columns()), exit_code::OK))
        }
        DatasetCommand::Check { dir, of } => check(dir, of.as_deref()),
    }
}

fn dataset_rows(root: &Path) -> Vec<[String; 3]> {
    let row = |name: String| match DatasetDescription::read_named(root, &name) {
        Ok(found) => [name, found.about, format!("licence: {}", found.licence)],
        Err(finding) => [name, one_line(&finding.to_string()).into_owned(), String::new()],
    };
    DatasetDescription::names(root).into_iter().map(row).collect()
}

/// Compares the files in `dir` with the description in it, or with that of the dataset `of`, and prints one line for each
/// item.
fn check(dir: &Path, of: Option<&str>) -> anyhow::Result<ExitCode> {
    let Ok(root) = DataRoot::open(dir) else {
        let what = if dir.exists() { "not a folder" } else { "missing" };
        let hint = "give the folder that contains the files of the dataset";
        return Ok(print_mistake(&format!("`{}` is {what}\n  hint: {hint}", one_line(&dir.display().to_string()))));
    };
    let description = match of {
        Some(name) => describe_named(name)?,
        None => describe_folder(dir)?,
    };
    Ok(match description {
        Ok(description) => check_description(&root, &description, dir),
        Err(message) => print_mistake(&message),
    })
}

/// Reads the description of a dataset of the checkout; an error message if it has none.
fn describe_named(name: &str) -> anyhow::Result<Result<DatasetDescription, String>> {
    let checkout = find_checkout()?;
    let names = DatasetDescription::names(&checkout);
    if !names.iter().any(|known| known == name) {
        let message =
            format!("unknown dataset `{name}` (known: {})", list_known(name, names.iter().map(String::as_str)));
        return Ok(Err(one_line(&message).into_owned()));
    }
    Ok(DatasetDescription::read_named(&checkout, name).map_err(|finding: Finding| finding.to_string()))
}

/// Reads the description in a folder; an error message if it has none.
fn describe_folder(dir: &Path) -> anyhow::Result<Result<DatasetDescription, String>> {
    let path: PathBuf = dir.join(DATASET_FILE);
    if path.symlink_metadata().is_err() {
        let names = DatasetDescription::names(&find_checkout()?);
        let known = list_names(names.iter().map(String::as_str));
        let hint = format!("name the dataset with --of NAME (known: {known})");
        return Ok(Err(format!("there is no `{}`\n  hint: {hint}", one_line(&path.display().to_string()))));
    }
    Ok(DatasetDescription::read(&path, Path::new("")).map_err(|finding: Finding| finding.to_string()))
}

/// Prints a line for each item as soon as it is compared, and returns the exit code.
fn check_description(root: &DataRoot, description: &DatasetDescription, dir: &Path) -> ExitCode {
    let (mut items, mut faults) = (0, 0);
    for item in check_items(root, description) {
        items += 1;
        faults += usize::from(!item.is_acceptable());
        if let Err(error) = write_listing(&item_line(&item)) {
            print_message(&format!("error: {}", stdout_error(&error)));
            return ExitCode::from(exit_code::UNWRITTEN);
        }
    }
    if faults == 0 {
        return ExitCode::from(exit_code::OK);
    }
    let name = one_line(&description.name);
    let remedy = match (&description.fetch, &description.generator) {
        (Some(command), _) => format!("get them with `{}`", command.replace("{}", &dir.display().to_string())),
        (None, Some(_)) => {
            "delete the folder `generated`, if it exists: the next run of a case that reads it draws it".to_owned()
        }
        (None, None) => format!("get them from {}", description.source),
    };
    let hint = one_line(&remedy);
    print_message(&format!("error: dataset `{name}`: {faults} of {items} items are missing or wrong\n  hint: {hint}"));
    ExitCode::from(exit_code::FAILED)
}

/// Formats an item as a line: what it is, its path, and the details.
fn item_line(item: &CheckedItem) -> String {
    format!(" {:<14}  {}  {}\n", item.label(), one_line(&item.path), one_line(&item.state.to_string()))
}
