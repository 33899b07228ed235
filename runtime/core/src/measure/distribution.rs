//! The distribution of times without the times themselves: counts in buckets whose width is a share of their time.

/// Bits of a float's fraction that tell its bucket, in a fine distribution: the buckets of one power of two are 2^14, and each is narrower
/// than a ten-thousandth of its time.
const FINE_BITS: u32 = 14;
/// The same in a coarse distribution, whose buckets are narrower than a thousandth of their time.
const COARSE_BITS: u32 = 10;
/// The shortest and the longest time of their own, in seconds: a shorter or longer one counts as these.
const SHORTEST: f64 = 1e-9;
const LONGEST: f64 = 1e6;
/// The resolution of the clock in seconds.
const CLOCK_S: f64 = 1e-9;

/// Counts times.
#[derive(Clone, Debug)]
pub struct Distribution {
    fraction_bits: u32,
    counts: Vec<u32>,
    total: u64,
    min: f64,
    max: f64,
}

/// A bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Where it begins, in seconds.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// The number of times in it.
    pub count: u64,
}

impl Distribution {
    /// Creates a distribution of 3 MB whose figures hardly differ from those of the times.
    pub fn fine() -> Self {
        Self::with_bits(FINE_BITS)
    }

    /// Creates a distribution of 200 kB, for a chart that is drawn again and again.
    pub fn coarse() -> Self {
        Self::with_bits(COARSE_BITS)
    }

    fn with_bits(fraction_bits: u32) -> Self {
        let counts = vec![0; index(LONGEST, fraction_bits) + 1];
        Distribution { fraction_bits, counts, total: 0, min: f64::INFINITY, max: 0.0 }
    }

    /// Adds a time in seconds, which must be a number.
    pub fn add(&mut self, time: f64) {
        let count = &mut self.counts[index(time, self.fraction_bits)];
        *count = count.saturating_add(1);
        self.total += 1;
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    /// Returns the number of times.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the shortest and the longest time.
    pub fn range(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// Returns the time that this share of all times does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let due = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (index, count) in self.counts.iter().enumerate() {
            sum += u64::from(*count);
            if sum >= due {
                return middle(index, self.fraction_bits).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Returns at most `bins_max` bars from the shortest time to `high`, which are not narrower than what the clock and the buckets resolve,
    /// and the number of times beyond `high`.
    pub fn bins(&self, high: f64, bins_max: usize) -> (Vec<Bin>, u64) {
        let low = self.min;
        let resolution = 4.0 * CLOCK_S.max(high * f64::from(self.fraction_bits).exp2().recip());
        let number = (((high - low) / resolution) as usize).clamp(1, bins_max);
        let width = ((high - low) / number as f64).max(resolution);
        let bin =
            |index: usize| Bin { from: low + width * index as f64, to: low + width * (index + 1) as f64, count: 0 };
        let mut bins: Vec<Bin> = (0..number).map(bin).collect();
        let mut beyond = 0;
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let time = middle(index, self.fraction_bits).clamp(self.min, self.max);
            let place = ((time - low) / width) as usize;
            match bins.get_mut(place.min(if time <= high { number - 1 } else { number })) {
                Some(bin) => bin.count += u64::from(*count),
                None => beyond += u64::from(*count),
            }
        }
        (bins, beyond)
    }

    /// Returns the end of the axis of time, beyond which a few took very much longer than the others.
    pub fn longest_shown(&self) -> f64 {
        let (low, high) = (self.quantile(0.1), self.quantile(0.9));
        let usual = (high + 3.0 * (high - low)).max(self.quantile(0.98));
        if usual < self.max { usual } else { self.max }
    }

    /// Returns at most `bars_max` bars of a histogram, and the number of times beyond the end of the axis. Few times have fewer bars,
    /// which would be of one time each.
    pub fn histogram(&self, bars_max: usize) -> (Vec<Bin>, u64) {
        let enough = (2.0 * (self.total as f64).sqrt()) as usize;
        self.bins(self.longest_shown(), enough.clamp(1, bars_max))
    }
}

/// Returns the number of the lowest bits of a float that do not tell its bucket.
fn shift(fraction_bits: u32) -> u32 {
    f64::MANTISSA_DIGITS - 1 - fraction_bits
}

/// Returns the bucket of a time.
fn index(time: f64, fraction_bits: u32) -> usize {
    let key = |time: f64| (time.clamp(SHORTEST, LONGEST).to_bits() >> shift(fraction_bits)) as usize;
    key(time) - key(SHORTEST)
}

/// Returns the time in the middle of a bucket.
fn middle(index: usize, fraction_bits: u32) -> f64 {
    let shift = shift(fraction_bits);
    let bits = ((SHORTEST.to_bits() >> shift) + index as u64) << shift;
    f64::from_bits(bits + (1 << (shift - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = f64>) -> Distribution {
        with(Distribution::fine(), times)
    }

    fn with(mut found: Distribution, times: impl IntoIterator<Item = f64>) -> Distribution {
        times.into_iter().for_each(|time| found.add(time));
        found
    }

    #[test]
    fn quantiles_are_within_a_ten_thousandth_of_the_exact_ones() {
        let found = of((1..=100_000).map(|index| 1e-3 + f64::from(index) * 1e-7));
        for (share, exact) in [(0.5, 6.0e-3), (0.9, 10.0e-3), (0.999, 10.99e-3), (1.0, 11.0e-3)] {
            let quantile = found.quantile(share);
            assert!((quantile / exact - 1.0).abs() < 1e-4, "{share}: {quantile}");
        }
        assert_eq!(found.range(), (1e-3 + 1e-7, 1e-3 + 1e-2));
    }

    #[test]
    fn quantiles_of_a_coarse_distribution_are_within_a_thousandth_of_the_exact_ones() {
        let found = with(Distribution::coarse(), (1..=1000).map(|index| 1e-3 + f64::from(index) * 1e-5));
        for (share, exact) in [(0.5, 6.0e-3), (0.9, 10.0e-3), (1.0, 11.0e-3)] {
            assert!((found.quantile(share) / exact - 1.0).abs() < 1e-3, "{share}: {}", found.quantile(share));
        }
    }

    #[test]
    fn every_time_is_in_a_bar_or_beyond_them() {
        let found = of((0..1000).map(|index| 0.010 + f64::from(index % 100) * 1e-5).chain([5.0, 7.0]));
        let (bins, beyond) = found.bins(0.011, 40);
        assert_eq!((bins.len(), beyond), (40, 2));
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 1000);
        assert!(bins.iter().all(|bin| bin.count > 0), "{bins:?}");
    }

    #[test]
    fn equal_and_impossible_times_have_bars() {
        let (bins, beyond) = of([0.25, 0.25]).bins(0.25, 40);
        assert_eq!((bins.len(), bins[0].count, beyond), (1, 2, 0));
        let found = of([0.0, 1e-12, 1e9]);
        assert_eq!(found.total(), 3);
        assert!(found.quantile(0.5) >= 0.0);
    }
}
