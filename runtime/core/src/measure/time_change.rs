//! A lasting change in a series of times: a step to another level, a slower interval, or a drift.
//!
//! Says that and where the times changed, never why.

use serde::{Deserialize, Serialize};

use super::level_fit::{Fit, LevelFit};
use crate::units::Seconds;

/// Largest probability of a test by which times that do not change seem to change.
const SIGNIFICANCE: f64 = 0.01;
/// Smallest relative change that is reported.
const RELATIVE_CHANGE_MIN: f64 = 0.01;
/// Fewest times in which a change is looked for.
const TIMES_MIN: usize = 40;
/// Fewest groups whose means are compared.
const GROUPS_MIN: usize = 20;
/// Largest number of groups of successive times whose means are compared. Changes that last less than a twentieth of the series are not
/// found.
const GROUPS_MAX: usize = 200;

/// How times changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeShape {
    /// From one of them on, to the end of the series.
    Level,
    /// In an interval, before and after which the times are the same.
    Interval,
    /// Steadily from the first to the last.
    Drift,
}

/// A change in a series of times that chance hardly explains.
///
/// The means of at most 200 groups of successive times are replaced by their ranks, so that single long times have no weight. Three curves
/// are fitted to the ranks by least squares: one level from a place on, another level in an interval, and a straight line; Schwarz's
/// criterion selects one, with the number of independent groups in place of that of all. The test compares the largest deviation
/// of the cumulative sums from the mean (CUSUM: Page, Biometrika 41, 1954; of ranks: Pettitt, Applied Statistics 28, 1979; in an
/// interval: Levin and Kline, Statistics in Medicine 4, 1985) with the long-run variance of the residuals. Its probability is that of
/// Kolmogorov's statistic, or of Kuiper's for an interval, divided by the root of an independent chi-square distribution, as Student's t
/// divides a normal distribution. Times that correlate so much that fewer than four degrees of freedom are left show nothing.
///
/// Of 1,000 series that are a first-order autoregression with a standard deviation of 1 %, a slow-down of 2 % from the middle on is
/// found in these, and, in brackets, a change where there is none:
///
/// | times | correlation 0 | 0.5 | 0.9 | 0.99 |
/// |---|---|---|---|---|
/// | 40 | 864 (9) | 154 (26) | 12 (11) | 19 (14) |
/// | 100 | 1000 (0) | 710 (16) | 11 (4) | 15 (12) |
/// | 200 | 1000 (0) | 999 (1) | 38 (7) | 10 (6) |
/// | 1,000 | 1000 (0) | 1000 (0) | 844 (2) | 4 (0) |
/// | 5,000 | 1000 (0) | 1000 (0) | 1000 (0) | 75 (0) |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TimeChange {
    /// How the times changed.
    pub shape: ChangeShape,
    /// Index of the first other time.
    pub begin: u64,
    /// Index after the last other time.
    pub end: u64,
    /// The mean of these times divided by that of the others, less one; of a drift, the last value of the fitted line divided by the
    /// first, less one. Positive if times became longer.
    pub relative_change: f64,
    /// Probability of so large a deviation in times that do not change.
    pub p_value: f64,
}

impl TimeChange {
    /// Returns the change in a series of times; `None` if the test shows none of at least 1 %.
    pub fn of(times: &[Seconds]) -> Option<Self> {
        let groups = times.len().min(GROUPS_MAX);
        TimeChange::of_groups(times, &(0..=groups).map(|group| group * times.len() / groups.max(1)).collect::<Vec<_>>())
    }

    /// Returns the change in a series of times, each of which began at the moment with its index, in the order of the moments. The groups
    /// of times whose means are compared have the same duration: of an interval in which each query waits for a slow one before it,
    /// as many are compared as of others, although it has few queries.
    pub fn over_time(times: &[Seconds], moments: &[Seconds]) -> Option<Self> {
        let (first, last) = (moments.first()?.0, moments.last()?.0);
        let groups = times.len().min(GROUPS_MAX);
        let group = |moment: &Seconds| ((moment.0 - first) / (last - first) * groups as f64) as usize;
        let is_start = |at: &usize| *at == 0 || group(&moments[*at]) > group(&moments[*at - 1]);
        let starts: Vec<usize> = (0..times.len()).filter(is_start).chain([times.len()]).collect();
        TimeChange::of_groups(times, &starts)
    }

    /// Returns the change in times in groups, given the index of the first time of each group and the number of all times.
    fn of_groups(times: &[Seconds], starts: &[usize]) -> Option<Self> {
        if times.len() < TIMES_MIN || starts.len() <= GROUPS_MIN {
            return None;
        }
        let means: Vec<f64> = starts.windows(2).map(|group| mean(&times[group[0]..group[1]])).collect();
        let LevelFit { fit, p_value } = LevelFit::of(&ranks(&means)).filter(|fit| fit.p_value < SIGNIFICANCE)?;
        let (shape, range) = match fit {
            Fit::Level(from) => (ChangeShape::Level, [boundary(times, from, starts), times.len()]),
            Fit::Interval(from, to) => (ChangeShape::Interval, [from, to].map(|group| boundary(times, group, starts))),
            Fit::Drift => (ChangeShape::Drift, [0, times.len()]),
        };
        let relative_change = match shape {
            ChangeShape::Drift => drift(&means),
            _ => level_change(times, range),
        };
        let [begin, end] = range.map(|place| place as u64);
        let change = TimeChange { shape, begin, end, relative_change, p_value };
        // Times of zero have no relative change.
        (relative_change.is_finite() && relative_change.abs() >= RELATIVE_CHANGE_MIN).then_some(change)
    }
}

