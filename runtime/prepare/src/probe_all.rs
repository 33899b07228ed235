//! Probes everything of a machine and a vendor, for `doctor`: engines and monitors of this program, the vendor's monitor
//! command, plug-ins and sidecars.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::probe::{ProbeReply, ProbeTarget, Probes};
use flagperf_config::{EngineEntry, Vendor};
use flagperf_core::description::Delivery;
use flagperf_core::measure::MonotonicClock;
use flagperf_engine::TABLE;
use flagperf_engine::backend::Backend;
use flagperf_sampling::{DEVICE_SOURCE, DeviceCommand, SourceContext};

/// The name of an engine or a monitor, and the reply of its probe.
pub type ProbedName = (String, ProbeReply);

/// Probes each engine of this program, without options.
pub fn probe_engines(probes: &Probes) -> Vec<ProbedName> {
    let probe = |name: String| {
        let reply = probes.reply(&ProbeTarget::Engine { name: name.clone(), options: IndexMap::new() });
        (name, reply)
    };
    TABLE.iter().map(|engine| probe(engine.name().to_owned())).collect()
}

/// Probes each monitor of this program.
pub fn probe_monitors(probes: &Probes) -> Vec<ProbedName> {
    let probe = |name: &str| (name.to_owned(), probes.reply(&ProbeTarget::Monitor(name.to_owned())));
    let monitors = flagperf_monitor::TABLE.iter().map(|monitor| monitor.name());
    // The devices are those of a vendor, and the processor has a row as a device.
    let is_other = |name: &&str| *name != DEVICE_SOURCE && flagperf_monitor::find(name).is_none();
    let sources = flagperf_sampling::TABLE.iter().map(|source| source.name()).filter(is_other);
    monitors.chain(sources).map(probe).collect()
}

/// Runs the vendor's monitor command and its script once; returns `None` for a vendor without one.
pub fn probe_monitor_command(vendor: &Vendor) -> Option<ProbedName> {
    let command = DeviceCommand::of_vendor(vendor)?;
    let context = SourceContext::new(Arc::new(MonotonicClock::start()), None, Some(command));
    let checked = flagperf_sampling::find(DEVICE_SOURCE).map(|source| flagperf_sampling::check(source, &context))?;
    let about = "devices of the vendor, through its command".to_owned();
    let reply = match checked {
        Ok(devices) => ProbeReply::works(format!("{devices} device{}", if devices == 1 { "" } else { "s" }), about),
        Err(reason) => ProbeReply::fails(reason, about),
    };
    Some((format!("{}.monitor_command", vendor.name), reply))
}

/// Probes each plug-in and sidecar of the vendor. One that the vendor lists both as a framework and as a compiler has
/// one row.
pub fn probe_vendor_engines(root: &Path, vendor: &Vendor, probes: &Probes) -> Vec<ProbedName> {
    let listed_twice = |name: &String, entry: &EngineEntry| vendor.frameworks.get(name) == Some(entry);
    let compilers = vendor.compilers.iter().filter(|(name, entry)| !listed_twice(name, entry));
    let probed = vendor.frameworks.iter().chain(compilers).filter_map(|(name, entry)| {
        let reply = probe_entry(root, vendor, entry, probes)?;
        Some((format!("{}.{name}", vendor.name), reply))
    });
    probed.collect()
}

/// Probes the plug-in or sidecar of an entry; returns `None` for an engine of this program.
fn probe_entry(root: &Path, vendor: &Vendor, entry: &EngineEntry, probes: &Probes) -> Option<ProbeReply> {
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
    let (library, no_options) = (library.as_deref(), IndexMap::new());
    Some(probes.reply(&ProbeTarget::of_engine(engine, &vendor.folder, library, &entry.command, &no_options)))
}
