//! Tests of figures at the edges of windows, and of devices with neighbours.

use super::*;
use crate::{Reading, Sample};
use flagperf_core::step::Phase;
use flagperf_monitor::{DeviceProcess, DeviceSample};

fn windows(id: Option<&str>, passes: &[(f64, f64, u64)]) -> PhaseWindows {
    let pass = |(begin, end, samples): &(f64, f64, u64)| PassWindow {
        begin: Seconds(*begin),
        end: Seconds(*end),
        samples: *samples,
    };
    PhaseWindows {
        phase: Phase::Infer,
        end_before: Seconds(0.0),
        begin: Seconds(5.0),
        end: Seconds(35.0),
        device: Some(MeasuredDevice { id: id.map(str::to_owned), is_processor: false }),
        passes: passes.iter().map(pass).collect(),
    }
}

/// A device at each of 40 seconds: it idles at 100 W and 10 bytes, and from 10 s to 30 s it draws 300 W and has 90 bytes.
fn device(id: &str, second: u32, processes: &[(Option<bool>, u64)]) -> Reading {
    let (at, is_busy) = (f64::from(second), (10..=30).contains(&second));
    let process = |(own, bytes): &(Option<bool>, u64)| DeviceProcess { pid: 1, memory_bytes: Some(*bytes), own: *own };
    Reading::Device(Box::new(DeviceSample {
        device: id.to_owned(),
        memory_used_bytes: Some(if is_busy { 90 } else { 10 }),
        power_w: Some(if is_busy { 300.0 } else { 100.0 }),
        energy_j: Some(100.0 * at + 200.0 * (at - 10.0).clamp(0.0, 20.0)),
        processes: (!processes.is_empty()).then(|| processes.iter().map(process).collect()),
        ..DeviceSample::default()
    }))
}

fn sample(at: f64, reading: Reading) -> Sample {
    Sample { at_s: Seconds(at), took_s: Seconds(0.0), reading }
}

fn series(devices: &[&str], processes: &[(Option<bool>, u64)]) -> Series {
    let mut series = Series::default();
    for second in 0..=40 {
        for id in devices {
            let own: &[_] = if second >= 8 { processes } else { &[] };
            series.add(sample(second.into(), device(id, second, own)));
        }
    }
    series
}

#[test]
fn energy_per_sample_is_that_of_the_passes() {
    let usage = phase_usage(&series(&["a"], &[]), &windows(Some("a"), &[(10.0, 20.0, 100), (25.0, 30.0, 50)]), None);
    let [device] = usage.devices.as_slice() else { panic!("{usage:?}") };
    assert_eq!((device.device.as_str(), device.identified_by), ("a", DeviceIdentity::Id));
    assert_eq!((usage.measured_s, usage.samples), (Seconds(15.0), 150));
    let energy = &device.energy;
    assert_eq!((energy.energy_j, energy.energy_source), (Some(4500.0), Some(EnergySource::Counter)));
    assert_eq!((energy.energy_j_per_sample, usage.device_energy_j_per_sample), (Some(30.0), Some(30.0)));
    assert_eq!((energy.power_w_mean, energy.power_w_max, energy.readings), (Some(300.0), Some(300.0), 17));
}

#[test]
fn an_energy_counter_that_disagrees_with_the_power_is_a_contradiction() {
    let found = |joules: f64, seconds: u32| {
        let mut series = series(&["a"], &[]);
        series.devices.get_mut("a").unwrap().power.energy.iter_mut().for_each(|point| point.value *= joules);
        let windows = windows(Some("a"), &[(20.0, f64::from(20 + seconds), 100)]);
        contradictions(&series, &windows, &phase_usage(&series, &windows, None))
    };
    assert_eq!(found(1.0, 10), [""; 0]);
    assert_eq!(found(1.4, 10), [""; 0]);
    let text = |mean| {
        format!(
            "infer: the energy counter of device `a` yields a mean power of {mean} W, but the readings of its power are \
             between 300 W and 300 W"
        )
    };
    assert_eq!(found(2.0, 10), [text("600")]);
    assert_eq!(found(0.001, 10), [text("0")]);
    assert_eq!(found(2.0, 3), [""; 0], "too few readings");
}

#[test]
fn a_phase_without_passes_has_memory_and_no_energy() {
    let usage = phase_usage(&series(&["a"], &[]), &windows(Some("a"), &[]), None);
    assert_eq!(usage.devices[0].memory_bytes_max, Some(Bytes(80)), "90 beyond the 10 that were in use before");
    assert_eq!(usage.devices[0].memory_source, Some(MemorySource::Increase));
    assert_eq!((usage.devices[0].energy.clone(), usage.device_energy_j_per_sample), (EnergyUsage::default(), None));
}

#[test]
fn passes_without_samples_have_no_energy_per_sample() {
    let usage = phase_usage(&series(&["a"], &[]), &windows(Some("a"), &[(10.0, 20.0, 0)]), None);
    assert_eq!((usage.devices[0].energy.energy_j, usage.device_energy_j_per_sample), (Some(3000.0), None));
}

