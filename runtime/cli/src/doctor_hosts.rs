//! `flagperf doctor --hosts`: checks every host.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::arguments::DoctorArguments;
use super::output::{print_message, print_result};
use super::plan::finding_json;
use super::setup::report_mistakes;
use flagperf_config::Overrides;
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line};
use flagperf_core::units::Seconds;
use flagperf_fleet::{HostHealth, HostReport, check_hosts};
use flagperf_prepare::prepare;
use flagperf_report::{bytes, columns, display_text, headed_table, plain_table, wrap};

/// Difference of clocks above which the user is asked to synchronise them.
const OFFSET_MAX: Seconds = Seconds(1.0);
/// Characters per line of a report, which is not written to a terminal.
const REPORT_COLUMNS: u16 = 100;

/// Checks the hosts. Prints a line for each, and then the reports of those that have problems, or of all.
pub(super) fn examine_hosts(
    arguments: &DoctorArguments,
    overrides: &Overrides,
    root: &Path,
) -> anyhow::Result<ExitCode> {
    let planned = match prepare(root, overrides) {
        Ok(planned) => planned,
        Err(findings) if arguments.json => {
            let findings: Vec<Value> = findings.0.iter().map(finding_json).collect();
            let refused = json!({"hosts": [], "findings": findings});
            let text = format!("{}\n", escape_json(&serde_json::to_string_pretty(&refused)?));
            return Ok(print_result(&text, exit_code::MISTAKE));
        }
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    let checked = tempfile::NamedTempFile::new()
        .map_err(|error| format!("cannot create a temporary file: {error}"))
        .and_then(|log| check_hosts(&planned.plan, overrides, log.path()).map_err(|error| error.to_string()));
    let hosts = match checked {
        Ok(hosts) => hosts,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
    };
    let text = match arguments.json {
        true => {
            let hosts: Vec<Value> = hosts.iter().map(host_json).collect();
            format!("{}\n", escape_json(&serde_json::to_string_pretty(&json!({ "hosts": hosts }))?))
        }
        false => hosts_text(&hosts, arguments.details, columns()),
    };
    let all_can_run = hosts.iter().all(HostHealth::can_run);
    Ok(print_result(&text, if all_can_run { exit_code::OK } else { exit_code::FAILED }))
}

/// Returns the state of a host in a word or two.
fn state(health: &HostHealth) -> &'static str {
    match &health.found {
        Err(_) => "unusable",
        Ok(report) if report.can_run => "ready",
        Ok(_) => "not ready",
    }
}

/// Returns what is wrong with a host. A difference of clocks does not prevent a run, and neither do files that are replaced.
fn problems(health: &HostHealth) -> Vec<String> {
    match &health.found {
        Err(reason) => vec![reason.clone()],
        Ok(report) => {
            let offset = report.facts.clock_offset.ahead.0;
            let clock = (offset.abs() > OFFSET_MAX.0).then(|| {
                format!("its clock differs by {offset:+.3} s from that of this machine: synchronise the clocks")
            });
            let restored = report.restored.iter().map(|what| format!("the host {what}"));
            report.problems.iter().cloned().chain(clock).chain(restored).collect()
        }
    }
}

/// Returns a line for each host, and the reports of the hosts with problems, or of all `with_details`.
fn hosts_text(hosts: &[HostHealth], with_details: bool, columns: u16) -> String {
    let first = |health: &HostHealth| {
        let problems = problems(health);
        let more = problems.len().saturating_sub(1);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        problems.first().map(|problem| format!("{}{more}", one_line(problem.lines().next().unwrap_or_default())))
    };
    let row = |health: &HostHealth| [health.host.clone(), state(health).to_owned(), first(health).unwrap_or_default()];
    let mut text = plain_table(hosts.iter().map(row), columns);
    let mut groups: Vec<(&HostReport, Vec<&HostHealth>)> = Vec::new();
    for health in hosts {
        let Ok(report) = &health.found else { continue };
        if !with_details && report.can_run {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| known.text == report.text) {
            Some((_, same)) => same.push(health),
            None => groups.push((report, vec![health])),
        }
    }
    text += &groups.iter().map(|(report, hosts)| group_text(report, hosts, columns)).collect::<String>();
    let hidden = hosts.iter().any(|health| health.can_run()) && !with_details;
    if hidden {
        text +=
            &format!("\n{}\n", wrap("--details prints the reports of the hosts that are ready, too", columns.into()));
    }
    text
}

