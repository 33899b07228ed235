//! A lasting change of the step times within a measured loop: a step to another level, a slower interval, or a drift.
//!
//! Says that and where the times changed, never why.

use serde::{Deserialize, Serialize};

use super::StepTimes;
use super::interval::split_evenly;
use super::level_fit::{Fit, LevelFit};
use crate::units::Seconds;

/// Largest probability of a test by which steps whose times do not change seem to change.
const SIGNIFICANCE: f64 = 0.01;
/// Smallest relative change that is reported.
const RELATIVE_CHANGE_MIN: f64 = 0.01;
/// Fewest steps in which a change is looked for.
const STEPS_MIN: usize = 40;
/// Largest number of groups of successive steps whose mean times are compared. Changes that last less than a twentieth of the loop are not
/// found.
const GROUPS_MAX: usize = 200;

/// How the step times changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeShape {
    /// From a step on, to the end of the loop.
    Level,
    /// In an interval of the loop, before and after which the times are the same.
    Interval,
    /// Steadily from the first to the last step.
    Drift,
}

/// A step of a measured loop, and when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepPlace {
    /// Index of the step in the loop, from 0; the number of steps for the end of the loop.
    pub step: u64,
    /// Index of its pass, from 0.
    pub pass: u32,
    /// Time from the begin of the pass to that of the step.
    pub in_pass_s: Seconds,
}

/// A change of the core time of the steps of a loop that chance hardly explains.
///
/// The means of at most 200 groups of successive steps are replaced by their ranks, so that single long steps have no weight. Three curves
/// are fitted to the ranks by least squares: one level from a step on, another level in an interval, and a straight line; Schwarz's
/// criterion selects one, with the number of independent groups in place of that of all. The test compares the largest deviation
/// of the cumulative sums from the mean (CUSUM: Page, Biometrika 41, 1954; of ranks: Pettitt, Applied Statistics 28, 1979; in an
/// interval: Levin and Kline, Statistics in Medicine 4, 1985) with the long-run variance of the residuals. Its probability is that of
/// Kolmogorov's statistic, or of Kuiper's for an interval, divided by the root of an independent chi-square distribution, as Student's t
/// divides a normal distribution. Steps whose times correlate so much that fewer than four degrees of freedom are left show nothing.
///
/// Of 1,000 loops whose times are a first-order autoregression with a standard deviation of 1 %, a slow-down of 2 % from the middle on is
/// found in these, and, in brackets, a change where there is none:
///
/// | steps | correlation 0 | 0.5 | 0.9 | 0.99 |
/// |---|---|---|---|---|
/// | 40 | 864 (9) | 154 (26) | 12 (11) | 19 (14) |
/// | 100 | 1000 (0) | 710 (16) | 11 (4) | 15 (12) |
/// | 200 | 1000 (0) | 999 (1) | 38 (7) | 10 (6) |
/// | 1,000 | 1000 (0) | 1000 (0) | 844 (2) | 4 (0) |
/// | 5,000 | 1000 (0) | 1000 (0) | 1000 (0) | 75 (0) |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepTimeChange {
    /// How the times changed.
    pub shape: ChangeShape,
    /// The first step with another time.
    pub begin: StepPlace,
    /// The step after the last one with another time.
    pub end: StepPlace,
    /// The mean core time of these steps divided by that of the others, less one; of a drift, that of the last step divided by that of
    /// the first on the fitted line, less one. Positive if steps became slower.
    pub relative_change: f64,
    /// Probability of so large a deviation in steps whose times do not change.
    pub p_value: f64,
}

