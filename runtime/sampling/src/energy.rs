//! The energy that the passes of a measured loop used, computed from an energy counter or from power. Pure functions of points
//! and windows.

use serde::{Deserialize, Serialize};

use super::PassWindow;
use super::series::{Point, PowerSeries};

/// Largest sum of the distances between the begin and end of each pass and the nearest readings, as a share of the time of all
/// passes. Beyond this limit, too large a part of the energy would be an estimate.
const DISTANCE_SHARE_MAX: f64 = 0.1;
/// Longest time between two readings of power within a pass, as a share of the time of all passes.
const GAP_SHARE_MAX: f64 = 0.25;

/// What the energy was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The difference of two readings of an energy counter.
    Counter,
    /// The integral over readings of the power, with linear interpolation between them.
    Power,
}

/// Returns the energy in the passes in joules, from the counter if there is one; `None` when there are too few readings.
pub(super) fn energy(series: &PowerSeries, passes: &[PassWindow]) -> Option<(f64, EnergySource)> {
    let counter = energy_by_counter(&series.energy, passes).map(|energy| (energy, EnergySource::Counter));
    // A counter that stands still does not count.
    let counter = counter.filter(|(energy, _)| *energy > 0.0);
    counter.or_else(|| energy_by_power(&series.power, passes).map(|energy| (energy, EnergySource::Power)))
}

/// Returns the sum of the differences of a counter between the begin and the end of each pass; `None` if the counter decreased
/// in between, as it does when the driver restarts.
fn energy_by_counter(points: &[Point], passes: &[PassWindow]) -> Option<f64> {
    check_distances(points, passes)?;
    let mut sum = 0.0;
    for PassWindow { begin, end, .. } in passes {
        let (first, last) = (value_at(points, begin.0)?, value_at(points, end.0)?);
        let (from, to) = (last_before(points, begin.0)?, first_after(points, end.0)?);
        if points[from..=to].windows(2).any(|pair| pair[1].value < pair[0].value) {
            return None;
        }
        sum += last - first;
    }
    Some(sum)
}

/// Returns the sum of the integrals of the power over the passes.
fn energy_by_power(points: &[Point], passes: &[PassWindow]) -> Option<f64> {
    let total = check_distances(points, passes)?;
    let mut sum = 0.0;
    for PassWindow { begin, end, .. } in passes {
        let ends = [*begin, *end].map(|at| Some(Point { at: at.0, value: value_at(points, at.0)? }));
        let inside = points.iter().filter(|point| begin.0 < point.at && point.at < end.0).copied();
        let all: Vec<Point> = [ends[0]?].into_iter().chain(inside).chain([ends[1]?]).collect();
        for pair in all.windows(2) {
            let time = pair[1].at - pair[0].at;
            if time > GAP_SHARE_MAX * total && all.len() > 2 || time > total {
                return None;
            }
            sum += time * (pair[0].value + pair[1].value) / 2.0;
        }
    }
    Some(sum)
}

/// Returns the time of all passes; `None` without passes, and when the begins and ends of passes are too far from readings.
fn check_distances(points: &[Point], passes: &[PassWindow]) -> Option<f64> {
    let total: f64 = passes.iter().map(|pass| pass.end.0 - pass.begin.0).sum();
    let distance = |at: f64| {
        let near = [last_before(points, at), first_after(points, at)];
        near.into_iter().flatten().map(|index| (points[index].at - at).abs()).reduce(f64::min)
    };
    let mut distances = 0.0;
    for pass in passes {
        distances += distance(pass.begin.0)? + distance(pass.end.0)?;
    }
    (total > 0.0 && distances <= DISTANCE_SHARE_MAX * total).then_some(total)
}

/// Returns the index of the last point at `at` or before.
fn last_before(points: &[Point], at: f64) -> Option<usize> {
    points.partition_point(|point| point.at <= at).checked_sub(1)
}

/// Returns the index of the first point at `at` or after.
fn first_after(points: &[Point], at: f64) -> Option<usize> {
    Some(points.partition_point(|point| point.at < at)).filter(|index| *index < points.len())
}

