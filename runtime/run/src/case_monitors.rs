//! The monitors of a case: starts them, passes the updates of workers to them, and adds their results to the record.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::worker_update::WorkerUpdate;
use flagperf_config::env;
use flagperf_core::event::Event;
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::step::Phase;
use flagperf_plan::{CasePlan, Plan};
use flagperf_result::{Record, step_time_changes};
use flagperf_sampling::{
    CaseUsage, DEVICE_SOURCE, DeviceCommand, MonitorFiles, Sampler, SamplerOptions, SourceContext, TABLE,
    WindowCollector, case_usage,
};

/// The monitors of a case, which run while the case runs.
pub(super) struct CaseMonitors {
    sampler: Sampler,
    windows: WindowCollector,
    started: Nanos,
    /// The device that the variable of visible devices names; `None` if it names none.
    visible: Option<String>,
}

impl CaseMonitors {
    /// Starts the monitors of a case that began at `started`. Their files are in its folder.
    pub(super) fn start(plan: &Plan, case: &CasePlan, folder: &Path, clock: &Arc<dyn Clock>, started: Nanos) -> Self {
        let vendor = &plan.vendor;
        let command = DeviceCommand::of_vendor(vendor);
        let context = SourceContext::new(clock.clone(), vendor.monitor.as_deref(), command);
        let options = SamplerOptions { rate_per_s: plan.site.monitor_rate, started };
        let files = MonitorFiles::new(folder, &vendor.name, options.rate_per_s);
        let sampler = Sampler::start(options, context, files, TABLE);
        sampler.wait_for_first_readings();
        CaseMonitors { sampler, windows: WindowCollector::default(), started, visible: visible_device(plan, case) }
    }

    /// Reads the devices before the worker of a phase starts, when the worker of the phase before holds nothing any more.
    pub(super) fn phase_begins(&self) {
        // The device of the phase is not known before its engine is loaded.
        self.sampler.context().select_device(None);
        self.sampler.read_before_phase();
    }

    /// Handles an update from the worker of a phase.
    pub(super) fn note(&mut self, phase: Phase, update: WorkerUpdate<'_>) {
        match update {
            WorkerUpdate::Started(pid) => self.sampler.context().add_process(pid),
            WorkerUpdate::Event(received, _) => {
                let at = Nanos(received.at.0.saturating_sub(self.started.0));
                self.windows.add(phase, at, received.event);
                match received.event {
                    Event::Engine(facts) => self.sampler.context().select_device(facts.device_id.as_deref()),
                    Event::PassBegin { .. } | Event::Steps { .. } => self.sampler.follow_pass(),
                    _ => {}
                }
            }
            WorkerUpdate::Nothing(_) => {}
        }
    }

    /// Stops the monitors, and adds their state and the usage of each phase to the record.
    pub(super) fn finish(self, record: &mut Record) {
        let files = self.sampler.files();
        let (monitors, warnings) = self.sampler.finish();
        let rate = monitors.rate_per_s;
        record.monitors = Some(monitors);
        record.warnings.extend(warnings);
        if rate == 0 {
            record.warnings.push("no monitor ran: `MONITOR_RATE` in host.yaml is 0".to_owned());
            return;
        }
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = files.check() {
            record.fail(error.to_string(), "only flagperf may write to the folder of the run");
            return;
        }
        match case_usage(files.path(), self.windows.phases(), self.visible.as_deref(), &step_time_changes(record)) {
            Ok(CaseUsage { phases, contradictions }) => {
                for contradiction in contradictions {
                    let source = record.monitors.as_mut().and_then(|all| all.sources.get_mut(DEVICE_SOURCE));
                    let problem = source.map(|source| source.add_contradiction(&contradiction));
                    record.warnings.extend(problem.map(|problem| format!("monitor `{DEVICE_SOURCE}`: {problem}")));
                }
                for (windows, usage) in self.windows.phases().iter().zip(phases) {
                    let found = record.phases.iter_mut().find(|phase| phase.phase == windows.phase);
                    if let Some(found) = found {
                        found.usage = Some(usage);
                    }
                }
            }
            Err(error) => record.warnings.push(format!("power, energy and memory of the case are unknown: {error}")),
        }
    }
}

/// Returns the first device in the variable that selects the visible devices of a case.
fn visible_device(plan: &Plan, case: &CasePlan) -> Option<String> {
    let job = case.jobs.last()?;
    let variable = plan.site.acce_visible_device_env_name.as_ref().or(plan.vendor.visible_devices.as_ref())?;
    let value = job.environment.get(variable).cloned().or_else(|| env::visible_devices_value(variable))?;
    Some(value.split(',').next()?.trim().to_owned())
}
