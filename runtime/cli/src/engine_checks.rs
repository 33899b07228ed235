//! The rows of `doctor` about engines and monitors.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::doctor::Row;
use super::output::counted;
use super::probe::{ProbeReply, Probes, probe_arguments, short_reason};
use flagperf_config::{EngineEntry, Vendor};
use flagperf_core::description::Delivery;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::text::{one_line, truncate};
use flagperf_engine::TABLE;
use flagperf_engine::backend::Backend;
use flagperf_sampling::{DEVICE_SOURCE, DeviceCommand, SourceContext};

/// Largest number of bytes of a name and version in the table.
const VERSION_BYTES: usize = 120;

/// Returns the row of a probed engine or monitor. Version and reason come from outside, so each is kept on one line: it
/// must not begin a row of its own.
fn row(name: String, reply: ProbeReply) -> Row {
    match reply {
        ProbeReply::Works { version, about, .. } => {
            [name, format!("works, {}", one_line(&truncate(&version, VERSION_BYTES))), about]
        }
        ProbeReply::Fails { reason, remedy } => {
            [name, format!("missing: {}", one_line(&short_reason(&reason))), remedy]
        }
    }
}

/// Probes each engine of this program, without options.
pub(super) fn check_engines(probes: &Probes) -> Vec<Row> {
    let check = |name: &str| row(name.to_owned(), probes.reply(&["--engine".into(), name.into()]));
    TABLE.iter().map(|engine| check(engine.name())).collect()
}

/// Probes each monitor of this program.
pub(super) fn check_monitors(probes: &Probes) -> Vec<Row> {
    let check = |name: &str| row(name.to_owned(), probes.reply(&["--monitor".into(), name.into()]));
    let monitors = flagperf_monitor::TABLE.iter().map(|monitor| monitor.name());
    // The devices are those of a vendor, and the processor has a row as a device.
    let is_other = |name: &&str| *name != DEVICE_SOURCE && flagperf_monitor::find(name).is_none();
    let sources = flagperf_sampling::TABLE.iter().map(|source| source.name()).filter(is_other);
    monitors.chain(sources).map(check).collect()
}

/// Runs the vendor's monitor command and its script once; returns `None` for a vendor without one.
pub(super) fn check_monitor_command(vendor: &Vendor) -> Option<Row> {
    let command = DeviceCommand::of_vendor(vendor)?;
    let context = SourceContext::new(Arc::new(MonotonicClock::start()), None, Some(command));
    let checked = flagperf_sampling::find(DEVICE_SOURCE).map(|source| flagperf_sampling::check(source, &context))?;
    let about = "devices of the vendor, through its command".to_owned();
    let reply = match checked {
        Ok(devices) => ProbeReply::works(counted(devices, "device"), about),
        Err(reason) => ProbeReply::fails(reason, about),
    };
    Some(row(format!("{}.monitor_command", vendor.name), reply))
}

/// Probes each plug-in and sidecar of the vendor. One that the vendor lists both as a framework and as a compiler has
/// one row.
pub(super) fn check_vendor_engines(root: &Path, vendor: &Vendor, probes: &Probes) -> Vec<Row> {
    let listed_twice = |name: &String, entry: &EngineEntry| vendor.frameworks.get(name) == Some(entry);
    let compilers = vendor.compilers.iter().filter(|(name, entry)| !listed_twice(name, entry));
    let checks = vendor.frameworks.iter().chain(compilers).filter_map(|(name, entry)| {
        let reply = check_entry(root, vendor, entry, probes)?;
        Some(row(format!("{}.{name}", vendor.name), reply))
    });
    checks.collect()
}

/// Probes the plug-in or sidecar of an entry; returns `None` for an engine of this program.
fn check_entry(root: &Path, vendor: &Vendor, entry: &EngineEntry, probes: &Probes) -> Option<ProbeReply> {
    let engine = flagperf_engine::find(&entry.engine).ok()?;
    let library = match (engine.description().delivery, &entry.library, entry.command.as_slice()) {
        (Delivery::Library, Some(library), _) => match entry.backend() {
            None => Some(library.clone()),
            Some(backend) => match Backend::find(root, backend).and_then(|row| row.installed()) {
                Some(installed) => Some(installed),
                None => {
                    let remedy = format!("run `flagperf backend install {backend}`");
                    return Some(ProbeReply::fails("not installed", remedy));
                }
            },
        },
        (Delivery::Command, _, [_, ..]) => None,
        _ => return None,
    };
    Some(probes.reply(&probe_arguments(engine, &vendor.folder, library.as_deref(), &entry.command, &IndexMap::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_cannot_begin_a_row_of_its_own_in_the_table() {
        let version = "1.0\nrten  missing\x1b[2J".to_owned();
        let reply = ProbeReply::works(version, "");
        assert_eq!(row("own".to_owned(), reply)[1], "works, 1.0\\nrten  missing\\u{1b}[2J");
        let (version, about) = ("x".repeat(10_000), String::new());
        let reply = ProbeReply::works(version, about);
        assert!(row("own".to_owned(), reply)[1].len() < 200, "a long version is cut");
    }
}
