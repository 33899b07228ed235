//! Upper bounds of latency percentiles that hold for an endless run, as MLPerf's LoadGen computes them.

use serde::{Deserialize, Serialize};
use statrs::function::factorial::ln_binomial;

use super::StepTimes;
use crate::units::Seconds;

/// Confidence of a bound: c in MLPerf's rules.
const CONFIDENCE: f64 = 0.99;

/// Bounds of percentiles of the core time of a step: with 99 % confidence, at least this share of all steps of an endless
/// run takes at most this long. `None` when there are too few steps for the percentile (64 for p90, 662 for p99).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct LatencyBounds {
    /// Bound of the 90th percentile.
    pub p90_s: Option<Seconds>,
    /// Bound of the 99th percentile.
    pub p99_s: Option<Seconds>,
}

impl LatencyBounds {
    /// Returns the bounds for the core times of these steps.
    pub fn of(steps: &[StepTimes]) -> Self {
        let mut sorted: Vec<Seconds> = steps.iter().map(|step| step.core_s).collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let bound = |percentile| early_stopping_estimate(&sorted, percentile);
        LatencyBounds { p90_s: bound(0.9), p99_s: bound(0.99) }
    }
}

/// Returns MLPerf's early-stopping estimate of a percentile (a share such as 0.9) from latencies in ascending order:
/// the largest t is found for which t of n latencies may be above the percentile at 99 % confidence (d = 0), and the
/// t-th largest latency is the estimate. `None` when even the largest latency is no bound.
///
/// Source: MLPerf Inference Rules, appendix "Early Stopping Criterion"; `early_stopping.cc` in LoadGen.
pub fn early_stopping_estimate(sorted: &[Seconds], percentile: f64) -> Option<Seconds> {
    let above = over_bound_max(sorted.len() as u64, percentile).unwrap_or(0);
    let position = sorted.len().checked_sub(usize::try_from(above).ok()?)?;
    sorted.get(position).copied()
}

/// Returns the largest number of `total` latencies that may exceed a bound if they are to prove, at 99 % confidence, that the bound
/// holds for the percentile; `None` when so few prove nothing.
pub fn over_bound_max(total: u64, percentile: f64) -> Option<u64> {
    // The condition holds for every smaller number if it holds for one.
    let (mut low, mut high) = (0, total);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if proves_percentile(total, middle, percentile) { low = middle } else { high = middle - 1 }
    }
    proves_percentile(total, low, percentile).then_some(low)
}

/// Returns the smallest number of latencies with which a percentile has an estimate: 64 for p90, 662 for p99.
pub fn queries_needed(percentile: f64) -> u64 {
    let (mut low, mut high) = (1, 1);
    while !proves_percentile(high, 1, percentile) {
        (low, high) = (high + 1, high * 2);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if proves_percentile(middle, 1, percentile) { high = middle } else { low = middle + 1 }
    }
    high
}

/// Returns whether `total` latencies of which `above` exceed a bound prove, at 99 % confidence, that the bound holds for
/// the percentile: the probability of at most `above` of them, if exactly `1 - percentile` of all latencies exceeded the
/// bound, is below 1 %. This is I(percentile; total − above, above + 1), the regularized incomplete beta function.
pub(super) fn proves_percentile(total: u64, above: u64, percentile: f64) -> bool {
    above as f64 <= total as f64 * (1.0 - percentile) && binomial_cdf(above, total, percentile) < 1.0 - CONFIDENCE
}

