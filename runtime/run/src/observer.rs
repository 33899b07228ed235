//! The conductor's own observations of a phase, which do not depend on the reports of the worker: the files from which
//! the worker executes code (from /proc; they are hashed later), and the device through the vendor's monitor.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::device_watch::DeviceWatch;
use flagperf_core::event::Event;
use flagperf_host::executed_files;
use flagperf_monitor::Monitor;
use flagperf_result::DeviceConditions;

/// Observes the worker of a phase and its device.
pub(super) struct PhaseObserver {
    /// The worker's process id; `None` when it is unknown.
    pid: Option<u32>,
    monitor: Option<&'static dyn Monitor>,
    watch: Option<DeviceWatch>,
    libraries: BTreeSet<PathBuf>,
}

/// What was observed in a phase.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// State of the device; `None` when no monitor reports it.
    pub(super) conditions: Option<DeviceConditions>,
    /// Files from which the worker and its processes executed code.
    pub(super) libraries: BTreeSet<PathBuf>,
}

impl PhaseObserver {
    /// Creates an observer of the worker with this process id. `monitor` is the name of the vendor's monitor.
    pub(super) fn new(pid: Option<u32>, monitor: Option<&str>) -> Self {
        let monitor = monitor.and_then(flagperf_monitor::find);
        PhaseObserver { pid, monitor, watch: None, libraries: BTreeSet::new() }
    }

    /// Looks at the worker when it has loaded its engine, and again when a step ends, because libraries load others later.
    pub(super) fn observe(&mut self, event: &Event) {
        if let Event::Engine(facts) = event
            && let (Some(monitor), Some(id), None) = (self.monitor, &facts.device_id, &self.watch)
        {
            self.watch = Some(DeviceWatch::start(monitor, id, self.pid));
        }
        if matches!(event, Event::Engine(_) | Event::StepEnd { .. }) {
            self.libraries.extend(self.pid.map(executed_files).into_iter().flatten());
        }
    }

    /// Stops observing.
    pub(super) fn finish(self) -> Observations {
        Observations { conditions: self.watch.and_then(DeviceWatch::finish), libraries: self.libraries }
    }
}
