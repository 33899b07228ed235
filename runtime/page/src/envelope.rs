//! A series of any length as a few hundred buckets, each with the smallest and the largest value and the mean, so that no peak is lost.

/// What a bucket contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bucket {
    /// The middle of the bucket on the axis.
    pub(super) at: f64,
    /// The smallest value.
    pub(super) min: f64,
    /// The largest value.
    pub(super) max: f64,
    /// The mean of the values.
    pub(super) mean: f64,
    /// How many values there are.
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    min: f64,
    max: f64,
    sum: f64,
    count: u64,
}

const EMPTY: Sum = Sum { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, count: 0 };

impl Sum {
    fn add(&mut self, other: Sum) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }
}

/// Largest number that is drawn: the range of two such numbers is still a number.
const LARGEST: f64 = 1e300;

/// Returns whether a number can be drawn.
pub(super) fn is_drawable(value: f64) -> bool {
    value.abs() <= LARGEST
}

/// Collects a series. Where the series is longer than its buckets, each two of them become one.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    begin: f64,
    width: f64,
    sums: Vec<Sum>,
    buckets_max: usize,
}

impl Envelope {
    /// Creates an empty series from `begin` on the axis, with at most `buckets_max` buckets that are at least `width` wide.
    pub(super) fn new(begin: f64, width: f64, buckets_max: usize) -> Self {
        Envelope { begin, width, sums: Vec::new(), buckets_max }
    }

    /// Adds a value. One that cannot be drawn, or lies before the beginning, is left out.
    pub(super) fn add(&mut self, at: f64, value: f64) {
        if !is_drawable(value) || !is_drawable(at) || at < self.begin {
            return;
        }
        let mut index = (at - self.begin) / self.width;
        while index >= self.buckets_max as f64 {
            self.halve();
            index = (at - self.begin) / self.width;
        }
        let index = index as usize;
        if index >= self.sums.len() {
            self.sums.resize(index + 1, EMPTY);
        }
        self.sums[index].add(Sum { min: value, max: value, sum: value, count: 1 });
    }

    fn halve(&mut self) {
        for index in 0..self.sums.len().div_ceil(2) {
            let mut sum = self.sums[2 * index];
            if let Some(second) = self.sums.get(2 * index + 1) {
                sum.add(*second);
            }
            self.sums[index] = sum;
        }
        self.sums.truncate(self.sums.len().div_ceil(2));
        self.width *= 2.0;
    }

    /// Returns the same series with at most `buckets_max` buckets.
    #[must_use]
    pub(super) fn coarser(&self, buckets_max: usize) -> Self {
        let mut coarse = Envelope { buckets_max, ..self.clone() };
        while coarse.sums.len() > buckets_max {
            coarse.halve();
        }
        coarse
    }

    /// Returns the buckets that have values.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let bucket = |(index, sum): (usize, &Sum)| {
            let at = self.begin + self.width * (index as f64 + 0.5);
            let mean = sum.sum / sum.count as f64;
            (sum.count > 0).then_some(Bucket { at, min: sum.min, max: sum.max, mean, count: sum.count })
        };
        self.sums.iter().enumerate().filter_map(bucket).collect()
    }

    /// Returns half of the width of a bucket.
    pub(super) fn half_width(&self) -> f64 {
        self.width / 2.0
    }

    /// Returns the most buckets that it has.
    pub(super) fn capacity(&self) -> usize {
        self.buckets_max
    }

    /// Returns whether there are values at two places, between which a line can be drawn.
    pub(super) fn is_line(&self) -> bool {
        self.sums.iter().filter(|sum| sum.count > 0).nth(1).is_some()
    }

    /// Returns whether there is no value.
    pub(super) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the range of the values.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let all = self.sums.iter().fold(EMPTY, |mut all, sum| {
            all.add(*sum);
            all
        });
        (all.count > 0).then_some((all.min, all.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peak_is_lost_and_the_mean_is_that_of_all_values() {
        let mut series = Envelope::new(10.0, 1e-6, 100);
        for index in 0..1_000_000 {
            let value = if index == 654_321 { 99.0 } else { 1.0 + f64::from(index % 2) };
            series.add(10.0 + f64::from(index) * 1e-3, value);
        }
        for series in [series.clone(), series.coarser(10)] {
            let buckets = series.buckets();
            assert!(buckets.len() <= series.buckets_max && 2 * buckets.len() >= series.buckets_max);
            assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1_000_000);
            let peak: Vec<_> = buckets.iter().filter(|bucket| bucket.max == 99.0).collect();
            let [peak] = &peak[..] else { panic!("one bucket has the peak: {peak:?}") };
            assert!((peak.at - 10.0 - 654.321).abs() <= series.width && peak.min == 1.0);
            let sum: f64 = buckets.iter().map(|bucket| bucket.mean * bucket.count as f64).sum();
            assert!((sum - 1_500_097.0).abs() < 1.1, "{sum}");
            assert_eq!(series.range(), Some((1.0, 99.0)));
        }
    }

    #[test]
    fn values_that_cannot_be_drawn_are_left_out() {
        let mut series = Envelope::new(0.0, 1.0, 4);
        for (at, value) in [(0.0, f64::NAN), (0.0, -1e301), (-1.0, 1.0), (f64::INFINITY, 1.0), (f64::NAN, 1.0)] {
            series.add(at, value);
        }
        assert!(series.is_empty() && series.range().is_none());
    }
}
