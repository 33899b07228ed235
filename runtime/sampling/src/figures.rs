//! Memory, power and energy of each phase, computed from the samples and the windows of a case. These functions are pure, so
//! `verify` computes the same figures again.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::energy::{EnergySource, energy};
use super::reading_change::{ReadingChange, reading_changes};
use super::series::{DeviceSeries, Point, PowerSeries, Series};
use super::{MeasuredDevice, PassWindow, PhaseWindows};
use flagperf_core::measure::StepTimeChange;
use flagperf_core::step::Phase;
use flagperf_core::units::{Bytes, Seconds};

/// The resources that a phase used: its own devices, and the whole machine with everything that runs on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PhaseUsage {
    /// Time of the passes of the measured loop, for which power and energy are given.
    pub measured_s: Seconds,
    /// Samples of these passes.
    pub samples: u64,
    /// The devices of the phase; empty when its device is the processor, or when its device is unknown.
    pub devices: Vec<DeviceUsage>,
    /// Energy of all its devices per sample, in joules; `None` if that of one is unknown.
    pub device_energy_j_per_sample: Option<f64>,
    /// The processors' packages and their memory.
    pub processor: Option<EnergyUsage>,
    /// The whole machine.
    pub machine: Option<EnergyUsage>,
    /// Mean share of the passes' time in which the processors of the machine were busy.
    pub processor_busy_share_mean: Option<f64>,
    /// Peak memory in use on the machine during the phase.
    pub machine_memory_bytes_max: Option<Bytes>,
    /// What was read before and after the step times changed; empty if they did not, or if too little was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_step_time_change: Vec<ReadingChange>,
}

/// The resources that a phase used on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct DeviceUsage {
    /// Id of the device in the vendor's monitor.
    pub device: String,
    /// How it is known that the phase ran on this device.
    pub identified_by: DeviceIdentity,
    /// Peak memory of this run on the device during the phase; `None` when it cannot be distinguished from the memory of others.
    pub memory_bytes_max: Option<Bytes>,
    /// What the peak memory was computed from.
    pub memory_source: Option<MemorySource>,
    /// Whether processes that do not belong to the run were on the device during the phase; `None` when the driver lists no
    /// processes.
    #[serde(default)]
    pub other_processes: Option<bool>,
    /// Power and energy of the whole device in the passes. The energy per sample is `None` if other processes were on the device.
    #[serde(flatten)]
    pub energy: EnergyUsage,
}

/// Power and energy during the passes of a measured loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct EnergyUsage {
    /// Readings of power or energy within the passes.
    pub readings: u64,
    /// Mean power in watts: the energy divided by the time, or else the mean of the readings.
    pub power_w_mean: Option<f64>,
    /// Highest power that was read, in watts.
    pub power_w_max: Option<f64>,
    /// Energy in joules; `None` when the passes are too short for the readings.
    pub energy_j: Option<f64>,
    /// What the energy was computed from.
    pub energy_source: Option<EnergySource>,
    /// Energy per sample in joules.
    pub energy_j_per_sample: Option<f64>,
}

/// How it is known that a phase ran on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceIdentity {
    /// The unique id of the engine's device.
    Id,
    /// A process of the run computed on it.
    Process,
    /// The vendor's monitor knows only this device.
    Only,
    /// The variable that selects the visible devices names it.
    Visible,
}

/// What the memory of a run on a device was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The sum of the memory of the run's processes, which the driver lists.
    Processes,
    /// What was in use on the whole device beyond the lowest reading between the phase before and this phase.
    Increase,
}

/// What the phases of a case used, and where the readings of a device contradict each other.
#[derive(Debug, Default)]
pub struct CaseUsage {
    /// What each phase used.
    pub phases: Vec<PhaseUsage>,
    /// Energy counters of devices that disagree with the readings of their power, one fragment each.
    pub contradictions: Vec<String>,
}

