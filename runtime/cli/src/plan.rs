//! `flagperf plan`: prints the plan, its values with their origins, and its findings.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::arguments::PlanArguments;
use super::output::print_result;
use super::setup::{find_checkout, prepare_process, print_findings, print_notes, report_mistakes};
use flagperf_config::{Finding, Findings, Origin, Scale, display_value};
use flagperf_core::exit_code;
use flagperf_core::text::escape_json;
use flagperf_plan::{CasePlan, EffectiveValue};
use flagperf_prepare::{Prepared, prepare};
use flagperf_report::{columns, origin_table, wrap};

/// Prints a plan with its effective values, then its findings.
pub(super) fn plan(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let _exits = prepare_process()?;
    let overrides = arguments.agent.apply(arguments.selection.overrides());
    let planned = match prepare(&find_checkout()?, &overrides) {
        Ok(planned) => planned,
        Err(findings) => return report_refusal(&findings, arguments.json),
    };
    let text = match arguments.json {
        true => json_text(&planned.plan.cases, &planned.values, &planned.plan.findings)?,
        false => table_text(&planned, arguments.details)?,
    };
    let code = print_result(&text, exit_code::OK);
    print_findings(planned.plan.findings.iter());
    print_notes(planned.plan.findings.iter());
    Ok(code)
}

/// Prints the findings that prevent a plan on standard error, and as JSON also on standard output.
fn report_refusal(findings: &Findings, json: bool) -> anyhow::Result<ExitCode> {
    let code = report_mistakes(findings);
    if json { Ok(print_result(&json_text(&[], &[], &findings.0)?, exit_code::MISTAKE)) } else { Ok(code) }
}

/// Formats the effective values by section, then one line for each case. Without `details`, values that nobody has set
/// are left out.
fn table_text(planned: &Prepared, details: bool) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut left_out = 0;
    for section in planned.values.chunk_by(|one, other| one.section == other.section) {
        let rows = if details { section.iter().collect() } else { set_values(section) };
        left_out += section.len() - rows.len();
        let cells: Vec<_> =
            rows.iter().map(|row| [row.key.clone(), display_value(&row.value), row.origin.to_string()]).collect();
        writeln!(out, "{}\n{}", section[0].section, origin_table(&cells, columns()))?;
    }
    if left_out > 0 {
        let line = format!("{left_out} more values are defaults or null: --details lists them");
        writeln!(out, "{}\n", wrap(&line, columns().into()))?;
    }
    for case in &planned.plan.cases {
        let phases: Vec<&str> = case.jobs.iter().map(|job| job.phase().name()).collect();
        let Scale { hosts, devices } = case.key.scale;
        let hosts = match (hosts, planned.plan.site.hosts.get(..hosts as usize)) {
            (1, _) => case.host.clone(),
            (_, Some(names)) => names.join(", "),
            // The scheduler names them.
            (count, None) => format!("{count} hosts"),
        };
        let devices = if devices > 1 { format!(", {devices} devices of each") } else { String::new() };
        let line = format!("{} runs {} on {hosts}{devices}", case.key, phases.join(", then "));
        writeln!(out, "{}", wrap(&line, columns().into()))?;
    }
    Ok(out)
}

/// Returns the values that somebody has set, first those that differ from the standard case: those of the command line,
/// of the environment and of an overlay.
fn set_values(section: &[EffectiveValue]) -> Vec<&EffectiveValue> {
    let differs = |row: &&EffectiveValue| match &row.origin {
        Origin::CommandLine(_) | Origin::Environment(_) => true,
        Origin::File { file, .. } => file.starts_with("configs/") && file.contains("/vendor_config/"),
        Origin::Script { .. } | Origin::Default => false,
    };
    let is_set = |row: &&EffectiveValue| row.origin != Origin::Default && !row.value.is_null();
    let (first, rest): (Vec<_>, Vec<_>) = section.iter().filter(|row| is_set(row) || differs(row)).partition(differs);
    [first, rest].concat()
}

/// Formats a plan as one JSON object: `cases` with the jobs of each, `values`, `findings`. Without a plan, only the
/// findings are not empty.
fn json_text(cases: &[CasePlan], values: &[EffectiveValue], findings: &[Finding]) -> anyhow::Result<String> {
    let case = |case: &CasePlan| -> Value {
        let departures: serde_json::Map<_, _> = case.departures.iter().cloned().collect();
        json!({
            "case": case.key.to_string(),
            "host": case.host,
            "folder": case.folder,
            "departures": departures,
            "jobs": case.jobs,
        })
    };
    let value = |row: &EffectiveValue| -> Value {
        json!({"section": row.section, "key": row.key, "value": row.value, "origin": row.origin.to_string()})
    };
    let plan = json!({
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "values": values.iter().map(value).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
    });
    Ok(format!("{}\n", escape_json(&serde_json::to_string_pretty(&plan)?)))
}

/// Returns a finding as JSON.
pub(super) fn finding_json(finding: &Finding) -> Value {
    let Finding { level, origin, message, hint, cases, .. } = finding;
    let cases: Vec<String> = cases.iter().map(ToString::to_string).collect();
    json!({"level": level, "origin": origin.to_string(), "message": message, "hint": hint, "cases": cases})
}
