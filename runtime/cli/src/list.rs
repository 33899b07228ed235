//! `flagperf list`: prints the cases, the vendors, the engines or their options.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::ValueEnum;

use super::output::{print_message, print_result};
use super::setup::find_checkout;
use flagperf_config::{SettingsFile, THREADS_MAX, find_root};
use flagperf_core::description::{EngineDescription, EngineOption, OptionKind};
use flagperf_core::exit_code;
use flagperf_plan::Catalogue;
use flagperf_prepare::catalogue;
use flagperf_report::{columns, plain_table, wrap};

/// The kind of objects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ListKind {
    /// Cases in this checkout
    Cases,
    /// Vendors in this checkout
    Vendors,
    /// Engines of this program
    Engines,
    /// Options of the engines of this program
    Options,
}

/// Prints the objects of one kind, one per line. Cases and vendors exist only in a checkout.
pub(super) fn list(what: ListKind) -> anyhow::Result<ExitCode> {
    let root = find_checkout()?;
    if matches!(what, ListKind::Cases | ListKind::Vendors) && find_root(&root).is_none() {
        print_message(&format!(
            "error: `{}` is not in a checkout\n  hint: change to a checkout of flagperf",
            root.display()
        ));
        return Ok(ExitCode::from(exit_code::MISTAKE));
    }
    let catalogue = catalogue(&root);
    let text = match what {
        ListKind::Cases => plain_table(case_rows(&catalogue), columns()),
        ListKind::Vendors => plain_table(vendor_rows(&catalogue), columns()),
        ListKind::Engines => plain_table(engine_rows(&catalogue), columns()),
        ListKind::Options => option_lines(&catalogue, columns()),
    };
    Ok(print_result(&text, exit_code::OK))
}

fn case_rows(catalogue: &Catalogue) -> Vec<[String; 2]> {
    // A training may be a program, which needs no scripts.
    let is_without_scripts =
        |case: &flagperf_plan::CaseFolder| case.scripts.is_empty() && case.overlays(&SettingsFile::TRAINING).is_none();
    let about = |case: &flagperf_plan::CaseFolder| match (case.configured, is_without_scripts(case)) {
        (true, false) => {
            let overlays = |file: &SettingsFile| Some(vendor_list(file, case.overlays(file)?));
            SettingsFile::ALL.iter().filter_map(overlays).collect::<Vec<_>>().join("; ")
        }
        (false, _) => "not usable: no folder in configs/".to_owned(),
        (true, true) => "not usable: no scripts in scripts/".to_owned(),
    };
    catalogue.cases.iter().map(|(name, case)| [name.clone(), about(case)]).collect()
}

/// Formats the vendors with an overlay for a file of settings.
fn vendor_list(file: &SettingsFile, vendors: &BTreeSet<String>) -> String {
    let vendors: Vec<&str> = vendors.iter().map(String::as_str).collect();
    let vendors = if vendors.is_empty() { "none".to_owned() } else { vendors.join(", ") };
    let of_inference = file.name == SettingsFile::INFERENCE.name;
    if of_inference { format!("overlays: {vendors}") } else { format!("{} overlays: {vendors}", file.purpose) }
}

fn vendor_rows(catalogue: &Catalogue) -> Vec<[String; 4]> {
    let names = |entries: &indexmap::IndexMap<String, flagperf_config::EngineEntry>| {
        let names: Vec<&str> = entries.keys().map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let row = |(name, vendor): (&String, &Option<flagperf_config::Vendor>)| match vendor {
        Some(vendor) => [
            name.clone(),
            vendor.about.clone(),
            format!("frameworks: {}", names(&vendor.frameworks)),
            format!("compilers: {}", names(&vendor.compilers)),
        ],
        None => [name.clone(), "vendor.yaml cannot be read".to_owned(), String::new(), String::new()],
    };
    catalogue.vendors.iter().map(row).collect()
}

fn engine_rows(catalogue: &Catalogue) -> Vec<[String; 3]> {
    let role = |engine: &EngineDescription| match (engine.roles.framework, engine.roles.compiler) {
        (true, true) => "framework, compiler",
        (true, false) => "framework",
        (false, _) => "compiler",
    };
    let row = |engine: &EngineDescription| [engine.name.to_owned(), role(engine).to_owned(), engine.about.to_owned()];
    catalogue.engines.iter().map(row).collect()
}

/// Returns the options of each engine: a line with the key that sets it and the values that it accepts, and below it the
/// default and a sentence, wrapped between words.
fn option_lines(catalogue: &Catalogue, columns: u16) -> String {
    let lines = option_rows(catalogue).into_iter().map(|[key, values, about]| {
        let line = format!("{key}  {values}");
        format!("{}\n{}\n", wrap(&line, columns.into()), wrap(&format!("    {about}"), columns.into()))
    });
    lines.collect()
}

fn option_rows(catalogue: &Catalogue) -> Vec<[String; 3]> {
    let threads = EngineOption {
        name: "threads",
        kind: OptionKind::Integer { min: Some(0), max: i64::try_from(THREADS_MAX).ok() },
        default: "0",
        about: "the number of threads to compute with; 0 selects the engine's default",
    };
    let of_engine = |engine: &EngineDescription| {
        let threads = engine.uses_threads.then_some(&threads).into_iter();
        let options = threads.chain(engine.options.unwrap_or_default());
        let row = |option: &EngineOption| {
            let about = format!("default: {}; {}", option.default, option.about);
            [format!("{}.{}", engine.name, option.name), option.kind.in_words(), about]
        };
        options.map(row).collect::<Vec<_>>()
    };
    catalogue.engines.iter().flat_map(of_engine).collect()
}