/// Factor by which the mean power that an energy counter yields may exceed the highest power that was read, or fall below the
/// lowest.
const POWER_FACTOR_MAX: f64 = 1.5;
/// Number of readings of the power within the passes from which on they are compared with the counter.
const POWER_READINGS_MIN: usize = 5;

/// Computes what each phase used from the samples in `monitor.jsonl`. `visible` is the device that the variable of visible
/// devices names, if it names one. `changes` are the changes of the step times, by phase.
///
/// # Errors
/// When the file cannot be read.
pub fn case_usage(
    path: &Path,
    phases: &[PhaseWindows],
    visible: Option<&str>,
    changes: &[(Phase, StepTimeChange)],
) -> io::Result<CaseUsage> {
    let series = Series::read(path)?;
    let mut found = CaseUsage::default();
    for phase in phases {
        let mut usage = phase_usage(&series, phase, visible);
        if let Some((_, change)) = changes.iter().find(|(changed, _)| *changed == phase.phase) {
            let devices: Vec<&str> = usage.devices.iter().map(|device| device.device.as_str()).collect();
            usage.at_step_time_change = reading_changes(&series, &devices, &phase.passes, change);
        }
        found.contradictions.extend(contradictions(&series, phase, &usage));
        found.phases.push(usage);
    }
    Ok(found)
}

/// Returns the devices of a phase whose energy counter disagrees grossly with the readings of their power.
fn contradictions(series: &Series, phase: &PhaseWindows, usage: &PhaseUsage) -> Vec<String> {
    let of_device = |device: &DeviceUsage| {
        let mean = device.energy.power_w_mean.filter(|_| device.energy.energy_source == Some(EnergySource::Counter))?;
        let power = || inside_passes(&series.devices[&device.device].power.power, &phase.passes);
        let (lowest, highest) = (power().reduce(f64::min)?, max(power())?);
        let agrees = lowest <= POWER_FACTOR_MAX * mean && mean <= POWER_FACTOR_MAX * highest;
        (!agrees && power().count() >= POWER_READINGS_MIN).then(|| {
            format!(
                "{}: the energy counter of device `{}` yields a mean power of {mean:.0} W, but the readings of its power are \
                 between {lowest:.0} W and {highest:.0} W",
                phase.phase.name(),
                device.device
            )
        })
    };
    usage.devices.iter().filter_map(of_device).collect()
}

fn phase_usage(series: &Series, phase: &PhaseWindows, visible: Option<&str>) -> PhaseUsage {
    let passes = &phase.passes;
    let samples = passes.iter().map(|pass| pass.samples).sum();
    let devices: Vec<DeviceUsage> = identify(series, phase, visible)
        .into_iter()
        .filter_map(|(id, identified_by)| Some(device_usage(id, identified_by, series.devices.get(id)?, phase)))
        .collect();
    let per_sample = devices.iter().map(|device| device.energy.energy_j_per_sample);
    let device_energy_j_per_sample = per_sample.reduce(|a, b| Some(a? + b?)).flatten();
    PhaseUsage {
        measured_s: passes.iter().map(|pass| pass.end - pass.begin).sum(),
        samples,
        devices,
        device_energy_j_per_sample,
        processor: energy_usage(&series.processor, passes),
        machine: energy_usage(&series.machine, passes),
        processor_busy_share_mean: mean(inside_passes(&series.busy, passes)),
        machine_memory_bytes_max: max(inside(&series.memory, phase)).map(|bytes| Bytes(bytes as u64)),
        at_step_time_change: Vec::new(),
    }
}

