//! Memory, power and energy of each phase, computed again from the samples and the events.

use std::path::Path;

use super::CaseReport;
use super::difference::compare;
use super::events::Replay;
use flagperf_core::run_files::{MONITOR_FILE, RECORD_FILE};
use flagperf_result::{PhaseRecord, Record, step_time_changes};
use flagperf_sampling::{DeviceIdentity, PhaseUsage, case_usage};

/// Compares the usage of each phase in the record with the usage computed from the samples. A record has no usage if no monitor ran
/// or the file of the samples is incomplete.
pub(super) fn check_monitors(folder: &Path, record: &Record, replay: &Replay, report: &mut CaseReport) {
    let has_usage = record.phases.iter().any(|phase| phase.usage.is_some());
    let is_read = record.monitors.as_ref().is_some_and(|monitors| monitors.rate_per_s > 0);
    if !has_usage && !is_read {
        return;
    }
    let windows = replay.windows.phases();
    let usages =
        match case_usage(&folder.join(MONITOR_FILE), windows, visible_device(record), &step_time_changes(record)) {
            Ok(usage) => usage.phases,
            Err(_) if !has_usage => return,
            Err(error) => return report.give_up(format!("`{MONITOR_FILE}` cannot be read: {error}")),
        };
    for (index, PhaseRecord { phase, usage, .. }) in record.phases.iter().enumerate() {
        let place = windows.iter().position(|windows| windows.phase == *phase);
        let expected: Option<&PhaseUsage> = place.and_then(|place| usages.get(place));
        compare(report, RECORD_FILE, &format!("phases[{index}].usage"), &expected, &usage.as_ref());
    }
}

/// Returns the device that the conductor took from the variable of visible devices, which only the conductor can read.
fn visible_device(record: &Record) -> Option<&str> {
    let devices = record.phases.iter().flat_map(|phase| &phase.usage).flat_map(|usage| &usage.devices);
    let mut visible = devices.filter(|device| device.identified_by == DeviceIdentity::Visible);
    visible.next().map(|device| device.device.as_str())
}
