//! `flagperf pareto`: results that generate text, by how fast each user is served and how many tokens a device generates.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{Pareto, UnusedResult};

use super::history::unusable;
use super::history_text::unused_text;
use super::output::{print_mistake, print_result};
use super::pareto_text::pareto_text;
use super::report::read_results;
use super::verify::checkout_trust;
use flagperf_config::Prices;
use flagperf_core::exit_code;
use flagperf_core::text::escape_json;
use flagperf_page::{Check, ReadResult, without_copies};
use flagperf_report::columns;

#[derive(Debug, Args)]
pub(super) struct ParetoArguments {
    /// Folders of cases, or of runs
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    result: Vec<PathBuf>,
    #[command(flatten)]
    prices: PriceArguments,
    /// Print the tables as JSON
    #[arg(long)]
    json: bool,
}

/// What the figures of a device need beside the results.
#[derive(Debug, Args)]
pub(super) struct PriceArguments {
    /// Also compute what a million tokens cost, from a file with the price of each device for an hour
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    prices: Option<PathBuf>,
    /// The number of devices behind the address of a server, which a result does not know; tokens are divided by it [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    server_devices: Option<u32>,
}

/// Prints how fast each user is served, how many tokens a device generates, and what they cost.
pub(super) fn pareto(arguments: &ParetoArguments) -> anyhow::Result<ExitCode> {
    let found = match read_pareto(arguments) {
        Ok(found) => found,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(&found)?)),
        false => pareto_text(&found, columns()),
    };
    Ok(print_result(&text, exit_code::OK))
}

fn read_pareto(arguments: &ParetoArguments) -> Result<Pareto, String> {
    let trust = checkout_trust()?;
    let (mut results, mut unreadable): (Vec<ReadResult>, _) = (Vec::new(), Vec::new());
    for path in &arguments.result {
        match read_results(std::slice::from_ref(path)) {
            Ok((read, unread)) => {
                unreadable.extend(unread);
                results.extend(read);
            }
            Err(missing) => unreadable.push(missing),
        }
    }
    let checked = results.into_iter().map(|result| {
        let check = result.check(&trust);
        (result, check)
    });
    let mut found = arguments.prices.pareto(&checked.collect::<Vec<_>>())?;
    found.unused.extend(unreadable);
    match found.tables.is_empty() && !found.unused.is_empty() {
        true => Err(format!(
            "no result can be used\n{}  hint: docs/measure-text-generation.md says which cases generate text",
            unused_text(&found.unused, columns()),
        )),
        false => Ok(found),
    }
}

impl PriceArguments {
    /// Returns whether one of them is given.
    pub(super) fn are_given(&self) -> bool {
        self.prices.is_some() || self.server_devices.is_some()
    }

    /// Computes the figures of results. Those that are wrong are not used.
    ///
    /// # Errors
    /// When the file of prices cannot be used, or a device has no price.
    pub(super) fn pareto(&self, results: &[(ReadResult, Check)]) -> Result<Pareto, String> {
        let prices = self.prices.as_deref().map(Prices::read).transpose().map_err(|finding| finding.to_string())?;
        // A copy of a result is no repeat of its measurement.
        let results = without_copies(results.to_vec());
        let unused = results
            .iter()
            .filter_map(|(result, check)| Some(UnusedResult { path: result.path.clone(), reason: unusable(check)? }));
        let used = results.iter().filter(|(_, check)| unusable(check).is_none());
        let used = used.map(|(result, _)| (result.path.as_path(), &result.record));
        let found = Pareto::of(used, unused.collect(), prices.as_ref(), self.server_devices.unwrap_or(1));
        let unchecked = results.iter().filter(|(_, check)| matches!(check, Check::TooLarge));
        let unchecked = unchecked.map(|(result, _)| result.path.clone()).collect();
        Ok(Pareto { unchecked, ..found.map_err(|finding| finding.to_string())? })
    }
}
