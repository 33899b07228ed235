//! A change of the step times of a measured loop in words, with what the monitors read at the same time, and one of latencies.

use flagperf_core::measure::{ChangeShape, Measurement, StepTimeChange, TimeChange, TrialFigures};
use flagperf_core::step::Phase;
use flagperf_core::text::one_line;
use flagperf_sampling::{MonitoredQuantity, ReadingChange};

use super::{PhaseRecord, Record, measured_scenario};

/// Smallest relative change of a clock or of the power that is named.
const RELATIVE_CHANGE_MIN: f64 = 0.01;
/// Smallest change of a temperature that is named, in degrees.
const TEMPERATURE_CHANGE_MIN: f64 = 2.0;
/// Smallest change of a share that is named.
const SHARE_CHANGE_MIN: f64 = 0.05;
/// Smallest change of the mean number of other processes that is named.
const PROCESSES_CHANGE_MIN: f64 = 0.5;

/// Returns the change of the step times of the measured loop of each phase that has one.
pub fn step_time_changes(record: &Record) -> Vec<(Phase, StepTimeChange)> {
    let change = |phase: &PhaseRecord| Some((phase.phase, measured_loop(phase)?.step_time_change?));
    record.phases.iter().filter_map(change).collect()
}

/// Returns how the step times of a loop of a phase changed, and what the monitors read before and after: `3.1 % slower from step 812 of 1250
/// on (p < 0.001); clock 1980 -> 1755 MHz`. `None` if they did not change as far as a test shows.
pub fn step_time_change_text(phase: &PhaseRecord, measured: &Measurement) -> Option<String> {
    let change = measured.step_time_change?;
    let StepTimeChange { shape, begin, end, relative_change, p_value } = change;
    let of_times = TimeChange { shape, begin: begin.step, end: end.step, relative_change, p_value };
    let what = change_text(&of_times, ("step", measured.steps), ["slower", "faster"]);
    let own = measured_loop(phase).is_some_and(|own| own.step == measured.step);
    let readings = phase.usage.iter().filter(|_| own).flat_map(|usage| &usage.at_step_time_change);
    let readings: Vec<&ReadingChange> = readings.collect();
    let changed: Vec<String> = readings.iter().filter_map(|reading| reading_text(reading)).collect();
    let beside = match (readings.is_empty(), changed.is_empty()) {
        (true, _) => "no monitor read enough to tell what else changed".to_owned(),
        (false, true) => "clock, temperature, power and load did not change, as far as they were read".to_owned(),
        (false, false) => changed.join(", "),
    };
    Some(format!("{what}; {beside}"))
}

/// Returns how the latencies of a trial changed: `3.1 % longer from query 812 of 1250 on (p < 0.001)`. `None` if they did not change as far as
/// a test shows.
pub fn latency_change_text(trial: &TrialFigures) -> Option<String> {
    Some(change_text(&trial.latency_change?, ("query", trial.queries), ["longer", "shorter"]))
}

/// Returns the change of each measured loop, and that of the latencies of a scenario, as notes on the figures.
pub(super) fn time_change_notes(record: &Record) -> Vec<String> {
    let loops = record.phases.iter().flat_map(|phase| phase.measured.iter().map(move |measured| (phase, measured)));
    let note = |(phase, measured): (&PhaseRecord, &Measurement)| {
        Some(format!("{}: steps were {}", measured.step.name(), step_time_change_text(phase, measured)?))
    };
    let latency = measured_scenario(record).and_then(|(_, trial)| latency_change_text(trial));
    loops.filter_map(note).chain(latency.map(|text| format!("scenario: latencies were {text}"))).collect()
}

/// Returns the loop of a phase whose passes the monitors know.
fn measured_loop(phase: &PhaseRecord) -> Option<&Measurement> {
    phase.measured.iter().find(|measured| measured.step == phase.phase.measured_step())
}

/// Returns a change in words, of so many times of something, which became one or the other.
fn change_text(change: &TimeChange, (what, count): (&str, u64), [longer, shorter]: [&str; 2]) -> String {
    let percent = 100.0 * change.relative_change.abs();
    let word = if change.relative_change > 0.0 { longer } else { shorter };
    let chance = match change.p_value {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p => format!("p = {p:.3}"),
    };
    // They are numbered from 1 in words.
    let (begin, end) = (change.begin.saturating_add(1), change.end);
    match change.shape {
        ChangeShape::Level => format!("{percent:.1} % {word} from {what} {begin} of {count} on ({chance})"),
        ChangeShape::Interval => format!("{percent:.1} % {word} from {what} {begin} to {end} of {count} ({chance})"),
        ChangeShape::Drift => format!("steadily {percent:.1} % {word} from {what} 1 to {what} {count} ({chance})"),
    }
}

