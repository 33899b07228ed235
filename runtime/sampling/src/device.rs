//! The devices of the vendor, read through the vendor's row in the table of monitors, or through its command and script.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
            (library, Some(command)) => {
                let instead_of = library.and_then(Result::err);
                Ok(Box::new(CommandReader { context: context.clone(), command: command.clone(), instead_of }))
            }
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
    /// Why the vendor's monitor, which the command replaces, does not work; `None` without one.
    instead_of: Option<String>,
}

impl SourceReader for CommandReader {
    fn interval_min(&self) -> Seconds {
        Seconds(self.command.command.interval_s.into())
    }

    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        self.read_command().map_err(|reason| match &self.instead_of {
            Some(instead_of) => format!("{reason}; {instead_of}"),
            None => reason,
        })
    }
}

impl CommandReader {
    fn read_command(&self) -> Result<Vec<Reading>, String> {
        let argv = self.command.command.command.iter().map(OsString::from).collect();
        // A relative path in the command is one of the vendor's files.
        let folder = self.command.script.parent().map(Path::to_owned);
        let output = self.run(argv, folder, Vec::new()).map_err(|error| error.to_string())?;
        let program = self.command.program.iter().cloned();
        let argv = program.chain([self.command.script.clone().into_os_string()]).collect();
        let samples = self.run(argv, None, output).map_err(|error| match error {
            CaptureError::Failed { last_line, .. } if !last_line.is_empty() => last_line,
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

    fn run(&self, argv: Vec<OsString>, folder: Option<PathBuf>, input: Vec<u8>) -> Result<Vec<u8>, CaptureError> {
        let command = CapturedCommand { argv, folder, input, bytes_max: BYTES_MAX, time_max: TIME_MAX };
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

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::MonitorCommand;

    /// Returns the reader of a command whose output already is what the script would return.
    fn reader(folder: &Path, command: &[&str]) -> CommandReader {
        let command = DeviceCommand {
            program: ["sh", "-c", "cat"].map(OsString::from).to_vec(),
            script: folder.join("monitor.rhai"),
            command: MonitorCommand { command: command.iter().map(|&part| part.to_owned()).collect(), interval_s: 1 },
        };
        CommandReader { context: SourceContext::of_machine(), command, instead_of: None }
    }

    #[test]
    fn a_command_starts_in_the_folder_of_its_vendor() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("devices.json"), "[{\"device\": \"7\", \"power_w\": 5.0}]").unwrap();
        let readings = reader(folder.path(), &["cat", "devices.json"]).read(false).unwrap();
        let [Reading::Device(sample)] = readings.as_slice() else { panic!("{readings:?}") };
        assert_eq!(sample.device, "7");
    }

    #[test]
    fn a_failure_has_its_own_reason_and_that_of_the_monitor_before_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = reader(folder.path(), &["sh", "-c", "echo no driver >&2; exit 3"]);
        assert_eq!(reader.read(false).unwrap_err(), "`sh` exited with status 3: `no driver`");
        reader.instead_of = Some("monitor `nvml`: no library".to_owned());
        assert_eq!(
            reader.read(false).unwrap_err(),
            "`sh` exited with status 3: `no driver`; monitor `nvml`: no library"
        );
    }
}
