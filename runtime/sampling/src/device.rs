//! The devices of the vendor, read through the vendor's row in the table of monitors, or through its command and script.

use std::ffi::OsString;

use super::context::DeviceCommand;
use super::{Reading, Source, SourceContext, SourceReader};
use flagperf_core::measure::Nanos;
use flagperf_core::units::Seconds;
use flagperf_host::{CaptureError, CapturedCommand, capture};
use flagperf_monitor::{DeviceSample, Monitor};

/// The source of a vendor's devices.
pub(super) struct DeviceSource;

/// Name of the source of devices.
pub const DEVICE_SOURCE: &str = "device";
/// The subcommand of this program that reads the output of a vendor's command from standard input and runs a script on it.
pub const READ_DEVICES: &str = "read-devices";
/// Largest output in bytes of a vendor's command, and of its script.
const BYTES_MAX: u64 = 1 << 20;
/// Time limit of a vendor's command, and of its script.
const TIME_MAX: Seconds = Seconds(10.0);
/// Shortest time between two readings of the energy counters, during a pass and when a pass begins or ends. One reading takes
/// 4 ms of processor time on an H200. The energy of a pass is computed from the readings at its begin and its end.
const ENERGY_INTERVAL: Seconds = Seconds(5.0);
const ENERGY_INTERVAL_AT_PASS: Seconds = Seconds(2.0);
/// Largest number of devices.
const DEVICES_MAX: usize = 1024;

impl Source for DeviceSource {
    fn name(&self) -> &'static str {
        DEVICE_SOURCE
    }

    fn about(&self) -> &'static str {
        "devices of the vendor, through its monitor, or through its command and `monitor.rhai`"
    }

    fn follows_passes(&self) -> bool {
        true
    }

    fn precedes_phases(&self) -> bool {
        true
    }

    fn applies(&self, context: &SourceContext) -> bool {
        context.monitor.is_some_and(|monitor| monitor.reads_devices()) || context.command.is_some()
    }

    fn open(&self, context: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        let library = context.monitor.filter(|monitor| monitor.reads_devices()).map(|monitor| open(monitor, context));
        match (library, &context.command) {
            (Some(Ok(reader)), _) => Ok(Box::new(reader)),
            (Some(Err(reason)), None) => Err(reason),
            (_, Some(command)) => Ok(Box::new(CommandReader { context: context.clone(), command: command.clone() })),
            (None, None) => Err("the vendor has no monitor".to_owned()),
        }
    }
}

/// Reads devices through a row of the table of monitors.
struct LibraryReader {
    context: SourceContext,
    monitor: &'static dyn Monitor,
    ids: Vec<String>,
    /// When the energy counters were last read.
    energy_read: Option<Nanos>,
}

fn open(monitor: &'static dyn Monitor, context: &SourceContext) -> Result<LibraryReader, String> {
    monitor.check().map_err(|reason| format!("monitor `{}`: {reason}", monitor.name()))?;
    let ids = monitor.device_ids();
    if ids.is_empty() {
        return Err(format!("monitor `{}` found no device", monitor.name()));
    }
    Ok(LibraryReader { context: context.clone(), monitor, ids, energy_read: None })
}

impl SourceReader for LibraryReader {
    fn read(&mut self, at_pass: bool) -> Result<Vec<Reading>, String> {
        let with_energy = self.is_energy_due(at_pass);
        let selected: Vec<&String> = self.ids.iter().filter(|id| self.context.reads_device(id)).collect();
        let samples = selected.iter().filter_map(|id| self.monitor.sample(id, with_energy));
        let samples: Vec<DeviceSample> = samples.filter(has_reading).collect();
        match (selected.first(), samples.is_empty()) {
            (Some(id), true) => Err(format!("the driver reports nothing about device `{id}`")),
            _ => Ok(readings(&self.context, samples)),
        }
    }
}

impl LibraryReader {
    /// Returns whether the energy counters are to be read now.
    fn is_energy_due(&mut self, at_pass: bool) -> bool {
        let now = self.context.clock.now();
        let interval = if at_pass { ENERGY_INTERVAL_AT_PASS } else { ENERGY_INTERVAL };
        let is_due = self.energy_read.is_none_or(|last| now.since(last) >= interval);
        if is_due {
            self.energy_read = Some(now);
        }
        is_due
    }
}

/// Returns whether a device reported at least one value.
fn has_reading(sample: &DeviceSample) -> bool {
    let DeviceSample { memory_used_bytes, power_w, energy_j, utilization_share, temperature_c, .. } = sample;
    memory_used_bytes.is_some() || [power_w, energy_j, utilization_share, temperature_c].iter().any(|n| n.is_some())
}

/// Reads devices through a vendor's command. Its script runs in a separate process of this program, because a script may
/// exhaust its memory or its stack.
struct CommandReader {
    context: SourceContext,
    command: DeviceCommand,
}

impl SourceReader for CommandReader {
    fn interval_min(&self) -> Seconds {
        Seconds(self.command.command.interval_s.into())
    }

    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        let argv = self.command.command.command.iter().map(OsString::from).collect();
        let output = self.run(argv, Vec::new()).map_err(|error| error.to_string())?;
        let program = self.command.program.iter().cloned();
        let argv = program.chain([self.command.script.clone().into_os_string()]).collect();
        let samples = self.run(argv, output).map_err(|error| match error {
            CaptureError::Failed { stderr, .. } if !stderr.is_empty() => stderr,
            error => format!("`{}`: {error}", self.command.script.display()),
        })?;
        let samples: Vec<DeviceSample> = serde_json::from_slice(&samples)
            .map_err(|error| format!("`{}` returned invalid samples: {error}", self.command.script.display()))?;
        let program = self.command.command.command.first().map_or("", String::as_str);
        if samples.is_empty() {
            return Err(format!("the output of `{program}` contained no device"));
        }
        let found = samples.len();
        let selected = samples.into_iter().filter(|sample| self.context.reads_device(&sample.device));
        let selected: Vec<DeviceSample> = selected.take(DEVICES_MAX).collect();
        if selected.is_empty() {
            return Err(format!("the device of the engine is not among the {found} in the output of `{program}`"));
        }
        Ok(readings(&self.context, selected))
    }
}

impl CommandReader {
    fn run(&self, argv: Vec<OsString>, input: Vec<u8>) -> Result<Vec<u8>, CaptureError> {
        let command = CapturedCommand { argv, input, bytes_max: BYTES_MAX, time_max: TIME_MAX };
        capture(&command, &*self.context.clock, || self.context.has_ended())
    }
}

/// Marks the processes of the run in the samples, and returns the samples as readings.
fn readings(context: &SourceContext, mut samples: Vec<DeviceSample>) -> Vec<Reading> {
    for process in samples.iter_mut().filter_map(|sample| sample.processes.as_mut()).flatten() {
        process.own = context.owns_process(process.pid);
    }
    samples.into_iter().map(|sample| Reading::Device(Box::new(sample))).collect()
}