impl StepTimeChange {
    /// Returns the change of the core times of the steps of a loop, in order; `None` if the test shows none of at least 1 %.
    pub fn of(steps: &[StepTimes]) -> Option<Self> {
        if steps.len() < STEPS_MIN {
            return None;
        }
        let groups = split_evenly(steps, steps.len().min(GROUPS_MAX));
        let means: Vec<f64> = groups.iter().map(|group| mean(group)).collect();
        let LevelFit { fit, p_value } = LevelFit::of(&ranks(&means)).filter(|fit| fit.p_value < SIGNIFICANCE)?;
        let (shape, range) = match fit {
            Fit::Level(from) => (ChangeShape::Level, [boundary(steps, from, groups.len()), steps.len()]),
            Fit::Interval(from, to) => {
                (ChangeShape::Interval, [from, to].map(|group| boundary(steps, group, groups.len())))
            }
            Fit::Drift => (ChangeShape::Drift, [0, steps.len()]),
        };
        let relative_change = match shape {
            ChangeShape::Drift => drift(&means),
            _ => level_change(steps, range),
        };
        let [begin, end] = range.map(|step| StepPlace::of(steps, step));
        let change = StepTimeChange { shape, begin, end, relative_change, p_value };
        (relative_change.abs() >= RELATIVE_CHANGE_MIN).then_some(change)
    }
}

impl StepPlace {
    /// Returns the place of a step of a loop, or of the end of the loop.
    fn of(steps: &[StepTimes], step: usize) -> Self {
        let pass = steps.get(step).or(steps.last()).map_or(0, |step| step.pass);
        let first = steps.partition_point(|step| step.pass < pass);
        // The sum of nothing is -0.
        let in_pass_s = Seconds(0.0) + steps[first..step].iter().map(StepTimes::total).sum::<Seconds>();
        StepPlace { step: step as u64, pass, in_pass_s }
    }
}

fn mean(steps: &[StepTimes]) -> f64 {
    steps.iter().map(|step| step.core_s.0).sum::<f64>() / steps.len() as f64
}

/// Replaces values by their ranks from 0; equal values have the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let (mut ranks, mut first) = (vec![0.0; values.len()], 0);
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = first as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|index| ranks[*index] = rank);
        first += equal.len();
    }
    ranks
}

/// Returns the step at which the times change, near the begin of the group `group` of `groups`: that for which two levels fit best, of the
/// steps in the groups on both sides.
fn boundary(steps: &[StepTimes], group: usize, groups: usize) -> usize {
    let start = |group: usize| group * steps.len() / groups;
    let (first, last) = (start(group.saturating_sub(1)), start((group + 1).min(groups)));
    let (before, after) = (start(group.saturating_sub(5)), start((group + 5).min(groups)));
    let [left, right] = [&steps[before..start(group)], &steps[start(group)..after]].map(mean);
    // The squares of the residuals differ by this much when a step belongs to the left level and not to the right one.
    let cost = |step: &StepTimes| (step.core_s.0 - left).powi(2) - (step.core_s.0 - right).powi(2);
    let (mut best, mut sum) = ((0.0, first), 0.0);
    for (index, step) in steps[first..last].iter().enumerate() {
        sum += cost(step);
        if sum < best.0 {
            best = (sum, first + index + 1);
        }
    }
    best.1
}

/// Returns the mean time of the steps in a range divided by that of the others, less one.
fn level_change(steps: &[StepTimes], [begin, end]: [usize; 2]) -> f64 {
    let sum = |steps: &[StepTimes]| steps.iter().map(|step| step.core_s.0).sum::<f64>();
    let others = (sum(&steps[..begin]) + sum(&steps[end..])) / (steps.len() - (end - begin)) as f64;
    mean(&steps[begin..end]) / others - 1.0
}

