//! What the monitors read before and after the step times of a loop changed.
//!
//! Says what changed at the same time, never which is the cause.

use serde::{Deserialize, Serialize};

use super::PassWindow;
use super::figures::inside_passes;
use super::series::{Point, Series};
use flagperf_core::measure::{ChangeShape, StepPlace, StepTimeChange};
use flagperf_core::units::Seconds;

/// Fewest readings before and after a change.
const READINGS_MIN: u64 = 2;

/// What a monitor reads of a device, or of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MonitoredQuantity {
    /// Clock of the compute units of the device, in MHz.
    ClockMhz,
    /// Clock of the memory of the device, in MHz.
    MemoryClockMhz,
    /// Temperature of the device, in degrees Celsius.
    TemperatureC,
    /// Power of the device, in watts.
    PowerW,
    /// Share of the readings in which the device stated a reason why it was slowed down.
    ThrottledShare,
    /// Number of processes on the device that do not belong to the run.
    OtherProcesses,
    /// Share of the time in which the processors of the machine were busy, with the run itself.
    ProcessorBusyShare,
}

/// The means of the readings of a quantity in the steps with the usual times and in those with other times. For a drift, these are the first
/// and the second half of the loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ReadingChange {
    /// What was read.
    pub quantity: MonitoredQuantity,
    /// Id of the device in the vendor's monitor; `None` for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Mean in the steps with the usual times.
    pub usual: f64,
    /// Mean in the steps with other times.
    pub changed: f64,
    /// Number of readings of both means.
    pub readings: [u64; 2],
}

/// Returns the readings of some devices and of the processors before and after a change of the step times in some passes.
pub(super) fn reading_changes(
    series: &Series,
    devices: &[&str],
    passes: &[PassWindow],
    change: &StepTimeChange,
) -> Vec<ReadingChange> {
    let Some(sides) = sides(passes, change) else { return Vec::new() };
    let of_device = |id: &&str| {
        let device = series.devices.get(*id)?;
        let quantities = [
            (MonitoredQuantity::ClockMhz, &device.clock),
            (MonitoredQuantity::MemoryClockMhz, &device.memory_clock),
            (MonitoredQuantity::TemperatureC, &device.temperature),
            (MonitoredQuantity::PowerW, &device.power.power),
            (MonitoredQuantity::ThrottledShare, &device.throttled),
            (MonitoredQuantity::OtherProcesses, &device.other_processes),
        ];
        let id = Some((*id).to_owned());
        Some(quantities.map(|(quantity, points)| reading_change(quantity, id.clone(), points, &sides)))
    };
    let of_devices = devices.iter().filter_map(of_device).flatten();
    let busy = reading_change(MonitoredQuantity::ProcessorBusyShare, None, &series.busy, &sides);
    of_devices.chain([busy]).flatten().collect()
}

fn reading_change(
    quantity: MonitoredQuantity,
    device: Option<String>,
    points: &[Point],
    sides: &[Vec<PassWindow>; 2],
) -> Option<ReadingChange> {
    let means = [&sides[0], &sides[1]].map(|side| {
        let (sum, count) = inside_passes(points, side).fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
        (sum / count as f64, count)
    });
    let [(usual, before), (changed, after)] = means;
    (before.min(after) >= READINGS_MIN).then_some(ReadingChange {
        quantity,
        device,
        usual,
        changed,
        readings: [before, after],
    })
}

