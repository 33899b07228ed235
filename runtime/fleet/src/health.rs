//! Checks hosts before anything is measured on them.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{after, select};

use super::bootstrap::OwnProgram;
use super::connection::{Connection, ConnectionSettings};
use super::doctor_report::DoctorReport;
use super::fleet_error::FleetError;
use super::host_text::short;
use super::hosts::{hosts_of, tree_of};
use super::launcher::{Launcher, launcher_for};
use super::link_thread::{REPLACED_PROGRAM, restored_text};
use super::protocol::{HostFacts, Reply, Request};
use flagperf_config::Overrides;
use flagperf_plan::Plan;

/// Longest wait for the report of a host.
const REPORT_WAIT: Duration = Duration::from_secs(150);

/// The result of checking a host.
#[derive(Clone)]
pub struct HostHealth {
    /// Name of the host in `HOSTS`.
    pub host: String,
    /// The launcher that starts processes on the host.
    pub launcher: &'static dyn Launcher,
    /// What was found on the host, or why the host cannot be used.
    pub found: Result<HostReport, String>,
}

impl HostHealth {
    /// Returns whether the selected cases can run on the host.
    pub fn can_run(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.report.can_run)
    }
}

/// What the agent and `flagperf doctor` report about a host.
#[derive(Clone)]
pub struct HostReport {
    /// The facts that the agent reports.
    pub facts: HostFacts,
    /// What `flagperf doctor` found.
    pub report: DoctorReport,
    /// What the host had stored otherwise than as sent, and is replaced.
    pub restored: Vec<String>,
}

/// Checks all hosts of a plan at the same time: connects to each, sends the files that it lacks, and runs `flagperf doctor` on
/// it. The launchers' programs write their standard error to the file `log`.
///
/// # Errors
/// When the hosts are unknown, or the checkout or the program cannot be sent.
pub fn check_hosts(plan: &Plan, overrides: &Overrides, log: &Path) -> Result<Vec<HostHealth>, FleetError> {
    let site = &plan.site;
    let hosts = hosts_of(site)?;
    let program = OwnProgram::read().map_err(FleetError::Program)?;
    let tree = tree_of(plan)?;
    // The agent adds the folder of host.yaml on its host.
    let name = Some(plan.host_file.name.to_string());
    let arguments = Overrides { config: None, host_file_name: name, ..overrides.clone() }.arguments();
    let check = |host: &String| {
        let launcher = launcher_for(host, site.launcher);
        let settings =
            ConnectionSettings { launcher, site, program: &program, tree: &tree, log, silence_max: site.host_timeout };
        let arguments = [arguments.clone(), vec!["--as-host".to_owned(), host.clone()]].concat();
        let found = check_host(host, settings, Request::Examine { arguments });
        HostHealth { host: host.clone(), launcher, found }
    };
    Ok(thread::scope(|scope| {
        let checks: Vec<_> = hosts.iter().map(|host| scope.spawn(move || check(host))).collect();
        let failed = |host: &String| HostHealth {
            host: host.clone(),
            launcher: launcher_for(host, site.launcher),
            found: Err("the check of this host failed unexpectedly".to_owned()),
        };
        hosts.iter().zip(checks).map(|(host, check)| check.join().unwrap_or_else(|_| failed(host))).collect()
    }))
}

fn check_host(host: &str, settings: ConnectionSettings<'_>, request: Request) -> Result<HostReport, String> {
    let mut connection = Connection::open(host, settings)?;
    connection.send(&request).map_err(|error| error.to_string())?;
    let replaced = connection.has_replaced_program.then(|| REPLACED_PROGRAM.to_owned());
    let mut restored: Vec<String> = replaced.into_iter().collect();
    let deadline = after(REPORT_WAIT);
    loop {
        let reply = select! {
            recv(connection.replies) -> reply => reply,
            recv(deadline) -> _ => return Err(format!("no report from `flagperf doctor` within {} s", REPORT_WAIT.as_secs())),
        };
        match reply {
            Ok(Ok((Reply::Report { report }, _))) => {
                return Ok(HostReport { facts: connection.host.clone(), report: report.shortened(), restored });
            }
            Ok(Ok((Reply::Restored { first, others }, _))) => restored.push(restored_text(&short(&first), others)),
            Ok(Ok((Reply::Failed { reason, .. }, _)) | Err(reason)) => return Err(short(&reason)),
            Ok(Ok(_)) => {}
            Err(_) => return Err(connection.why_ended()),
        }
    }
}
