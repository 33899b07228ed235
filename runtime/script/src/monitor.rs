//! A vendor's `monitor.rhai`: converts the output of the vendor's command into samples of devices.
//!
//! Starts no process. Knows no particular vendor.

use std::path::Path;
use std::sync::Arc;

use rhai::{Dynamic, Scope};

use super::compiled::{CompiledScript, ScriptPlace};
use super::error::ScriptError;
use super::names::script_type;
use super::sandbox::HostServices;
use super::stage::Stage;
use flagperf_core::limits::Limits;
use flagperf_core::measure::Clock;
use flagperf_core::suggestion::list_known;
use flagperf_core::units::{Bytes, Seconds};
use flagperf_monitor::{DeviceProcess, DeviceSample, SAMPLE_NUMBERS};

/// Heap memory that a script may hold.
const MEMORY_MAX: Bytes = Bytes(64 << 20);
/// Operations and time of one call.
const OPERATIONS_MAX: u64 = 5_000_000;
const TIME_MAX: Seconds = Seconds(5.0);

/// The keys of a device whose values are not real numbers.
const OTHER_KEYS: [&str; 8] = [
    "device",
    "name",
    "memory_used_bytes",
    "memory_total_bytes",
    "throttling",
    "ecc_corrected_errors",
    "ecc_uncorrected_errors",
    "processes",
];

/// A compiled `monitor.rhai`.
pub struct MonitorScript {
    script: CompiledScript,
}

impl MonitorScript {
    /// Heap memory that the script may hold, in bytes.
    pub fn memory_max() -> u64 {
        MEMORY_MAX.0
    }

    /// Reads and compiles a script.
    ///
    /// # Errors
    /// When the file cannot be read, does not compile, calls an unknown function, or lacks `read_devices`.
    pub fn load(file: &Path, clock: Arc<dyn Clock>) -> Result<Self, ScriptError> {
        let services = HostServices { log: Arc::new(|_, _, _| ()), clock };
        let folder = file.parent().unwrap_or(file);
        let limits = Limits {
            script_operations: OPERATIONS_MAX,
            script_time_s: TIME_MAX,
            script_memory_bytes: MEMORY_MAX,
            ..Limits::default()
        };
        let script = CompiledScript::load(Stage::Monitor, folder, &ScriptPlace::Own(file), limits, services)?;
        Ok(MonitorScript { script })
    }

    /// Returns the devices in the output of the vendor's command.
    ///
    /// # Errors
    /// When the script fails, or does not return an array of maps with the known keys and types.
    pub fn read_devices(&self, output: &str) -> Result<Vec<DeviceSample>, ScriptError> {
        let arguments = || (output.to_owned(),);
        self.script.call(&mut Scope::new(), "read_devices", arguments, Vec::new, to_samples)
    }
}

fn to_samples(returned: &Dynamic) -> Result<Vec<DeviceSample>, String> {
    let devices = returned.read_lock::<rhai::Array>().ok_or_else(|| {
        format!("`read_devices` must return an array with a map for each device, not `{}`", script_type(returned))
    })?;
    devices
        .iter()
        .enumerate()
        .map(|(index, device)| to_sample(device).map_err(|r| format!("device {index}: {r}")))
        .collect()
}

fn to_sample(device: &Dynamic) -> Result<DeviceSample, String> {
    let map = device.read_lock::<rhai::Map>().ok_or_else(|| format!("must be a map, not `{}`", script_type(device)))?;
    let mut sample = DeviceSample::default();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_unit()) {
        set_field(&mut sample, key, value).map_err(|reason| format!("`{key}` {reason}"))?;
    }
    if sample.device.is_empty() {
        return Err("`device`, the number or id of the device, is missing".to_owned());
    }
    Ok(sample)
}

fn set_field(sample: &mut DeviceSample, key: &str, value: &Dynamic) -> Result<(), String> {
    if let Some(number) = SAMPLE_NUMBERS.iter().find(|number| number.name == key) {
        *(number.field)(sample) = Some(to_number(value)?);
        return Ok(());
    }
    match key {
        "device" => sample.device = value.as_int().map(|id| id.to_string()).or_else(|_| to_text(value))?,
        "name" => sample.name = Some(to_text(value)?),
        "memory_used_bytes" => sample.memory_used_bytes = Some(to_count(value)?),
        "memory_total_bytes" => sample.memory_total_bytes = Some(to_count(value)?),
        "ecc_corrected_errors" => sample.ecc_corrected_errors = Some(to_count(value)?),
        "ecc_uncorrected_errors" => sample.ecc_uncorrected_errors = Some(to_count(value)?),
        "throttling" => sample.throttling = Some(to_list(value, to_text)?),
        "processes" => sample.processes = Some(to_list(value, to_process)?),
        _ => {
            let known = SAMPLE_NUMBERS.iter().map(|number| number.name).chain(OTHER_KEYS);
            return Err(format!("is unknown (known: {})", list_known(key, known)));
        }
    }
    Ok(())
}

fn to_number(value: &Dynamic) -> Result<f64, String> {
    let number = value.as_float().or_else(|_| value.as_int().map(|number| number as f64));
    number.map_err(|_| format!("must be a number or (), not `{}`", script_type(value)))
}

fn to_count(value: &Dynamic) -> Result<u64, String> {
    let number = value.as_int().map_err(|_| format!("must be a whole number or (), not `{}`", script_type(value)))?;
    u64::try_from(number).map_err(|_| format!("is {number}, which is less than 0"))
}

