//! The resources that the phases used, as rows of text: memory, power and energy of devices, processors and the machine.

use super::text::{bytes, digits, percent};
use flagperf_result::{PhaseRecord, Record, SampleEnergy, sample_energy};
use flagperf_sampling::{DeviceUsage, EnergySource, EnergyUsage, MemorySource};

/// Returns a row for each device, the processors and the machine in each phase, and a row for each source that is not
/// available.
pub(super) fn usage_rows(record: &Record) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    for (phase, usage) in record.phases.iter().filter_map(|phase| Some((phase, phase.usage.as_ref()?))) {
        let name = phase_name(phase);
        rows.extend(usage.devices.iter().map(|device| (name, device_text(device, &record.unit))));
        let energies = [("processors", &usage.processor), ("machine", &usage.machine)];
        for (what, energy) in energies {
            let parts = energy.as_ref().map(|energy| energy_parts(energy, &record.unit)).unwrap_or_default();
            rows.extend((!parts.is_empty()).then(|| (name, format!("{what}: {}", parts.join(", ")))));
        }
        let busy = usage.processor_busy_share_mean.map(|share| format!("processors busy {}", percent(share)));
        let memory = usage.machine_memory_bytes_max.map(|memory| format!("at most {} of memory in use", bytes(memory)));
        let machine: Vec<String> = busy.into_iter().chain(memory).collect();
        rows.extend((!machine.is_empty()).then(|| (name, format!("whole machine: {}", machine.join(", ")))));
    }
    let sources = record.monitors.iter().flat_map(|monitors| &monitors.sources);
    let missing = sources.filter_map(|(name, source)| Some(format!("{name}: {}", source.unavailable.as_ref()?)));
    rows.extend(missing.map(|text| ("not monitored", text)));
    rows
}

/// Returns the energy per sample for the headline.
pub(super) fn energy_text(record: &Record) -> Option<String> {
    match sample_energy(record)? {
        SampleEnergy::Known { j_per_sample, of } => {
            Some(format!("{} J per {}, {of}", digits(j_per_sample), record.unit))
        }
        SampleEnergy::Shared => Some("unknown, because other processes used the device".to_owned()),
    }
}

fn phase_name(phase: &PhaseRecord) -> &'static str {
    phase.phase.measured_step().name()
}

/// `GPU-1: at most 3.2 GiB (its processes), mean 310 W, max 420 W, 1.2 J per sample (energy counter)`
fn device_text(device: &DeviceUsage, unit: &str) -> String {
    let source = match device.memory_source {
        Some(MemorySource::Processes) => "its processes",
        _ => "increase during the phase",
    };
    let memory = device.memory_bytes_max.map(|memory| format!("at most {} ({source})", bytes(memory)));
    let others = (device.other_processes == Some(true)).then(|| "with other processes on the device".to_owned());
    let parts: Vec<String> = memory.into_iter().chain(energy_parts(&device.energy, unit)).chain(others).collect();
    let parts = if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") };
    format!("{}: {parts}", device.device)
}

fn energy_parts(energy: &EnergyUsage, unit: &str) -> Vec<String> {
    let source = match energy.energy_source {
        Some(EnergySource::Counter) => "energy counter",
        _ => "integral of power",
    };
    let parts = [
        energy.power_w_mean.map(|power| format!("mean {} W", digits(power))),
        energy.power_w_max.map(|power| format!("max {} W", digits(power))),
        energy.energy_j_per_sample.map(|energy| format!("{} J per {unit} ({source})", digits(energy))),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::event::EngineFacts;
    use flagperf_core::units::{Bytes, Seconds};
    use flagperf_result::testing;
    use flagperf_sampling::{DeviceIdentity, MonitorRecord, PhaseUsage, SourceRecord};

    fn energy(per_sample: Option<f64>) -> EnergyUsage {
        EnergyUsage {
            readings: 9,
            power_w_mean: Some(300.0),
            power_w_max: Some(410.0),
            energy_j: Some(900.0),
            energy_source: Some(EnergySource::Counter),
            energy_j_per_sample: per_sample,
        }
    }

    fn record(device: &str, usage: PhaseUsage) -> Record {
        let mut record = testing::record();
        record.phases[0].engine = Some(EngineFacts { device: device.into(), ..EngineFacts::default() });
        record.phases[0].usage = Some(usage);
        record
    }

    #[test]
    fn a_device_has_its_memory_power_and_energy_per_item() {
        let device = DeviceUsage {
            device: "GPU-1".into(),
            identified_by: DeviceIdentity::Id,
            memory_bytes_max: Some(Bytes(3 << 30)),
            memory_source: Some(MemorySource::Processes),
            other_processes: Some(false),
            energy: energy(Some(1.25)),
        };
        let usage = PhaseUsage {
            measured_s: Seconds(3.0),
            devices: vec![device],
            device_energy_j_per_sample: Some(1.25),
            processor: Some(energy(None)),
            ..PhaseUsage::default()
        };
        let record = record("chip:0", usage);
        let device =
            "GPU-1: at most 3.00 GiB (its processes), mean 300 W, max 410 W, 1.25 J per sample (energy counter)";
        let rows = usage_rows(&record);
        assert_eq!(rows[0], ("validation", device.to_owned()));
        assert_eq!(rows[1], ("validation", "processors: mean 300 W, max 410 W".to_owned()));
        assert_eq!(energy_text(&record).as_deref(), Some("1.25 J per sample, device only"));
        let mut shared = record;
        let usage = shared.phases[0].usage.as_mut().expect("a usage");
        usage.devices[0].other_processes = Some(true);
        usage.devices[0].energy.energy_j_per_sample = None;
        usage.device_energy_j_per_sample = None;
        assert_eq!(energy_text(&shared).as_deref(), Some("unknown, because other processes used the device"));
        assert!(usage_rows(&shared)[0].1.ends_with("max 410 W, with other processes on the device"));
    }

    #[test]
    fn the_energy_of_processors_is_the_headline_only_of_a_case_on_a_processor() {
        let usage = || PhaseUsage { processor: Some(energy(Some(2.0))), ..PhaseUsage::default() };
        let text = |device: &str| energy_text(&record(device, usage()));
        assert_eq!(text("cpu").as_deref(), Some("2.00 J per sample, processors and their memory"));
        assert_eq!(text("chip:0"), None);
        assert_eq!(energy_text(&testing::record()), None);
    }

    #[test]
    fn a_source_that_the_machine_lacks_is_named() {
        let mut record = testing::record();
        let source = SourceRecord { unavailable: Some("no counters".into()), ..SourceRecord::default() };
        let sources = [("rapl".to_owned(), source)].into();
        record.monitors = Some(MonitorRecord { rate_per_s: 1, lines_lost: 0, sources });
        assert_eq!(usage_rows(&record), [("not monitored", "rapl: no counters".to_owned())]);
    }
}
