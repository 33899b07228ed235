//! Comparison of two series of times, pair by pair.

use std::collections::BTreeMap;

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};
use statrs::statistics::Statistics;

use flagperf_core::units::Seconds;

/// Ratio of times above which a difference is judged, as in MLPerf's TEST04.
pub(super) const TIME_RATIO: f64 = 1.1;
/// Differences of less than this are not judged, because scheduling and cold caches cause them.
pub const DIFFERENCE_MIN: Seconds = Seconds(5e-4);
/// A tick of the scheduler, as most distributions of Linux set it.
const TICK: Seconds = Seconds(0.004);
/// Delay of one step that the scheduler of a busy machine may cause: a few ticks.
const DELAY_MAX: Seconds = Seconds(0.01);
/// One of so many times, the longest ones, may be delayed without being evidence.
const TIMES_PER_DELAYED: usize = 4;
/// Number of pairs from which a comparison is possible.
pub const PAIRS_MIN: usize = 3;
/// Number of pairs from which an engine that gains only in some steps is found, too.
pub const PAIRS_ENOUGH: usize = 10;

/// A comparison of two series of times, pair by pair.
#[derive(Clone, Copy, Debug)]
pub struct PairedTimes {
    /// Number of pairs.
    pub pairs: usize,
    /// Pairs in which the first time exceeds the second one by the ratio that is judged.
    pub slower: usize,
    /// Ratio of the means.
    pub ratio: f64,
    mean_s: f64,
    other_mean_s: f64,
    median_ratio: f64,
    /// The means without the longest times.
    undelayed_s: f64,
    other_undelayed_s: f64,
    /// Number of steps behind the first times.
    steps: usize,
    /// The probability of such means by chance if the first times were longer by at most [`TIME_RATIO`].
    mean_probability: f64,
}

impl PairedTimes {
    /// Compares times with others; `None` with too few pairs.
    pub fn of(times: &[Seconds], others: &[Seconds]) -> Option<Self> {
        let pairs = times.len().min(others.len());
        let slower = times.iter().zip(others).filter(|(time, other)| time.0 > TIME_RATIO * other.0).count();
        let seconds = |times: &[Seconds]| times[..pairs].iter().map(|time| time.0).collect::<Vec<f64>>();
        let (times, others) = (seconds(times), seconds(others));
        let (mean_s, other_mean_s) = (times.as_slice().mean(), others.as_slice().mean());
        let found = PairedTimes {
            pairs,
            slower,
            ratio: mean_s / other_mean_s,
            mean_s,
            other_mean_s,
            median_ratio: median(&times) / median(&others),
            undelayed_s: undelayed_mean(&times),
            other_undelayed_s: undelayed_mean(&others),
            steps: pairs,
            mean_probability: mean_probability(&times, &others),
        };
        (pairs >= PAIRS_MIN).then_some(found)
    }

    /// Compares times with others by pass; `passes` has the pass of each. All times of a pass share its conditions, so they are
    /// one observation: the median of the first ones, on which a few delays have no effect, and the mean of the others.
    /// `None` with too few passes.
    pub fn by_pass(passes: &[u32], times: &[Seconds], others: &[Seconds]) -> Option<Self> {
        let by_pass = group_by_pass(passes, times, others);
        let (first, second): (Vec<Seconds>, Vec<Seconds>) = by_pass.iter().map(|pass| (pass.time, pass.other)).unzip();
        let steps = by_pass.iter().map(|pass| pass.pairs).sum();
        PairedTimes::of(&first, &second).map(|found| PairedTimes { steps, ..found })
    }

    /// Returns whether the first times are longer, and not by chance. Two tests tell: the sign test, which single delays do
    /// not disturb, and Welch's test of the means, which also finds times of which only some are longer.
    pub fn is_slower(&self, significance: f64) -> bool {
        let chance = Binomial::new(0.5, self.pairs as u64).expect("0.5 is a probability");
        let at_least = self.slower.checked_sub(1).map_or(1.0, |fewer| chance.sf(fewer as u64));
        let by_signs = self.median_ratio > TIME_RATIO && at_least < significance;
        let by_means = self.ratio > TIME_RATIO && self.mean_probability < significance;
        self.mean_s - self.other_mean_s > DIFFERENCE_MIN.0 && (by_signs || by_means)
    }

    /// Returns whether the first times are longer without the longest quarter of both, too. Otherwise, delays by the scheduler
    /// explain the difference. With few steps, each may be delayed.
    pub fn is_lasting(&self) -> bool {
        let least = if self.steps < PAIRS_ENOUGH { DELAY_MAX } else { DIFFERENCE_MIN };
        let (time, other) = (self.undelayed_s, self.other_undelayed_s);
        time > TIME_RATIO * other && time - other > least.0
    }

    /// Returns whether the first times are longer by more than a tick of the scheduler without the longest quarter of both.
    pub fn is_beyond_ticks(&self) -> bool {
        self.undelayed_s - self.other_undelayed_s > TICK.0
    }

    /// Returns the mean of the first times without delays if it is so short that no difference could be judged.
    pub fn too_short(&self) -> Option<Seconds> {
        (self.undelayed_s <= DIFFERENCE_MIN.0).then_some(Seconds(self.undelayed_s))
    }
}

/// The pairs of a pass as one observation.
pub(super) struct PassOfPairs {
    /// The middle of the first times.
    pub(super) time: Seconds,
    /// The mean of the others.
    pub(super) other: Seconds,
    /// Number of pairs.
    pub(super) pairs: usize,
}