#[test]
fn memory_of_the_runs_processes_is_that_of_the_run_and_the_neighbours_is_not() {
    let processes = [(Some(true), 20), (Some(true), 3), (Some(false), 60)];
    let usage = phase_usage(&series(&["a"], &processes), &windows(Some("a"), &[]), None);
    assert_eq!(usage.devices[0].memory_bytes_max, Some(Bytes(23)));
    assert_eq!(usage.devices[0].memory_source, Some(MemorySource::Processes));
    let foreign = phase_usage(&series(&["a"], &[(None, 60)]), &windows(Some("a"), &[]), None);
    assert_eq!(foreign.devices[0].memory_source, Some(MemorySource::Increase), "processes in another numbering");
}

#[test]
fn energy_that_neighbours_share_is_not_attributed_to_samples() {
    let alone = [(Some(true), 20)];
    let with_neighbour = [(Some(true), 20), (Some(false), 60)];
    let usage = |processes: &[_]| {
        let series = series(&["a"], processes);
        phase_usage(&series, &windows(Some("a"), &[(10.0, 20.0, 100)]), None)
    };
    let (own, shared) = (usage(&alone), usage(&with_neighbour));
    assert_eq!((own.devices[0].other_processes, own.device_energy_j_per_sample), (Some(false), Some(30.0)));
    assert_eq!((shared.devices[0].other_processes, shared.device_energy_j_per_sample), (Some(true), None));
    assert_eq!(shared.devices[0].energy.energy_j, Some(3000.0), "of the whole device");
    assert_eq!(usage(&[]).devices[0].other_processes, None, "the driver lists no processes");
}

#[test]
fn without_a_reading_before_the_phase_the_increase_is_unknown() {
    let mut late = Series::default();
    (6..=40).for_each(|second| late.add(sample(second.into(), device("a", second, &[]))));
    let usage = phase_usage(&late, &windows(Some("a"), &[]), None);
    assert_eq!((usage.devices[0].memory_bytes_max, usage.devices[0].memory_source), (None, None));
}

#[test]
fn memory_that_the_phase_before_held_is_not_part_of_the_baseline() {
    let used = |before: &[(f64, f64, u64)]| {
        let mut series = Series::default();
        for (begin, end, bytes) in before.iter().chain(&[(6.0, 6.0, 30), (20.0, 20.0, 90)]) {
            let device =
                DeviceSample { device: "a".into(), memory_used_bytes: Some(*bytes), ..DeviceSample::default() };
            let (at_s, took_s) = (Seconds((begin + end) / 2.0), Seconds(end - begin));
            series.add(Sample { at_s, took_s, reading: Reading::Device(Box::new(device)) });
        }
        let windows = PhaseWindows { end_before: Seconds(4.0), ..windows(Some("a"), &[]) };
        phase_usage(&series, &windows, None).devices[0].memory_bytes_max
    };
    assert_eq!(
        used(&[(3.0, 3.0, 70), (4.1, 4.1, 70), (4.8, 4.9, 10)]),
        Some(Bytes(80)),
        "the worker before held 70 until it had ended"
    );
    assert_eq!(used(&[(1.0, 1.0, 0), (3.0, 3.0, 70)]), None, "no reading between the phases");
    assert_eq!(used(&[(3.5, 4.9, 70)]), None, "a reading that began while the phase before was running");
    assert_eq!(used(&[(4.1, 5.5, 20)]), None, "a reading that ended after this phase had begun");
}

#[test]
fn a_device_without_an_id_is_found_only_if_that_is_certain() {
    let found = |series: &Series, visible: Option<&str>| {
        let usage = phase_usage(series, &windows(None, &[]), visible);
        usage.devices.iter().map(|device| (device.device.clone(), device.identified_by)).collect::<Vec<_>>()
    };
    let named = |id: &str, by: DeviceIdentity| vec![(id.to_owned(), by)];
    assert_eq!(found(&series(&["0"], &[]), None), named("0", DeviceIdentity::Only));
    assert_eq!(found(&series(&["0", "1"], &[]), None), []);
    assert_eq!(found(&series(&["0", "1"], &[]), Some("1")), named("1", DeviceIdentity::Visible));
    assert_eq!(found(&series(&["0", "1"], &[]), Some("7")), []);
    let mut both = series(&["0"], &[]);
    both.devices.extend(series(&["1"], &[(Some(true), 5)]).devices);
    assert_eq!(found(&both, Some("0")), named("1", DeviceIdentity::Process));
    assert_eq!(phase_usage(&series(&["a"], &[]), &windows(Some("b"), &[]), None).devices, []);
}

#[test]
fn the_energy_of_a_case_on_a_processor_is_that_of_the_machine() {
    let mut series = Series::default();
    for second in 0..=40_u32 {
        let (at, power_w) = (f64::from(second), Some(50.0));
        series.add(sample(at, Reading::Rapl { energy_j: 50.0 * at, power_w }));
        series.add(sample(at, Reading::Processor { busy_share: if second >= 20 { 0.5 } else { 0.0 } }));
        series.add(sample(at, Reading::Memory { used_bytes: u64::from(second), total_bytes: 100 }));
    }
    let mut windows = windows(None, &[(20.0, 30.0, 100)]);
    windows.device = Some(MeasuredDevice { id: None, is_processor: true });
    let usage = phase_usage(&series, &windows, None);
    let processor = usage.processor.unwrap();
    assert_eq!((processor.energy_j, processor.energy_j_per_sample), (Some(500.0), Some(5.0)));
    assert_eq!((usage.devices, usage.machine), (Vec::new(), None));
    assert_eq!(usage.processor_busy_share_mean, Some(0.5));
    assert_eq!(usage.machine_memory_bytes_max, Some(Bytes(35)));
}
