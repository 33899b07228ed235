//! Comparison of two series of times, pair by pair.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::units::Seconds;

/// Ratio of times above which a difference is judged, as in MLPerf's TEST04.
const TIME_RATIO: f64 = 1.1;
/// Differences of less than this are not judged, because scheduling and cold caches cause them.
pub const DIFFERENCE_MIN: Seconds = Seconds(5e-4);
/// Number of pairs from which a comparison is possible.
pub const PAIRS_MIN: usize = 10;

/// A comparison of two series of times, pair by pair.
#[derive(Clone, Copy, Debug)]
pub struct PairedTimes {
    /// Number of pairs.
    pub pairs: usize,
    /// Pairs in which the first time exceeds the second one by the ratio that is judged.
    pub slower: usize,
    /// Ratio of the medians.
    pub ratio: f64,
    median_s: f64,
    other_median_s: f64,
}

impl PairedTimes {
    /// Compares times with others; `None` with too few pairs.
    pub fn of(times: &[Seconds], others: &[Seconds]) -> Option<Self> {
        let pairs = times.len().min(others.len());
        let slower = times.iter().zip(others).filter(|(time, other)| time.0 > TIME_RATIO * other.0).count();
        let (median_s, other_median_s) = (median(&times[..pairs]), median(&others[..pairs]));
        let found = PairedTimes { pairs, slower, ratio: median_s / other_median_s, median_s, other_median_s };
        (pairs >= PAIRS_MIN).then_some(found)
    }

    /// Returns whether the first times are longer, and not by chance: if both were equally likely to be the longer one of a
    /// pair, so many would be longer with a probability below `significance` (the sign test).
    pub fn is_slower(&self, significance: f64) -> bool {
        let chance = Binomial::new(0.5, self.pairs as u64).expect("0.5 is a probability");
        let at_least = self.slower.checked_sub(1).map_or(1.0, |fewer| chance.sf(fewer as u64));
        let difference_s = self.median_s - self.other_median_s;
        self.ratio > TIME_RATIO && difference_s > DIFFERENCE_MIN.0 && at_least < significance
    }

    /// Returns the median of the first times if it is so short that no difference could be judged.
    pub fn too_short(&self) -> Option<Seconds> {
        (self.median_s <= DIFFERENCE_MIN.0).then_some(Seconds(self.median_s))
    }
}

/// Returns the upper median of times; NaN without any.
fn median(times: &[Seconds]) -> f64 {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