/// Returns what a monitor read before and after; `None` if that differs little.
fn reading_text(reading: &ReadingChange) -> Option<String> {
    let ReadingChange { quantity, device, usual, changed, .. } = reading;
    let difference = (changed - usual).abs();
    let percent = |value: &f64| format!("{:.0} %", 100.0 * value);
    let (name, values, least) = match quantity {
        MonitoredQuantity::ClockMhz => {
            ("clock", format!("{usual:.0} -> {changed:.0} MHz"), RELATIVE_CHANGE_MIN * usual)
        }
        MonitoredQuantity::MemoryClockMhz => {
            ("memory clock", format!("{usual:.0} -> {changed:.0} MHz"), RELATIVE_CHANGE_MIN * usual)
        }
        MonitoredQuantity::TemperatureC => {
            ("temperature", format!("{usual:.0} -> {changed:.0} \u{b0}C"), TEMPERATURE_CHANGE_MIN)
        }
        MonitoredQuantity::PowerW => ("power", format!("{usual:.0} -> {changed:.0} W"), RELATIVE_CHANGE_MIN * usual),
        MonitoredQuantity::ThrottledShare => {
            ("throttled in", format!("{} -> {} of the readings", percent(usual), percent(changed)), SHARE_CHANGE_MIN)
        }
        MonitoredQuantity::OtherProcesses => {
            ("other processes", format!("{usual:.1} -> {changed:.1}"), PROCESSES_CHANGE_MIN)
        }
        MonitoredQuantity::ProcessorBusyShare => {
            ("processors busy", format!("{} -> {}", percent(usual), percent(changed)), SHARE_CHANGE_MIN)
        }
    };
    let device = device.as_ref().map(|device| format!(" (device {})", one_line(device))).unwrap_or_default();
    (difference >= least && difference > 0.0).then(|| format!("{name} {values}{device}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flagperf_core::measure::StepPlace;
    use flagperf_core::step::Step;
    use flagperf_sampling::PhaseUsage;

    fn change(shape: ChangeShape, relative_change: f64, p_value: f64) -> StepTimeChange {
        let place = |step| StepPlace { step, ..StepPlace::default() };
        StepTimeChange { shape, begin: place(811), end: place(900), relative_change, p_value }
    }

    fn text(change: StepTimeChange, readings: &[(MonitoredQuantity, f64, f64)]) -> String {
        let reading = |(quantity, usual, changed): &(MonitoredQuantity, f64, f64)| {
            let device = (*quantity != MonitoredQuantity::ProcessorBusyShare).then(|| "a\u{1b}[31m".to_owned());
            ReadingChange { quantity: *quantity, device, usual: *usual, changed: *changed, readings: [9, 9] }
        };
        let usage = PhaseUsage { at_step_time_change: readings.iter().map(reading).collect(), ..PhaseUsage::default() };
        let measured =
            Measurement { steps: 1250, step_time_change: Some(change), ..testing::measurement(Step::Validation) };
        let phase = PhaseRecord { measured: vec![measured.clone()], usage: Some(usage), ..testing::phase() };
        step_time_change_text(&phase, &measured).unwrap()
    }

    #[test]
    fn a_change_is_named_with_what_the_monitors_read_beside_it() {
        let readings = [
            (MonitoredQuantity::ClockMhz, 1980.0, 1755.0),
            (MonitoredQuantity::TemperatureC, 70.0, 71.0),
            (MonitoredQuantity::ThrottledShare, 0.0, 0.875),
            (MonitoredQuantity::ProcessorBusyShare, 0.25, 0.5),
        ];
        let found = text(change(ChangeShape::Level, 0.0312, 1e-5), &readings);
        assert!(!found.contains('\u{1b}'), "{found}");
        let expected = "3.1 % slower from step 812 of 1250 on (p < 0.001); clock 1980 -> 1755 MHz (device ";
        assert!(found.starts_with(expected), "{found}");
        assert!(found.contains("throttled in 0 % -> 88 % of the readings"), "{found}");
        assert!(found.ends_with(", processors busy 25 % -> 50 %") && !found.contains("temperature"), "{found}");
    }

    #[test]
    fn an_interval_and_a_drift_have_words_of_their_own_and_silent_monitors_are_named() {
        assert_eq!(
            text(change(ChangeShape::Interval, -0.02, 0.004), &[]),
            "2.0 % faster from step 812 to 900 of 1250 (p = 0.004); no monitor read enough to tell what else changed"
        );
        assert_eq!(
            text(change(ChangeShape::Drift, 0.05, 0.004), &[(MonitoredQuantity::PowerW, 300.0, 301.0)]),
            "steadily 5.0 % slower from step 1 to step 1250 (p = 0.004); clock, temperature, power and load did not \
             change, as far as they were read"
        );
    }
}
