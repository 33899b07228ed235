//! The conductor's own observations of a phase, which do not depend on the reports of the worker: the code that
//! the worker executes (from /proc; its files are hashed later), and the device through the vendor's monitor.

use std::collections::BTreeSet;

use super::device_watch::DeviceWatch;
use flagperf_core::event::Event;
use flagperf_host::{ExecutedCode, executed_code};
use flagperf_monitor::Monitor;
use flagperf_result::DeviceConditions;

/// Observes the worker of a phase and its device.
pub(super) struct PhaseObserver {
    /// The worker's process id; `None` when it is unknown.
    pid: Option<u32>,
    monitor: Option<&'static dyn Monitor>,
    watch: Option<DeviceWatch>,
    code: BTreeSet<ExecutedCode>,
}

/// What was observed in a phase.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// State of the device; `None` when no monitor reports it.
    pub(super) conditions: Option<DeviceConditions>,
    /// What the worker and its processes executed.
    pub(super) code: BTreeSet<ExecutedCode>,
}

impl PhaseObserver {
    /// Creates an observer of the worker with this process id. `monitor` is the name of the vendor's monitor.
    pub(super) fn new(pid: Option<u32>, monitor: Option<&str>) -> Self {
        let monitor = monitor.and_then(flagperf_monitor::find);
        PhaseObserver { pid, monitor, watch: None, code: BTreeSet::new() }
    }

    /// Looks at the worker when it has loaded its engine, and again when a step ends, because libraries load others later.
    pub(super) fn observe(&mut self, event: &Event) {
        if let Event::Engine(facts) = event
            && let (Some(monitor), Some(id), None) = (self.monitor, &facts.device_id, &self.watch)
        {
            self.watch = Some(DeviceWatch::start(monitor, id, self.pid));
        }
        if matches!(event, Event::Engine(_) | Event::StepEnd { .. }) {
            self.code.extend(self.pid.map(executed_code).into_iter().flatten());
        }
    }

    /// Stops observing.
    pub(super) fn finish(self) -> Observations {
        Observations { conditions: self.watch.and_then(DeviceWatch::finish), code: self.code }
    }
}
