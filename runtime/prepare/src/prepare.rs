//! Loads the configuration, plans the selected cases, and checks their scripts and files.

use std::path::Path;
use std::rc::Rc;

use super::case_checks::check_cases;
use super::catalogue::catalogue;
use super::describe::describe_with;
use super::monitor_check::check_monitor_script;
use super::probe::Probes;
use flagperf_config::{Cause, Config, Findings, Overrides};
use flagperf_plan::{Catalogue, EffectiveValue, Plan};

/// The plan of the selected cases, with the effective values.
#[derive(Debug)]
pub struct Prepared {
    /// The plan, whose findings are warnings and notes.
    pub plan: Plan,
    pub values: Vec<EffectiveValue>,
}

/// Loads the configuration and plans the selected cases.
///
/// # Errors
/// Fails with every mistake in the configuration.
pub fn prepare(root: &Path, overrides: &Overrides) -> Result<Prepared, Findings> {
    let config = flagperf_config::load(root, overrides)?;
    prepare_config(&config, Rc::new(Probes::new(config.site.phase_timeout)))
}

/// Plans the cases of a configuration, and checks their scripts and files.
///
/// # Errors
/// Fails with every mistake in the configuration; if there is none, with every fault of scripts and files.
pub fn prepare_config(config: &Config, probes: Rc<Probes>) -> Result<Prepared, Findings> {
    let own = catalogue(&config.site.flagperf_path);
    // Other machines check what they have when a case begins.
    let is_here = config.replica.is_some() || config.knows_hosts && !(config.in_job || config.site.uses_other_hosts());
    let catalogue = match is_here {
        true => Catalogue { describe: describe_with(probes), ..own },
        false => own.with_every_machine_part(),
    };
    let mut plan = flagperf_plan::plan(config, &catalogue)?;
    plan.findings.extend(check_monitor_script(&plan.vendor, &config.site.flagperf_path));
    let checked = check_cases(config, &plan.cases).into_iter();
    plan.findings.extend(checked.filter(|finding| is_here || finding.cause == Cause::Configuration));
    let findings = Findings(plan.findings);
    if findings.has_errors() {
        return Err(findings);
    }
    let plan = Plan { findings: findings.0, ..plan };
    Ok(Prepared { plan, values: flagperf_plan::effective_values(config) })
}