/// Returns the facts about hosts with the same report, and the report.
fn group_text(report: &HostReport, hosts: &[&HostHealth], columns: u16) -> String {
    let names = hosts.iter().map(|health| health.host.as_str()).collect::<Vec<_>>().join(", ");
    let title =
        if hosts.len() == 1 { format!("host {names}") } else { format!("hosts {names}, whose reports are identical") };
    let head = ["host", "hostname", "launcher", "clock", "free space"].map(str::to_owned);
    let rows = hosts.iter().filter_map(|health| {
        let facts = &health.found.as_ref().ok()?.facts;
        Some([
            health.host.clone(),
            facts.hostname.clone(),
            health.launcher.name().to_owned(),
            format!("{:+.3} s", facts.clock_offset.ahead.0),
            bytes(facts.free_bytes),
        ])
    });
    // The report is formatted for `REPORT_COLUMNS` on the host.
    let limit = usize::from(if columns < REPORT_COLUMNS { columns } else { columns + 2 });
    let report_line = |line: &str| format!("{}\n", wrap(&format!("  {}", display_text(line)), limit).trim_end());
    let table = headed_table(std::iter::once(head).chain(rows).collect(), columns);
    let report: String = report.text.lines().map(report_line).collect();
    format!("\n{}\n{table}\n{report}", wrap(&title, columns.into()))
}

/// Returns what is known about a host, for `--json`.
fn host_json(health: &HostHealth) -> Value {
    let report = health.found.as_ref().ok();
    json!({
        "host": health.host,
        "launcher": health.launcher.name(),
        "state": state(health),
        "problems": problems(health),
        "hostname": report.map(|report| &report.facts.hostname),
        "version": report.map(|report| &report.facts.version),
        "clock_offset_s": report.map(|report| report.facts.clock_offset.ahead),
        "free_bytes": report.map(|report| report.facts.free_bytes),
        "report": report.map(|report| &report.text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_fleet::{HostFacts, launchers};

    fn host(name: &str, found: Result<(bool, &str), &str>) -> HostHealth {
        let found = found.map_err(str::to_owned).map(|(can_run, text)| {
            let facts = HostFacts { hostname: format!("{name}.lab"), ..HostFacts::default() };
            HostReport::new(facts, text.to_owned(), can_run)
        });
        HostHealth { host: name.to_owned(), launcher: launchers()[0], found }
    }

    #[test]
    fn each_host_has_a_line_and_only_those_with_problems_have_reports_each_once() {
        let wrong = "containers\n none\nerror: host.yaml:4: no engine\n  hint: start one\nerror: host.yaml:5: no data";
        let hosts = [
            host("h1", Ok((true, "fine"))),
            host("h2", Ok((false, wrong))),
            host("h3", Err("Connection refused")),
            host("h4", Ok((false, wrong))),
        ];
        let text = hosts_text(&hosts, false, 100);
        let lines =
            " h1  ready\n h2  not ready  host.yaml:4: no engine (and 1 more)\n h3  unusable   Connection refused\n";
        assert!(text.starts_with(lines), "{text}");
        assert_eq!(text.matches("\nhosts h2, h4, whose reports are identical\n").count(), 1, "{text}");
        assert_eq!(text.matches("  hint: start one").count(), 1, "{text}");
        assert!(
            !text.contains("host h1\n")
                && text.ends_with("--details prints the reports of the hosts that are ready, too\n")
        );
        let all = hosts_text(&hosts, true, 100);
        assert!(all.contains("\nhost h1\n") && !all.contains("--details"), "{all}");
        assert_eq!(host_json(&hosts[1])["problems"][0], "host.yaml:4: no engine\n  hint: start one");
    }
}
