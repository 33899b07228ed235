//! `flagperf doctor`: shows what works on this machine, what is missing, and how to get it.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::arguments::DoctorArguments;
use super::doctor_hosts::examine_hosts;
use super::output::{print_message, print_result, stdout_error, write_listing};
use super::plan::finding_json;
use super::setup::{find_checkout, prepare_process, print_findings};
use flagperf_config::{Finding, Findings, Overrides, cache_folder, find_root};
use flagperf_container::{ContainerEngine, EngineFacts};
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line, truncate};
use flagperf_plan::{Job, is_generated_on_first_use};
use flagperf_prepare::{
    Prepared, ProbeReply, ProbedName, Probes, prepare_config, probe_engines, probe_monitor_command, probe_monitors,
    probe_vendor_engines, short_reason,
};
use flagperf_report::{bytes, columns, plain_table};
use flagperf_result::Machine;

/// A check, its result, and what to do.
pub(super) type Row = [String; 3];

/// Largest number of bytes of a name and version in the table.
const VERSION_BYTES: usize = 120;

/// Prints the checks. The exit code says whether the selected cases can run: see [`Diagnosis::exit_code`].
pub(super) fn doctor(arguments: &DoctorArguments) -> anyhow::Result<ExitCode> {
    let _exits = prepare_process()?;
    let overrides = arguments.agent.apply(arguments.selection.overrides());
    if arguments.hosts {
        return examine_hosts(arguments, &overrides, &find_checkout()?);
    }
    let mut sections = Map::new();
    let mut write = |title: &str, rows: Vec<Row>| match arguments.json {
        true => {
            sections.insert(title.to_owned(), rows.iter().map(row_json).collect());
            Ok(())
        }
        false => write_listing(&format!("{title}\n{}\n", plain_table(rows, columns()))),
    };
    Ok(match examine(&overrides, &find_checkout()?, &mut write) {
        Ok(diagnosis) if arguments.json => print_result(&diagnosis.json_text(sections)?, diagnosis.exit_code()),
        Ok(diagnosis) => {
            diagnosis.print();
            ExitCode::from(diagnosis.exit_code())
        }
        Err(error) => {
            print_message(&format!("error: {}", stdout_error(&error)));
            ExitCode::from(exit_code::UNWRITTEN)
        }
    })
}

/// What prevents the selected cases from running.
struct Diagnosis {
    /// The plan, or the findings because of which there is none.
    planned: Result<Prepared, Findings>,
    /// What else the selected cases use and cannot work.
    faults: Vec<String>,
}

impl Diagnosis {
    fn findings(&self) -> &[Finding] {
        self.planned.as_ref().map_or_else(|findings| &findings.0, |planned| &planned.plan.findings)
    }

    /// Returns one JSON object with the sections, and with what prevents the selected cases from running.
    fn json_text(&self, sections: Map<String, Value>) -> anyhow::Result<String> {
        let findings: Vec<Value> = self.findings().iter().map(finding_json).collect();
        let can_run = self.exit_code() == exit_code::OK;
        let doctor = json!({"can_run": can_run, "sections": sections, "findings": findings, "faults": self.faults});
        Ok(format!("{}\n", escape_json(&serde_json::to_string_pretty(&doctor)?)))
    }

    fn print(&self) {
        print_findings(self.findings().iter());
        for fault in &self.faults {
            print_message(&format!("error: {fault}"));
        }
    }

    /// Returns 2 for a mistake in the configuration or in a script, and for an unknown vendor, 1 when something that the
    /// selected cases use cannot work, otherwise 0. An engine that no selected case uses may be missing.
    fn exit_code(&self) -> u8 {
        match (&self.planned, self.faults.as_slice()) {
            (Ok(_), []) => exit_code::OK,
            (Err(findings), _) if findings.has_mistakes() => exit_code::MISTAKE,
            _ => exit_code::FAILED,
        }
    }
}

/// Writes the rows of a section.
type WriteSection<'w> = dyn FnMut(&str, Vec<Row>) -> io::Result<()> + 'w;

/// Writes each section as soon as its rows are known.
fn examine(overrides: &Overrides, root: &Path, section: &mut WriteSection<'_>) -> io::Result<Diagnosis> {
    let rows = |probed: Vec<ProbedName>| probed.into_iter().map(row).collect();
    section("machine", machine_rows())?;
    let config = flagperf_config::load(root, overrides);
    let probes = config.as_ref().map_or_else(|_| Probes::default(), |config| Probes::new(config.site.phase_timeout));
    let probes = Rc::new(probes);
    section("engines", rows(probe_engines(&probes)))?;
    section("containers", vec![container_row()])?;
    let vendor = config.as_ref().ok().and_then(|config| config.vendor.as_ref());
    let command = vendor.and_then(probe_monitor_command);
    section("monitors", rows(probe_monitors(&probes).into_iter().chain(command).collect()))?;
    let vendor_engines = vendor.map(|vendor| probe_vendor_engines(root, vendor, &probes)).unwrap_or_default();
    if !vendor_engines.is_empty() {
        section("plug-ins and sidecars", rows(vendor_engines))?;
    }
    // The plan probes each engine that a case uses with the options of the case.
    let planned = config.and_then(|config| prepare_config(&config, probes));
    // Another host keeps its results in the agent's own folder until they are sent.
    let is_agent = overrides.replica.is_some();
    let (run_rows, faults) = run_rows(root, planned.as_ref().ok(), is_agent);
    section("run", run_rows)?;
    Ok(Diagnosis { planned, faults })
}