/// Returns the last value of a straight line through values at equal distances divided by the first, less one.
fn drift(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (mean, centre) = (values.iter().sum::<f64>() / count, (count - 1.0) / 2.0);
    let products: f64 = values.iter().zip(0..).map(|(value, index)| value * (f64::from(index) - centre)).sum();
    let slope = products / (count * (count * count - 1.0) / 12.0);
    (mean + slope * centre) / (mean - slope * centre) - 1.0
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    /// The number of loops of each kind, which a debug build tests in a few seconds.
    const LOOPS: usize = 100;

    /// Returns steps of 10 ms in passes of 250 steps, with noise of 1 % and a relative change that depends on the place in the loop, from 0 to 1.
    fn steps(noise: &mut Noise, correlation: f64, count: usize, change: impl Fn(f64) -> f64) -> Vec<StepTimes> {
        let times = noise.autoregression(correlation, count);
        let step = |(index, time): (usize, f64)| StepTimes {
            pass: (index / 250) as u32,
            samples: 8,
            core_s: Seconds(0.01 * (1.0 + 0.01 * time + change(index as f64 / count as f64))),
            ..StepTimes::default()
        };
        times.into_iter().enumerate().map(step).collect()
    }

    fn found(correlation: f64, count: usize, change: impl Fn(f64) -> f64 + Copy) -> Vec<StepTimeChange> {
        let mut noise = Noise::new(7);
        (0..LOOPS).filter_map(|_| StepTimeChange::of(&steps(&mut noise, correlation, count, change))).collect()
    }

    fn count(changes: &[StepTimeChange], shape: ChangeShape) -> usize {
        changes.iter().filter(|change| change.shape == shape).count()
    }

    #[test]
    fn a_false_alarm_is_rare_however_the_times_correlate() {
        let alarms = [0.0, 0.5, 0.9, 0.99]
            .map(|correlation| [40, 200, 1000, 3000].map(|count| found(correlation, count, |_| 0.0).len()));
        assert!(alarms.iter().flatten().all(|alarms| *alarms < 5), "{alarms:?}");
    }

    #[test]
    fn a_slow_down_of_two_percent_is_found_where_it_begins() {
        let slower = |place: f64| if place >= 0.6 { 0.02 } else { 0.0 };
        let numbers = [(0.0, 200), (0.5, 200), (0.5, 1000), (0.9, 1000)].map(|(correlation, steps)| {
            let found = found(correlation, steps, slower);
            (found.len(), count(&found, ChangeShape::Level))
        });
        assert!(numbers.iter().zip([100, 95, 100, 70]).all(|((found, _), least)| *found >= least), "{numbers:?}");
        let change = StepTimeChange::of(&steps(&mut Noise::new(3), 0.0, 1000, slower)).unwrap();
        assert_eq!((change.shape, change.begin.pass, change.end.step), (ChangeShape::Level, 2, 1000));
        assert!(change.begin.step.abs_diff(600) <= 5 && (change.relative_change - 0.02).abs() < 2e-3, "{change:?}");
        assert!((change.begin.in_pass_s.0 - 1.0).abs() < 0.06 && change.p_value < 1e-3, "{change:?}");
    }

    #[test]
    fn a_slow_interval_and_a_drift_are_told_from_a_level() {
        let interval = found(0.5, 1000, |place| if (0.3..0.5).contains(&place) { 0.02 } else { 0.0 });
        let drift = found(0.5, 1000, |place| 0.03 * place);
        let numbers = [count(&interval, ChangeShape::Interval), count(&drift, ChangeShape::Drift)];
        assert!(numbers.iter().all(|number| *number >= 95), "{numbers:?}");
        let [begin, end] = [interval[0].begin.step, interval[0].end.step];
        assert!(begin.abs_diff(300) < 15 && end.abs_diff(500) < 15, "{:?}", interval[0]);
        assert!((drift[0].relative_change - 0.03).abs() < 5e-3, "{:?}", drift[0]);
    }

    #[test]
    fn single_long_steps_and_a_pattern_that_each_pass_repeats_are_no_change() {
        let mut long = steps(&mut Noise::new(5), 0.0, 1000, |_| 0.0);
        long[700].core_s = Seconds(5.0);
        long[701].core_s = Seconds(3.0);
        assert_eq!(StepTimeChange::of(&long), None);
        let mut pattern = steps(&mut Noise::new(5), 0.0, 2000, |_| 0.0);
        for (index, step) in pattern.iter_mut().enumerate() {
            step.core_s.0 *= 1.0 + 0.3 * (index % 250) as f64 / 250.0;
        }
        assert_eq!(StepTimeChange::of(&pattern), None);
    }

    #[test]
    fn faster_steps_are_a_change_and_equal_or_few_ones_are_none() {
        let change =
            StepTimeChange::of(&steps(&mut Noise::new(1), 0.0, 400, |place| if place < 0.25 { 0.05 } else { 0.0 }));
        assert!((change.unwrap().relative_change + 0.0476).abs() < 3e-3, "{change:?}");
        assert_eq!(StepTimeChange::of(&[StepTimes { core_s: Seconds(0.1), ..StepTimes::default() }; 300]), None);
        assert_eq!(StepTimeChange::of(&steps(&mut Noise::new(1), 0.0, 39, |place| place)), None);
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
    }
}
