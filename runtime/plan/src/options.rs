//! Checks the options of a vendor's engines by the descriptions of the engines, also for engines that no case uses.

use serde_json::Value;

use super::{Catalogue, PlanProblem};
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
            findings.extend(option_problem(engine, option, value).map(|problem| Finding::error(origin, problem)));
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
            let problem = option_problem(engine, option, &own.value);
            findings.extend(problem.map(|problem| Finding::error(own.origin.clone(), problem)));
        }
    }
    findings
}

fn option_problem(engine: &EngineDescription, option: &str, value: &Value) -> Option<PlanProblem> {
    let checked = match option {
        "threads" if value.is_null() || value.as_u64().is_some_and(|threads| threads <= THREADS_MAX) => Ok(()),
        "threads" => return Some(PlanProblem::Threads { value: value.to_string() }),
        _ if is_case_key(option) => Err("the name is taken by a key of the case".to_owned()),
        _ => engine.check_option(option, value),
    };
    let reason = checked.err()?;
    Some(PlanProblem::EngineOption { message: format!("engine `{}`: option `{option}`: {reason}", engine.name) })
}
