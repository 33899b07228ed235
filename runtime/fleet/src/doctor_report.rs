//! What `flagperf doctor` finds on a host, as its agent reads it and the user's process gets it.
//!
//! Does not know what the checks are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::host_plan::PlanFinding;
use super::host_text::{HostError, short, shown_errors};
use flagperf_core::event::Level;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::units::Seconds;
use flagperf_host::{CapturedCommand, capture};

/// Largest output of `flagperf doctor` in bytes, and longest time that the command may take.
const REPORT_BYTES_MAX: u64 = 512 << 10;
const REPORT_TIME_MAX: Seconds = Seconds(120.0);
/// Largest number of rows of a section that are shown, and of sections.
const ROWS_MAX: usize = 200;
const SECTIONS_MAX: usize = 20;

/// The report of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// The rows of each section, by its title.
    pub sections: BTreeMap<String, Vec<DoctorRow>>,
    /// What prevents the selected cases from running.
    pub errors: Vec<HostError>,
    /// What the reader of a result should know.
    pub warnings: Vec<HostError>,
    /// Whether the selected cases can run on the host.
    pub can_run: bool,
}

/// A check, its result, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorRow {
    /// What was checked.
    pub name: String,
    /// The result.
    pub state: String,
    /// What to do; may be empty.
    pub note: String,
}

/// The output of `flagperf doctor --json`.
#[derive(Deserialize)]
struct DoctorOutput {
    can_run: bool,
    #[serde(default)]
    sections: BTreeMap<String, Vec<DoctorRow>>,
    findings: Vec<PlanFinding>,
    #[serde(default)]
    faults: Vec<String>,
}

impl From<DoctorOutput> for DoctorReport {
    fn from(output: DoctorOutput) -> Self {
        let DoctorOutput { can_run, sections, findings, faults } = output;
        let (errors, others): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.level == Level::Error);
        let warnings = others.into_iter().filter(|finding| finding.level == Level::Warning);
        DoctorReport {
            sections,
            errors: errors.into_iter().map(PlanFinding::error).chain(faults.into_iter().map(HostError::new)).collect(),
            warnings: warnings.map(PlanFinding::error).collect(),
            can_run,
        }
    }
}

impl DoctorReport {
    /// Returns the report as a host may state it.
    pub(super) fn shortened(&self) -> Self {
        let row =
            |row: &DoctorRow| DoctorRow { name: short(&row.name), state: short(&row.state), note: short(&row.note) };
        let rows = |rows: &Vec<DoctorRow>| rows.iter().take(ROWS_MAX).map(row).collect();
        let sections = self.sections.iter().take(SECTIONS_MAX).map(|(title, own)| (short(title), rows(own)));
        DoctorReport {
            sections: sections.collect(),
            errors: shown_errors(&self.errors),
            warnings: shown_errors(&self.warnings),
            can_run: self.can_run,
        }
    }
}

/// Runs `flagperf doctor` in the checkout at `root` of this host.
///
/// # Errors
/// When the command does not print a report, with the reason.
pub(super) fn examine(root: &Path, program: &Path, arguments: Vec<String>) -> Result<DoctorReport, String> {
    // The exit code only repeats whether the cases can run, unless the program was killed.
    let script = "cd \"$1\" || exit 2; shift; \"$@\"; code=$?; [ $code -le 3 ] || exit $code";
    let words = ["sh", "-c", script, "sh"].map(OsString::from).into_iter();
    let doctor =
        [root.into(), program.into(), "doctor".into(), "--json".into(), "--config".into(), root.join("configs").into()];
    let argv = words.chain(doctor).chain(arguments.into_iter().map(OsString::from)).collect();
    let command = CapturedCommand {
        argv,
        folder: None,
        input: Vec::new(),
        bytes_max: REPORT_BYTES_MAX,
        time_max: REPORT_TIME_MAX,
    };
    let output = capture(&command, &MonotonicClock::start(), || false)
        .map_err(|error| format!("`flagperf doctor` failed on the host: {error}"))?;
    let output: DoctorOutput = serde_json::from_slice(&output)
        .map_err(|error| format!("`flagperf doctor` printed no report on the host: {error}"))?;
    Ok(output.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_errors_of_the_plan_and_of_the_machine_whatever_their_text() {
        let output = r#"{"can_run": false, "sections": {"machine": [{"name": "memory", "state": "2 GiB", "note": ""}]},
            "findings": [
                {"level": "error", "origin": "configs/host.yaml:4", "message": "no data", "hint": "give --data"},
                {"level": "warning", "origin": "default", "message": "error: this is a warning", "hint": ""},
                {"level": "info", "origin": "default", "message": "a note", "hint": ""}],
            "faults": ["cannot write in /x"]}"#;
        let report = DoctorReport::from(serde_json::from_str::<DoctorOutput>(output).unwrap());
        let texts = |errors: &[HostError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let errors = ["configs/host.yaml:4: no data\n  hint: give --data", "cannot write in /x"];
        assert_eq!((texts(&report.errors), report.can_run), (errors.map(str::to_owned).to_vec(), false));
        assert_eq!(texts(&report.warnings), ["error: this is a warning"]);
        assert_eq!(report.sections["machine"][0].state, "2 GiB");
        let rows = vec![DoctorRow { name: "a\nb".into(), ..DoctorRow::default() }; 9000];
        let sections = [("x".to_owned(), rows)].into();
        let shown = DoctorReport { sections, ..report }.shortened();
        assert_eq!((shown.sections["x"].len(), shown.sections["x"][0].name.as_str()), (ROWS_MAX, "a\\nb"));
    }
}
