//! `flagperf doctor --hosts`: checks every host.

use std::path::Path;
use std::process::ExitCode;

use super::output::{print_message, write_listing};
use super::setup::{EXIT_MISTAKE, prepare_plan, report_mistakes};
use crate::config::Overrides;
use crate::fleet::{HostHealth, check_hosts};
use crate::report::{bytes, columns, display_text, plain_table};
use crate::run::RunOutcome;
use crate::units::Seconds;

/// Difference of clocks above which the user is asked to synchronise them.
const OFFSET_MAX: Seconds = Seconds(1.0);

/// Checks the hosts and prints a report about each.
pub(super) fn examine_hosts(overrides: &Overrides, root: &Path) -> ExitCode {
    let planned = match prepare_plan(root, overrides) {
        Ok(planned) => planned,
        Err(findings) => return report_mistakes(&findings),
    };
    let checked = tempfile::NamedTempFile::new()
        .map_err(|error| format!("cannot create a temporary file: {error}"))
        .and_then(|log| check_hosts(&planned.plan, overrides, log.path()).map_err(|error| error.to_string()));
    let hosts = match checked {
        Ok(hosts) => hosts,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return ExitCode::from(EXIT_MISTAKE);
        }
    };
    let text: String = hosts.iter().map(host_text).collect();
    if let Err(error) = write_listing(&text) {
        print_message(&format!("error: {error}"));
        return ExitCode::from(RunOutcome::UNWRITTEN);
    }
    ExitCode::from(if hosts.iter().all(|host| host.can_run) { RunOutcome::OK } else { RunOutcome::FAILED })
}

/// Returns the text about a host: the facts that its agent reports, then the report of `flagperf doctor` on the host.
fn host_text(health: &HostHealth) -> String {
    let row = |name: &str, value: String| [name.to_owned(), value];
    let launcher = row("launcher", format!("{}: {}", health.launcher.name(), health.launcher.about()));
    let (rows, report) = match &health.found {
        Err(reason) => (vec![row("state", format!("cannot be used: {reason}")), launcher], String::new()),
        Ok((facts, report)) => {
            let offset = facts.clock_offset.ahead;
            let remark = if offset.0.abs() > OFFSET_MAX.0 { ": synchronise the clocks" } else { "" };
            let state =
                if health.can_run { "ready" } else { "the selected cases cannot run; the report below states why" };
            let rows = vec![
                row("state", state.to_owned()),
                launcher,
                row("hostname", facts.hostname.clone()),
                row("program", format!("flagperf {}, identical to the program here", facts.version)),
                row("clock", format!("{:+.3} s relative to the clock of this machine{remark}", offset.0)),
                row("free space", bytes(facts.free_bytes)),
            ];
            (rows, report.clone())
        }
    };
    let report: String = report.lines().map(|line| format!("  {}\n", display_text(line))).collect();
    format!("host {}\n{}\n{report}", health.host, plain_table(rows, columns()))
}
