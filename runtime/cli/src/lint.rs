//! `flagperf lint`: checks every pair of a case and a vendor. Needs no engine, no dataset and no weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use super::arguments::LintArguments;
use super::lint_pairs::{Pair, PairGroup, PairSource};
use super::lint_report::{LintReport, json_text, table_text};
use super::output::print_result;
use super::setup::{find_checkout, prepare_process, report_mistakes};
use flagperf_config::{CaseKey, Cause, Config, Environment, Finding, Findings, Overrides, Vendor, load};
use flagperf_core::event::Level;
use flagperf_core::exit_code;
use flagperf_plan::{CasePlan, Catalogue, plan};
use flagperf_prepare::{PlannedCase, catalogue, check_monitor_script, check_together};

/// Checks the pairs and prints one line for each, then the findings.
pub(super) fn lint(arguments: &LintArguments) -> anyhow::Result<ExitCode> {
    let _exits = prepare_process()?;
    let checkout = find_checkout()?;
    let report = match check_pairs(&checkout, arguments) {
        Ok(report) => report,
        Err(findings) if arguments.json => {
            let report = LintReport::new(findings.0, Vec::new());
            return Ok(print_result(&json_text(&report)?, exit_code::MISTAKE));
        }
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    let text = if arguments.json { json_text(&report)? } else { table_text(&report) };
    let code = if report.count(Level::Error) > 0 { exit_code::MISTAKE } else { exit_code::OK };
    Ok(print_result(&text, code))
}

/// Checks the pairs that the arguments select.
///
/// # Errors
/// When host.yaml cannot be read, or a named case or vendor does not exist.
fn check_pairs(checkout: &Path, arguments: &LintArguments) -> Result<LintReport, Findings> {
    let overrides =
        Overrides { config: arguments.config.clone(), environment: Environment::read(), ..Overrides::default() };
    let host = load(checkout, &overrides)?;
    let root = &host.site.flagperf_path;
    let catalogues = OfflineCatalogues::read(root);
    let source = PairSource { arguments, host: &host, catalogue: &catalogues.machine };
    let unknown = source.check_names();
    if !unknown.is_empty() {
        return Err(Findings(unknown));
    }
    let groups = source.groups()?;
    let mut general: Vec<Finding> =
        groups.iter().flat_map(|group| catalogues.plan(&group.config.only(None)).1).collect();
    let selected = |vendor: &&Vendor| arguments.vendor.is_empty() || arguments.vendor.contains(&vendor.name);
    let vendors = catalogues.machine.vendors.values().flatten().filter(selected);
    general.extend(vendors.filter_map(|vendor| check_monitor_script(vendor, root)));
    let general = Finding::merge(without_machine(general));
    let mut pairs = check_in_parallel(root, &groups);
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(LintReport::new(general, pairs))
}

/// The catalogues that pairs are planned with. No engine is asked whether it works.
struct OfflineCatalogues {
    /// With the libraries and files that this machine has.
    machine: Catalogue,
    /// With all that a machine may lack.
    complete: Catalogue,
}

impl OfflineCatalogues {
    fn read(root: &Path) -> Self {
        OfflineCatalogues { machine: catalogue(root), complete: catalogue(root).with_every_machine_part() }
    }

    /// Plans a configuration. If only the machine prevents a plan, plans as if it lacked nothing.
    fn plan(&self, config: &Config) -> (Vec<CasePlan>, Vec<Finding>) {
        match plan(config, &self.machine) {
            Ok(plan) => (plan.cases, plan.findings),
            Err(findings) if findings.has_mistakes() => (Vec::new(), findings.0),
            Err(findings) => (plan(config, &self.complete).map(|plan| plan.cases).unwrap_or_default(), findings.0),
        }
    }
}

/// Makes notes of the errors for which the machine has to change, and leaves out other notes.
fn without_machine(findings: Vec<Finding>) -> Vec<Finding> {
    let findings = findings.into_iter().filter(|finding| finding.level >= Level::Warning);
    findings
        .map(|finding| match (finding.level, finding.cause) {
            (Level::Error, Cause::Machine) => Finding { level: Level::Info, ..finding },
            _ => finding,
        })
        .collect()
}

/// Checks all pairs of the groups, those of one case together, on as many threads as there are cores and as many more,
/// because each waits for the process that runs the scripts.
fn check_in_parallel(root: &Path, groups: &[PairGroup]) -> Vec<(Pair, Vec<Finding>)> {
    let mut cases: BTreeMap<&str, Vec<(&PairGroup, &CaseKey)>> = BTreeMap::new();
    for (group, key) in groups.iter().flat_map(|group| group.keys.iter().map(move |key| (group, key))) {
        cases.entry(&key.case).or_default().push((group, key));
    }
    let (pending, checked) = (Mutex::new(cases.into_values()), Mutex::new(Vec::new()));
    let next = || pending.lock().expect("no thread panics while it takes a case").next();
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let catalogues = OfflineCatalogues::read(root);
                while let Some(pairs) = next() {
                    let found = check_case(&pairs, &catalogues);
                    checked.lock().expect("no thread panics while it adds findings").extend(found);
                }
            });
        }
    });
    checked.into_inner().expect("no thread panicked")
}

/// Plans and checks the pairs of one case.
fn check_case(pairs: &[(&PairGroup, &CaseKey)], catalogues: &OfflineCatalogues) -> Vec<(Pair, Vec<Finding>)> {
    let configs: Vec<Config> = pairs.iter().map(|(group, key)| group.config.only(Some(key))).collect();
    let planned: Vec<_> = configs.iter().map(|config| catalogues.plan(config)).collect();
    let configured = configs.iter().zip(&planned).filter_map(|(config, (plans, _))| {
        Some(PlannedCase { config, configured: config.cases.first()?, plan: plans.first()? })
    });
    let mut checked = check_together(&configured.collect::<Vec<_>>()).into_iter();
    let mut found = Vec::new();
    for ((group, key), (plans, findings)) in pairs.iter().zip(&planned) {
        let scripts = if plans.is_empty() { Vec::new() } else { checked.next().unwrap_or_default() };
        found.push((group.pair(key), without_machine([findings.clone(), scripts].concat())));
    }
    found
}