/// Returns the times of the passes outside and inside of a change. `None` if the change is not within the passes.
fn sides(passes: &[PassWindow], change: &StepTimeChange) -> Option<[Vec<PassWindow>; 2]> {
    let place = |place: &StepPlace| Some(passes.get(place.pass as usize)?.begin + place.in_pass_s);
    let (mut begin, end) = (place(&change.begin)?, place(&change.end)?);
    if change.shape == ChangeShape::Drift {
        begin = Seconds((passes.first()?.begin.0 + passes.last()?.end.0) / 2.0);
    }
    let cut = |[from, to]: [Seconds; 2]| {
        let later = |a: Seconds, b: Seconds| if a > b { a } else { b };
        let earlier = |a: Seconds, b: Seconds| if a < b { a } else { b };
        let part =
            |pass: &PassWindow| PassWindow { begin: later(pass.begin, from), end: earlier(pass.end, to), samples: 0 };
        passes.iter().map(part).filter(|pass| pass.begin < pass.end).collect::<Vec<_>>()
    };
    let (first, last) = (passes.first()?.begin, passes.last()?.end);
    // The clocks of the worker and of the conductor need not agree at the end.
    let end =
        if change.end.pass as usize + 1 == passes.len() && change.shape != ChangeShape::Interval { last } else { end };
    Some([[cut([first, begin]), cut([end, last])].concat(), cut([begin, end])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reading, Sample};
    use flagperf_monitor::DeviceSample;

    fn pass(begin: f64, end: f64) -> PassWindow {
        PassWindow { begin: Seconds(begin), end: Seconds(end), samples: 1 }
    }

    fn change(shape: ChangeShape, begin: (u32, f64), end: (u32, f64)) -> StepTimeChange {
        let place = |(pass, in_pass_s)| StepPlace { step: 1, pass, in_pass_s: Seconds(in_pass_s) };
        StepTimeChange { shape, begin: place(begin), end: place(end), relative_change: 0.03, p_value: 0.001 }
    }

    /// Readings of each second: from 10 s to 15 s, the clock is 100 MHz lower.
    fn series() -> Series {
        let mut series = Series::default();
        for second in 0..20 {
            let at = f64::from(second);
            let clock = if (10..15).contains(&second) { 1700.0 } else { 1800.0 };
            let device = DeviceSample {
                device: "a".into(),
                clock_mhz: Some(clock),
                throttling: Some(if clock < 1800.0 { vec!["heat".into()] } else { Vec::new() }),
                ..DeviceSample::default()
            };
            series.add(Sample { at_s: Seconds(at), took_s: Seconds(0.0), reading: Reading::Device(Box::new(device)) });
        }
        series
    }

    fn means(passes: &[PassWindow], change: &StepTimeChange) -> Vec<(MonitoredQuantity, f64, f64, [u64; 2])> {
        let found = reading_changes(&series(), &["a", "other"], passes, change);
        found.into_iter().map(|each| (each.quantity, each.usual, each.changed, each.readings)).collect()
    }

    #[test]
    fn readings_are_those_of_the_passes_before_and_after_the_change() {
        let passes = [pass(2.5, 7.5), pass(8.5, 13.5)];
        let found = means(&passes, &change(ChangeShape::Level, (1, 1.0), (1, 5.0)));
        let expected = [
            (MonitoredQuantity::ClockMhz, 1800.0, 1700.0, [6, 4]),
            (MonitoredQuantity::ThrottledShare, 0.0, 1.0, [6, 4]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_interval_has_the_usual_times_on_both_sides_and_a_drift_is_halved() {
        let interval = means(&[pass(0.5, 19.5)], &change(ChangeShape::Interval, (0, 9.0), (0, 14.0)));
        assert_eq!(interval[0], (MonitoredQuantity::ClockMhz, 1800.0, 1700.0, [14, 5]));
        let drift = means(&[pass(4.5, 14.5)], &change(ChangeShape::Drift, (0, 0.0), (0, 10.0)));
        assert_eq!(drift[0], (MonitoredQuantity::ClockMhz, 1800.0, 1700.0, [5, 5]));
    }

    #[test]
    fn a_change_in_a_pass_without_a_window_and_a_single_reading_have_no_means() {
        assert_eq!(means(&[pass(0.0, 5.0)], &change(ChangeShape::Level, (3, 0.0), (3, 1.0))), []);
        assert_eq!(means(&[pass(0.0, 5.0)], &change(ChangeShape::Level, (0, 4.5), (0, 5.0))), []);
    }
}