/// Returns one observation for each pass.
pub(super) fn group_by_pass(passes: &[u32], times: &[Seconds], others: &[Seconds]) -> Vec<PassOfPairs> {
    let mut grouped: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for ((pass, time), other) in passes.iter().zip(times).zip(others) {
        let (times, others) = grouped.entry(*pass).or_default();
        times.push(time.0);
        others.push(other.0);
    }
    let pass = |(times, others): &(Vec<f64>, Vec<f64>)| PassOfPairs {
        time: Seconds(middle(times)),
        other: Seconds(others.mean()),
        pairs: times.len(),
    };
    grouped.values().map(pass).collect()
}

/// Returns the mean without the longest quarter of the times.
fn undelayed_mean(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.truncate(times.len() - times.len() / TIMES_PER_DELAYED);
    sorted.as_slice().mean()
}

/// Returns the mean of the lower and the upper median of times; NaN without any.
fn middle(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let lower = sorted.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    lower.midpoint(median(times))
}

/// Returns the upper median of times; NaN without any.
pub(super) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the probability of means like these if the mean of `times` were at most [`TIME_RATIO`] times that of `others`:
/// Welch's t-test, with his approximation of the degrees of freedom (Biometrika 34, 1947).
fn mean_probability(times: &[f64], others: &[f64]) -> f64 {
    let count = times.len() as f64;
    let (own, other) = (times.variance() / count, TIME_RATIO.powi(2) * others.variance() / count);
    let difference = times.mean() - TIME_RATIO * others.mean();
    if own + other == 0.0 {
        return if difference > 0.0 { 0.0 } else { 1.0 };
    }
    let freedom = (own + other).powi(2) / ((own.powi(2) + other.powi(2)) / (count - 1.0));
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |chance| chance.sf(difference / (own + other).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(times: &[f64], others: &[f64]) -> PairedTimes {
        let seconds = |times: &[f64]| times.iter().map(|time| Seconds(*time)).collect::<Vec<_>>();
        PairedTimes::of(&seconds(times), &seconds(others)).unwrap()
    }

    #[test]
    fn times_of_which_half_are_short_differ_in_their_mean() {
        let half: Vec<f64> = (0..20).map(|i| if i % 2 == 0 { 1e-4 } else { 0.01 }).collect();
        let found = pairs(&[0.01; 20], &half);
        assert!(found.is_slower(0.01) && found.slower == 10, "{found:?}");
        assert!(!pairs(&half, &half).is_slower(0.05));
    }

    #[test]
    fn a_few_pairs_show_a_large_difference() {
        assert!(pairs(&[0.15, 0.16, 0.17], &[0.001, 0.002, 0.003]).is_slower(1e-3));
        assert!(!pairs(&[0.15, 0.16, 0.17], &[0.15, 0.16, 0.1]).is_slower(0.05));
    }

    #[test]
    fn one_delay_is_not_a_difference() {
        let mut delayed = [0.01; 20];
        delayed[3] = 0.2;
        assert!(!pairs(&delayed, &[0.01; 20]).is_slower(0.05));
    }

    #[test]
    fn a_difference_lasts_if_it_remains_without_the_longest_quarter() {
        let delayed = |count: usize| (0..20).map(|i| if i < count { 8e-3 } else { 2e-4 }).collect::<Vec<f64>>();
        assert!(!pairs(&delayed(5), &[2e-4; 20]).is_lasting());
        assert!(pairs(&delayed(12), &[2e-4; 20]).is_lasting());
        assert!(!pairs(&delayed(12), &[2e-4; 20]).is_beyond_ticks());
        let kept: Vec<f64> = (0..20).map(|i| if i % 5 == 0 { 1e-4 } else { 5e-3 }).collect();
        assert!(pairs(&[5e-3; 20], &kept).is_lasting(), "results that are kept for a fifth");
        assert!(!pairs(&[8e-3; 3], &[2e-4; 3]).is_lasting(), "each of three steps may be delayed");
        assert!(pairs(&[12e-3; 3], &[2e-4; 3]).is_lasting());
    }

    #[test]
    fn the_times_of_a_pass_are_one_observation() {
        let seconds = |times: &[f64]| times.iter().map(|time| Seconds(*time)).collect::<Vec<_>>();
        let (passes, times) = ([0, 0, 0, 1, 1, 2, 2], seconds(&[0.01, 0.2, 0.01, 0.03, 0.01, 0.01, 0.01]));
        let others = seconds(&[0.01, 0.01, 0.01, 0.01, 0.03, 0.01, 0.01]);
        let found = PairedTimes::by_pass(&passes, &times, &others).unwrap();
        assert_eq!((found.pairs, found.slower), (3, 0));
        assert!([found.mean_s, found.other_mean_s].iter().all(|mean| (mean - 0.04 / 3.0).abs() < 1e-12), "{found:?}");
        assert!(PairedTimes::by_pass(&passes[..5], &times, &others).is_none(), "two passes");
    }

    #[test]
    fn the_probability_is_that_of_welchs_test() {
        // The upper tail at t = 2.92494 with 5.35283 degrees of freedom, by numerical integration of the density.
        let found = mean_probability(&[3.0, 4.0, 5.0, 6.0], &[1.0, 2.0, 3.0, 2.0]);
        assert!((found - 0.015_130).abs() < 1e-5, "{found}");
    }
}