/// Returns the probability of at most `successes` of `trials`, each of which fails with the probability `failure`, for
/// `successes` up to the expected number: below it, each term is smaller than the next, so that the sum ends early.
fn binomial_cdf(successes: u64, trials: u64, failure: f64) -> f64 {
    let success = 1.0 - failure;
    let failures = trials - successes;
    let log = ln_binomial(trials, successes) + successes as f64 * success.ln() + failures as f64 * failure.ln();
    let mut term = log.exp();
    let mut sum = term;
    for k in (1..=successes).rev() {
        term *= k as f64 * failure / ((trials - k + 1) as f64 * success);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    /// The smallest number of latencies for which 0, 1, 2, 3, 5, 10, 20 and 50 may be above the percentile. The entries 64
    /// and 662 are published by MLPerf (mlperf.conf).
    const TOTALS: [(f64, [u64; 8]); 5] = [
        (0.90, [44, 64, 81, 97, 127, 197, 325, 681]),
        (0.95, [90, 130, 165, 198, 259, 398, 656, 1372]),
        (0.97, [152, 219, 277, 332, 433, 667, 1097, 2293]),
        (0.99, [459, 662, 838, 1001, 1307, 2010, 3304, 6898]),
        (0.999, [4603, 6636, 8403, 10042, 13105, 20140, 33097, 69058]),
    ];

    fn latencies(count: u64) -> Vec<Seconds> {
        (1..=count).map(|value| Seconds(value as f64)).collect()
    }

    #[test]
    fn the_smallest_numbers_of_latencies_are_those_of_mlperf() {
        for (percentile, totals) in TOTALS {
            for (above, total) in [0, 1, 2, 3, 5, 10, 20, 50].into_iter().zip(totals) {
                assert!(proves_percentile(total, above, percentile), "{percentile} {above} {total}");
                assert!(!proves_percentile(total - 1, above, percentile), "{percentile} {above} {total}");
            }
        }
    }

    #[test]
    fn the_numbers_that_are_needed_and_allowed_are_those_of_mlperf() {
        for (percentile, totals) in TOTALS {
            assert_eq!(queries_needed(percentile), totals[1], "{percentile}");
            for (above, total) in [0, 1, 2, 3, 5, 10, 20, 50].into_iter().zip(totals) {
                assert_eq!(over_bound_max(total, percentile), Some(above), "{percentile} {total}");
            }
            assert_eq!(over_bound_max(totals[0] - 1, percentile), None);
        }
    }

    #[test]
    fn the_estimate_discards_all_but_one_of_the_latencies_that_may_be_above() {
        for (percentile, totals) in TOTALS {
            for (above, total) in [1, 2, 3, 5, 10, 20, 50].into_iter().zip(&totals[1..]) {
                let estimate = early_stopping_estimate(&latencies(*total), percentile).unwrap();
                assert_eq!(estimate, Seconds((total - above + 1) as f64), "{percentile} {above}");
            }
        }
    }

    #[test]
    fn with_too_few_latencies_there_is_no_estimate() {
        assert_eq!(early_stopping_estimate(&[], 0.9), None);
        assert_eq!(early_stopping_estimate(&latencies(63), 0.9), None);
        assert_eq!(early_stopping_estimate(&latencies(661), 0.99), None);
        let steps = vec![StepTimes { core_s: Seconds(0.5), ..StepTimes::default() }; 64];
        assert_eq!(LatencyBounds::of(&steps), LatencyBounds { p90_s: Some(Seconds(0.5)), p99_s: None });
    }

    #[test]
    fn the_probability_is_that_of_the_binomial_distribution() {
        for (above, total, percentile) in [(0, 44, 0.9), (3, 100, 0.95), (40, 1000, 0.95), (9, 1000, 0.99)] {
            let expected = Binomial::new(1.0 - percentile, total).unwrap().cdf(above);
            let found = binomial_cdf(above, total, percentile);
            assert!((found / expected - 1.0).abs() < 1e-9, "{above} of {total}: {found} {expected}");
        }
    }

    #[test]
    fn the_estimate_of_millions_of_latencies_is_close_to_their_percentile() {
        let count = 4_000_000;
        let estimate = early_stopping_estimate(&latencies(count), 0.99).unwrap().0 / count as f64;
        assert!(estimate > 0.99 && estimate < 0.9902, "{estimate}");
    }
}