fn to_text(value: &Dynamic) -> Result<String, String> {
    let text = value.clone().into_string();
    text.map_err(|_| format!("must be a string, not `{}`", script_type(value)))
}

fn to_list<T>(value: &Dynamic, convert: fn(&Dynamic) -> Result<T, String>) -> Result<Vec<T>, String> {
    let items = value.read_lock::<rhai::Array>();
    let items = items.ok_or_else(|| format!("must be an array, not `{}`", script_type(value)))?;
    items.iter().map(convert).collect()
}

fn to_process(value: &Dynamic) -> Result<DeviceProcess, String> {
    let map = value.read_lock::<rhai::Map>();
    let map = map.ok_or_else(|| format!("must contain maps, not `{}`", script_type(value)))?;
    let mut process = DeviceProcess::default();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_unit()) {
        let number = to_count(value).map_err(|reason| format!("contains a process whose `{key}` {reason}"))?;
        match key.as_str() {
            "pid" => process.pid = u32::try_from(number).map_err(|_| format!("contains the process id {number}"))?,
            "memory_bytes" => process.memory_bytes = Some(number),
            _ => return Err(format!("contains the unknown key `{key}` (known: memory_bytes, pid)")),
        }
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::MonotonicClock;

    fn read(script: &str, output: &str) -> Result<Vec<DeviceSample>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("monitor.rhai");
        std::fs::write(&file, script).unwrap();
        let loaded = MonitorScript::load(&file, Arc::new(MonotonicClock::start()));
        let found = loaded.and_then(|script| script.read_devices(output));
        found.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    fn reason(body: &str) -> String {
        read(&format!("fn read_devices(output) {{ {body} }}"), "text").unwrap_err()
    }

    #[test]
    fn a_script_turns_text_into_samples() {
        let script = r#"fn read_devices(output) {
            let devices = [];
            for line in text::lines(output) {
                let cells = text::cells(line, ",");
                devices.push(#{
                    device: text::number(cells[0]).to_int(),
                    power_w: text::number(cells[1]),
                    memory_used_bytes: text::mebibytes(cells[2]),
                    throttling: ["hot"],
                    processes: [#{ pid: 7, memory_bytes: () }],
                });
            }
            devices
        }"#;
        let devices = read(script, "0, 56 W, 2MiB\n1, N/A, 3MiB\n").unwrap();
        let device = |id: &str, power_w, memory: u64| DeviceSample {
            device: id.into(),
            power_w,
            memory_used_bytes: Some(memory << 20),
            throttling: Some(vec!["hot".into()]),
            processes: Some(vec![DeviceProcess { pid: 7, memory_bytes: None, own: None }]),
            ..DeviceSample::default()
        };
        assert_eq!(devices, [device("0", Some(56.0), 2), device("1", None, 3)]);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_errors_with_the_place() {
        let place = "monitor.rhai:1:1: ";
        let source = |body: &str| format!("\n    fn read_devices(output) {{ {body} }}\n    ^");
        for (body, reason_expected) in [
            ("7", "`read_devices` must return an array with a map for each device, not `int`"),
            ("[7]", "device 0: must be a map, not `int`"),
            ("[#{}]", "device 0: `device`, the number or id of the device, is missing"),
            ("[#{device: 0, power_w: \"5\"}]", "device 0: `power_w` must be a number or (), not `string`"),
            ("[#{device: 0, memory_used_bytes: -1}]", "device 0: `memory_used_bytes` is -1, which is less than 0"),
            ("[#{device: 0, name: 5}]", "device 0: `name` must be a string, not `int`"),
            (
                "[#{device: 0, processes: [#{id: 1}]}]",
                "device 0: `processes` contains the unknown key `id` (known: memory_bytes, pid)",
            ),
        ] {
            assert_eq!(reason(body), format!("{place}{reason_expected}{}", source(body)));
        }
        let unknown = reason("[#{device: 0, powr_w: 5}]");
        assert!(
            unknown.contains("`powr_w` is unknown (known: ") && unknown.contains("; nearest: power_w)"),
            "{unknown}"
        );
    }

    #[test]
    fn a_script_has_no_files_no_clock_and_no_end() {
        assert!(reason("log::info(\"x\"); []").contains("log::info"), "only `text` is granted");
        assert!(reason("timestamp()").contains("timestamp"));
        assert!(reason("loop {}").contains("operations"));
        assert!(reason("let s = \"a\"; loop { s += s; }").contains("too large"));
        assert!(read("fn other() {}", "").unwrap_err().contains("the function `read_devices(output)` is missing"));
    }

    #[test]
    fn the_list_of_keys_is_complete() {
        let all: Vec<&str> = SAMPLE_NUMBERS.iter().map(|number| number.name).chain(OTHER_KEYS).collect();
        let body = all.iter().map(|key| format!("{key}: {}", example(key))).collect::<Vec<_>>().join(", ");
        let sample = &read(&format!("fn read_devices(output) {{ [#{{ {body} }}] }}"), "").unwrap()[0];
        let written = serde_json::to_value(sample).unwrap();
        let mut written: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        let mut all = all;
        written.sort_unstable();
        all.sort_unstable();
        assert_eq!(written, all);
    }

    fn example(key: &str) -> &'static str {
        match key {
            "name" => "\"Chip\"",
            "throttling" | "processes" => "[]",
            _ => "1",
        }
    }
}