/// Returns the row of a probed engine or monitor. Version and reason come from outside, so each is kept on one line: it
/// must not begin a row of its own.
fn row((name, reply): ProbedName) -> Row {
    match reply {
        ProbeReply::Works { version, about, .. } => {
            [name, format!("works, {}", one_line(&truncate(&version, VERSION_BYTES))), about]
        }
        ProbeReply::Fails { reason, remedy } => {
            [name, format!("missing: {}", one_line(&short_reason(&reason))), remedy]
        }
    }
}

/// Returns a row as JSON.
fn row_json([name, state, note]: &Row) -> Value {
    json!({"name": name, "state": state, "note": note})
}

fn machine_rows() -> Vec<Row> {
    let machine = Machine::detect();
    let row = |name: &str, value: String| [name.to_owned(), value, String::new()];
    vec![
        row("processor", format!("{}, {} cores, {} threads", machine.cpu, machine.cores, machine.threads)),
        row("memory", bytes(machine.memory_bytes)),
        row("system", format!("{}, kernel {}, {}", machine.system, machine.kernel, machine.architecture)),
    ]
}

/// Returns the row about the container engine, which a run with `CONTAINER: docker` needs.
fn container_row() -> Row {
    match ContainerEngine::connect() {
        Ok(engine) => {
            let EngineFacts { name, version, socket, is_rootless, .. } = engine.facts();
            let rights = if *is_rootless { ", without root rights" } else { "" };
            [name.to_lowercase(), format!("{version} at {}{rights}", socket.display()), String::new()]
        }
        Err(error) => ["none".to_owned(), error.to_string(), error.hint()],
    }
}

/// Returns the rows about the checkout, the plan and its folders, and what is wrong with the folder for results.
fn run_rows(root: &Path, planned: Option<&Prepared>, is_agent: bool) -> (Vec<Row>, Vec<String>) {
    let row = |name: &str, state: String, remedy: &str| [name.to_owned(), state, remedy.to_owned()];
    let mut rows = vec![match find_root(root) {
        Some(root) => row("checkout", root.display().to_string(), ""),
        None => row("checkout", "missing".to_owned(), "change to a folder with configs/ and scripts/"),
    }];
    let Some(planned) = planned else {
        rows.push(row("plan", "invalid".to_owned(), "see the errors below"));
        return (rows, Vec::new());
    };
    let own = cache_folder().filter(|_| is_agent);
    let results = own.as_ref().unwrap_or(&planned.plan.site.flagperf_log_path);
    let written = check_writable(results).map_err(|error| format!("cannot write in {}: {error}", results.display()));
    rows.push(match &written {
        Ok(()) => row("results", format!("{} is writable", results.display()), ""),
        Err(fault) => row("results", fault.clone(), "set FLAGPERF_LOG_PATH in host.yaml"),
    });
    for case in &planned.plan.cases {
        for job in case.jobs.iter().take(1) {
            let state = match job.data_dir.is_dir() {
                true => "exists",
                false if is_generated_on_first_use(&job.data_dir) => "is generated on first use",
                false => "does not exist on this machine",
            };
            rows.push(row(&format!("data of {}", case.key), format!("{} {state}", job.data_dir.display()), ""));
        }
        let phase = |job: &Job| format!("{} with {}", job.phase().measured_step().name(), job.engine.engine);
        let phases: Vec<String> = case.jobs.iter().map(phase).collect();
        rows.push(row(&case.key.to_string(), format!("ready: {}", phases.join(", ")), ""));
    }
    (rows, written.err().into_iter().collect())
}

/// Checks that files can be created and filled in `folder`, or in its nearest existing ancestor.
fn check_writable(folder: &Path) -> std::io::Result<()> {
    let existing = folder.ancestors().find(|above| above.exists()).unwrap_or(folder);
    nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)?;
    if !existing.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    // A full disk shows only when something is written. The file has no name and vanishes when it is closed.
    let mut file = tempfile::tempfile_in(existing)?;
    file.write_all(&[0; 4096])?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_cannot_begin_a_row_of_its_own_in_the_table() {
        let version = "1.0\nrten  missing\x1b[2J".to_owned();
        let reply = ProbeReply::works(version, String::new());
        assert_eq!(row(("own".to_owned(), reply))[1], "works, 1.0\\nrten  missing\\u{1b}[2J");
        let (version, about) = ("x".repeat(10_000), String::new());
        let reply = ProbeReply::works(version, about);
        assert!(row(("own".to_owned(), reply))[1].len() < 200, "a long version is cut");
    }
}
