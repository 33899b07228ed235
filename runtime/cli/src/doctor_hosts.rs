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
use flagperf_fleet::{DoctorReport, DoctorRow, HostHealth, HostReport, check_hosts};
use flagperf_prepare::prepare;
use flagperf_report::{bytes, columns, headed_table, plain_table, wrap};

/// Difference of clocks above which the user is asked to synchronise them.
const OFFSET_MAX: Seconds = Seconds(1.0);
/// Characters per line of a report in JSON.
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
        Ok(found) if found.report.can_run => "ready",
        Ok(_) => "not ready",
    }
}

/// Returns what is wrong with a host. A difference of clocks does not prevent a run, and neither do files that are replaced.
fn problems(health: &HostHealth) -> Vec<String> {
    match &health.found {
        Err(reason) => vec![reason.clone()],
        Ok(found) => {
            let offset = found.facts.clock_offset.ahead.0;
            let clock = (offset.abs() > OFFSET_MAX.0).then(|| {
                format!("its clock differs by {offset:+.3} s from that of this machine: synchronise the clocks")
            });
            let restored = found.restored.iter().map(|what| format!("the host {what}"));
            found.report.errors.iter().map(ToString::to_string).chain(clock).chain(restored).collect()
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
    let mut groups: Vec<(&DoctorReport, Vec<&HostHealth>)> = Vec::new();
    for health in hosts {
        let Ok(HostReport { report, .. }) = &health.found else { continue };
        if !with_details && report.can_run {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == report) {
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
fn group_text(report: &DoctorReport, hosts: &[&HostHealth], columns: u16) -> String {
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
    let table = headed_table(std::iter::once(head).chain(rows).collect(), columns);
    let report = report_text(report, columns);
    let report: String = report.lines().map(|line| format!("{}\n", format!("  {line}").trim_end())).collect();
    format!("\n{}\n{table}\n{report}", wrap(&title, columns.into()))
}

/// The sections of a report, in the order in which `flagperf doctor` prints them; others follow.
const SECTIONS: [&str; 6] = ["machine", "engines", "containers", "monitors", "plug-ins and sidecars", "run"];

/// Returns a report as `flagperf doctor` prints it on its host.
fn report_text(report: &DoctorReport, columns: u16) -> String {
    let mut sections: Vec<(&String, &Vec<DoctorRow>)> = report.sections.iter().collect();
    sections.sort_by_key(|(title, _)| SECTIONS.iter().position(|known| known == title).unwrap_or(SECTIONS.len()));
    let row = |row: &DoctorRow| [row.name.clone(), row.state.clone(), row.note.clone()];
    let section = |(title, rows): (&String, &Vec<DoctorRow>)| {
        format!("{title}\n{}\n", plain_table(rows.iter().map(row), columns.saturating_sub(2)))
    };
    let lists = [("warning", &report.warnings), ("error", &report.errors)];
    let messages =
        lists.into_iter().flat_map(|(level, list)| list.iter().map(move |error| format!("{level}: {error}\n")));
    let messages = messages.map(|message| wrap(&message, usize::from(columns.saturating_sub(2))));
    sections.into_iter().map(section).chain(messages).collect()
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
        "report": report.map(|found| report_text(&found.report, REPORT_COLUMNS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_fleet::{HostError, HostFacts, launchers};

    fn host(name: &str, found: Result<&[(&str, &str)], &str>) -> HostHealth {
        let found = found.map_err(str::to_owned).map(|errors| {
            let facts = HostFacts { hostname: format!("{name}.lab"), ..HostFacts::default() };
            let error = |(text, hint): &(&str, &str)| HostError { text: (*text).to_owned(), hint: (*hint).to_owned() };
            let row = DoctorRow { name: "none".into(), ..DoctorRow::default() };
            let report = DoctorReport {
                sections: [("run".to_owned(), Vec::new()), ("containers".to_owned(), vec![row])].into(),
                errors: errors.iter().map(error).collect(),
                warnings: Vec::new(),
                can_run: errors.is_empty(),
            };
            HostReport { facts, report, restored: Vec::new() }
        });
        HostHealth { host: name.to_owned(), launcher: launchers()[0], found }
    }

    #[test]
    fn each_host_has_a_line_and_only_those_with_problems_have_reports_each_once() {
        let wrong = [("host.yaml:4: no engine", "start one"), ("host.yaml:5: no data", "")];
        let hosts = [
            host("h1", Ok(&[])),
            host("h2", Ok(&wrong)),
            host("h3", Err("Connection refused")),
            host("h4", Ok(&wrong)),
        ];
        let text = hosts_text(&hosts, false, 100);
        let lines =
            " h1  ready\n h2  not ready  host.yaml:4: no engine (and 1 more)\n h3  unusable   Connection refused\n";
        assert!(text.starts_with(lines), "{text}");
        assert_eq!(text.matches("\nhosts h2, h4, whose reports are identical\n").count(), 1, "{text}");
        assert_eq!(text.matches("  hint: start one").count(), 1, "{text}");
        assert!(text.find("  containers\n") < text.find("  run\n"), "{text}");
        assert!(
            !text.contains("host h1\n")
                && text.ends_with("--details prints the reports of the hosts that are ready, too\n")
        );
        let all = hosts_text(&hosts, true, 100);
        assert!(all.contains("\nhost h1\n") && !all.contains("--details"), "{all}");
        assert_eq!(host_json(&hosts[1])["problems"][0], "host.yaml:4: no engine\n  hint: start one");
    }
}