/// Returns the devices of a phase, each with how it was identified; nothing when the devices are uncertain.
fn identify<'s>(series: &'s Series, phase: &PhaseWindows, visible: Option<&str>) -> Vec<(&'s str, DeviceIdentity)> {
    let Some(MeasuredDevice { id, is_processor: false }) = &phase.device else { return Vec::new() };
    let named = |name: &str| series.devices.get_key_value(name).map(|(id, _)| id.as_str());
    if let Some(id) = id {
        return named(id).map(|id| (id, DeviceIdentity::Id)).into_iter().collect();
    }
    let runs_here = |device: &DeviceSeries| inside(&device.own_memory, phase).next().is_some();
    let by_process = series.devices.iter().filter(|(_, device)| runs_here(device));
    let by_process: Vec<_> = by_process.map(|(id, _)| (id.as_str(), DeviceIdentity::Process)).collect();
    if !by_process.is_empty() {
        return by_process;
    }
    match (series.devices.keys().next(), visible.and_then(named)) {
        (Some(only), _) if series.devices.len() == 1 => vec![(only, DeviceIdentity::Only)],
        (_, Some(visible)) => vec![(visible, DeviceIdentity::Visible)],
        _ => Vec::new(),
    }
}

fn device_usage(id: &str, identified_by: DeviceIdentity, series: &DeviceSeries, phase: &PhaseWindows) -> DeviceUsage {
    let own = max(inside(&series.own_memory, phase)).map(|bytes| (bytes, MemorySource::Processes));
    let increase = || {
        // A reading that took long may be about the phase before, or about this one. The worker of the phase before may still have
        // held memory at the first of these readings.
        let is_between = |[begin, end]: &[f64; 2]| *begin >= phase.end_before.0 && *end < phase.begin.0;
        let readings = series.memory.iter().zip(&series.spans).filter(|(_, span)| is_between(span));
        let before = readings.map(|(point, _)| point.value);
        let (before, peak) = (before.reduce(f64::min)?, max(inside(&series.memory, phase))?);
        Some(((peak - before).max(0.0), MemorySource::Increase))
    };
    let memory = own.or_else(increase);
    let other_processes = max(inside(&series.other_processes, phase)).map(|count| count > 0.0);
    let mut energy = energy_usage(&series.power, &phase.passes).unwrap_or_default();
    // The energy of the device is not only that of this run.
    energy.energy_j_per_sample = energy.energy_j_per_sample.filter(|_| other_processes != Some(true));
    DeviceUsage {
        device: id.to_owned(),
        identified_by,
        memory_bytes_max: memory.map(|(bytes, _)| Bytes(bytes as u64)),
        memory_source: memory.map(|(_, source)| source),
        other_processes,
        energy,
    }
}

/// Returns power and energy during the passes; `None` if the case has no reading of either.
fn energy_usage(series: &PowerSeries, passes: &[PassWindow]) -> Option<EnergyUsage> {
    if series.energy.is_empty() && series.power.is_empty() {
        return None;
    }
    let time: Seconds = passes.iter().map(|pass| pass.end - pass.begin).sum();
    let samples: u64 = passes.iter().map(|pass| pass.samples).sum();
    let energy = energy(series, passes);
    let energy_j = energy.map(|(energy, _)| energy);
    let count = |points: &[Point]| inside_passes(points, passes).count() as u64;
    Some(EnergyUsage {
        readings: count(&series.energy).max(count(&series.power)),
        power_w_mean: energy_j.map(|energy| energy / time.0).or_else(|| mean(inside_passes(&series.power, passes))),
        power_w_max: max(inside_passes(&series.power, passes)),
        energy_j,
        energy_source: energy.map(|(_, source)| source),
        energy_j_per_sample: energy_j.filter(|_| samples > 0).map(|energy| energy / samples as f64),
    })
}

/// Iterates over the values within a phase.
fn inside<'p>(points: &'p [Point], phase: &PhaseWindows) -> impl Iterator<Item = f64> + 'p {
    let (begin, end) = (phase.begin.0, phase.end.0);
    points.iter().filter(move |point| (begin..=end).contains(&point.at)).map(|point| point.value)
}

/// Iterates over the values within passes.
pub(super) fn inside_passes<'p>(points: &'p [Point], passes: &'p [PassWindow]) -> impl Iterator<Item = f64> + 'p {
    passes.iter().flat_map(move |pass| {
        let first = points.partition_point(|point| point.at < pass.begin.0);
        points[first..].iter().take_while(move |point| point.at <= pass.end.0).map(|point| point.value)
    })
}

fn max(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests;
