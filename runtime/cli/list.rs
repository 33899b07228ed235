//! `flagperf list`.

use std::process::ExitCode;

use super::answer::{catalogue, root};
use super::arguments::Listed;
use super::output::print;
use crate::plan::Catalogue;
use crate::report::{columns, plain_table};
use crate::run::Outcome;

/// Prints what there is of a kind, one a line.
pub(super) fn list(what: Listed) -> anyhow::Result<ExitCode> {
    let catalogue = catalogue(&root()?);
    let text = match what {
        Listed::Cases => plain_table(cases(&catalogue), columns()),
        Listed::Vendors => plain_table(vendors(&catalogue), columns()),
        Listed::Engines => plain_table(engines(&catalogue), columns()),
    };
    Ok(print(&text, Outcome::OK))
}

fn cases(catalogue: &Catalogue) -> Vec<[String; 2]> {
    let about = |case: &crate::plan::CaseFolder| match (case.configured, case.scripts.is_empty()) {
        (true, false) => {
            let vendors: Vec<&str> = case.overlays.iter().map(String::as_str).collect();
            format!("adapted by {}", if vendors.is_empty() { "nobody".to_owned() } else { vendors.join(", ") })
        }
        (false, _) => "not usable: no folder in configs/".to_owned(),
        (true, true) => "not usable: no scripts in scripts/".to_owned(),
    };
    catalogue.cases.iter().map(|(name, case)| [name.clone(), about(case)]).collect()
}

fn vendors(catalogue: &Catalogue) -> Vec<[String; 4]> {
    let names = |entries: &indexmap::IndexMap<String, crate::config::EngineEntry>| {
        entries.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let row = |(name, vendor): (&String, &Option<crate::config::Vendor>)| match vendor {
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

fn engines(catalogue: &Catalogue) -> Vec<[String; 3]> {
    let role = |engine: &crate::plan::KnownEngine| match (engine.framework, engine.compiler) {
        (true, true) => "framework, compiler",
        (true, false) => "framework",
        (false, _) => "compiler",
    };
    let row = |engine: &crate::plan::KnownEngine| [engine.name.clone(), role(engine).to_owned(), engine.about.clone()];
    catalogue.engines.iter().map(row).collect()
}
