//! Checks the options of a vendor's engines by the descriptions of the engines, also for engines that no case uses.

use serde_json::Value;

use super::Catalogue;
use flagperf_config::{CaseConfig, Finding, THREADS_MAX, Vendor, is_case_key};
use flagperf_core::description::EngineDescription;

/// Returns an error for each option in vendor.yaml that its engine does not have or whose value it rejects.
pub(super) fn invalid_defaults(vendor: &Vendor, catalogue: &Catalogue) -> Vec<Finding> {
    let frameworks = vendor.frameworks.iter().map(|(name, entry)| ("frameworks", name, entry));
    let compilers = vendor.compilers.iter().map(|(name, entry)| ("compilers", name, entry));
    let mut findings = Vec::new();
    for (section, name, entry) in frameworks.chain(compilers) {
        let Some(engine) = catalogue.engine(&entry.engine) else { continue };
        for (option, value) in &entry.options {
            let origin = vendor.origin(&[section, name, "options", option]);
            findings.extend(check_option(engine, option, value).err().map(|refused| refused.at(origin)));
        }
    }
    findings
}

/// Returns an error for each option that a case sets after the name of an engine (`rten.threads`) and that the engine
/// does not have or whose value it rejects.
pub(super) fn invalid_choices(vendor: &Vendor, case: &CaseConfig, catalogue: &Catalogue) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, own) in &case.vendor_values {
        for (entry, option) in vendor.options_of_entries(key) {
            let Some(engine) = catalogue.engine(&entry.engine) else { continue };
            let checked = check_option(engine, option, &own.value);
            findings.extend(checked.err().map(|refused| refused.at(own.origin.clone())));
        }
    }
    findings
}

fn check_option(engine: &EngineDescription, option: &str, value: &Value) -> Result<(), Finding> {
    let checked = match option {
        "threads" if value.is_null() => Ok(()),
        "threads" => return parse_thread_count(value).map(drop),
        _ if is_case_key(option) => Err("the name is taken by a key of the case".to_owned()),
        _ => engine.check_option(option, value),
    };
    checked.map_err(|reason| Finding::unplaced(format!("engine `{}`: option `{option}`: {reason}", engine.name)))
}

/// Reads the option `threads`.
pub(super) fn parse_thread_count(value: &Value) -> Result<u32, Finding> {
    let threads = value.as_u64().filter(|threads| *threads <= THREADS_MAX);
    threads.and_then(|threads| u32::try_from(threads).ok()).ok_or_else(|| {
        Finding::unplaced(format!("`threads` must be a whole number from 0 to {THREADS_MAX}, not `{value}`"))
    })
}