fn mean(times: &[Seconds]) -> f64 {
    times.iter().map(|time| time.0).sum::<f64>() / times.len() as f64
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

/// Returns the place at which the times change, near the begin of the group `group`: that for which two levels fit best, of the times in
/// the groups on both sides.
fn boundary(times: &[Seconds], group: usize, starts: &[usize]) -> usize {
    let groups = starts.len() - 1;
    let start = |group: usize| starts[group];
    let (first, last) = (start(group.saturating_sub(1)), start((group + 1).min(groups)));
    let (before, after) = (start(group.saturating_sub(5)), start((group + 5).min(groups)));
    let [left, right] = [&times[before..start(group)], &times[start(group)..after]].map(mean);
    // The squares of the residuals differ by this much when a time belongs to the left level and not to the right one.
    let cost = |time: &Seconds| (time.0 - left).powi(2) - (time.0 - right).powi(2);
    let (mut best, mut sum) = ((0.0, first), 0.0);
    for (index, time) in times[first..last].iter().enumerate() {
        sum += cost(time);
        if sum < best.0 {
            best = (sum, first + index + 1);
        }
    }
    best.1
}

/// Returns the mean of the times in a range divided by that of the others, less one.
fn level_change(times: &[Seconds], [begin, end]: [usize; 2]) -> f64 {
    let sum = |times: &[Seconds]| times.iter().map(|time| time.0).sum::<f64>();
    let others = (sum(&times[..begin]) + sum(&times[end..])) / (times.len() - (end - begin)) as f64;
    mean(&times[begin..end]) / others - 1.0
}

/// Returns the last value of a straight line through values at equal distances divided by the first, less one. Where the line leaves the
/// range of the values, its end is that of the range: a line through times that grow faster and faster begins below zero.
fn drift(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (mean, centre) = (values.iter().sum::<f64>() / count, (count - 1.0) / 2.0);
    let products: f64 = values.iter().zip(0..).map(|(value, index)| value * (f64::from(index) - centre)).sum();
    let slope = products / (count * (count * count - 1.0) / 12.0);
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0f64), |(a, b), value| (a.min(*value), b.max(*value)));
    let [first, last] = [-1.0, 1.0].map(|end| (mean + end * slope * centre).clamp(least, most));
    last / first - 1.0
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    #[test]
    fn equal_values_have_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
    }

    /// The moments that have these distances, from 0 on.
    fn moments(distances: impl Iterator<Item = f64>) -> Vec<Seconds> {
        let mut now = 0.0;
        let next = |distance: f64| {
            now += distance;
            Seconds(now - distance)
        };
        distances.map(next).collect()
    }

    #[test]
    fn a_slow_interval_is_found_although_it_has_few_times() {
        // One after the other, 10 s of 1 ms and then 4 s of 200 ms, and 10 s of 1 ms again.
        let slow = |n: u32| (10_000..10_020).contains(&n);
        let times: Vec<Seconds> =
            (0..20_020u32).map(|n| Seconds(if slow(n) { 0.2 } else { 0.001 } + 1e-5 * f64::from(n * 7 % 11))).collect();
        let moments = moments(times.iter().map(|time| time.0));
        assert_eq!(TimeChange::of(&times), None, "a thousandth of the times");
        let change = TimeChange::over_time(&times, &moments).unwrap();
        assert_eq!((change.shape, change.begin, change.end), (ChangeShape::Interval, 10_000, 10_020));
        assert!(change.relative_change > 100.0, "{change:?}");
        assert_eq!(TimeChange::over_time(&times[..9000], &moments[..9000]), None);
        assert_eq!(TimeChange::over_time(&[Seconds(1.0); 50], &[Seconds(0.0); 50]), None, "all at once");
    }

    #[test]
    fn times_that_do_not_change_and_begin_at_random_moments_rarely_seem_to() {
        let mut noise = Noise::new(7);
        let found = (0..500).filter(|_| {
            let moments = moments((0..2000).map(|_| noise.normal().abs()));
            let times: Vec<Seconds> = moments.iter().map(|_| Seconds(1.0 + 0.1 * noise.normal().abs())).collect();
            TimeChange::over_time(&times, &moments).is_some()
        });
        let found = found.count();
        assert!(found <= 5, "{found} of 500");
    }

    #[test]
    fn times_that_grow_faster_and_faster_become_longer() {
        let times: Vec<Seconds> = (1..=400u32).map(|n| Seconds(f64::from(n).powi(4))).collect();
        let change = TimeChange::of(&times).unwrap();
        assert!(change.relative_change > 1.0 && change.relative_change.is_finite(), "{change:?}");
        let zeros: Vec<Seconds> = (0..400u32).map(|n| Seconds(f64::from(n / 200))).collect();
        assert_eq!(TimeChange::of(&zeros), None);
    }
}