/// Returns the value at a time between two points, on the straight line between them.
fn value_at(points: &[Point], at: f64) -> Option<f64> {
    let (before, after) = (points[last_before(points, at)?], points[first_after(points, at)?]);
    let span = after.at - before.at;
    let share = if span > 0.0 { (at - before.at) / span } else { 0.0 };
    Some(before.value + share * (after.value - before.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::units::Seconds;

    fn points(values: &[(f64, f64)]) -> Vec<Point> {
        values.iter().map(|(at, value)| Point { at: *at, value: *value }).collect()
    }

    fn pass(begin: f64, end: f64) -> PassWindow {
        PassWindow { begin: Seconds(begin), end: Seconds(end), samples: 1 }
    }

    /// Readings each second of a counter that grows by 100 J a second until 10 s, and by 300 J afterwards.
    fn counter() -> Vec<Point> {
        let value = |second: f64| 100.0 * second + 200.0 * (second - 10.0).max(0.0);
        (0..=40).map(|second| Point { at: second.into(), value: value(second.into()) }).collect()
    }

    #[test]
    fn the_energy_of_a_counter_is_its_difference_in_each_pass() {
        assert_eq!(energy_by_counter(&counter(), &[pass(10.0, 20.0)]), Some(3000.0));
        assert_eq!(energy_by_counter(&counter(), &[pass(0.0, 10.0), pass(20.0, 40.0)]), Some(7000.0));
        let between = energy_by_counter(&counter(), &[pass(10.25, 20.75)]).unwrap();
        assert!((between - 3150.0).abs() < 1e-9, "interpolated: {between}");
    }

    #[test]
    fn passes_without_readings_near_their_ends_have_no_energy() {
        assert_eq!(energy_by_counter(&counter(), &[]), None);
        assert_eq!(energy_by_counter(&counter(), &[pass(3.0, 3.0)]), None, "no time");
        assert_eq!(energy_by_counter(&counter(), &[pass(3.4, 3.6)]), None, "shorter than the interval");
        assert_eq!(energy_by_counter(&counter(), &[pass(30.0, 50.0)]), None, "no reading after the end");
        assert_eq!(energy_by_counter(&[], &[pass(0.0, 10.0)]), None);
        let sparse = points(&[(0.0, 0.0), (9.0, 900.0), (30.0, 3000.0)]);
        assert_eq!(energy_by_counter(&sparse, &[pass(9.5, 20.0)]), None);
        assert_eq!(energy_by_counter(&sparse, &[pass(0.5, 29.0)]), Some(2850.0));
    }

    #[test]
    fn a_counter_that_begins_again_gives_way_to_the_power() {
        let mut energy = counter();
        energy[15].value = 0.0;
        let power = (0..=40).map(|second| Point { at: second.into(), value: 200.0 }).collect();
        let series = PowerSeries { energy, power };
        let found = super::energy(&series, &[pass(10.0, 20.0)]);
        assert_eq!(found, Some((2000.0, EnergySource::Power)));
        let found = super::energy(&series, &[pass(20.0, 30.0)]);
        assert_eq!(found, Some((3000.0, EnergySource::Counter)));
    }

    #[test]
    fn the_integral_of_a_power_is_the_area_below_straight_lines() {
        let rising: Vec<Point> = (0..=20).map(|s| Point { at: s.into(), value: 10.0 * f64::from(s) }).collect();
        assert_eq!(energy_by_power(&rising, &[pass(0.0, 20.0)]), Some(2000.0));
        let half = energy_by_power(&rising, &[pass(4.5, 14.5)]).unwrap();
        assert!((half - 950.0).abs() < 1e-9, "{half}");
    }

    #[test]
    fn a_gap_in_the_readings_of_a_power_leaves_the_energy_unknown() {
        let mut power: Vec<Point> = (0..=20).map(|s| Point { at: s.into(), value: 100.0 }).collect();
        assert!(energy_by_power(&power, &[pass(0.0, 20.0)]).is_some());
        power.retain(|point| point.at < 8.0 || point.at > 14.0);
        assert_eq!(energy_by_power(&power, &[pass(0.0, 20.0)]), None);
    }
}
