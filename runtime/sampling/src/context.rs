//! The context that the sources of a case share.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::READ_DEVICES;
use flagperf_config::{MONITOR_SCRIPT, MonitorCommand, Vendor};
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_host::{THIS_PROGRAM, descends_from};
use flagperf_monitor::Monitor;

/// The context that the sources of a case share: the vendor's monitor, the devices and processes of the run, and whether the
/// case has ended.
#[derive(Clone)]
pub struct SourceContext {
    /// The conductor's clock.
    pub clock: Arc<dyn Clock>,
    /// The vendor's monitor; `None` without one.
    pub monitor: Option<&'static dyn Monitor>,
    /// The vendor's monitor command, with its script and the program that runs the script; `None` without one.
    pub command: Option<DeviceCommand>,
    /// The folder of the kernel's power counters.
    pub powercap: PathBuf,
    shared: Arc<SharedState>,
}

/// The command and the script that read the devices of a vendor.
#[derive(Clone, Debug)]
pub struct DeviceCommand {
    /// The program that runs the script, with the arguments before the path of the script.
    pub program: Vec<OsString>,
    /// The vendor's `monitor.rhai`.
    pub script: PathBuf,
    /// The vendor's command and its interval.
    pub command: MonitorCommand,
}

impl DeviceCommand {
    /// Returns the command of a vendor; `None` for a vendor without one. Its script runs in a process of this program.
    pub fn of_vendor(vendor: &Vendor) -> Option<Self> {
        let program = [THIS_PROGRAM, READ_DEVICES].map(OsString::from).to_vec();
        let script = vendor.folder.join(MONITOR_SCRIPT);
        vendor.monitor_command.clone().map(|command| DeviceCommand { program, script, command })
    }
}

#[derive(Default)]
struct SharedState {
    has_ended: AtomicBool,
    /// The devices that are read; `None` for all.
    devices: Mutex<Option<BTreeSet<String>>>,
    /// Processes of the run that do not descend from this process, such as the main process of a container.
    processes: Mutex<BTreeSet<u32>>,
}

impl SourceContext {
    /// Creates the context of a case. `monitor` is the name of the vendor's monitor.
    pub fn new(clock: Arc<dyn Clock>, monitor: Option<&str>, command: Option<DeviceCommand>) -> Self {
        let monitor = monitor.and_then(flagperf_monitor::find);
        let powercap = PathBuf::from("/sys/class/powercap");
        SourceContext { clock, monitor, command, powercap, shared: Arc::default() }
    }

    /// Creates a context without a vendor.
    pub fn of_machine() -> Self {
        SourceContext::new(Arc::new(MonotonicClock::start()), None, None)
    }

    /// Selects the device to read; `None` selects all devices.
    pub fn select_device(&self, id: Option<&str>) {
        let selected = id.map(|id| BTreeSet::from([id.to_owned()]));
        *self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner) = selected;
    }

    /// Adds a process of the run that does not descend from this process.
    pub fn add_process(&self, pid: u32) {
        self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    /// Returns whether a device is read.
    pub(super) fn reads_device(&self, id: &str) -> bool {
        let selected = self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        selected.as_ref().is_none_or(|devices| devices.contains(id))
    }

    /// Returns whether a process belongs to the run; `None` when the process is not visible.
    pub(super) fn owns_process(&self, pid: u32) -> Option<bool> {
        let workers = self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own: Vec<u32> = workers.into_iter().chain([std::process::id()]).collect();
        descends_from(pid, &own)
    }

    /// Marks the case as ended, so that sources no longer wait for commands.
    pub(super) fn end(&self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the case has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_the_run_are_descendants_of_this_one_or_of_those_that_were_added() {
        let context = SourceContext::of_machine();
        let own = std::process::id();
        assert_eq!((context.owns_process(own), context.owns_process(u32::MAX / 2)), (Some(true), None));
        if own != 1 {
            assert_eq!(context.owns_process(1), Some(false));
            context.add_process(1);
            assert_eq!(context.owns_process(1), Some(true));
        }
    }

    #[test]
    fn all_devices_are_read_until_one_is_selected() {
        let context = SourceContext::of_machine();
        assert!(context.reads_device("a"));
        context.select_device(Some("b"));
        assert!(!context.reads_device("a") && context.reads_device("b"));
        context.select_device(None);
        assert!(context.reads_device("a"));
    }
}
