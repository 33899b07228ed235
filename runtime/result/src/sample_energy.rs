//! The energy of a sample, for the headline of a record.

use super::{PhaseRecord, Record};
use flagperf_sampling::PhaseUsage;

/// The energy of a sample in the headline phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleEnergy {
    /// Joules per sample, and what consumed them.
    Known { j_per_sample: f64, of: &'static str },
    /// Other processes used the device, too.
    Shared,
}

/// Returns the energy of a sample: that of the devices, or of the processors if the case ran on processors. `None` if it was not
/// measured, and for a server, whose device is not known.
pub fn sample_energy(record: &Record) -> Option<SampleEnergy> {
    let phase = record.headline_phase()?;
    let usage = phase.usage.as_ref()?;
    if phase.engine.as_ref().is_some_and(|engine| engine.server.is_some()) {
        return None;
    }
    if usage.devices.iter().any(|device| device.other_processes == Some(true)) {
        return Some(SampleEnergy::Shared);
    }
    let (j_per_sample, of) = of_device_or_processor(phase, usage)?;
    Some(SampleEnergy::Known { j_per_sample, of })
}

fn of_device_or_processor(phase: &PhaseRecord, usage: &PhaseUsage) -> Option<(f64, &'static str)> {
    let on_processor = phase.engine.as_ref().is_some_and(|engine| engine.runs_on_processor());
    let processor = || usage.processor.as_ref().filter(|_| on_processor)?.energy_j_per_sample;
    let device = usage.device_energy_j_per_sample.map(|energy| (energy, "device only"));
    device.or_else(|| processor().map(|energy| (energy, "processors and their memory")))
}
